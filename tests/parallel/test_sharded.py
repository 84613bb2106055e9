"""fsdp: the numbers of one process, from shards; what each process holds, and what stops all."""

import json
import os

import pytest
import torch
import torch.distributed as dist
from parallel.forked_ranks import Ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from training.tiny_task import TinyConfig, TinyData, TinyModel, TinyTask

from clearhead.data.batch import IGNORE, Batch
from clearhead.models import GPT, GPTConfig
from clearhead.models.model import evaluation_mode
from clearhead.parallel.group import join_group
from clearhead.parallel.meeting import NoAnswer
from clearhead.parallel.sharded import Sharded, find_rows
from clearhead.runtime import read_place
from clearhead.training.gradient import Gradients
from clearhead.training.loop import Training
from clearhead.training.losses import mean_cross_entropy
from clearhead.training.optimizer import orthogonalise
from clearhead.training.recipe import Recipe, TrainingConfig

SIZE = 3
PLANS = ([3, 1, 4, 15, 9, 2, 6], [5, 0], [8])  # 7 examples, 2 and 1 for three processes
STEPS = [[PLANS[0]], [PLANS[1]], [PLANS[2]], list(PLANS)]
OPTIMIZERS = ("adamw", "sgd", "muon")


class Sentences(TinyTask):
    """The next of three tokens, by a small GPT; some tokens do not count.

    The head is the embedding, the positions are not learned, and the loss calls the model in
    pieces. No size is a multiple of three.
    """

    def build(self, config):
        model = GPT(config)
        model.positions.weight.requires_grad_(False)
        for parameter in model.parameters():  # larger gradients, whose rounding matters less
            nn.init.normal_(parameter)
        return model

    def batch(self, plan):
        tokens = self.tokens[torch.as_tensor(plan)]
        targets = tokens[:, 1:].clone()
        return Batch(tokens[:, :-1], targets.masked_fill((targets > 4) & (targets != 6), IGNORE))

    def loss(self, model, batch):
        return mean_cross_entropy(model.head(model.hidden(batch.inputs)), batch.targets)


class Normed(TinyTask):
    """A model with batch norm, and with a buffer of its own that moves."""

    def build(self, config):
        model = TinyModel(config)
        del model.idle
        model.inner = nn.Sequential(model.inner, nn.BatchNorm1d(config.d_model + 1))
        model.table.fill_(0.9211243391036987)  # the mean of three such numbers is another one
        return model


def make_training(group=None, task=Sentences, dropout=0.0, seed=0, **settings):
    if task is Sentences:
        sizes = {"vocab_size": 7, "max_len": 4, "d_model": 10, "n_layers": 2, "n_heads": 2}
        # The gradient of a bias of keys is 0 but for rounding, of which AdamW would make steps.
        model = GPTConfig(**sizes, d_ff=11, dropout=dropout, attention_bias=False)
    else:
        model = TinyConfig(d_model=5, dropout=dropout)
    parallel = None if group is None else "fsdp"
    wanted = {"batch_size": 5, "lr": 0.05, "eval_every": 99, "weight_decay": 0.1, **settings}
    config = TrainingConfig(steps=99, parallel=parallel, seed=seed, **wanted)
    return Training(Recipe("tiny", TinyData(), model, config), task(TinyData()), group=group)


def learn_once(training, plans):
    parts = training.gradients.split(plans)
    return training.gradients.learn(parts, training.make_batch, 0)


def make_steps(training, n=4):
    """The weights after some steps, whole."""
    for _ in range(n):
        training.update(training.next_plans())
        training.state.step += 1
    return read_whole(training.model.state_dict())


def read_whole(tensors):
    whole = {n: t.full_tensor() if isinstance(t, DTensor) else t for n, t in tensors.items()}
    return {name: tensor.tolist() for name, tensor in whole.items()}


# In the process of a rank


def work(folder, size):
    def run(rank):
        with join_group("fsdp", torch.device("cpu"), read_place()) as group:
            found = {}
            if size > 1:
                found["gradients"] = [learn_and_read(group, plans) for plans in STEPS]
                found["held"] = count_held(make_training(group))
                found["seen"] = {name: watch(group, **VARIANTS[name]) for name in VARIANTS}
            for kind in OPTIMIZERS:
                training = make_training(group, optimizer=kind, clip=0.3)
                found[kind] = make_steps(training)
                found["tied"] = training.model.head.weight is training.model.embedding.weight
                found[f"{kind} is measured"] = training.evaluate()
                found[f"{kind} after"] = read_whole(training.model.state_dict())
            for name, settings in VARIANTS.items():
                found[name] = make_steps(make_training(group, **settings))
            found["normed"] = make_steps(make_training(group, Normed, batch_size=20), 1)
            found["orthogonal"] = orthogonalise_whole(group)
            found["exchanges"] = [count_exchanges(group, plans) for plans in STEPS]
            found["faults"] = plant_faults(group)
        (folder / f"{size}-{rank}.json").write_text(json.dumps(found))

    return run


VARIANTS = {
    "dropout": {"dropout": 0.3},
    "checkpointed": {"dropout": 0.3, "checkpoint_activations": True},
    "mixed": {"precision": "bfloat16", "optimizer": "sgd"},
    "accumulated": {"accumulate": 2, "batch_size": 3, "optimizer": "sgd"},
}


def learn_and_read(group, plans):
    training = make_training(group)
    loss = learn_once(training, plans)
    norm = float(training.gradients.norm())
    named = training.model.named_parameters()
    gradient = {name: p.grad.full_tensor().tolist() for name, p in named if p.grad is not None}
    return gradient, norm, [float(loss.mean), *map(float, loss.losses)]


def watch(group, **settings):
    """For each time a step computes a block: its dtype, and whether the next block is whole."""
    training, seen = make_training(group, **settings), []
    first, second = (block.feed_forward for block in training.model.stack.blocks)

    def look(layer, given):
        is_whole = not isinstance(second.proj_out.weight, DTensor)
        seen.append([str(layer.proj_out.weight.dtype), is_whole])

    first.register_forward_pre_hook(look)
    learn_once(training, [PLANS[0]])
    return seen


def count_held(training):
    """How many numbers this process holds: of the weights, and of the optimizer."""
    tensors = (training.model.parameters(), training.optimizer.tensors().values())
    return [sum(find_rows(t).numel() for t in each if t.ndim) for each in tensors]


def orthogonalise_whole(group):
    """Whether Muon's step of sharded matrices has the bits of whole ones."""
    step = make_training(group, optimizer="muon").optimizer.muon.orthogonalise
    wholes = [torch.arange(56.0).view(7, 8).sin(), torch.arange(56.0).view(7, 4, 2).cos()]
    mesh = init_device_mesh("cpu", (group.size,))
    given = [distribute_tensor(x, mesh, [Shard(0)], src_data_rank=None) for x in wholes]
    pairs = zip(step(given, 3), wholes, strict=True)
    return [
        torch.equal(found.full_tensor(), orthogonalise(x.flatten(1)[None], 3).view(x.shape))
        for found, x in pairs
    ]


def count_exchanges(group, plans):
    """How many times a step adds up gradients over the processes."""
    name = "reduce_scatter_single"
    if not hasattr(dist, name):  # an earlier release of PyTorch
        name = "reduce_scatter_tensor"
    calls, reduce = [], getattr(dist, name)
    setattr(dist, name, lambda *given, **named: calls.append(0) or reduce(*given, **named))
    try:
        learn_once(make_training(group), plans)
    finally:
        setattr(dist, name, reduce)
    return len(calls)


def plant_faults(group):
    """What each process raises, if one of them fails, and after that."""

    def fail():
        if group.rank == group.size - 1:
            raise OSError(28, "No space left on device", "a file")

    found = []
    for attempt in (
        lambda: group.try_together(fail),
        lambda: group.try_together(lambda: None),
        lambda: make_training(group, seed=group.rank),
    ):
        try:
            attempt()
            found.append(None)
        except (OSError, NoAnswer, ValueError) as fault:
            found.append([type(fault).__name__, str(fault)])
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each of three processes has found."""
    folder = tmp_path_factory.mktemp("fsdp")
    ranks = Ranks(SIZE, work(folder, SIZE), folder, CLEARHEAD_TIMEOUT="60")
    assert ranks.end() == [0] * SIZE, ranks.read()
    return [json.loads((folder / f"{SIZE}-{rank}.json").read_text()) for rank in range(SIZE)]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """What one process finds that shards with itself, without torchrun."""
    folder = tmp_path_factory.mktemp("one")

    def alone(rank):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
            del os.environ[name]
        work(folder, 1)(rank)

    ranks = Ranks(1, alone, folder)
    assert ranks.end() == [0], ranks.read()
    return json.loads((folder / "1-0.json").read_text())


def close(given, wanted, **tolerance):
    assert given.keys() == wanted.keys()
    for name, values in wanted.items():
        torch.testing.assert_close(
            torch.tensor(given[name]),
            torch.tensor(values),
            msg=lambda m, name=name: f"{name}: {m}",
            **tolerance,
        )
    return True


def test_the_gradient_is_the_mean_over_all_terms(found):
    """Also where some processes have no example, and over several batches of unequal size."""
    for number, plans in enumerate(STEPS):
        alone = make_training()
        everything = [[example for plan in plans for example in plan]]
        gradients = Gradients(alone.model, alone.task.loss)
        loss = gradients.learn(everything, alone.make_batch, 0)
        named = alone.model.named_parameters()
        wanted = {name: p.grad.tolist() for name, p in named if p.grad is not None}
        assert "positions.weight" not in wanted
        for answers in found:
            gradient, norm, (mean, *losses) = answers["gradients"][number]
            assert close(gradient, wanted)
            assert norm == pytest.approx(float(gradients.norm()), rel=1e-5)
            assert mean == pytest.approx(float(loss.mean), rel=1e-5)
            assert len(losses) == SIZE * len(plans)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_optimizer_makes_the_steps_of_one_process(found, one, kind):
    alone = make_training(optimizer=kind, clip=0.3)
    wanted = make_steps(alone)
    for answers in (*found, one):
        # AdamW makes small numbers of a gradient as large as others, and their errors, too; Muon
        # does so with weak directions. Four steps of 0.05 move a weight by about 0.2.
        assert close(answers[kind], wanted, rtol=1e-4, atol=2e-5 if kind == "sgd" else 3e-4)
        assert answers["tied"]
    assert found[0][kind] == found[1][kind] == found[2][kind]
    assert (
        wanted["positions.weight"]
        == read_whole(make_training().model.state_dict())["positions.weight"]
    )


def test_accumulated_batches_are_one_step(found, one):
    """Three processes have one part of each batch, one process has all of them."""
    assert close(found[0]["accumulated"], one["accumulated"], rtol=1e-4, atol=2e-5)
    assert found[0]["accumulated"]["head.weight"] != found[0]["sgd"]["head.weight"]


def test_gradients_are_exchanged_once_a_step_however_many_batches_it_has(found):
    """Those of the two blocks, and those of the rest."""
    assert found[0]["exchanges"] == [3, 3, 3, 3]


def test_muon_orthogonalises_whole_matrices(found, one):
    for answers in (*found, one):
        assert answers["orthogonal"] == [True, True]


def test_each_process_holds_its_share_and_no_more(found):
    training = make_training()
    model = sum(p.numel() for p in training.model.parameters())
    optimizer = sum(t.numel() for t in training.optimizer.tensors().values() if t.ndim)
    held = [answers["held"] for answers in found]
    assert [sum(numbers) for numbers in zip(*held, strict=True)] == [model, optimizer]
    assert max(numbers[0] for numbers in held) < 0.5 * model


def test_checkpointed_activations_are_computed_twice_and_change_no_bit(found, one):
    for answers in (found[0], one):
        assert answers["checkpointed"] == answers["dropout"]
        assert answers["dropout"] != answers["adamw"]
    assert [len(found[0]["seen"][name]) for name in ("dropout", "checkpointed")] == [1, 2]


def test_a_block_is_gathered_when_it_is_computed_and_no_other(found):
    for answers in found:
        assert answers["seen"]["dropout"] == [["torch.float32", False]]
        assert answers["seen"]["mixed"] == [["torch.bfloat16", False]]


def test_bfloat16_is_near_float32_and_weights_stay_in_float32(found):
    narrow = found[0]["mixed"]
    wide = make_steps(make_training(optimizer="sgd"))
    assert close(narrow, wide, rtol=0.05, atol=0.02)
    assert max((torch.tensor(narrow[n]) - torch.tensor(wide[n])).abs().max() for n in wide) > 1e-4
    weights = torch.tensor(narrow["head.weight"])
    assert not torch.equal(weights, weights.bfloat16().float())


def test_all_evaluate_and_have_the_numbers_of_the_first(found, one):
    for answers in (*found, one):
        for kind in OPTIMIZERS:
            (metrics, sample), weights = answers[f"{kind} is measured"], answers[kind]
            alone = make_training()
            alone.model.load_state_dict({n: torch.tensor(v) for n, v in weights.items()})
            with evaluation_mode(alone.model):
                wanted = alone.task.evaluate(alone.model)
            assert metrics == pytest.approx(wanted, rel=1e-5)
            assert sample is None  # a sharded model writes none
            assert answers[f"{kind} after"] == weights


def test_buffers_are_the_mean_over_the_processes(found):
    """Each process has a part of each batch; its batch norm knows no other."""
    states = [answers["normed"] for answers in found]
    assert states[0] == states[1] == states[2]
    (plan,) = make_training(task=Normed, batch_size=20).next_plans()
    seen = []
    for part in (plan[:6], plan[6:13], plan[13:]):
        alone = make_training(task=Normed)
        alone.task.loss(alone.model, alone.task.batch(part))
        seen.append(alone.model.state_dict())
    for name in ("seen", "inner.1.running_mean", "inner.1.running_var"):
        mean = torch.stack([state[name] for state in seen]).mean(0)
        torch.testing.assert_close(torch.tensor(states[0][name]), mean)
        assert not torch.allclose(mean, seen[0][name])
    assert states[0]["inner.1.num_batches_tracked"] == 1
    assert states[0]["table"] == seen[0]["table"].tolist()  # equal ones stay as they are


def test_if_one_process_fails_all_raise_and_the_next_attempt_works(found, one):
    named = ["NoAnswer", "rank 2 ended with an error; its own message names the cause"]
    own = ["OSError", "[Errno 28] No space left on device: 'a file'"]
    assert [answers["faults"][0] for answers in found] == [named, named, own]
    assert all(answers["faults"][1] is None for answers in found)
    assert one["faults"] == [own, None, None]


def test_processes_that_draw_other_weights_refuse_to_start(found):
    for answers in found:
        kind, sentence = answers["faults"][2]
        assert kind == "ValueError"
        assert sentence.startswith("the processes differ in the first weights: ")
        assert sentence.endswith("start all of them in the same way, with the same files")


def test_a_model_is_not_moved_to_a_gpu_as_a_whole():
    """The meta device stands for a GPU, which may be too small for it."""
    group, model = object.__new__(Sharded), TinyModel(TinyConfig(d_model=4))
    assert group.prepare(model, torch.device("meta")).device == torch.device("cpu")

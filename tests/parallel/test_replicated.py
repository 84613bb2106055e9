"""ddp: the gradient of a step, whatever part of it each process has."""

import json

import pytest
import torch
from parallel.forked_ranks import Ranks
from torch._subclasses.fake_tensor import FakeTensorMode
from training.tiny_task import TinyConfig, TinyData, TinyTask

from clearhead.parallel.group import join_group
from clearhead.runtime import Place, read_place
from clearhead.training.gradient import Gradients
from clearhead.training.loop import Training
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.state import State

SIZE = 3
PLANS = ([3, 1, 4, 15, 9, 2, 6], [5, 0], [8])  # 7 examples, 2 and 1 for three processes


class Weighted(TinyTask):
    """Some examples have two terms of loss, such as a longer text."""

    def count_terms(self, batch):
        return int(self.weigh(batch).sum())

    def weigh(self, batch):
        return 1 + (batch.inputs[:, 0] > 3).long()

    def loss(self, model, batch):
        weights = self.weigh(batch)
        each = torch.nn.functional.cross_entropy(
            model(batch.inputs), batch.targets, reduction="none"
        )
        return (each * weights).sum() / weights.sum()


class Busy(Weighted):
    """Its model uses all its parameters, in another order than it has them."""

    def build(self, config):
        model = super().build(config)
        del model.idle
        embedding = model.embedding
        del model.embedding
        model.embedding = embedding  # now the last one
        return model


def make_training(group=None, dropout=0.0, parallel="ddp", task=Weighted, **settings):
    config = TrainingConfig(
        steps=9, batch_size=5, accumulate=2, parallel=parallel, eval_every=9, **settings
    )
    recipe = Recipe("tiny", TinyData(), TinyConfig(d_model=30, dropout=dropout), config)
    return Training(recipe, task(TinyData()), group=group)


def work(folder):
    """In the process of a rank: the gradients of some steps, and a run with a new start inside."""

    def run(rank):
        with join_group("ddp", torch.device("cpu"), read_place()) as group:
            found = {"gradients": [], "losses": []}
            for plans in ([PLANS[0]], [PLANS[1]], [PLANS[2]], list(PLANS)):
                training = make_training(group)
                parts = training.gradients.split(plans)
                loss = training.gradients.learn(parts, training.make_batch, 0)
                found["gradients"].append(read_gradients(training.model))
                found["losses"].append([float(loss.mean), *map(float, loss.losses)])
            whole, resumed = (
                make_training(group, 0.2, task=Busy),
                make_training(group, 0.2, task=Busy),
            )
            for _ in range(5):
                whole.advance()
            for _ in range(3):
                resumed.advance()
            again = make_training(group, 0.2, task=Busy)
            again.model.load_state_dict(resumed.model.state_dict())
            again.optimizer.load(resumed.optimizer.tensors())
            again.state = State(**vars(resumed.state))
            for _ in range(2):
                again.advance()
            found["whole"], found["again"] = read_weights(whole), read_weights(again)
            (folder / f"{rank}.json").write_text(json.dumps(found))

    return run


def read_gradients(model):
    named = model.named_parameters()
    return {name: None if p.grad is None else p.grad.tolist() for name, p in named}


def read_weights(training):
    """The exact bits of the parameters, as text."""
    named = training.model.named_parameters()
    return {name: p.detach().numpy().tobytes().hex() for name, p in named}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ddp")
    ranks = Ranks(SIZE, work(folder), folder)
    assert ranks.end() == [0] * SIZE, ranks.read()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(SIZE)]


def test_the_gradient_is_the_mean_over_all_terms(found):
    """Also where some processes have no example, and over several batches of unequal size."""
    for number, plans in enumerate(([PLANS[0]], [PLANS[1]], [PLANS[2]], list(PLANS))):
        alone = make_training(parallel=None)
        everything = [[example for plan in plans for example in plan]]
        gradients = Gradients(alone.model, alone.task.loss)
        loss = gradients.learn(everything, alone.make_batch, 0)
        for answers in found:
            for name, parameter in alone.model.named_parameters():
                given = answers["gradients"][number][name]
                if parameter.grad is None:
                    assert given is None
                    continue
                torch.testing.assert_close(torch.tensor(given), parameter.grad)
            assert answers["losses"][number][0] == pytest.approx(float(loss.mean), rel=1e-5)


def test_all_processes_know_the_loss_of_every_part(found):
    task = make_training(parallel=None)
    for number, plans in enumerate(([PLANS[0]], [PLANS[1]], [PLANS[2]], list(PLANS))):
        parts = [
            plan[len(plan) * r // SIZE : len(plan) * (r + 1) // SIZE]
            for plan in plans
            for r in range(SIZE)
        ]
        for answers in found:
            losses = answers["losses"][number][1:]
            assert len(losses) == len(parts)
            for loss, part in zip(losses, parts, strict=True):
                if part:
                    own = task.task.loss(task.model.train(), task.task.batch(part)).detach()
                    assert loss == pytest.approx(float(own), rel=1e-5)


def test_processes_stay_equal_and_a_new_start_changes_no_bit(found):
    """The order of sums of three processes is chosen again after a start; it must be the same."""
    assert found[0]["whole"] == found[1]["whole"] == found[2]["whole"]
    assert found[0]["again"] == found[0]["whole"]
    assert found[0]["whole"] != read_weights(make_training(parallel=None, task=Busy))


OPTIMIZERS = {
    "adamw": {"lr": 0.02, "weight_decay": 0.1},
    "muon": {"lr": 0.02, "matrix_lr": 0.05, "weight_decay": 0.1},
    "sgd": {"lr": 0.5},
}


def learn_briefly(kind, group=None, parallel="ddp"):
    """The weights and the tensors of the optimizer after five steps, the last of a new epoch."""
    training = make_training(group, parallel=parallel, optimizer=kind, **OPTIMIZERS[kind])
    for _ in range(5):
        training.advance()
    training.group.collect(training.optimizer)
    named = {**dict(training.model.named_parameters()), **training.optimizer.tensors()}
    return {name: tensor.tolist() for name, tensor in named.items()}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Of each of two processes: what it has after the steps of each optimizer."""
    folder = tmp_path_factory.mktemp("optimizers")

    def run(rank):
        with join_group("ddp", torch.device("cpu"), read_place()) as group:
            found = {kind: learn_briefly(kind, group) for kind in OPTIMIZERS}
        (folder / f"{rank}.json").write_text(json.dumps(found))

    ranks = Ranks(2, run, folder)
    assert ranks.end() == [0, 0], ranks.read()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_two_processes_make_the_steps_of_one(learned, kind):
    """The same weights but for rounding, and every process has them to the bit."""
    assert learned[0][kind] == learned[1][kind]
    alone = learn_briefly(kind, parallel="exact")  # its gradient, too, is the mean over all terms
    assert learned[0][kind].keys() == alone.keys()
    for name, wanted in alone.items():
        given, wanted = torch.tensor(learned[0][kind][name]), torch.tensor(wanted)
        torch.testing.assert_close(given, wanted, rtol=1e-3, atol=1e-5)


def test_dropout_differs_from_part_to_part_and_from_step_to_step():
    """One example in four parts: their losses differ only by what is dropped."""
    with join_group("ddp", torch.device("cpu"), Place()) as group:
        training = make_training(group, dropout=0.5)

        def learn(step):
            found = training.gradients.learn([[7]] * 4, training.make_batch, step)
            return [float(loss) for loss in found.losses]

        first = learn(0)
        assert len(set(first)) == 4
        assert learn(0) == first
        assert not set(learn(1)) & set(first)


class Shifted(TinyTask):
    """Draws a random number for each batch, as shifted pictures do."""

    seen = ()

    def augment(self, batch, progress=0.0):
        self.seen = (*self.seen, float(torch.rand(())))
        return batch


def test_augmentation_differs_from_part_to_part():
    with join_group("ddp", torch.device("cpu"), Place()) as group:
        training = make_training(group, task=Shifted)
        for _ in range(2):
            training.gradients.learn([[7]] * 4, training.make_batch, 3)
        first, again = training.task.seen[:4], training.task.seen[4:]
        assert len(set(first)) == 4
        assert again == first


class Nothing(TinyTask):
    """Its batches have no terms of loss, such as a text of which no word is masked."""

    def count_terms(self, batch):
        return 0

    def loss(self, model, batch):
        return 0 * super().loss(model, batch)


def test_a_step_without_terms_has_the_gradient_zero():
    with join_group("ddp", torch.device("cpu"), Place()) as group:
        training = make_training(group, task=Nothing)
        assert training.update([[0, 1], [2]]) == 0


def test_the_norm_of_a_gradient_on_a_gpu_is_where_the_losses_are():
    """No GPU is needed: a fake tensor has a device, but no numbers."""
    with join_group("ddp", torch.device("cpu"), Place()) as group:
        gradients = make_training(group).gradients
        with FakeTensorMode():
            gradients.parameters = [torch.nn.Parameter(torch.ones(3, device="cuda"))]
            gradients.parameters[0].grad = torch.ones(3, device="cuda")
            assert gradients.norm().device == torch.device("cpu")

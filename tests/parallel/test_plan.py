"""What a plan computes, compared with pencil and paper, and with tensors."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks

from clearhead.config import UNDECIDED
from clearhead.files.reading import BadFile
from clearhead.models import GPTConfig
from clearhead.parallel.counting import count_pass, find_blocks
from clearhead.parallel.plan import RESERVE, make_plan
from clearhead.parallel.planning import steps
from clearhead.parallel.planning.cards import CARDS, Card, check_card, find_card, share_machine
from clearhead.parallel.planning.sizes import Sizes, count_shard
from clearhead.training import Recipe, TrainingConfig, find_recipe, with_changes
from clearhead.training.recipes import RECIPES
from clearhead.training.tasks.characters import CharacterData

TOLERANCE = 0.1  # of the activations: docs/scale.md promises it
VOCABULARY = {"shakespeare-char": 65, "dialogue": 300}
ROUND = Card("round", memory=1e9, half=1e12, single=1e11, bandwidth=1e9, link=1e6)


def small_recipe(name, *changes, batch_size=6):
    """A recipe that needs no data, with a small batch."""
    given = [f"training.batch_size={batch_size}", "training.workers=1", *changes]
    if name in VOCABULARY:
        given.append(f"model.vocab_size={VOCABULARY[name]}")
    return with_changes(find_recipe(name), given)


def tiny_gpt(optimizer="adamw", **training):
    """54 numbers: two tables of 5 × 2, four matrices of 2 × 2, two of 3 × 2, three gains of 2."""
    model = GPTConfig(
        vocab_size=5,
        max_len=3,
        d_model=2,
        n_layers=1,
        n_heads=1,
        d_ff=3,
        positions="none",
        norm="rms",
        bias=False,
        tied=False,
    )
    settings = TrainingConfig(**{"steps": 1, "batch_size": 4, "optimizer": optimizer, **training})
    return Recipe("tiny", CharacterData(context=3), model, settings)


def plain_gpt(B, T, D, F, H, V, n_layers):
    """Layer norm, GELU, learned positions: the GPT of the closed formula in docs/scale.md."""
    model = GPTConfig(
        vocab_size=V,
        max_len=T,
        d_model=D,
        n_layers=n_layers,
        n_heads=H,
        d_ff=F,
        positions="learned",
        norm="layer",
        activation="gelu",
        tied=False,
    )
    return Recipe("plain", CharacterData(context=T), model, TrainingConfig(steps=1, batch_size=B))


# By pencil


@pytest.mark.parametrize(
    ("optimizer", "n_bytes"),
    [
        ("sgd", 0),
        ("adamw", 8 * 54 + 4 * 11),  # two numbers for each, and the steps of each of 11 tensors
        ("muon", 4 * 28 + 8 * 26 + 4 * 5),  # the six inner matrices have 28 numbers
    ],
)
def test_states_by_pencil(optimizer, n_bytes):
    held = Sizes(tiny_gpt(optimizer)).hold(1)
    assert (held.weights, held.gradient, held.optimizer) == (4 * 54, 4 * 54, n_bytes)


def test_half_of_the_rows_by_pencil():
    """Of 5 rows a process has 3, of 3 rows 2, of 2 rows 1; so its numbers are 30, not 27."""
    held = Sizes(tiny_gpt()).hold(2)
    assert held.weights == held.gradient == 4 * (2 * 6 + 4 * 2 + 4 + 3 + 3)


@pytest.mark.parametrize(
    ("shape", "n", "numbers"), [((), 3, 1), ((7,), 2, 4), ((7, 5), 3, 15), ((2, 5), 8, 5)]
)
def test_the_largest_shard(shape, n, numbers):
    assert count_shard(torch.empty(shape), n) == numbers


def test_activations_and_products_of_a_gpt_by_the_closed_formula():
    """docs/scale.md: 4BT (8D + 2F + H + 4) bytes a block, and 2 FLOPs for each number and token."""
    B, T, D, F, H, V, L = 3, 20, 24, 40, 4, 50, 2
    cost = Sizes(plain_gpt(B, T, D, F, H, V, L)).count(B, mixed=False)
    assert cost.blocks == [4 * B * T * (8 * D + 2 * F + H + 4)] * L
    assert cost.inputs == [4 * B * T * D] * L
    # The last norm keeps its input, its output and two numbers a token; the loss its logarithms.
    assert cost.outside == pytest.approx(4 * B * T * (2 * D + 2 + V), rel=0.05)
    per_token = L * (2 * (4 * D * D + 2 * D * F) + 4 * T * D) + 2 * D * V
    assert cost.flops == B * T * per_token
    assert cost.block_flops == cost.flops - B * T * 2 * D * V


def test_a_large_gpt_needs_about_six_flops_for_each_parameter_and_token():
    B, T, D = 2, 16, 256
    sizes = Sizes(plain_gpt(B, T, D, 4 * D, 4, 10, 6))
    assert 3 * sizes.count(B, mixed=False).flops == pytest.approx(
        6 * sizes.n_parameters * B * T, rel=0.05
    )


def test_time_by_pencil(monkeypatch):
    """S = 216 bytes on two processes: S each way; 1,080 bytes are read and written for AdamW."""
    monkeypatch.setattr(steps, "LAUNCH", 0.0)
    plan = make_plan(tiny_gpt(precision="float32"), ROUND, 2)
    flops = Sizes(tiny_gpt()).count(2, mixed=False).flops
    passes = 3 * flops / (0.4 * 1e11)
    ddp, fsdp = plan.costs["ddp"].time, plan.costs["fsdp"].time
    assert ddp.passes == pytest.approx(passes)
    assert ddp.update == pytest.approx((2 * 216 + 216 + 2 * 476) / 1e9)
    assert ddp.exchange == pytest.approx(216 / 1e6)
    assert ddp.hidden == pytest.approx(passes * 2 / 3)
    assert ddp.total == pytest.approx(ddp.passes / 3 + ddp.exchange + ddp.update)
    assert fsdp.exchange == pytest.approx(3 * 216 / 2 / 1e6)
    assert fsdp.total == pytest.approx(fsdp.exchange + fsdp.update)
    exact = plan.costs["exact"].time
    assert (exact.exchange, exact.hidden) == (ddp.exchange, 0.0)


def test_small_models_take_the_time_of_their_operations():
    plan = make_plan(tiny_gpt(), CARDS["h100"], 2)
    kernels = Sizes(tiny_gpt()).count(2, mixed=True).n_kernels
    assert plan.costs["ddp"].time.passes == pytest.approx(3 * 5e-6 * kernels)


def test_muon_takes_products_of_its_own():
    """Four matrices of 2 × 2, two of 2 × 3, one Newton–Schulz step: 4r²c + 2r³ each."""
    sizes = Sizes(tiny_gpt("muon", newton_steps=1))
    assert sizes.muon_flops == 4 * (4 * 8 + 2 * 8) + 2 * (4 * 12 + 2 * 8)
    assert (sizes.most_in_a_shape, sizes.most_in_a_matrix) == (16, 6)
    assert steps.count_buffers(sizes, "none", 1, steps.Share(1, 4), False)["update"] == 5 * 4 * 16


def test_buffers_by_pencil():
    sizes = Sizes(tiny_gpt(chunks=8, accumulate=2))
    S, share = 216, steps.share_step(sizes.recipe.training, "exact", 2)
    assert share == steps.Share(4, 1)  # 2 × 4 examples, 8 chunks: four for each
    exact = steps.count_buffers(sizes, "exact", 2, share, False)
    assert exact == {"pass": 2 * S, "exchange": 3 * S, "update": S + S // 2}
    alone = steps.count_buffers(sizes, "exact", 1, steps.Share(8, 1), False)
    assert alone == {"pass": 3 * S, "exchange": 4 * S, "update": 0}
    assert steps.count_buffers(sizes, "none", 1, steps.Share(2, 4), False)["pass"] == S
    block, rest = 28 + 4, 20 + 2
    gathered = steps.count_buffers(sizes, "fsdp", 2, steps.Share(2, 2), False)
    assert gathered["pass"] == 4 * (2 * block + rest) + S  # accumulated without an exchange
    once = Sizes(tiny_gpt("muon"))
    half = steps.count_buffers(once, "fsdp", 2, steps.Share(1, 2), True)
    assert half == {"pass": 2 * (2 * block + rest) + 4 * block, "update": 5 * 4 * 6}
    alone = steps.count_buffers(once, "exact", 1, steps.Share(4, 1), False)
    assert alone["update"] == 4 * (5 * 6 + 16)  # one matrix, and the steps of all of one shape


def test_chunks_that_are_not_one_subtree_are_sent_in_parts():
    """Of 6 chunks the second of two processes has 3, 4 5: two subtrees."""
    assert [steps.count_subtrees(n, 2) for n in (2, 4, 6, 8)] == [1, 1, 2, 1]
    sizes = Sizes(tiny_gpt(chunks=6, batch_size=6))
    exact = steps.count_buffers(sizes, "exact", 2, steps.Share(3, 1), False)
    assert exact["exchange"] == (3 * 2 - 1) * 216


def test_an_update_that_is_shared_out_takes_less_time_and_with_ddp_more_traffic():
    for kind, extra in (("adamw", 0), ("muon", 1)):
        sizes = Sizes(tiny_gpt(kind))
        options = {"mixed": False, "checkpoint": False}
        update = {
            (mode, n): steps.compute_time(sizes, CARDS["a100"], mode, n, **options).update
            for mode in ("exact", "ddp")
            for n in (1, 4)
        }
        assert update["exact", 4] == pytest.approx(update["exact", 1] / 4)
        assert update["ddp", 4] == pytest.approx(update["ddp", 1] / (4 if extra else 1))
        traffic = steps.count_traffic(sizes, "ddp", 4, steps.Share(1, 1), False)
        assert traffic == (2 + extra) * 3 / 4 * sizes.hold(1).gradient


# Against tensors


def sum_kept(model, loss, batch, mixed):
    """Bytes of the storages that autograd keeps, without those of the model and the batch."""
    own = {x.untyped_storage().data_ptr() for x in (*model.parameters(), *model.buffers())}
    own |= {x.untyped_storage().data_ptr() for x in vars(batch).values() if torch.is_tensor(x)}
    kept = {}

    def keep(x):
        kept[x.untyped_storage().data_ptr()] = x  # alive, so that no address is used twice
        return x

    half = torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed)
    with saved_tensors_hooks(keep, lambda x: x), half:
        total = loss(model, batch)
    sizes = {pointer: x.untyped_storage().nbytes() for pointer, x in kept.items()}
    return sum(n for pointer, n in sizes.items() if pointer not in own), total


def compare_with_tensors(recipe, mixed):
    """Plan a recipe, then train its model for a moment and look at every tensor."""
    sizes = Sizes(recipe)
    held = sizes.hold(1)
    cost = sizes.count(recipe.training.batch_size, mixed)
    model = sizes.task.initialise(sizes.task.build(sizes.config)).train()
    optimizer = recipe.training.make_optimizer(model)
    batch = sizes._make_batch(recipe.training.batch_size)
    kept, loss = sum_kept(model, sizes.task.loss, batch, mixed)
    loss.backward()
    assert held.weights == sum(x.nbytes for x in (*model.parameters(), *model.buffers()))
    assert held.gradient == sum(p.grad.nbytes for p in model.parameters() if p.requires_grad)
    assert held.optimizer == sum(x.nbytes for x in optimizer.tensors().values())
    assert cost.kept + cost.copies == pytest.approx(kept, rel=TOLERANCE, abs=300)


@pytest.mark.parametrize("mixed", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_holds_what_its_plan_says(name, mixed):
    """Weights, gradient and optimizer to the byte; activations within the tolerance."""
    compare_with_tensors(small_recipe(name), mixed)


@pytest.mark.parametrize(
    "changes",
    [
        ["model.positions=toeplitz"],
        ["model.positions=alibi", "model.norm=layer"],
        ["model.positions=learned", "model.activation=swiglu", "model.bias=true"],
        ["model.n_kv_heads=2", "model.activation=gelu", "training.optimizer=adamw"],
        ["model.dropout=0.1", "model.tied=true", "training.optimizer=sgd", "training.momentum=0"],
    ],
    ids=lambda changes: changes[0].partition(".")[2],
)
@pytest.mark.parametrize("mixed", [False, True], ids=["float32", "bfloat16"])
def test_every_kind_of_block_keeps_what_its_plan_says(changes, mixed):
    compare_with_tensors(small_recipe("shakespeare-char", *changes, batch_size=3), mixed)


def test_only_kept_patches_count():
    whole, part = (Sizes(small_recipe("vit-digits", f"data.keep={k}")) for k in (1.0, 0.5))
    compare_with_tensors(part.recipe, mixed=False)
    assert part.count(6, mixed=False).kept < 0.6 * whole.count(6, mixed=False).kept


def test_the_same_count_with_and_without_numbers():
    """Blocks, inputs and products too; here the meta device needs no answers of ours."""
    sizes = Sizes(plain_gpt(3, 20, 24, 40, 4, 50, 2))
    real = sizes.task.build(sizes.config)
    seen = count_pass(real, sizes.task.loss, sizes._make_batch(3))
    counted = sizes.count(3, mixed=False)
    for name in ("blocks", "inputs", "flops", "block_flops", "largest", "outside"):
        assert getattr(counted, name) == getattr(seen, name), name
    assert not any(block._forward_hooks or block._forward_pre_hooks for block in find_blocks(real))


def test_nothing_is_allocated_for_a_model_of_a_billion_parameters():
    changes = ["model.d_model=2048", "model.n_layers=24", "model.n_heads=16"]
    sizes = Sizes(small_recipe("shakespeare-char", *changes))
    assert sizes.n_parameters > 1e9
    assert all(p.is_meta for p in sizes.model.parameters())
    assert (
        sizes.count(6, mixed=True).copies
        == 2 * sum(p.numel() for p in sizes.model.parameters() if p.ndim == 2)
        - 2 * sizes.model.embedding.weight.numel()
    )


def test_a_model_that_training_would_refuse_is_refused():
    with pytest.raises(ValueError, match="may have up to 2,147,483,648 parameters"):
        Sizes(small_recipe("shakespeare-char", "model.d_model=8192", "model.n_layers=99"))


# Laws


def gpt_sizes():
    return Sizes(small_recipe("shakespeare-char", "training.accumulate=1", batch_size=64))


SIZES = gpt_sizes()


def memory(mode, n, **settings):
    settings = {"mixed": False, "checkpoint": False, **settings}
    return steps.compute_memory(SIZES, mode, n, **settings)


@given(st.integers(1, 64), st.integers(1, 64))
def test_more_processes_never_need_more_memory_in_fsdp_and_ddp(few, more):
    few, more = sorted((few, more))
    for mode in ("ddp", "fsdp"):
        assert memory(mode, more).total <= memory(mode, few).total
    assert SIZES.hold(more).optimizer <= SIZES.hold(few).optimizer


@given(st.integers(1, 64))
def test_replicated_states_do_not_depend_on_the_number_of_processes(n):
    held = SIZES.hold(1)
    for m in (memory("ddp", n), memory("exact", n)):
        assert (m.weights, m.gradient, m.optimizer) == dataclasses.astuple(held)


@given(st.integers(1, 64))
def test_shards_together_are_the_whole(n):
    part, whole = SIZES.hold(n), SIZES.hold(1)
    assert n * part.weights >= whole.weights
    assert n * part.optimizer >= whole.optimizer


@pytest.mark.parametrize("n", [1, 3, 64])
def test_checkpoints_save_memory_and_bfloat16_saves_activations(n):
    assert memory("fsdp", n, checkpoint=True).total <= memory("fsdp", n).total
    cost, half = (SIZES.count(n, mixed) for mixed in (False, True))
    assert cost.kept_by_checkpoints < cost.kept
    assert half.kept < cost.kept


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 16), st.integers(1, 64))
def test_all_processes_together_learn_from_every_example(n, accumulate, chunks, batch_size):
    """A share is the largest one: n of them are at least the step, and without rest no more."""
    c = TrainingConfig(steps=1, batch_size=batch_size, accumulate=accumulate, chunks=chunks)
    for mode in ("exact", "ddp", "fsdp"):
        share = steps.share_step(c, mode, n)
        assert n * share.n_passes * share.n_examples >= accumulate * batch_size
    even = dataclasses.replace(c, batch_size=n * batch_size, chunks=n)
    share = steps.share_step(even, "ddp", n)
    assert n * share.n_passes * share.n_examples == accumulate * even.batch_size


def test_the_exchange_grows_with_the_processes_towards_two_gradients():
    traffic = [
        steps.count_traffic(SIZES, "exact", n, steps.Share(1, 1), False) for n in (1, 2, 4, 99)
    ]
    assert traffic == sorted(traffic)
    assert traffic[0] == 0
    assert traffic[-1] == pytest.approx(2 * SIZES.hold(1).gradient, rel=0.02)
    assert steps.find_link(CARDS["a100"], 8) == 300e9
    assert steps.find_link(CARDS["a100"], 9) == 25e9


# Which mode


def with_memory(n_bytes):
    return dataclasses.replace(ROUND, memory=n_bytes)


def plan_within(share, of, n=4, **training):
    """A plan for cards with this share of the memory that a mode needs, after the reserve."""
    recipe = small_recipe("shakespeare-char", "training.accumulate=1", batch_size=64)
    recipe = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, **training))
    needed = make_plan(recipe, ROUND, n).costs[of].memory.total
    return make_plan(recipe, with_memory(share * needed / (1 - RESERVE)), n)


def test_the_simplest_mode_that_fits_is_recommended():
    assert plan_within(1.001, "none", n=1).advice.mode == "none"
    assert plan_within(1.001, "ddp").advice.mode == "ddp"
    assert plan_within(0.999, "ddp").advice.mode == "fsdp"
    assert plan_within(1.001, "fsdp").advice.changes == ()
    assert not plan_within(0.999, "fsdp").costs["fsdp"].fits


def test_if_nothing_fits_checkpoints_come_first_then_smaller_batches():
    advice = plan_within(0.95, "fsdp").advice
    assert (advice.mode, advice.changes) == ("fsdp", ("training.checkpoint_activations=true",))
    advice = plan_within(0.2, "fsdp").advice
    assert advice.changes[0] == "training.checkpoint_activations=true"
    batch, accumulate = (int(word.partition("=")[2]) for word in advice.changes[1:])
    assert batch * accumulate == 64
    assert batch < 64
    assert advice.cost.fits
    assert plan_within(0.01, "fsdp").advice.mode is None


def test_a_mode_that_the_recipe_names_is_kept():
    advice = plan_within(0.9, "exact", parallel="exact").advice
    assert advice.mode == "exact"
    assert advice.changes[0].startswith("training.batch_size=")
    plan = make_plan(tiny_gpt(parallel="ddp"), ROUND, 1)
    assert list(plan.costs) == ["none", "exact", "ddp"]
    assert plan.advice.mode == "ddp"
    plan = make_plan(tiny_gpt(parallel="fsdp", checkpoint_activations=True), ROUND, 2)
    assert plan.advice.mode == "fsdp"


def test_checkpoints_compute_the_blocks_twice(monkeypatch):
    monkeypatch.setattr(steps, "LAUNCH", 0.0)
    kept, again = (
        make_plan(tiny_gpt(parallel="fsdp", checkpoint_activations=flag), ROUND, 2)
        for flag in (False, True)
    )
    cost = Sizes(tiny_gpt()).count(2, mixed=True)
    ratio = again.costs["fsdp"].time.passes / kept.costs["fsdp"].time.passes
    assert ratio == pytest.approx((3 * cost.flops + cost.block_flops) / (3 * cost.flops))


def test_exact_has_a_chunk_for_each_process():
    plan = make_plan(tiny_gpt(chunks=2), ROUND, 4)
    assert plan.costs["exact"].share == steps.Share(1, 1)
    assert plan.recipe.training.chunks == 2


@pytest.mark.parametrize(
    ("precision", "card", "mixed"),
    [
        ("auto", "a100", True),
        ("auto", "cpu", False),
        ("float32", "a100", False),
        ("bfloat16", "cpu", True),
    ],
)
def test_bfloat16_is_for_gpus_unless_the_recipe_says_otherwise(precision, card, mixed):
    card = dataclasses.replace(ROUND, name=card)
    assert make_plan(tiny_gpt(precision=precision), card, 2).mixed is mixed


# Data and cards


def test_data_that_decide_a_size_must_be_here_or_the_size_be_given():
    recipe = find_recipe("shakespeare-char")
    with pytest.raises(BadFile, match=r"shakespeare is not here yet.*give model\.vocab_size=…"):
        Sizes(recipe)
    assert Sizes(with_changes(recipe, ["model.vocab_size=77"])).config.vocab_size == 77


def test_data_that_are_here_decide(tmp_path):
    (tmp_path / "text.txt").write_text("abcde" * 200)
    data = CharacterData(path=str(tmp_path / "text.txt"), context=3)
    model = dataclasses.replace(tiny_gpt().model, vocab_size=UNDECIDED)
    recipe = dataclasses.replace(tiny_gpt(), data=data, model=model)
    assert Sizes(recipe).config.vocab_size == 5


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nosuch\.tsv"):
        Sizes(small_recipe("translate-gru", f"data.path={tmp_path / 'nosuch.tsv'}"))


@pytest.mark.parametrize("name", ["shakespeare-char", "dialogue"])
def test_made_up_texts_fill_a_batch(name):
    for batch_size in (1, 7, 100):
        sizes = Sizes(small_recipe(name, "data.validation=0.37", batch_size=batch_size))
        assert sizes._make_batch(batch_size).inputs.shape == (batch_size, sizes.task.data.context)


def test_the_largest_batch_of_sentences_is_counted():
    """Sentences of a batch have like lengths, and batches unlike ones."""
    sizes = Sizes(find_recipe("translate-transformer"))
    batches = [sizes.task.batch(plan) for plan in sizes.task.plans(0, 0, 64)[:20]]
    lengths = [batch.source.size(1) for batch in batches]
    assert min(lengths) < sizes._make_batch(64).source.size(1) == max(lengths)


def test_cards_are_plausible():
    for card in CARDS.values():
        assert 8e9 <= card.memory <= 300e9
        assert 1e12 < card.single < (card.half or math.inf) < math.inf or card.half is None
        assert 1e11 < card.bandwidth < 1e13
        assert 1e10 <= card.link < card.bandwidth
    assert (CARDS["a100"].half, CARDS["a100"].memory) == (312e12, 40e9)


def test_an_unknown_card_is_refused():
    with pytest.raises(
        ValueError, match=r"gpu must be one of v100, .*, got 'h10'; did you mean h100\?"
    ):
        check_card("h10")


def test_the_processes_of_this_machine_share_it(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    machine = find_card("cpu")
    assert min(machine.memory, machine.single, machine.bandwidth) > 0
    two, four = share_machine(machine, 2), share_machine(machine, 4)
    assert (two.memory, two.single) == (machine.memory / 2, machine.single)
    assert (four.memory, four.single) == (machine.memory / 4, machine.single / 2)

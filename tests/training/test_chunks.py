"""A step in chunks: the same bits whoever computes them, and the gradient of the plain step."""

import dataclasses
import functools
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from training.chunk_sums import spread, sum_over
from training.ranks_in_turn import run_ranks
from training.tiny_task import TinyData, TinyModel, TinyTask, tiny

from clearhead.data.batch import IGNORE, Batch
from clearhead.models import ViTConfig
from clearhead.parallel.replicated import PartGradients
from clearhead.training import Recipe, TrainingConfig, find_recipe, with_changes
from clearhead.training.chunks import (
    cut_plan,
    list_subtrees,
    share_chunks,
    split_plan,
    split_span,
)
from clearhead.training.gradient import NotFinite
from clearhead.training.loop import Training
from clearhead.training.state import DataOrder, State
from clearhead.training.storage import Snapshot
from clearhead.training.tasks.characters import CharacterData, CharacterTask
from clearhead.training.tasks.pictures import PictureData
from clearhead.training.tasks.task import Task

# The tree

sizes = st.integers(1, 40), st.integers(1, 12)  # chunks, processes


@given(*sizes)
def test_the_shares_of_all_processes_hold_each_chunk_once(n, size):
    shares = [share_chunks(n, rank, size) for rank in range(size)]
    assert [chunk for share in shares for chunk in share] == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(*sizes)
def test_the_subtrees_of_all_shares_hold_each_chunk_once(n, size):
    found = [list_subtrees(share_chunks(n, rank, size), (0, n)) for rank in range(size)]
    assert [c for spans in found for span in spans for c in range(*span)] == list(range(n))


@given(*sizes)
def test_no_two_subtrees_of_a_share_are_the_halves_of_one_node(n, size):
    """Else a process would send two vectors where it could send their sum."""
    for rank in range(size):
        spans = set(list_subtrees(share_chunks(n, rank, size), (0, n)))
        nodes, halves = [(0, n)], []
        while nodes:
            node = nodes.pop()
            if node[1] - node[0] > 1:
                pair = split_span(node)
                halves.append(set(pair))
                nodes.extend(pair)
        assert not any(pair <= spans for pair in halves)


@pytest.mark.parametrize(
    ("span", "halves"),
    [
        ((0, 2), ((0, 1), (1, 2))),
        ((0, 3), ((0, 2), (2, 3))),
        ((0, 4), ((0, 2), (2, 4))),
        ((4, 9), ((4, 8), (8, 9))),
        ((0, 6), ((0, 4), (4, 6))),
    ],
)
def test_the_left_half_is_the_largest_power_of_two_below_the_whole(span, halves):
    assert split_span(span) == halves


@given(*sizes, st.integers(0, 1 << 32))
def test_the_sum_has_the_same_bits_on_any_number_of_processes(n, size, seed):
    vectors = spread(n, 50, seed)
    alone = sum_over(vectors, 1)
    assert torch.equal(sum_over(vectors, size), alone)
    exact = vectors.double().sum(0)
    torch.testing.assert_close(
        alone.double(), exact, rtol=0, atol=1e-5 * float(vectors.abs().max())
    )


def test_the_spread_is_wide_enough_to_see_another_order():
    vectors = spread(4, 50, 0)
    in_a_row = ((vectors[0] + vectors[1]) + vectors[2]) + vectors[3]
    assert not torch.equal(sum_over(vectors, 1), in_a_row)


def test_the_sum_of_five_is_that_of_the_tree():
    a, b, c, d, e = vectors = spread(5, 50, 1)
    expected = ((a + b) + (c + d)) + e
    assert torch.equal(sum_over(vectors, 1), expected)
    assert torch.equal(sum_over(vectors, 3), expected)


@given(*sizes)
def test_each_number_is_added_once(n, size):
    ones = torch.eye(n)
    assert torch.equal(sum_over(ones, size), torch.ones(n))


@given(st.integers(0, 60), st.integers(1, 20))
def test_a_plan_is_split_into_nearly_equal_parts_that_hold_every_example_once(n, parts):
    plan = list(range(100, 100 + n))
    found = split_plan(plan, parts)
    assert [i for part in found for i in part] == plan
    assert len(found) == min(n, parts)
    assert all(len(part) in (n // parts, -(-n // parts)) for part in found)
    assert [part for part in cut_plan(plan, parts) if part] == found
    assert len(cut_plan(plan, parts)) == parts


# Every example once


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 2, 5, 8, 20])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_T26_every_example_is_learned_from_once_an_epoch(size, batch_size, accumulate):
    """Datasets of 1 to 17 examples: one, fewer than a batch, not divisible by the ranks."""
    for n in range(1, 18):
        per_epoch = -(-n // batch_size)  # batches
        n_epochs = accumulate  # then these end together with a step
        recipe = tiny(
            per_epoch, n=n, batch_size=batch_size, accumulate=accumulate, parallel="exact"
        )

        def learn(group, recipe=recipe):
            task, seen = recipe.data.open(), Counter()
            training = Training(recipe, task, group=group)
            make_batch = training.make_batch
            training.make_batch = lambda plan: seen.update(plan) or make_batch(plan)
            while training.state.step < recipe.training.steps:
                training.update(training.next_plans())
                training.state.step += 1
            return seen, training.state.epoch

        found = run_ranks(size, learn)
        total = sum((seen for seen, _ in found), Counter())
        assert total == dict.fromkeys(range(n), n_epochs), (n, [seen for seen, _ in found])
        assert {epoch for _, epoch in found} == {n_epochs - 1}


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 2, 5, 8, 20])
def test_T26_in_the_parts_of_ddp_and_fsdp_is_every_example_once(size, batch_size):
    for n in range(1, 18):
        recipe = tiny(n=n, batch_size=batch_size, accumulate=2, parallel="ddp")
        task, seen = recipe.data.open(), Counter()
        for rank in range(size):
            group = SimpleNamespace(rank=rank, size=size)
            parts_of = PartGradients(task.build(recipe.model), task, recipe.training, group)
            plans, state = DataOrder(task, 0, batch_size), State()
            for _ in range(-(-n // batch_size)):  # two epochs
                parts = parts_of.split([plans.next(state), plans.next(state)])
                assert len(parts) == 2 * size
                for number in range(rank, len(parts), size):
                    seen.update(parts[number])
                    batch = parts_of._make(parts, number, task.batch, 0)
                    assert parts_of._count(parts[number], batch) == len(parts[number])
        assert seen == dict.fromkeys(range(n), 2), n


@pytest.mark.parametrize("size", [1, 2, 3])
def test_T26_no_examples_are_refused_by_every_rank(size):
    def learn(group):
        training = Training(tiny(n=0, parallel="exact"), TinyTask(TinyData(0)), group=group)
        with pytest.raises(ValueError, match="there are no examples to learn from in epoch 0"):
            training.next_plans()

    with pytest.raises(ValueError, match="there are no examples to learn from"):
        Training(tiny(n=0, eval_every=None, parallel="exact"), TinyTask(TinyData(0)))
    run_ranks(size, learn)


# The gradient

TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps. " * 12


class Speeches(CharacterTask):
    """Characters of which many are no targets, unequally many in each window."""

    def batch(self, plan):
        batch = super().batch(plan)
        targets = batch.targets.clone()
        for row, start in zip(targets, plan, strict=True):
            row[: start // len(row) * 5 % len(row)] = IGNORE
        return Batch(batch.inputs, targets)


@dataclasses.dataclass(frozen=True)
class SpeechData(CharacterData):
    def open(self):
        return Speeches(self, TEXT)


def character_recipe(*changes):
    recipe = find_recipe("shakespeare-char")
    recipe = dataclasses.replace(recipe, data=SpeechData(context=16))
    small = ["model.d_model=12", "model.n_layers=1", "model.n_heads=2", "training.batch_size=7"]
    return with_changes(recipe, [*small, "training.workers=1", *changes])


SMALL = {
    "characters": character_recipe,
    "pictures": lambda *changes: with_changes(
        find_recipe("vit-digits"),
        ["data.n_train=30", "data.n_test=6", "data.shift=0", "data.smoothing=0.1", "data.size=14",
         "model.d_model=12", "model.n_layers=1", "model.n_heads=2", "training.batch_size=9",
         *changes],
    ),
    "sequences": lambda *changes: with_changes(
        find_recipe("unique"), ["data.n_examples=40", "training.batch_size=11", *changes]
    ),
    "substrings": lambda *changes: with_changes(
        find_recipe("substring"),
        ["data.n_examples=40", "data.n_validation=5", "model.d_model=8", "model.n_heads=2",
         "training.workers=1", "training.batch_size=7", *changes],
    ),
    "dates": lambda *changes: with_changes(
        find_recipe("translate-transformer"),
        ["data.n_examples=30", "data.n_validation=3", "data.n_decoded=2", "model.d_model=8",
         "model.n_layers=1", "model.n_heads=2", "training.batch_size=9", *changes],
    ),
    "dates by GRUs": lambda *changes: with_changes(
        find_recipe("translate-gru"),
        ["data.n_examples=30", "data.n_validation=3", "data.n_decoded=2", "model.d_embedding=6",
         "model.d_hidden=8", "training.batch_size=9", *changes],
    ),
}  # fmt: skip


@functools.cache
def open_task(kind):
    return SMALL[kind]().data.open()


def learn_once(recipe, task, group=None, step=0):
    """The gradient of one step, its loss, and the buffers after it."""
    training = Training(recipe, task, group=group)
    training.state.step = step
    gradients, plans = training.gradients, training.next_plans()
    loss = gradients.learn(gradients.split(plans), training.make_batch, step)
    found = {name: p.grad for name, p in training.model.named_parameters()}
    buffers = {name: buffer.clone() for name, buffer in training.model.named_buffers()}
    return {**found, **buffers, "loss": loss.mean}


def assert_same_bits(one, two):
    assert one.keys() == two.keys()
    for name, value in one.items():
        same = two[name] is None if value is None else torch.equal(value, two[name])
        assert same, name


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("chunks", [1, 3, 8])
def test_the_gradient_is_that_of_all_terms_of_the_step(kind, chunks):
    """The mean over all terms of both batches; plain steps take the mean of two means."""
    recipe = SMALL[kind]("training.parallel=exact", f"training.chunks={chunks}")
    recipe = with_changes(recipe, ["training.accumulate=2"])
    task = open_task(kind)
    found = learn_once(recipe, task)
    plain = Training(recipe, task)
    model = plain.model.train()
    batches = [plain.make_batch(plan) for plan in plain.next_plans()]
    counts = [task.count_terms(batch) for batch in batches]
    assert counts[0] != counts[1] or kind in ("pictures", "substrings")
    losses = [task.loss(model, batch) for batch in batches]
    mean = sum(n * loss for n, loss in zip(counts, losses, strict=True)) / sum(counts)
    mean.backward()
    torch.testing.assert_close(found["loss"], mean.detach())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=2e-6)
    assert any(float(p.grad.norm()) > 1e-3 for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_rank_has_the_same_bits_as_one_alone(kind, size):
    recipe, task = SMALL[kind]("training.parallel=exact", "training.chunks=5"), open_task(kind)
    alone = learn_once(recipe, task)
    for found in run_ranks(size, lambda group: learn_once(recipe, task, group)):
        assert_same_bits(found, alone)


class Numbers(Task):
    """Mean of w · x: its gradient is the mean of all x that count."""

    predictor, n_examples, fingerprint = None, 7, "0" * 64
    table = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    counted = torch.tensor([True, True, False, True, True, True, False])

    def complete(self, config):
        return config

    def build(self, config):
        return Slope(config)

    def plans(self, seed, epoch, batch_size):
        return [range(5), range(5, 7)]

    def batch(self, plan):
        rows = torch.tensor(plan)
        return Batch(self.table[rows], torch.where(self.counted[rows], 0, IGNORE))

    def loss(self, model, batch):
        kept = batch.targets != IGNORE
        return (model(batch.inputs) * kept).sum() / kept.sum().clamp(min=1)

    def evaluate(self, model):
        return {}

    def overfit(self, n):
        return self


class Slope(TinyModel):
    def forward(self, x):
        return self.idle[0] * x


def learn_numbers(chunks, accumulate=2, **changes):
    recipe = tiny(chunks=chunks, accumulate=accumulate, parallel="exact", **changes)
    training = Training(recipe, Numbers())
    parts = training.gradients.split(training.next_plans())
    loss = training.gradients.learn(parts, training.make_batch, 0)
    return training, parts, loss


@pytest.mark.parametrize("chunks", [1, 2, 4, 6, 10])
def test_a_chunk_counts_as_much_as_it_has_terms(chunks):
    """Of 1 2 4 8 16 and 32 64, all but 4 and 64 count: the mean is 59 / 5."""
    training, parts, loss = learn_numbers(chunks)
    assert float(training.model.idle.grad[0]) == pytest.approx(59 / 5, rel=1e-6)
    assert float(loss.mean) == pytest.approx(59 / 5, rel=1e-6)
    assert [i for part in parts for i in part] == list(range(7))
    assert len(parts) == {1: 2, 2: 2, 4: 4, 6: 5, 10: 7}[chunks]
    assert len(loss.losses) == len(parts)


def test_the_losses_are_those_of_the_chunks():
    _, parts, loss = learn_numbers(4)
    assert [list(part) for part in parts] == [[0, 1], [2, 3, 4], [5], [6]]
    assert [float(x) for x in loss.losses] == [1.5, 12.0, 32.0, 0.0]


def test_parameters_without_a_gradient_keep_none():
    """Also if a chunk is computed by a rank that has none: its zeros are no gradient."""
    training, _, _ = learn_numbers(4)
    grads = {name: p.grad for name, p in training.model.named_parameters()}
    assert [name for name, grad in grads.items() if grad is not None] == ["idle"]


class HalfUsed(Numbers):
    """Examples below 5 use one parameter, the others another."""

    def loss(self, model, batch):
        which = model.idle if float(batch.inputs[0]) < 32 else model.inner.bias
        return which[0] * batch.inputs.mean()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_parameter_that_only_some_chunks_use_has_their_gradient_on_every_rank(size):
    recipe = tiny(chunks=2, accumulate=2, parallel="exact")

    def learn(group):
        found = learn_once(recipe, HalfUsed(), group)
        return float(found["idle"][0]), float(found["inner.bias"][0]), found["head.bias"]

    # 4 of 5 and 1 of 2 terms count; means 31 / 5 and 96 / 2.
    for found in run_ranks(size, learn):
        assert found == (pytest.approx(6.2 * 4 / 5, rel=1e-6), pytest.approx(48 / 5), None)


class NothingCounts(Numbers):
    counted = torch.zeros(7, dtype=torch.bool)


def test_the_mean_over_no_terms_is_zero_with_gradient_zero():
    """As for a plain step: a mean over nothing is 0."""
    recipe = tiny(chunks=3, accumulate=2, parallel="exact")
    found = learn_once(recipe, NothingCounts())
    assert float(found["loss"]) == 0.0
    assert found["idle"].tolist() == [0.0, 0.0, 0.0]


class Broken(Numbers):
    """One example has no finite loss."""

    table = torch.tensor([1.0, 2.0, 4.0, float("nan"), 16.0, 32.0, 64.0])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_chunk_that_is_not_finite_stops_every_rank_and_is_named(size):
    recipe = tiny(chunks=4, accumulate=2, parallel="exact")

    def learn(group):
        training = Training(recipe, Broken(), group=group)
        with pytest.raises(NotFinite) as caught:
            training.update(training.next_plans())
        return str(caught.value)

    (sentence,) = set(run_ranks(size, learn))
    assert sentence.startswith("the loss is nan at step 0, for the batch of the examples 2, 3, 4;")


# What is random


def dropped(*changes):
    return character_recipe("model.dropout=0.3", "training.parallel=exact", *changes)


@pytest.mark.parametrize("size", [2, 3])
def test_dropout_does_not_depend_on_the_number_of_ranks(size):
    task = open_task("characters")
    alone = learn_once(dropped(), task)
    for found in run_ranks(size, lambda group: learn_once(dropped(), task, group)):
        assert_same_bits(found, alone)


def test_dropout_depends_on_seed_step_and_chunk_alone():
    """One window, four times: the losses of its chunks differ only by what is dropped."""
    task = open_task("characters")

    def losses(seed, step, wait=0):
        training = Training(dropped(), task)  # the same weights for every seed
        training.gradients.config = dataclasses.replace(training.config, seed=seed)
        torch.rand(wait)  # what was drawn before does not matter
        found = training.gradients.learn([[16]] * 4, training.make_batch, step)
        return [float(loss) for loss in found.losses]

    first = losses(0, 0)
    assert len(set(first)) == 4
    assert losses(0, 0, wait=3) == first
    assert not set(losses(0, 1)) & set(first)
    assert not set(losses(1, 0)) & set(first)


AUGMENTED = Recipe(
    "augmented",
    PictureData("digits", size=16, n_train=17, n_test=5, mirror=True, shift=2, cutout=4, mixup=0.3),
    ViTConfig(
        stem="convolution", patch_size=8, class_token=False, pool="mean",
        d_model=12, n_layers=1, n_heads=3,
    ),
    TrainingConfig(6, batch_size=5, accumulate=2, chunks=6, parallel="exact", eval_every=4),
)  # fmt: skip


def train_in_memory(recipe, task, group=None):
    """Everything a run leaves, and the metrics."""
    training = Training(recipe, task, group=group)
    training.join()
    state = training.run()
    tensors = {**training.model.state_dict(), **training.optimizer.tensors()}
    assert state.step == recipe.training.steps
    return {name: tensor.clone() for name, tensor in tensors.items()}, training.storage.metrics


@pytest.mark.parametrize("size", [2, 3])
def test_augmentation_and_batch_norm_do_not_depend_on_the_number_of_ranks(size):
    task = AUGMENTED.data.open()
    alone, metrics = train_in_memory(AUGMENTED, task)
    for found, its_metrics in run_ranks(
        size, lambda group: train_in_memory(AUGMENTED, task, group)
    ):
        assert_same_bits(found, alone)
        assert its_metrics == metrics


def test_two_workers_give_the_bits_of_one():
    task = AUGMENTED.data.open()
    one, metrics = train_in_memory(AUGMENTED, task)
    two, its_metrics = train_in_memory(with_changes(AUGMENTED, ["training.workers=2"]), task)
    assert_same_bits(two, one)
    assert its_metrics == metrics


def test_batch_norm_takes_the_mean_over_the_chunks():
    """Running mean after a chunk: 0.9 · old + 0.1 · mean of the chunk; then the mean of these."""
    task = AUGMENTED.data.open()
    recipe = with_changes(AUGMENTED, ["training.chunks=4"])
    training = Training(recipe, task)
    norm, seen = training.model.patches.norm_1, []
    old = torch.full_like(norm.running_mean, 0.5)
    norm.running_mean.copy_(old)
    norm.num_batches_tracked.fill_(2**25)  # more than a float32 can count
    norm.register_forward_pre_hook(lambda module, given: seen.append(given[0].mean((0, 2, 3))))
    parts = training.gradients.split(training.next_plans())
    training.gradients.learn(parts, training.make_batch, 7)
    assert len(seen) == len(parts) == 4
    torch.testing.assert_close(norm.running_mean, 0.9 * old + 0.1 * torch.stack(seen).mean(0))
    assert int(norm.num_batches_tracked) == 2**25 + 1


@pytest.mark.parametrize("size", [2, 3])
def test_a_buffer_of_the_users_own_does_not_depend_on_the_number_of_ranks(size):
    """TinyModel adds up what it has seen; a table that stays is the same to the bit."""
    recipe = tiny(8, chunks=5, parallel="exact")
    task = recipe.data.open()
    alone, metrics = train_in_memory(recipe, task)
    assert float(alone["seen"]) != 0
    assert torch.equal(alone["table"], task.build(recipe.model).table)
    for found, its_metrics in run_ranks(size, lambda group: train_in_memory(recipe, task, group)):
        assert_same_bits(found, alone)
        assert its_metrics == metrics


class Unequal(TinyTask):
    """Its table holds numbers that no mean of five gives back, and an infinity."""

    def build(self, config):
        model = super().build(config)
        model.table.copy_(torch.tensor([0.1, float("inf"), 1 / 3, float("-inf")]))
        return model


def test_a_buffer_that_stays_is_the_same_to_the_bit():
    recipe = tiny(3, chunks=5, parallel="exact")
    found, _ = train_in_memory(recipe, Unequal(recipe.data))
    assert torch.equal(found["table"], Unequal(recipe.data).build(recipe.model).table)


def test_a_gradient_lies_in_memory_as_its_parameter():
    """AdamW's fused kernel goes by the place in memory, and would move other weights."""
    training = Training(AUGMENTED, AUGMENTED.data.open())
    training.gradients.learn(
        training.gradients.split(training.next_plans()), training.make_batch, 0
    )
    strides = [p.stride() for p in training.model.parameters()]
    assert [p.grad.stride() for p in training.model.parameters()] == strides
    assert any(isinstance(m, nn.Conv2d) for m in training.model.modules())


# The loop on several ranks


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_rate_is_that_of_all_ranks(size):
    """Four chunks for three ranks: the last computes two of them, the others one each."""
    recipe = tiny(5, chunks=4, parallel="exact")

    def learn(group):
        training = Training(recipe, recipe.data.open(), group=group)
        training.run()
        rate = training.clock.progress(5, 5, {}).rate
        return rate * training.clock.seconds_learning

    assert run_ranks(size, learn) == [pytest.approx(40)] * size


def test_all_ranks_join_the_state_of_the_first():
    recipe = tiny(7, parallel="exact")

    def learn(group):
        training = Training(recipe, recipe.data.open(), group=group)
        if group.rank == 0:
            whole = Training(recipe, recipe.data.open())
            for _ in range(3):
                whole.advance()
            training.load(
                Snapshot(whole.state, whole.model.state_dict(), whole.optimizer.tensors())
            )
        training.join()
        assert training.saved == (3, 3)  # else a rank would save what is saved already
        return {**training.model.state_dict(), "step": torch.tensor(training.state.step)} | {
            name: tensor.clone() for name, tensor in training.optimizer.tensors().items()
        }

    first, *others = run_ranks(3, learn)
    assert int(first["step"]) == 3
    assert float(first["muon.inner.weight"].norm()) > 0
    for other in others:
        assert_same_bits(other, first)


class Slow(TinyTask):
    """Its evaluation is interrupted, on the first rank only."""

    training = None

    def evaluate(self, model):
        if self.training is not None and self.training.state.step == 8:
            self.training.stop()
        return super().evaluate(model)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_an_evaluation_that_is_interrupted_stops_all_ranks_at_the_same_step(size):
    recipe = tiny(12, parallel="exact")

    def learn(group):
        task = Slow(recipe.data)
        training = Training(recipe, task, group=group)
        task.training = training
        state = training.run()
        return state.step, state.logged, training.is_stopped, training.is_done

    assert run_ranks(size, learn) == [(8, 7, True, False)] * size


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_stop_of_any_rank_stops_all_after_the_same_step(which):
    recipe = tiny(12, parallel="exact")

    def learn(group):
        training = Training(recipe, recipe.data.open(), group=group)
        advance = training.advance

        def stop_once():
            advance()
            if group.rank == which and training.state.step == 5:
                training.stop()

        training.advance = stop_once
        state = training.run()
        return state.step, training.is_stopped

    assert run_ranks(3, learn) == [(5, True)] * 3

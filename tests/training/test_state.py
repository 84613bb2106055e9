"""How far a run has come."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training.tiny_task import TinyData, TinyTask

from clearhead.data.shuffling import EvenPlans
from clearhead.training.state import DataOrder, State, seed_torch


def test_a_state_is_plain_values_and_back():
    sizes, best = {"metrics.jsonl": 9}, {"val_loss": 0.5}
    state = State(3, 1, 8, 3, 0.25, 2, 0.5, 2, best, 1, 2.5, sizes, True)
    assert State.from_dict(state.to_dict()) == state
    assert State.from_dict(State().to_dict()) == State()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": 1}, "State has no 'colour'"),
        ({"step": "3"}, "step must be a whole number"),
        ({"step": True}, "step must be a whole number"),
        ({"cursor": 1.5}, "cursor must be a whole number"),
        ({"loss_sum": None}, "loss_sum must be a number"),
        ({"best": "x"}, "best must be a number or none"),
        ({"best_metrics": {"a": "b"}}, "best_metrics.'a'. must be a number"),
        ({"sizes": [1]}, "sizes must be"),
        ({"finished": 1}, "finished must be true or false"),
        ({"logged": 9}, "logged must be step or the one before, got 9"),
        ({"logged": 1}, "logged must be step or the one before, got 1"),
        ({"step": 3, "logged": 2}, "loss_steps must be at least 1 after a step that is not"),
        ({"cursor": -1}, "cursor must not be negative, got -1"),
        ({"sizes": {"metrics.jsonl": -5}}, "metrics.jsonl must not be negative, got -5"),
    ],
)
def test_a_state_with_an_odd_field_is_refused_by_its_name(change, words):
    with pytest.raises((ValueError, TypeError), match=words):
        State.from_dict({**State().to_dict(), **change})


@pytest.mark.parametrize("name", State().to_dict())
def test_a_state_without_a_field_is_refused_by_its_name(name):
    values = State().to_dict()
    values.pop(name)
    with pytest.raises(ValueError, match=f"State needs '{name}', which is missing"):
        State.from_dict(values)


@given(n=st.integers(1, 30), batch_size=st.integers(1, 9), stop=st.integers(0, 40))
def test_T26_batches_resume_at_any_state_as_if_never_stopped(n, batch_size, stop):
    task = TinyTask(TinyData(n))
    whole, state = DataOrder(task, 7, batch_size), State()
    order = [list(whole.next(state)) for _ in range(stop + 12)]
    state = State()
    first = DataOrder(task, 7, batch_size)
    seen = [list(first.next(state)) for _ in range(stop)]
    state = State.from_dict(state.to_dict())
    again = DataOrder(task, 7, batch_size)
    assert seen + [list(again.next(state)) for _ in range(12)] == order
    flat = [i for batch in order for i in batch]
    for start in range(0, len(flat) - n + 1, n):
        assert sorted(flat[start : start + n]) == list(range(n))


def test_epochs_follow_each_other_and_each_uses_every_example_once():
    task, state = TinyTask(TinyData(7)), State()
    order = DataOrder(task, 7, 3)
    for epoch in range(3):
        plans = [list(order.next(state)) for _ in range(3)]
        assert state.epoch == epoch
        assert plans == [list(plan) for plan in task.plans(7, epoch, 3)]
        assert sorted(i for plan in plans for i in plan) == list(range(7))


def test_no_plans_are_an_error_not_a_loop():
    with pytest.raises(ValueError, match="no examples to learn from in epoch 0"):
        DataOrder(TinyTask(TinyData(0)), 0, 4).next(State())


def test_random_numbers_depend_on_seed_purpose_and_step_alone():
    def drawn(*given):
        seed_torch(torch.device("cpu"), *given)
        return torch.rand(3).tolist()

    one = drawn(0, "step", 5)
    torch.rand(9)
    assert drawn(0, "step", 5) == one
    others = [drawn(1, "step", 5), drawn(0, "weights", 5), drawn(0, "step", 6)]
    assert one not in others
    assert len({tuple(each) for each in others}) == 3


@given(n=st.integers(2, 30), sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)), data=st.data())
def test_with_another_batch_size_no_example_is_used_twice_in_an_epoch(n, sizes, data):
    """A cursor inside a new batch skips to the next whole one: it never goes back."""
    task, state = TinyTask(TinyData(n)), State()
    first = DataOrder(task, 7, sizes[0])
    used = []
    for _ in range(data.draw(st.integers(1, -(-n // sizes[0])))):
        used += first.next(state)
    second = DataOrder(task, 7, sizes[1])
    batch = list(second.next(state))
    while state.epoch == 0:
        used += batch
        batch = list(second.next(state))
    assert len(set(used)) == len(used)


class EvenTask(TinyTask):
    """The same plans, each made when asked for."""

    def plans(self, seed, epoch, batch_size):
        whole = [i for plan in super().plans(seed, epoch, batch_size) for i in plan]
        return EvenPlans(len(whole), batch_size, lambda places: [whole[i] for i in places])


@given(n=st.integers(1, 30), sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)), data=st.data())
def test_plans_made_when_asked_for_give_the_states_of_listed_ones(n, sizes, data):
    """Also after a change of the batch size in the middle of an epoch."""
    tasks = TinyTask(TinyData(n)), EvenTask(TinyData(n))
    states = State(), State()
    for size in sizes:
        orders = [DataOrder(task, 7, size) for task in tasks]
        assert orders[0].steps_per_epoch(2) == orders[1].steps_per_epoch(2)
        for _ in range(data.draw(st.integers(0, 40))):
            plans = [list(o.next(state)) for o, state in zip(orders, states, strict=True)]
            assert plans[0] == plans[1]
            assert states[0] == states[1]

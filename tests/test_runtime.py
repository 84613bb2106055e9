"""Seed, device and threads: `auto` measures, nothing is left changed, nonsense is refused."""

import os
import random

import pytest
import torch

from clearhead import runtime
from clearhead.runtime import (
    Place,
    choose_threads,
    measure_threads,
    pick_device,
    read_place,
    seed_everything,
    set_threads,
    widen,
)


@pytest.fixture(autouse=True)
def _same_threads_afterwards(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # the tests may be run with it
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_same_seed_gives_the_same_numbers():
    draws = []
    for seed in (3, 3, 4):
        seed_everything(seed)
        draws.append((random.random(), torch.rand(2).tolist()))
    assert draws[0] == draws[1] != draws[2]


# Threads


def test_measuring_gives_seconds_for_each_candidate_and_changes_nothing():
    before, state = torch.get_num_threads(), torch.get_rng_state()
    seconds = measure_threads((1, 2), repeats=2)
    assert set(seconds) == {1, 2}
    assert all(0 < s < 60 for s in seconds.values())
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state), "measuring drew from the generator of the run"


def test_measuring_restores_the_threads_when_it_is_interrupted(monkeypatch):
    before = torch.get_num_threads()

    def interrupted(*_):
        assert torch.get_num_threads() == before + 1
        raise KeyboardInterrupt

    monkeypatch.setattr(runtime, "_run_layers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure_threads((before + 1,))
    assert torch.get_num_threads() == before


def test_the_median_counts_and_a_hopeless_candidate_is_not_tried_again(monkeypatch):
    times = {
        1: [0.010, 0.030, 0.011, 0.012, 0.009],
        2: [0.200],
        3: [0.008, 0.020, 0.021, 0.022, 0.023],
    }
    monkeypatch.setattr(runtime, "measure_seconds", lambda _: times[torch.get_num_threads()].pop(0))
    assert measure_threads((1, 2, 3)) == {1: 0.011, 2: 0.200, 3: 0.021}
    assert times == {1: [], 2: [], 3: []}


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({1: 0.010, 2: 0.100}, 1),
        ({1: 0.010, 2: 0.0079}, 2),
        ({1: 0.010, 2: 0.0081}, 1),
        ({1: 0.010, 2: 0.010}, 1),
    ],
)
def test_two_threads_are_chosen_if_they_are_clearly_faster(monkeypatch, seconds, chosen):
    monkeypatch.setattr(runtime, "_count_cores", lambda: 2)
    monkeypatch.setattr(runtime, "measure_threads", lambda candidates: seconds)
    assert choose_threads() == chosen
    assert set_threads("auto") == chosen
    assert torch.get_num_threads() == chosen


def test_one_thread_and_all_count_cores_are_compared(monkeypatch):
    asked = []

    def measure(candidates):
        asked.append(candidates)
        return dict.fromkeys(candidates, 1.0)

    monkeypatch.setattr(runtime, "measure_threads", measure)
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
        choose_threads()
        monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    choose_threads()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert choose_threads() == 1
    assert asked[-2:] == [(1, 6), (1, 1)]
    assert asked[:-2] in ([], [(1, 3)])


@pytest.mark.parametrize(("processes", "most"), [(1, 7), (2, 3), (3, 2), (7, 1), (9, 1)])
def test_processes_share_the_cores(monkeypatch, processes, most):
    monkeypatch.setattr(runtime, "_count_cores", lambda: 7)
    monkeypatch.setattr(runtime, "measure_threads", lambda them: {n: 1 / n for n in them})
    assert set_threads("auto", Place(0, 99, 0, processes)) == most


@pytest.mark.parametrize(("asked", "threads"), [("3", 3), ("2,1", 2), ("", 7), ("x", 7), ("0", 7)])
def test_auto_obeys_the_environment_before_it_measures(monkeypatch, asked, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.setattr(runtime, "_count_cores", lambda: 7)
    monkeypatch.setattr(runtime, "measure_threads", lambda candidates: {1: 2.0, 7: 1.0})
    assert choose_threads() == threads


def test_a_number_of_threads_is_set_as_it_is():
    assert set_threads(2) == 2
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("threads", "error", "words"),
    [
        (0, ValueError, "threads must be at least 1, got 0"),
        (-1, ValueError, "threads must be at least 1, got -1"),
        (1.0, TypeError, "threads must be a whole number, got 1.0"),
        (True, TypeError, "threads must be a whole number, got True"),
        ("all", TypeError, "threads must be a whole number, got 'all'"),
        (10**30, ValueError, "^threads must be"),
    ],
)
def test_nonsense_is_no_number_of_threads(threads, error, words):
    before = torch.get_num_threads()
    with pytest.raises(error, match=words):
        set_threads(threads)
    assert torch.get_num_threads() == before


# Devices and floats


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_half_precision_is_widened_and_wider_numbers_stay_the_same_object(dtype):
    x = torch.tensor([1.5, -2.0], dtype=dtype)
    wide = widen(x)
    assert wide.dtype == torch.promote_types(dtype, torch.float32)
    assert torch.equal(wide, x.to(wide.dtype))
    assert (wide is x) == (dtype == wide.dtype)


def test_the_processor_is_always_there():
    assert pick_device("cpu") == torch.device("cpu")


def test_auto_is_the_accelerator_if_there_is_one(monkeypatch):
    found = torch.device("meta")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: found)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert pick_device() == pick_device("auto") == found
    # A build that knows an accelerator, on a machine that has none.
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert pick_device() == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "AUTO", "vulkan", "hpu", "privateuseone"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(
        ValueError, match=rf"^device '{name}' cannot be used here .*use auto or cpu$"
    ):
        pick_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it can be used")
def test_a_missing_graphics_card_is_a_sentence_and_not_a_crash():
    with pytest.raises(ValueError, match="device 'cuda' cannot be used here") as caught:
        pick_device("cuda")
    assert "\n" not in str(caught.value)


# Rank

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "5", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "3"}


@pytest.fixture
def as_torchrun_sets(monkeypatch):
    def change(**values):
        for name in TORCHRUN:
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return change


def test_a_process_without_torchrun_is_alone(as_torchrun_sets):
    as_torchrun_sets()
    assert read_place() == Place(0, 1, 0, 1)


def test_a_process_reads_its_place(as_torchrun_sets):
    as_torchrun_sets(**TORCHRUN)
    assert read_place() == Place(2, 5, local_rank=0, local_size=3, has_agent=True)


@pytest.mark.parametrize("name", TORCHRUN)
@pytest.mark.parametrize("value", ["", "-1", "one", "1.0", " 2", None])
def test_a_place_that_is_no_number_is_named(as_torchrun_sets, name, value):
    given = {**TORCHRUN, name: value}
    as_torchrun_sets(**{key: text for key, text in given.items() if text is not None})
    with pytest.raises(ValueError, match=rf"{name} must be a number, .* got {value!r}; start with"):
        read_place()


@pytest.mark.parametrize(
    "wrong",
    [
        {"RANK": "5"},
        {"RANK": "0", "WORLD_SIZE": "0"},
        {"LOCAL_RANK": "3"},
        {"LOCAL_WORLD_SIZE": "6"},
    ],
)
def test_a_place_outside_of_all_places_is_refused(as_torchrun_sets, wrong):
    as_torchrun_sets(**{**TORCHRUN, **wrong})
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=rf"{name}={value}.* do not fit together; start"):
        read_place()


def test_each_process_of_a_machine_has_the_accelerator_of_its_number(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    assert pick_device("auto", Place(5, 8, 1, 4)) == torch.device("cuda", 1)
    assert pick_device("auto", Place()) == torch.device("cuda")
    assert pick_device("cpu", Place(5, 8, 1, 4)) == torch.device("cpu")


@pytest.mark.parametrize("local_rank", [0, 2])
def test_more_processes_than_accelerators_are_refused_by_all(monkeypatch, local_rank):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="need a mps device each, but it has 1; start 1"):
        pick_device("auto", Place(local_rank, 3, local_rank, 3))

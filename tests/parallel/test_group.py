"""Real processes that ask, tell and wait for one another: what each answer is on every rank."""

import json
import os
import re
from dataclasses import replace
from threading import Event, Thread
from time import sleep

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parallel.forked_ranks import Ranks
from torch import nn
from training.chunk_sums import spread, sum_over

from clearhead.parallel.group import Processes, join_group
from clearhead.parallel.meeting import NoAnswer, agree_on_word, read_timeout
from clearhead.parallel.owners import Owners, divide_costs, estimate_cost
from clearhead.runs.resume import HARMLESS
from clearhead.runtime import Place, read_place
from clearhead.training import TrainingConfig
from clearhead.training.chunks import add_tree, count_chunks, list_subtrees, share_chunks
from clearhead.training.group import Group, Stop

COUNTS = (1, 2, 3, 4, 5, 7, 8, 13)  # chunks; some are fewer than the processes
LENGTHS = (1, 2, 5, 1000)  # of vectors; some are shorter than there are processes
REST = 3  # numbers of a vector after the gradients
WORDS = 'Füße, 日本語, 🐈 and "quotes"\n\x00'
FACTS = {"recipe": "tiny", "training": {"lr": 0.1, "seed": 0}, "examples": "ab12", "torch": "2.9"}


def check_everything(group):
    """Ask everything that can be asked; returns the answers of this rank as JSON can hold them."""
    rank, size = group.rank, group.size
    answers = {"rank": rank, "size": size}
    answers["any"] = [group.any(flag) for flag in (False, True, rank == 0, rank == size - 1)]
    own, group.parent = group.parent, -1 if rank == size - 1 else group.parent
    answers["orphan"] = group.any(False)
    group.parent = own
    questions = (WORDS, None, [1, 2.5], {"a": []}, 0.1 + 0.2, "x" * 300_000)
    answers["told"] = [group.ask_first(lambda value=value: value) for value in questions]
    answers["nan"] = str(group.ask_first(lambda: float("nan")))
    answers["first"] = group.ask_first(lambda: f"of rank {rank}")
    answers["stop"] = catch(Stop, lambda: group.ask_first(raise_stop))
    answers["after"] = group.ask_first(lambda: "goes on")
    answers["copied"] = copy_first(group)
    answers["sums"] = [
        add_up(group, n, length) for n in COUNTS for length in LENGTHS
    ]  # fmt: skip
    answers["lengths"], answers["updated"] = update(group)
    answers["shares"] = [list(group.share(n)) for n in COUNTS]
    answers["same"] = catch(ValueError, lambda: group.compare(FACTS))
    harmless = differ_harmlessly(rank, size)
    answers["harmless"] = catch(ValueError, lambda: group.compare(harmless, ignore=HARMLESS))
    answers["different"] = [
        catch(ValueError, lambda facts=facts: group.compare(facts)) for facts in differ(rank, size)
    ]
    answers["numbers"] = group.gather_numbers([rank + 0.1, -1e300])
    answers["said"] = [group.say_first(sentence) for sentence in (WORDS, WORDS, f"rank {rank}")]
    group.wait()
    return answers


def raise_stop():
    raise Stop


def catch(kind, work):
    try:
        work()
    except kind as fault:
        return str(fault) or type(fault).__name__
    return None


def differ(rank, size):
    """Facts of which the last rank has other ones than the first."""
    is_last = rank == size - 1
    yield {**FACTS, "training": {"lr": 0.2 if is_last else 0.1, "seed": 0}}
    yield {**FACTS, "examples": "cd34" if is_last else "ab12"}
    yield {**FACTS, "torch": "2.10" if is_last else "2.9"}
    yield {**FACTS, **({"extra": 1} if is_last else {})}
    yield {**FACTS, **({} if is_last else {"extra": "é" * 500})}


def differ_harmlessly(rank, size):
    """Facts with another release of Python, and another name of a file, on the last rank."""
    is_last = rank == size - 1
    file = {"file": "copy.py" if is_last else "mine.py", "hash": "ab"}
    return {**FACTS, "python": "3.11.4" if is_last else "3.11.9", "code": file}


def copy_first(group):
    """Tensors of many kinds, some not contiguous; on the first rank they are left as they are."""
    start = group.rank * 100
    tensors = [
        torch.arange(6.0).view(2, 3).mT + start,
        torch.tensor(start),
        torch.tensor([True, False]) ^ (group.rank > 0),
        torch.zeros(0, 3),
        torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last) + start,
        torch.nn.Parameter(torch.ones(2) + start),
        (torch.arange(12.0) + start)[::2],
        torch.ones(3, dtype=torch.float64) / 3 + start,
    ]
    group.copy_first(tensors)
    return [tensor.tolist() for tensor in tensors]


def add_up(group, n, length):
    """The bits of the sum, as numbers: the gradients of the own parameters, and what follows."""
    model = nn.ParameterList([nn.Parameter(torch.zeros(length))])
    model.extend([nn.Parameter(torch.zeros(size)) for size in (4, 1, 6)])
    group.owners = Owners(model, rank=group.rank, size=group.size, is_muon=False)
    vectors, own = spread(n, length + 11 + REST, n), group.share(n)

    def find(span):
        return vectors[span[0]].clone() if span[1] - span[0] == 1 else None

    parts = {span: add_tree(span, find) for span in list_subtrees(own, (0, n))}
    total = group.add_up(parts, n, length + 11 + REST)
    start, end = group.owners.slices[group.rank]
    return total[: end - start].view(torch.int32).tolist(), total[-REST:].tolist()


class Layers(nn.Sequential):
    """Matrices for Muon, one of them not contiguous, and the rest for AdamW."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(*(nn.Linear(4 + i, 5 + i) for i in range(4)), nn.Conv2d(3, 7, 2))
        self[4].to(memory_format=torch.channels_last)


def update(group):
    """Three updates by gradients of which each process has only its own.

    Returns the sum of numbers of which each process has its own, and the bits of all tensors.
    """
    config, model = TrainingConfig(steps=1, optimizer="muon", parallel="exact"), Layers()
    optimizer = Group.make_optimizer(group, model, config)
    parameters = list(model.parameters())
    group.owners = Owners(model, rank=group.rank, size=group.size, is_muon=True)
    for step in range(3):
        torch.manual_seed(step)
        gradients = [torch.randn_like(parameter) for parameter in parameters]
        own = group.list_own(len(parameters))
        for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            parameter.grad = gradient if i in own and i != 3 else None
        lengths = [float(p.grad.norm()) if p.grad is not None else 0.0 for p in parameters]
        total = group.add_own(torch.tensor(lengths))
        group.update(optimizer, 0.5)
    group.collect(optimizer)
    tensors = [*parameters, *optimizer.tensors().values()]
    bits = [tensor.detach().contiguous().view(torch.int32).tolist() for tensor in tensors]
    return total.tolist(), bits


@pytest.fixture(scope="module", params=[2, 3])
def answers(request, tmp_path_factory):
    """Of each rank."""
    folder = tmp_path_factory.mktemp("answers")

    def work(rank):
        with join_group("exact", torch.device("cpu"), read_place()) as group:
            assert isinstance(group, Processes)
            found = check_everything(group)
        (folder / f"{rank}.json").write_text(json.dumps(found))

    ranks = Ranks(request.param, work, folder, CLEARHEAD_TIMEOUT="60")
    assert ranks.end() == [0] * request.param, ranks.read()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]


def test_no_sign_of_life_is_being_written_when_a_process_ends(tmp_path):
    """Python would end the thread inside torch, which aborts."""

    class SlowStore:
        def __init__(self, store):
            self.store, self.begun = store, Event()

        def set(self, key, value):
            self.begun.set()
            sleep(0.5)

        def __getattr__(self, name):
            return getattr(self.store, name)

    def work(rank):
        with join_group("ddp", torch.device("cpu"), read_place()) as group:
            group.signs.store = SlowStore(group.store)
            assert group.signs.store.begun.wait(30)
        assert not group.signs.thread.is_alive()

    ranks = Ranks(1, work, tmp_path)
    assert ranks.end() == [0], ranks.read()


def test_each_process_knows_its_rank(answers):
    assert [(one["rank"], one["size"]) for one in answers] == [
        (rank, len(answers)) for rank in range(len(answers))
    ]


def test_a_flag_of_any_process_is_seen_by_all(answers):
    assert all(one["any"] == [False, True, True, True] for one in answers)


def test_all_stop_if_the_program_that_started_one_of_them_has_ended(answers):
    assert all(one["orphan"] is True for one in answers)


def test_all_get_the_answer_of_the_first_to_the_bit(answers):
    for one in answers:
        assert one["told"] == [WORDS, None, [1, 2.5], {"a": []}, 0.1 + 0.2, "x" * 300_000]
        assert (one["nan"], one["first"]) == ("nan", "of rank 0")


def test_all_raise_the_stop_of_the_first_and_go_on_together(answers):
    assert all((one["stop"], one["after"]) == ("Stop", "goes on") for one in answers)


def test_tensors_of_any_kind_become_those_of_the_first(answers):
    alone = copy_first(Group())
    assert all(one["copied"] == alone for one in answers)


def test_sums_have_the_bits_of_one_process(answers):
    """Each has those of its own parameters; together, each number once."""
    cases = [(n, length) for n in COUNTS for length in LENGTHS]
    for number, (n, length) in enumerate(cases):
        expected = sum_over(spread(n, length + 11 + REST, n), 1)
        found = [one["sums"][number] for one in answers]
        together = [bits for gradients, _ in found for bits in gradients]
        assert together == expected[:-REST].view(torch.int32).tolist()
        assert all(rest == expected[-REST:].tolist() for _, rest in found)


def test_updates_that_are_shared_out_have_the_bits_of_one_process(answers):
    lengths, bits = update(Group())
    assert lengths[3] == 0.0
    assert all(one["lengths"] == lengths for one in answers)
    assert all(one["updated"] == bits for one in answers)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.integers(1, 8))
def test_each_parameter_has_one_owner_and_no_owner_much_more_than_its_share(costs, size):
    ranges = divide_costs(costs, size)
    assert len(ranges) == size
    assert [i for own in ranges for i in own] == list(range(len(costs)))
    most = max(sum(costs[i] for i in own) for own in ranges)
    assert most <= sum(costs) / size + max(costs)


def test_an_update_by_muon_costs_more_than_one_by_adamw():
    """(4, 6): 5 steps with products of 2·4·6·4, 2·4·4·4 and 2·4·4·6 operations."""
    matrix = torch.zeros(6, 4)
    assert estimate_cost(matrix, is_muon=False) == 2400
    assert estimate_cost(matrix, is_muon=True) == 2400 + 5 * (192 + 128 + 192)


def test_all_chunks_are_shared_out(answers):
    for number, n in enumerate(COUNTS):
        assert [c for one in answers for c in one["shares"][number]] == list(range(n))


def test_equal_facts_are_accepted_and_all_refuse_different_ones_in_the_same_words(answers):
    last = len(answers) - 1
    expected = [
        f"the processes differ in training.lr: 0.1 on rank 0, 0.2 on rank {last};",
        f"the processes differ in examples: 'ab12' on rank 0, 'cd34' on rank {last};",
        f"the processes differ in torch: '2.9' on rank 0, '2.10' on rank {last};",
        f"the processes differ in extra: 'nothing' on rank 0, 1 on rank {last};",
        f"the processes differ in extra: '{'é' * 199} on rank 0, 'nothing' on rank {last};",
    ]
    for one in answers:
        assert one["same"] is None
        assert one["harmless"] is None
        assert one["different"] == answers[0]["different"]
    for sentence, beginning in zip(answers[0]["different"], expected, strict=True):
        assert sentence.startswith(beginning)
        assert sentence.endswith("; start all of them in the same way, with the same files")


def test_numbers_are_gathered_in_the_order_of_the_ranks(answers):
    expected = [[rank + 0.1, -1e300] for rank in range(len(answers))]
    assert all(one["numbers"] == expected for one in answers)


def test_a_sentence_is_said_by_one_process_only(answers):
    said = [one["said"] for one in answers]
    assert sum(first for first, _, _ in said) == 1
    assert not any(again for _, again, _ in said)
    assert all(own for _, _, own in said)


# One process


def test_one_process_is_alone():
    place = Place()
    for parallel in (None, "exact"):
        with join_group(parallel, torch.device("cpu"), place) as group:
            assert type(group) is Group


def test_several_processes_need_a_mode():
    with (
        pytest.raises(ValueError, match=r"2 processes need training\.parallel=exact.*ddp.*fsdp"),
        join_group(None, torch.device("cpu"), Place(1, 2, 1, 2)),
    ):
        pass


@pytest.mark.parametrize("text", ["0", "0.5", "-3", "86401", "nan", "inf", "soon", "5 s", "1e9"])
def test_a_time_limit_that_makes_no_sense_is_refused(monkeypatch, text):
    monkeypatch.setenv("CLEARHEAD_TIMEOUT", text)
    with pytest.raises(ValueError, match=r"CLEARHEAD_TIMEOUT must be .* from 1 to 86400, got '"):
        read_timeout()


@given(st.integers(1, 86400))
def test_a_time_limit_is_read(seconds):
    os.environ["CLEARHEAD_TIMEOUT"] = str(seconds)
    try:
        assert read_timeout() == seconds
    finally:
        del os.environ["CLEARHEAD_TIMEOUT"]
    assert read_timeout() == 600


@given(st.integers(1, 30), st.integers(1, 12))
def test_a_share_is_that_of_the_group(n, size):
    for rank in range(size):
        group = Group()
        group.rank, group.size = rank, size
        assert group.share(n) == share_chunks(n, rank, size)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))
def test_the_advice_for_idle_processes_gives_all_of_them_work(size, chunks, batch_size, n):
    given = {"chunks": chunks, "batch_size": batch_size, "accumulate": n}
    for mode in ("exact", "ddp"):
        config = TrainingConfig(steps=1, parallel=mode, **given)
        group = Processes.__new__(Processes)
        group.size = size
        limit = batch_size if mode == "ddp" else count_chunks(config)
        notice = group.find_notice(config)
        assert (notice is None) == (limit >= size)
        if notice:
            assert f"only {limit} of {size} processes" in notice
            advice = {k: int(v) for k, v in re.findall(r"training\.(\w+)=(\d+)", notice)}
            assert all(value > given[name] for name, value in advice.items())
            assert group.find_notice(replace(config, **advice)) is None


# The meeting


def meet_in_threads(store, size, absent=(), seconds=20.0):
    """What each rank gets from agree_on_word: the word it can read, or its error."""
    found = {}

    def run(rank):
        try:
            kept = agree_on_word(store, Place(rank, size, rank, size), seconds)
            kept.set(f"at {rank}", str(rank))
            found[rank] = kept.underlying_store, kept
        except NoAnswer as fault:
            found[rank] = str(fault)

    threads = [Thread(target=run, args=(r,)) for r in reversed(range(size)) if r not in absent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_processes_of_each_attempt_meet_apart_from_those_before(size):
    store = torch.distributed.HashStore()
    kept = []
    for _ in range(4):
        found = meet_in_threads(store, size)
        kept.append(found[0][1])
        for _, its in found.values():
            assert [its.get(f"at {rank}") for rank in range(size)] == [
                str(rank).encode() for rank in range(size)
            ]
        kept[-1].set("attempt", str(len(kept)))
    assert [int(its.get("attempt")) for its in kept] == [1, 2, 3, 4]


def test_words_of_an_earlier_attempt_do_not_count():
    """Its first rank has ended after it wrote the list, and a rank of now is not there yet."""
    store = torch.distributed.HashStore()
    meet_in_threads(store, 3)
    found = meet_in_threads(store, 3, absent=[1], seconds=1.0)
    assert found[0] == "rank 1 of 3 could not be reached within 1 s (nobody answered)"
    assert not isinstance(found[2], str)  # it waits for rank 1 in the next exchange


def test_without_rank_0_the_others_name_it():
    store = torch.distributed.HashStore()
    meet_in_threads(store, 3)
    found = meet_in_threads(store, 3, absent=[0], seconds=1.0)
    expected = "rank 0 of 3 could not be reached within 1 s (nobody answered)"
    assert found == {1: expected, 2: expected}


def test_a_device_that_does_not_work_is_not_blamed_on_the_others(monkeypatch):
    def fail(index):
        raise RuntimeError("CUDA error: invalid device ordinal")

    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setattr(torch.accelerator, "set_device_index", fail)
    with pytest.raises(RuntimeError, match=r"^CUDA error: invalid device"):
        Processes(torch.device("cuda:1"), Place())

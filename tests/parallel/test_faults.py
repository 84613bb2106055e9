"""A run of several processes through kills, stops, signals, full disks and broken numbers."""

import os
import random
import resource
import signal
import time

import pytest
from parallel.forked_ranks import LIMIT, Ranks, wait_until
from parallel.planted_faults import plant_faults, read_moments
from parallel.real_agent import Agent
from parallel.small_processes import (
    count_lines,
    find_run,
    list_hashes,
    make_command,
    run_to_end,
    stop_after,
    wait_for_step,
)
from torch.distributed import TCPStore

from clearhead.data.batch import plan_batches
from clearhead.files.lock import PATIENCE
from clearhead.runs import train_recipe
from clearhead.runs.checkpoint import find_checkpoints, is_finished
from clearhead.runs.storage import DiskStorage
from clearhead.training.loop import Training
from clearhead.training.tasks.substrings import SubstringTask


@pytest.fixture
def expected(folder):
    """The hashes of the run that nothing disturbs, by one process."""
    run_to_end(1, make_command("substring", folder / "whole"), folder)
    return list_hashes(folder / "whole")


def command(name, folder, *changes):
    return make_command("substring", folder / name, *changes)


def name_checkpoints(out):
    return [path.name for path in find_checkpoints(find_run(out).checkpoints)]


def get_sentences(text):
    return [line for line in text.splitlines() if line.startswith("error: ")]


# torchrun


@pytest.mark.slow
def test_T14_after_SIGTERM_to_torchrun_all_leave_with_one_checkpoint(folder, expected):
    """And if torchrun itself is killed, its processes stop by themselves; both times the same
    command resumes the run."""
    words, out = make_command("substring", folder / "out"), folder / "out"
    for step, name in ((3, "SIGTERM"), (6, "SIGKILL")):
        agent = Agent(2, words, folder, faults=[["step", step, 1, name, "agent", 0]])
        code = agent.end()  # also waits until no process is left
        seconds = time.monotonic() - read_moments(agent.read())[-1]
        saved = find_checkpoints(find_run(out).checkpoints)[-1]
        assert code == (1 if name == "SIGTERM" else -signal.SIGKILL), agent.read()
        assert agent.read().count("stopped; the run is saved in") == (1 if step == 3 else 2)
        assert saved.name == f"step-{step:07}"
        # 2 on a quiet machine. After 30, torchrun would kill processes that do not leave.
        assert seconds < 20, agent.read()
    agent = Agent(2, words, folder)
    assert agent.end() == 0, agent.read()
    assert list_hashes(out) == expected
    assert (find_run(out) / "report.html").exists()


@pytest.mark.slow
def test_T15_after_kills_torchrun_starts_the_group_again_and_it_ends_with_the_same_bytes(
    folder, expected
):
    """Of either rank, in a step, between a save and its end, and in an evaluation."""
    faults = [
        ["step", 3, 1, "SIGKILL", "self", 0],
        ["save", 8, 0, "SIGKILL", "self", 1],
        ["evaluate", 10, 0, "SIGKILL", "self", 2],
    ]
    words = make_command("substring", folder / "out")
    agent = Agent(2, words, folder, faults=faults, restarts=3)
    assert agent.end() == 0, agent.read()
    assert list_hashes(folder / "out") == expected
    assert agent.read().count("resuming after step") == 2  # there was no checkpoint at step 3


# Forked ranks: the same faults at many more moments


def run_through(size, words, folder, faults, restarts=40):
    """Start the processes again after each fault, as an agent does; returns how many failed."""
    for attempt in range(restarts):
        ranks = Ranks(
            size,
            words,
            folder,
            prepare=lambda rank, attempt=attempt: plant_faults(faults, rank, attempt),
        )
        limit = time.monotonic() + LIMIT
        while None in (codes := ranks.look_all()) and not any(codes):
            assert time.monotonic() < limit, ranks.read()
            time.sleep(0.002)
        if not any(codes):
            return attempt
        ranks.kill()
    raise AssertionError(f"there were more than {restarts} faults")


PLACES = [
    *(("step", 1, 0), ("step", 1, 1), ("step", 3, 1), ("sync", 4, 0), ("save", 4, 0)),
    *(("step", 5, 1), ("evaluate", 5, 0), ("sync", 5, 0), ("step", 6, 0), ("save", 8, 0)),
    *(("step", 9, 1), ("step", 12, 0), ("evaluate", 12, 0), ("save", 12, 0), ("result", 12, 1)),
]


@pytest.mark.parametrize(("mode", "size"), [("exact", 3), ("ddp", 2), ("fsdp", 2)])
def test_T15_a_kill_of_any_rank_in_any_place_changes_nothing(folder, mode, size):
    """exact: as one process that nobody kills; ddp and fsdp: as so many processes."""
    changes = [f"training.parallel={mode}", "training.workers=1"]
    run_to_end(1 if mode == "exact" else size, command("whole", folder, *changes), folder)
    places = [*PLACES]
    if mode == "fsdp":  # all ranks evaluate and write
        places[-2:-2] = [("evaluate", 12, 1), ("sync", 12, 1)]
    faults = [[*place, "SIGKILL", "self", attempt] for attempt, place in enumerate(places)]
    assert run_through(size, command("out", folder, *changes), folder, faults) == len(places)
    assert list_hashes(folder / "out") == list_hashes(folder / "whole")


def slow_down(rank):
    """Steps that take long enough for no run to end before it is killed."""
    update = Training.update

    def wait_and_update(self, plans):
        time.sleep(0.01)
        return update(self, plans)

    Training.update = wait_and_update


@pytest.mark.parametrize(("mode", "seed"), [("exact", 1), ("ddp", 3)])
def test_T15_kills_at_random_moments_change_nothing(folder, mode, seed):
    changes = [f"training.parallel={mode}", "training.workers=1", "training.steps=100"]
    run_to_end(2, command("whole", folder, *changes), folder)
    words, randomly = command("out", folder, *changes), random.Random(seed)
    for kind in ("start", "step", "step"):
        before = count_lines(folder / "out")
        ranks, which = Ranks(2, words, folder, prepare=slow_down), randomly.randrange(2)
        if kind == "step":
            wait_until(lambda n=before: count_lines(folder / "out") > n, "a step after the start")
        time.sleep(randomly.uniform(0.0, 0.3))
        ranks.send(which)
        if randomly.random() < 0.7:
            ranks.kill()
        assert ranks.stop()[which] == -signal.SIGKILL, ranks.read()
    said = run_to_end(2, words, folder)
    assert "resuming after step" in said
    assert list_hashes(folder / "out") == list_hashes(folder / "whole")


@pytest.mark.parametrize(
    ("mode", "size", "which"), [("exact", 3, 0), ("ddp", 2, 1), ("fsdp", 2, 1)]
)
def test_T16_a_rank_that_is_stopped_is_named_within_the_time_limit(folder, mode, size, which):
    faults = [["step", 3, which, "SIGSTOP", "self", 0]]
    began = time.monotonic()
    ranks = Ranks(
        size,
        command("out", folder, f"training.parallel={mode}", "training.workers=1"),
        folder,
        prepare=lambda rank: plant_faults(faults, rank),
        CLEARHEAD_TIMEOUT="8",
    )
    try:
        assert ranks.end(but=[which]) == [8] * (size - 1)
        assert 8 < time.monotonic() - began < 60  # 11 on a quiet machine
        (sentence,) = get_sentences(ranks.read())
        assert f": rank {which} of {size} gave no sign of life: killed, suspended" in sentence
        assert "(time limit 8 s); the same command resumes the run" in sentence
        assert ranks.look(which) is None
    finally:
        ranks.kill()


def test_T16_a_rank_that_hangs_is_named_although_it_gives_signs_of_life(folder):
    def prepare(rank):
        update = Training.update

        def hang(self, plans):
            if rank == 1 and self.state.step == 2:
                time.sleep(LIMIT)
            return update(self, plans)

        Training.update = hang

    words = command("out", folder, "training.workers=1")
    ranks = Ranks(3, words, folder, prepare=prepare, CLEARHEAD_TIMEOUT="4")
    try:
        assert ranks.end(but=[1]) == [8, 8]
        (sentence,) = get_sentences(ranks.read())
        assert (
            ": rank 1 of 3 did not come to an exchange for which the others waited 4 s" in sentence
        )
        assert "needs a longer --timeout" in sentence
    finally:
        ranks.kill()


def test_T16_if_the_machine_of_rank_0_is_cut_off_the_others_end_and_say_so(folder):
    """Rank 0 and the store stop, and keep their connections: nothing answers, nothing fails."""
    port, told = os.pipe()
    machine = os.fork()
    if not machine:
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        os.write(told, f"{store.port:05}".encode())
        time.sleep(LIMIT)
        os._exit(0)
    number = str(int(os.read(port, 5)))

    def prepare(rank):
        os.environ["MASTER_PORT"] = number
        update = Training.update

        def cut(self, plans):
            if rank == 0 and self.state.step == 2:
                os.kill(machine, signal.SIGSTOP)
                os.kill(os.getpid(), signal.SIGSTOP)
            return update(self, plans)

        Training.update = cut

    words = command("out", folder, "training.workers=1")
    ranks = Ranks(2, words, folder, prepare=prepare, CLEARHEAD_TIMEOUT="4")
    try:
        assert ranks.end(but=[0]) == [8]
        (sentence,) = get_sentences(ranks.read())
        assert "rank 1: the machine of rank 0 does not answer" in sentence
        assert "the same command resumes the run" in sentence
    finally:
        ranks.kill()
        os.kill(machine, signal.SIGKILL)
        os.waitpid(machine, 0)


def test_a_rank_that_never_comes_is_named(folder):
    """It hangs before it joins the others."""
    ranks = Ranks(
        3,
        make_command("substring", folder / "out"),
        folder,
        prepare=lambda rank: time.sleep(600 if rank == 1 else 0),
        CLEARHEAD_TIMEOUT="5",
    )
    try:
        assert ranks.end(but=[1]) == [8, 8]
        assert "rank 1 of 3 could not be reached within 5 s" in ranks.read()
    finally:
        ranks.kill()


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_stops_them_after_the_same_step(folder, number):
    """As Ctrl-C at a terminal does, which every process gets."""
    words = make_command("substring", folder / "out", "training.steps=100000")
    ranks = Ranks(3, words, folder)
    wait_for_step(folder / "out", 7, ranks)
    for rank in range(3):
        ranks.send(rank, number)
    assert ranks.end() == [128 + number] * 3, ranks.read()
    assert ranks.read().count("stopped; the run is saved in") == 1
    last = int(name_checkpoints(folder / "out")[-1].removeprefix("step-"))
    assert last >= 7
    assert find_run(folder / "out").read_metrics()[-1]["step"] in (last, last - 1)


def test_a_long_evaluation_is_interrupted_for_all_and_repeated(folder, expected):
    words = command("out", folder)

    for number in range(2):
        begun = folder / f"evaluation {number} has begun"

        def make_evaluation_long(rank, begun=begun):
            def evaluate(self, model):
                begun.touch()
                for _ in range(6000):
                    time.sleep(0.1)

            SubstringTask.evaluate = evaluate

        ranks = Ranks(2, words, folder, prepare=make_evaluation_long)
        wait_until(begun.exists, "the evaluation")
        for rank in range(2):
            ranks.send(rank, signal.SIGTERM)
        # Rank 1 may have stopped with rank 0 and be about to end when its own signal arrives.
        first, second = ranks.end()
        assert first == 143, ranks.read()
        assert second in (143, -signal.SIGTERM), ranks.read()
    run_to_end(2, words, folder)
    assert list_hashes(folder / "out") == expected


# Errors


BROKEN = plan_batches(64, 8, seed=0, epoch=0)[5][6]  # an example of the third step


def break_an_example(rank):
    """Its loss is not a number."""
    batch, loss = SubstringTask.batch, SubstringTask.loss
    inputs = []

    def broken(self, plan):
        found = batch(self, plan)
        if BROKEN in list(plan):
            inputs.append(found.inputs)
        return found

    def broken_loss(self, model, found):
        value = loss(self, model, found)
        return value * float("nan") if any(found.inputs is each for each in inputs) else value

    SubstringTask.batch, SubstringTask.loss = broken, broken_loss


@pytest.mark.parametrize("mode", ["exact", "ddp", "fsdp"])
def test_a_number_that_is_not_finite_on_one_rank_stops_all_and_is_named_once(folder, mode):
    changes = [f"training.parallel={mode}", "training.eval_every=2", "training.workers=1"]
    words = command("out", folder, *changes)
    ranks = Ranks(2, words, folder, prepare=break_an_example)
    assert ranks.end() == [3, 3], ranks.read()
    (sentence,) = get_sentences(ranks.read())
    assert "the loss is nan at step 2, for" in sentence
    batch = sentence.partition("for the batch of the examples ")[2].partition(";")[0]
    assert str(BROKEN) in batch.split(", ")
    assert len(batch.split(", ")) <= 4  # of its part of the step alone
    assert sentence.endswith("; the last checkpoint is that of step 2")
    # Also after a resume, when only the first rank has read a checkpoint:
    ranks = Ranks(2, words, folder, prepare=break_an_example)
    assert ranks.end() == [3, 3]
    assert len(get_sentences(ranks.read())) == 1
    assert "the last checkpoint is that of step 2\n" in ranks.read()


def fill_the_disk(rank):
    """A limit of the size of a file is as good as a full disk, here that of the first rank."""
    if rank == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))


def fill_the_disk_later(rank):
    """Before the checkpoint of step 8 is saved."""
    save = DiskStorage.save

    def limited(self, snapshot):
        if snapshot.state.step == 8:
            fill_the_disk(rank)
        save(self, snapshot)

    DiskStorage.save = limited


@pytest.mark.parametrize("mode", ["exact", "ddp", "fsdp"])
def test_a_full_disk_of_the_first_rank_ends_all_and_the_run_resumes(folder, mode):
    changes = [f"training.parallel={mode}", "training.workers=1"]
    run_to_end(2, command("whole", folder, *changes), folder)
    words = command("out", folder, *changes)
    ranks = Ranks(2, words, folder, prepare=fill_the_disk)
    assert ranks.end() == [4, 8], ranks.read()
    assert ranks.read(0).count("error: rank 0: ") == 1
    assert "file too large" in ranks.read(0)
    reason = "rank 0 ended with an error; its own message names the cause"
    assert ranks.read(1) == f"error: rank 1: {reason}\n"
    assert not list(folder.rglob("*.part"))
    ranks = Ranks(2, words, folder, prepare=fill_the_disk_later)
    assert ranks.end() == [4, 8], ranks.read()
    assert name_checkpoints(folder / "out")[-1] == "step-0000005"
    assert "resuming after step 5 of 12" in run_to_end(2, words, folder)
    assert list_hashes(folder / "out") == list_hashes(folder / "whole")


def differ_in_data(folder):
    for name, text in (("a", "to be or not to be, "), ("b", "that is the question: ")):
        (folder / name).mkdir()
        (folder / name / "play.txt").write_text(text * 30)
    words = make_command("shakespeare-char", folder / "out")[:-1]
    return [[*words, "data.path=play.txt"]] * 2, lambda rank: os.chdir(folder / "ab"[rank])


def differ_in_config(folder):
    words = make_command("substring", folder / "out")
    return [words, [*words, "training.lr=0.5"]], lambda rank: None


def differ_in_version(folder):
    def prepare(rank):
        from clearhead.runs import train_recipe

        describe = train_recipe.describe_environment
        other = {"torch": "1.0"} if rank == 1 else {}
        train_recipe.describe_environment = lambda *given: {**describe(*given), **other}

    return make_command("substring", folder / "out"), prepare


@pytest.mark.parametrize(
    ("differ", "sentence"),
    [
        (differ_in_config, "the processes differ in training.lr: 0.01 on rank 0, 0.5 on rank 1;"),
        (differ_in_data, "the processes differ in examples: '"),
        (differ_in_version, "the processes differ in torch: '"),
    ],
)
def test_ranks_that_disagree_refuse_to_start_and_name_the_difference_once(folder, differ, sentence):
    words, prepare = differ(folder)
    ranks = Ranks(2, words, folder, prepare=prepare)
    assert ranks.end() == [2, 2], ranks.read()
    (found,) = get_sentences(ranks.read())
    assert sentence in found
    assert not (folder / "out").exists()


def test_an_unknown_error_of_one_rank_ends_all(folder, expected):
    def prepare(rank):
        def fail(self, plans):
            raise IndexError("a bug")

        if rank == 1:
            Training.update = fail

    words = make_command("substring", folder / "out")
    ranks = Ranks(3, words, folder, prepare=prepare)
    assert ranks.end() == [8, 1, 8], ranks.read()
    assert "IndexError: a bug" in ranks.read(1)
    (sentence,) = get_sentences(ranks.read())
    assert "rank 1 ended with an error; its own message names the cause" in sentence
    run_to_end(2, words, folder)
    assert list_hashes(folder / "out") == expected


def test_a_run_that_others_train_is_not_touched(folder):
    words = make_command("substring", folder / "out", "training.steps=100000")
    (folder / "second").mkdir()
    first = Ranks(2, words, folder)
    wait_for_step(folder / "out", 5, first)

    def wait_briefly(rank):
        train_recipe.WAIT_FOR_LAST = 0.5

    second = Ranks(2, words, folder / "second", prepare=wait_briefly)
    assert second.end() == [6, 8], second.read()
    assert second.read().count("error: rank 0: ") == 1
    assert first.look_all() == [None, None]
    # Processes whose agent was killed soon end. Until then, the same command waits for them.
    third = Ranks(2, words, folder / "second")
    time.sleep(2 * PATIENCE)
    assert third.look_all() == [None, None], third.read()
    assert first.stop() == [143, 143]
    wait_until(lambda: "resuming after step" in third.read(), "the resumed run")
    assert third.stop() == [143, 143], third.read()


# Options


def test_a_run_whose_report_is_missing_is_not_trained_again_however_late_a_rank_is(folder):
    words = make_command("substring", folder / "out")
    run_to_end(2, words, folder)
    before = list_hashes(folder / "out")

    def prepare(rank):
        def finish(*given, **options):
            (folder / f"drawn by {rank}").touch()
            (find_run(folder / "out") / "report.html").write_text("drawn")

        from clearhead.cli import train

        train._finish = finish
        if rank == 1:
            time.sleep(2)

    run_to_end(2, words, folder, prepare=prepare)
    assert (folder / "drawn by 0").exists()
    assert not (folder / "drawn by 1").exists()
    assert list_hashes(folder / "out") == before  # and there is still one run


def test_a_dry_run_of_several_processes_leaves_nothing(folder):
    words = [*make_command("substring", folder / "out"), "--dry-run"]
    said = run_to_end(2, words, folder)
    assert said.count("all parts work; nothing is kept") == 1
    assert not (folder / "out").exists()


def test_several_processes_resume_a_run_by_its_folder_and_by_force(folder, expected):
    out = folder / "out"
    words = make_command("substring", out)
    ranks = Ranks(2, words, folder, prepare=stop_after(6, 0))
    assert ranks.end() == [143, 143]
    run = str(find_run(out).path)
    ranks = Ranks(3, ["train", "--resume", run, "training.lr=0.5"], folder)
    assert ranks.end() == [2, 8, 8]
    assert "training.lr: 0.01 then, 0.5 now" in ranks.read(0)
    run_to_end(3, ["train", "--resume", run], folder)
    assert list_hashes(out) == expected
    more = ["training.lr=0.5", "training.steps=14", "--force"]
    said = run_to_end(2, ["train", "--resume", run, *more], folder)
    assert "resuming although this differs: training.lr: 0.01 then, 0.5 now" in said
    assert name_checkpoints(out)[-1] == "step-0000014"
    assert is_finished(find_run(out).checkpoints)


def test_several_processes_without_a_mode_are_refused(folder):
    words = [word for word in make_command("substring", folder / "out") if "parallel" not in word]
    ranks = Ranks(2, words, folder)
    assert ranks.end() == [2, 2]
    for rank in range(2):
        assert f"error: rank {rank}: 2 processes need training.parallel=exact" in ranks.read(rank)

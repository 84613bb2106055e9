"""training.parallel=exact: whole runs have the same bytes on 1, 2, 3 and 4 processes."""

import errno
import json
import os
import re
import signal
from threading import Event

import pytest
from parallel.forked_ranks import LIMIT, Ranks, wait_until
from parallel.small_processes import (
    RECIPES,
    TEXT,
    find_run,
    list_hashes,
    make_command,
    run_to_end,
    stop_after,
)

from clearhead.data import pack_texts
from clearhead.runs import storage
from clearhead.runs.checkpoint import find_checkpoints
from clearhead.training.loop import Training


@pytest.mark.parametrize("name", RECIPES)
def test_the_bytes_of_a_run_do_not_depend_on_the_number_of_processes(folder, name):
    run_to_end(1, make_command(name, folder / "1"), folder)
    expected = list_hashes(folder / "1")
    assert expected["last"] == "step-0000012"
    for size in (2, 4):
        run_to_end(size, make_command(name, folder / str(size)), folder)
        assert list_hashes(folder / str(size)) == expected, size
        environment = json.loads((find_run(folder / str(size)) / "environment.json").read_text())
        assert (environment["processes"], environment["threads"]) == (size, 1)


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_that_is_stopped_resumes_on_any_number_of_processes(folder, name):
    """From 2 processes to 3, 1 and 2; also while it evaluates, and before the first checkpoint."""
    run_to_end(1, make_command(name, folder / "whole"), folder)
    expected = list_hashes(folder / "whole")
    words, before = make_command(name, folder / "stopped"), None
    for size, step, which in ((2, 3, 1), (3, 5, 0), (1, 8, 0), (2, 10, 1)):
        ranks = Ranks(size, words, folder, prepare=stop_after(step, which))
        assert ranks.end() == [143] * size, ranks.read()
        now = "1 process" if size == 1 else f"{size} processes"
        said = f"this run continues on {now}; before, it had {before}"
        assert (said in ranks.read()) == (before is not None), ranks.read()
        run, before = find_run(folder / "stopped"), size
        assert run.environment["processes"] == size
        assert sorted(path.name for path in run.checkpoints.iterdir())[-1] == f"step-{step:07}"
    said = run_to_end(2, words, folder)
    assert "this run continues on" not in said
    assert list_hashes(folder / "stopped") == expected


def test_another_seed_gives_other_bytes(folder):
    words = make_command("substring", folder / "one")
    run_to_end(2, words, folder)
    run_to_end(2, [*make_command("substring", folder / "two"), "training.seed=1"], folder)
    one, two = (list_hashes(folder / name) for name in ("one", "two"))
    assert all(one[name] != two[name] for name in one if name.endswith((".safetensors", ".jsonl")))


def test_another_number_of_chunks_is_another_run(folder):
    words = make_command("substring", folder / "one")
    run_to_end(2, words, folder)
    run_to_end(2, [*make_command("substring", folder / "two"), "training.chunks=8"], folder)
    one, two = (list_hashes(folder / name) for name in ("one", "two"))
    assert one["model.safetensors"] != two["model.safetensors"]


@pytest.mark.parametrize("name", ["substring", "vit-digits"])
def test_the_bytes_do_not_depend_on_the_number_of_processes_in_bfloat16_either(folder, name):
    def make(out):
        return [*make_command(name, folder / out), "training.precision=bfloat16"]

    run_to_end(1, make("1"), folder)
    run_to_end(2, make("2"), folder)
    assert list_hashes(folder / "2") == list_hashes(folder / "1")
    run_to_end(1, make_command(name, folder / "in float32"), folder)
    other = list_hashes(folder / "in float32")
    assert other["model.safetensors"] != list_hashes(folder / "1")["model.safetensors"]


def test_two_processes_learn_from_a_token_file_as_one_does(folder):
    (folder / "text.txt").write_text(TEXT)
    pack_texts([folder / "text.txt"], folder / "text.tokens", tokenizer="char")
    for size in (1, 2):
        words = make_command("shakespeare-char", folder / str(size))[:-1]
        run_to_end(size, [*words, f"data.path={folder / 'text.tokens'}"], folder)
    assert list_hashes(folder / "2") == list_hashes(folder / "1")


def test_the_run_says_how_much_of_its_time_the_exchange_took(folder):
    pattern = r"(\d+)% of the training time went into the exchange with other processes, waiting"
    (share,) = re.findall(pattern, run_to_end(2, make_command("substring", folder / "2"), folder))
    assert 0 < int(share) <= 100
    said = run_to_end(1, make_command("substring", folder / "1"), folder)
    assert "of the training time" not in said  # one process exchanges nothing


# Saves in the background

BACKGROUND = "training.save_in_background=true"


def kill_in_save(which):
    """For `prepare`: a rank is killed while the first one writes the checkpoint of step 8, which
    it does only when step 9 has changed the weights."""

    def prepare(rank):
        save, update, moved_on = storage.save, Training.update, Event()

        def kill(*names, **options):
            os.kill(os.getpid(), signal.SIGKILL)

        def save_late(path, checkpoint):
            if checkpoint.step == 8:
                assert moved_on.wait(LIMIT)
                os.replace = kill if which == 0 else os.replace
            save(path, checkpoint)

        def tell_and_update(self, plans):
            if self.state.step == 9:
                moved_on.set()
                if rank == which == 1:
                    kill()
            return update(self, plans)

        storage.save, Training.update = save_late, tell_and_update

    return prepare


def test_saves_in_the_background_change_no_byte_even_if_a_process_is_killed_in_one(folder):
    run_to_end(2, make_command("substring", folder / "waits"), folder)
    expected = list_hashes(folder / "waits")
    run_to_end(2, make_command("substring", folder / "out", BACKGROUND), folder)
    assert list_hashes(folder / "out") == expected
    words = make_command("substring", folder / "killed", BACKGROUND)
    for which, saved in ((0, 5), (1, 8)):
        ranks = Ranks(2, words, folder, prepare=kill_in_save(which))
        assert ranks.end(but=[1 - which]) == [-signal.SIGKILL], ranks.read()
        newest = find_run(folder / "killed").checkpoints / f"step-{saved:07}"
        wait_until(newest.exists, "the save")  # the first process still writes it
        ranks.kill()
        assert find_checkpoints(newest.parent)[-1] == newest
    assert "resuming after step 8 of 12" in run_to_end(2, words, folder)
    assert list_hashes(folder / "killed") == expected


def test_if_a_save_in_the_background_fails_all_end_and_the_run_resumes(folder):
    run_to_end(2, make_command("substring", folder / "whole"), folder)
    words = make_command("substring", folder / "out", BACKGROUND)

    def fill_the_disk(rank):
        save = storage.save

        def fail(path, checkpoint):
            if checkpoint.step == 8:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            save(path, checkpoint)

        storage.save = fail

    ranks = Ranks(2, words, folder, prepare=fill_the_disk)
    assert ranks.end() == [4, 8], ranks.read()
    assert "No space left on device" in ranks.read(0) or "no space left" in ranks.read(0)
    assert "rank 0 ended with an error; its own message names the cause" in ranks.read(1)
    newest = find_checkpoints(find_run(folder / "out").checkpoints)[-1]
    assert newest.name == "step-0000005"
    assert "resuming after step 5 of 12" in run_to_end(2, words, folder)
    assert list_hashes(folder / "out") == list_hashes(folder / "whole")

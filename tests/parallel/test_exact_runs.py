"""training.parallel=exact: whole runs have the same bytes on 1, 2, 3 and 4 processes."""

import json

import pytest
from parallel.forked_ranks import Ranks
from parallel.small_processes import (
    RECIPES,
    find_run,
    list_hashes,
    make_command,
    run_to_end,
    stop_after,
)


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

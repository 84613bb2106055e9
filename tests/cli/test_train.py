"""clearhead train: results, changes, resuming, stopping, and every class of failure by its code."""

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_runs import SMALL, assert_a_mistake, run_outside, small_run, start_outside

from clearhead.runs import checkpoint
from clearhead.runs.folder import RunFolder
from clearhead.training import load_run
from clearhead.training.tasks import SubstringTask

ONE = ("--threads", "1")
LONG = [*SMALL[:-4], "training.steps=100000", "training.save_every=100000"]


@pytest.fixture
def drawn():
    """For tests in which the report is really drawn."""


@pytest.fixture(autouse=True)
def _plain_reports(request, monkeypatch):
    """Drawing takes a second or two; one test that asks for it is enough."""
    if "drawn" in request.fixturenames:
        return

    def write(run):
        path = run.folder / "report.html"
        path.write_text("drawn elsewhere")
        return path

    monkeypatch.setattr("clearhead.inspection.report.write_report", write)


@pytest.fixture
def train(run, tmp_path, monkeypatch):
    """Train the small substring recipe in this process, below tmp_path."""
    monkeypatch.chdir(tmp_path)

    def train(*arguments):
        return run("train", "substring", *SMALL, *ONE, *arguments)

    return train


# What works


@pytest.mark.usefixtures("drawn")
def test_it_trains_says_the_result_and_what_to_do_next(train, tmp_path):
    code, out, err = train()
    assert code == 0, err
    first, *_, report, then = out.splitlines()
    assert re.fullmatch(
        r"substring-0001: 4 steps in \d+\.\d s, (best at step 2: )?val_loss [\d.]+, "
        r"val_accuracy [\d.]+",
        first,
    )
    assert report == "report: runs/substring-0001/report.html"
    assert (tmp_path / "runs/substring-0001/report.html").stat().st_size > 10_000
    assert re.fullmatch(r"next: +clearhead predict runs/substring-0001 '[abc]+\|[abc]+'", then)
    line = r"^step 2/4: loss [\d.]+, val_loss .*, [\d,]+ examples/s, \d+\.\d s left$"
    assert re.search(line, err, re.M)
    assert load_run("runs/substring-0001").step in (2, 4)


def test_what_it_says_next_can_be_done(train, run):
    then = train()[1].splitlines()[-1].removeprefix("next:").replace("'", "").split()
    assert then[0] == "clearhead"
    code, out, _ = run(*then[1:])
    assert code == 0
    assert " → " in out


def test_json_is_one_object_and_stderr_is_the_progress(train):
    code, out, err = train("--json")
    found = json.loads(out)
    assert (code, out.count("\n")) == (0, 1)
    assert list(found) == ["run", "steps", "seconds", "metrics"]
    assert (found["run"], found["steps"]) == ("runs/substring-0001", 4)
    assert found["seconds"] > 0
    assert set(found["metrics"]) == {"val_loss", "val_accuracy"}
    assert "step 4/4" in err
    assert os.path.exists("runs/substring-0001/report.html")


def test_quiet_leaves_the_result(train):
    code, out, err = train("--quiet")
    assert (code, err) == (0, "")
    assert out.startswith("substring-0001: 4 steps")
    assert out.count("\n") == 1


def test_changes_and_the_seed_reach_the_run(train):
    train("model.n_layers=2", "training.lr=1e-2", "--seed", "7", "--quiet")
    recipe = load_run("runs/substring-0001").recipe
    assert (recipe.model.n_layers, recipe.training.lr, recipe.training.seed) == (2, 0.01, 7)


def test_a_dry_run_does_two_steps_of_everything_and_keeps_nothing(train, tmp_path):
    code, out, err = train("--dry-run")
    assert code == 0, err
    assert out.startswith("dry run: 2 steps in ")
    assert out.endswith("all parts work; nothing is kept\n")
    assert list(tmp_path.iterdir()) == []
    assert json.loads(train("--dry-run", "--json", "--quiet")[1])["run"] is None
    assert list(tmp_path.iterdir()) == []


def test_overfit_learns_few_examples(train):
    assert train("--overfit", "3", "--quiet")[0] == 0
    assert load_run("runs/substring-0001").task.n_examples == 3


def test_of_a_finished_run_whose_report_was_interrupted_only_the_report_is_drawn(train, tmp_path):
    code, first, _ = train()
    run = tmp_path / "runs" / "substring-0001"
    (run / "report.html").unlink()
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    code, out, err = train()
    assert code == 0, err
    assert out == first
    assert "substring-0001 is finished, but its report is missing; drawing the report" in err
    assert (run / "report.html").exists()
    os.utime(run / "report.html", (0, 0))  # from before the last steps, by clearhead plot
    assert train()[0] == 0
    assert {path: path.stat().st_mtime_ns for path in before if path != run} == {
        path: time for path, time in before.items() if path != run
    }
    assert os.listdir(run.parent) == ["substring-0001"]
    assert train()[1].startswith("substring-0002: 4 steps")  # now it is complete


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_C03_a_signal_while_the_report_is_drawn_is_answered(train, monkeypatch, number):
    def stopped(run):
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr("clearhead.inspection.report.write_report", stopped)
    code, out, err = train()
    assert code == 128 + number
    assert out.startswith("substring-0001: 4 steps")
    assert "the run is finished and saved; the same command, or clearhead plot runs/" in err


def test_a_finished_run_is_followed_by_a_new_one(train):
    train("--quiet")
    assert train("--quiet")[1].startswith("substring-0002")


# Stopping and resuming


def stop_after_a_line(process, number):
    """Send a signal when the run has said how it goes; (code, stdout, stderr, seconds)."""
    assert process.stderr.readline()
    start = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err, time.monotonic() - start


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_C03_a_signal_saves_and_says_how_to_resume(tmp_path, number):
    out = tmp_path / "my runs"
    process = start_outside("train", "substring", *LONG, *ONE, "--out", out)
    code, said, err, seconds = stop_after_a_line(process, number)
    assert (code, said) == (128 + number, ""), err
    assert seconds < 10
    stopped, go_on = err.splitlines()[-2:]
    assert stopped == f"stopped; the run is saved in {out / 'substring-0001'}"
    assert go_on.endswith(f"clearhead train --resume '{out / 'substring-0001'}'")
    assert load_run(out / "substring-0001").step > 0


@pytest.mark.parametrize("wanted", ["the same command", "the run", "last", "last of the recipe"])
def test_a_stopped_run_resumes_with_all_its_settings(run, tmp_path, monkeypatch, wanted):
    monkeypatch.chdir(tmp_path)
    changes = [*SMALL, "training.seed=5", *ONE]
    monkeypatch.setattr("clearhead.training.loop.Training.advance", terminated)
    code, _, err = run("train", "substring", *changes, "--overfit", "9")
    assert code == 143, err
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    how = {
        "the same command": ["substring", *changes, "--overfit", "9"],
        "the run": ["--resume", "runs/substring-0001", *ONE],
        "last": ["--resume", "last", *ONE],
        "last of the recipe": ["substring", "--resume", "last", *ONE],
    }[wanted]
    code, out, err = run("train", *how)
    assert code == 0, err
    assert "resuming after step 0 of 4" in err
    assert out.startswith("substring-0001: 4 steps")
    loaded = load_run("runs/substring-0001")
    assert (loaded.recipe.training.seed, loaded.task.n_examples) == (5, 9)


def terminated(self):
    """A signal instead of a step."""
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("best", "loaded"), [(2, ["step-0000002"]), (4, [])])
@pytest.mark.usefixtures("drawn")
def test_the_report_uses_the_model_that_was_trained(train, monkeypatch, best, loaded):
    """After the last save, only the best checkpoint is read and hashed, and only once."""
    read, load = [], checkpoint.load
    opened, __init__ = [], SubstringTask.__init__
    accuracies = {2: iter([0.9, 0.1]), 4: iter([0.1, 0.9])}[best]

    def note(path, *given, **named):
        read.append(path.name)
        return load(path, *given, **named)

    def count(self, data):
        opened.append(data)
        __init__(self, data)

    def evaluate(self, model):
        return {"val_loss": 1.0, "val_accuracy": next(accuracies)}

    monkeypatch.setattr(checkpoint, "load", note)
    monkeypatch.setattr(SubstringTask, "__init__", count)
    monkeypatch.setattr(SubstringTask, "evaluate", evaluate)
    code, out, err = train()
    assert code == 0, err
    assert "report.html" in out
    assert (read, len(opened)) == (loaded, 1)
    page = Path("runs/substring-0001/report.html").read_text()
    assert f"shown here: step {best}" in page


def test_other_settings_are_refused_field_by_field_unless_forced(run, tmp_path):
    folder = small_run(tmp_path)
    order = ("train", "--resume", folder, "training.steps=6", *ONE)
    code, out, err = run(*order)
    assert (code, out) == (2, "")
    assert "training.steps: 4 then, 6 now" in err
    code, out, err = run(*order, "--force")
    assert code == 0, err
    assert out.startswith("substring-0001: 6 steps")


def test_a_dry_run_says_that_all_parts_work_when_the_last_has(run, monkeypatch):
    def fails(folder, **_):
        raise ValueError("the report cannot be drawn")

    monkeypatch.setattr("clearhead.inspection.report.write_report", fails)
    code, out, err = run("train", "substring", *SMALL, *ONE, "--dry-run")
    assert (code, out) == (2, "")
    assert "the report cannot be drawn" in err


def test_a_run_is_no_recipe(run, tmp_path):
    folder = small_run(tmp_path)
    code, out, err = run("train", folder)
    assert_a_mistake(code, out, err)
    assert "is a run, not a recipe; continue it with --resume" in err


def test_the_recipe_may_stand_after_its_changes(run, tmp_path):
    first, *rest = SMALL
    code, out, err = run("train", first, "substring", *rest, *ONE, "--out", tmp_path)
    assert code == 0, err
    assert out.startswith("substring-0001: 4 steps")


# Mistakes


MISTAKES = {
    "no recipe": ([], "a recipe is missing; choose one of substring"),
    "unknown recipe": (["substrings"], "there is no recipe 'substrings'; the nearest is"),
    "unknown flag": (["substring", "--fast"], "--fast"),
    "no change": (["substring", "fast"], "a change is written section.name=value, got 'fast'"),
    "unknown name": (
        ["substring", "model.n_layer=4"],
        "'model.n_layer' is unknown; the nearest is 'model.n_layers'",
    ),
    "no section": (["substring", "lr=4"], "'lr' is unknown; the nearest is 'training.lr'"),
    "wrong type": (
        ["substring", "training.steps=many"],
        "training.steps must be a whole number, got 'many'",
    ),
    "overfit nothing": (["substring", "--overfit", "0"], "--overfit must be at least 1, got 0"),
    "threads": (["substring", "--threads", "x"], "--threads must be auto or a number"),
    "device": (["substring", "--device", "abacus"], "--device 'abacus' cannot be used"),
    "no number": (["substring", "--seed", "x"], "--seed"),
    "a seed that fits nowhere": (
        ["substring", "--seed", str(2**70)],
        "--seed must be less than 2^63",
    ),
    "resume nothing": (["--resume", "nowhere"], "nowhere is not a run folder: there is no such"),
    "resume an empty folder": (["--resume", "empty"], "empty/config.json is not there"),
    "resume a file": (["--resume", "file"], "file is not a run folder"),
    "resume last of none": (["--resume", "last"], "--resume last: runs has no run; start one"),
    "resume and dry": (["--resume", "last", "--dry-run"], "--dry-run keeps nothing"),
    "out is a file": (["substring", "--out", "file"], "--out is file, which is a file"),
    "no such file of a recipe": (["mine.py"], "mine.py is not there"),
    "a folder for a recipe": (["folder.py"], "folder.py is a folder, not a file"),
}


HINTS = {
    "no recipe": "clearhead recipes list names the recipes",
    "resume nothing": "clearhead runs lists your runs",
    "resume a file": "clearhead runs lists your runs",
    "unknown recipe": "clearhead recipes list names the recipes",
    "unknown name": "clearhead recipes show substring lists its settings",
    "no section": "clearhead recipes show substring lists its settings",
    "wrong type": "clearhead recipes show substring lists its settings",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_C01_a_mistake_is_one_line_and_a_hint(run, tmp_path, monkeypatch, mistake):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.py").mkdir()
    arguments, sentence = MISTAKES[mistake]
    code, out, err = run("train", *arguments)
    assert_a_mistake(code, out, err)
    assert sentence in err.splitlines()[0]
    hint = HINTS.get(mistake, "clearhead train --help lists its arguments and options")
    assert err.splitlines()[1] == f"hint: {hint}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "folder.py"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_of_another_recipe_is_not_gone_on_with(run, tmp_path):
    folder = small_run(tmp_path)
    code, out, err = run("train", "vit-digits", "--resume", folder, *ONE)
    assert_a_mistake(code, out, err)
    assert "substring-0001 is a run of 'substring', not of 'vit-digits'" in err


# A code for each class of failure


def test_C05_numbers_that_are_not_finite_are_3(train):
    code, out, err = train("training.lr=1e30", "training.clip=none")
    assert (code, out) == (3, "")
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "loss is" in line
    assert "hint" not in err


def test_C05_a_disk_that_does_not_take_it_is_4(train, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "checkpoints")

    monkeypatch.setattr("clearhead.runs.checkpoint.write_tensors", full)
    code, out, err = train()
    assert (code, out) == (4, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert "no space left on device; make room" in err


def test_C05_a_place_where_nobody_may_write_is_4(train, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "runs")

    monkeypatch.setattr("pathlib.Path.mkdir", denied)
    code, out, err = train()
    assert (code, out) == (4, "")
    assert err == "error: runs: permission denied; choose another folder\n"


def test_C05_a_report_that_cannot_be_written_is_4_after_the_result(train, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "report.html")

    monkeypatch.setattr("clearhead.inspection.report.write_report", full)
    code, out, err = train()
    assert code == 4
    assert out.startswith("substring-0001: 4 steps")
    assert err.splitlines()[-1].startswith("error: report.html: no space left on device")


def test_C05_no_good_checkpoint_is_5(run, tmp_path):
    folder = small_run(tmp_path)
    for file in folder.glob("checkpoints/*/model.safetensors"):
        file.write_bytes(b"broken")
    for verb in (["train", "--resume", folder], ["eval", folder], ["predict", folder, "abc|a"]):
        code, out, err = run(*verb, *ONE)
        assert (code, out) == (5, "")
        assert "checkpoints" in err.splitlines()[-1]
        assert err.splitlines()[-1].startswith("error: ")


def test_C05_a_run_that_another_process_works_in_is_6(run, tmp_path):
    folder = small_run(tmp_path)
    with RunFolder(folder).lock():
        code, out, err = run("train", "--resume", folder, *ONE)
    assert (code, out) == (6, "")
    assert re.fullmatch(r"error: \S+ is in use by process \d+; wait or stop it\n", err)


# Terminals


@pytest.mark.slow
def test_C02_a_terminal_sees_it_live(tmp_path):
    ours, theirs = pty.openpty()
    variables = {"TERM": "xterm", "COLUMNS": "20", "NO_COLOR": "1", "LC_ALL": "C"}
    process = start_on(theirs, "train", "substring", *SMALL, *ONE, "--out", tmp_path, **variables)
    os.close(theirs)
    seen = b""
    while chunk := read_some(ours):
        seen += chunk
    os.close(ours)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, seen
    assert out.startswith("substring-0001: 4 steps")
    assert b"step 4/4: loss " in seen
    assert b"4/4  loss " in seen
    assert b"Traceback" not in seen
    hidden, shown = (seen.rfind(f"\x1b[?25{letter}".encode()) for letter in "lh")
    assert hidden < shown  # the cursor is there afterwards


def start_on(terminal, *arguments, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "clearhead.cli.main", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
    )


def read_some(number):
    try:
        return os.read(number, 65536)
    except OSError:  # the other side is closed
        return b""


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&- 2>&-", "| head -0"])
def test_C02_a_closed_stream_stops_no_training(tmp_path, closed):
    words = [sys.executable, "-m", "clearhead.cli.main", "train", "substring", *SMALL, *ONE]
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {closed}', "bash", *words, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "substring-0001").is_dir()
    assert load_run(tmp_path / "substring-0001").step > 0
    assert (tmp_path / "substring-0001" / "report.html").is_file()


def test_C02_a_place_without_letters_gets_the_numbers(tmp_path):
    variables = {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1", "COLUMNS": "20"}
    folder = small_run(tmp_path)
    code, out, err = run_outside("predict", folder, "abc|a", **variables)
    assert code == 0, err
    assert "abc|a ? " in out


def test_what_cannot_be_trained_leaves_no_folder(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = ["training.workers=2", "training.accumulate=2", "model.dropout=0.1"]
    code, out, err = run("train", "substring", *SMALL, *ONE, *changes)
    assert_a_mistake(code, out, err)
    assert "workers=2 would draw dropout in any order" in err
    assert not list(tmp_path.glob("runs/*"))


def test_the_last_run_is_none_that_was_never_begun(train, run, tmp_path):
    assert train()[0] == 0
    hidden = tmp_path / "runs" / ".substring-0002.0123.part"
    hidden.mkdir()
    (hidden / "config.json").write_text((tmp_path / "runs/substring-0001/config.json").read_text())
    code, out, _ = run("train", "--resume", "last", *ONE, "--json")
    assert code == 0
    assert json.loads(out)["run"] == "runs/substring-0001"

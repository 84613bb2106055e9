"""clearhead launch: the same run on several processes; faults, signals, schedulers, mistakes."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from small_runs import SMALL, assert_a_mistake, run_outside, small_run, start_outside

import clearhead
from clearhead import __version__
from clearhead.cli import launch as command
from clearhead.training.recipes import RECIPES

PACKAGE = Path(clearhead.__file__).parents[1]
EXACT = [*SMALL, "training.parallel=exact"]
# Long enough that a signal finds it at work; a step of two processes takes some milliseconds.
LONG = [*EXACT, "training.steps=200", "training.eval_every=200", "training.save_every=10"]
LONG += ["training.log_every=200"]
QUIET = ("--threads", "1", "--quiet")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_end(out):
    """The bytes of the last weights and the metrics of the only run in a folder."""
    (run,) = (path for path in Path(out).iterdir() if path.is_dir())
    last = max((run / "checkpoints").iterdir())
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    values = [
        {name: value for name, value in row.items() if "second" not in name} for row in metrics
    ]
    return (last / "model.safetensors").read_bytes(), values


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """How the long run ends in one process."""
    out = tmp_path_factory.mktemp("alone")
    small_run(out, *LONG)
    return read_end(out)


def start_long(out):
    """Start the long run on two processes; waits until it has saved."""
    words = ("launch", "--processes", "2", "train", "substring", *LONG, *QUIET, "--out", out)
    launcher = start_outside(*words)
    wait_until(lambda: list(Path(out).glob("*/checkpoints/step-0*")), launcher)
    return launcher


def wait_until(question, launcher=None, seconds=90):
    deadline = time.monotonic() + seconds
    while not question():
        assert launcher is None or launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def find_workers(launcher):
    """The process ids of its processes, by rank."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            words = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ranks = [int(word[5:]) for word in words if word.startswith(b"RANK=")]
        if parent == launcher.pid and ranks:
            found[ranks[0]] = int(path.name)
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def end(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


# The same run


def test_two_processes_end_as_one_does(here, alone):
    code, out, err = end(start_long("runs"))
    assert (code, err) == (0, "")
    assert out.startswith("substring-0001: 200 steps in ")
    assert out.count("\n") == 1
    assert read_end("runs") == alone


def test_a_run_whose_processes_are_killed_ends_as_if_they_were_not(here, alone):
    launcher = start_long("runs")
    first = find_workers(launcher)
    os.kill(first[1], signal.SIGKILL)
    wait_until(lambda: find_workers(launcher).get(0, first[0]) != first[0], launcher)
    os.kill(find_workers(launcher)[0], signal.SIGKILL)
    code, out, err = end(launcher)
    assert code == 0, err
    again = [line for line in err.splitlines() if "again" in line]
    assert again == [
        "rank 1 was ended by SIGKILL; starting all processes again (1 of 3)",
        "rank 0 was ended by SIGKILL; starting all processes again (2 of 3)",
    ]
    assert "Traceback" not in err
    assert out.startswith("substring-0001: 200 steps in ")
    assert read_end("runs") == alone


@pytest.mark.parametrize("case", ["to the launcher", "to all", "while a rank is stopped"])
def test_sigterm_saves_and_the_same_command_resumes(here, alone, case):
    """A service manager signals all processes, and the launcher passes it on to its own."""
    launcher = start_long("runs")
    workers = find_workers(launcher)
    assert sorted(workers) == [0, 1]
    if case == "to all":
        for number in workers.values():
            os.kill(number, signal.SIGTERM)
    if case == "while a rank is stopped":
        os.kill(workers[1], signal.SIGSTOP)
        time.sleep(0.5)
    launcher.terminate()
    code, out, err = end(launcher)
    assert (code, out) == (143, "")
    assert err.startswith("stopped; the run is saved in runs/substring-0001\n")
    assert len(err.splitlines()) == 2
    assert not any(map(is_running, workers.values()))
    assert end(start_long("runs"))[0] == 0
    assert read_end("runs") == alone


def test_a_killed_launcher_leaves_no_process_and_the_same_command_resumes(here, alone):
    launcher = start_long("runs")
    workers = find_workers(launcher)
    launcher.kill()
    launcher.communicate(timeout=60)
    wait_until(lambda: not any(map(is_running, workers.values())))
    assert end(start_long("runs"))[0] == 0
    assert read_end("runs") == alone


def test_an_abort_at_the_end_of_a_process_does_not_start_a_finished_run_again(here, alone):
    """Libraries that leave threads behind sometimes abort while Python ends."""
    Path("sitecustomize.py").write_text(
        "import atexit, os\nif 'RANK' in os.environ: atexit.register(os.abort)\n"
    )
    words = ("launch", "--processes", "2", "train", "substring", *LONG, *QUIET)
    code, out, err = run_outside(*words, PYTHONPATH=f"{here}:{PACKAGE}")
    assert (code, err) == (0, "")
    assert out.startswith("substring-0001: 200 steps in ")
    assert read_end("runs") == alone


def test_four_processes_of_two_machines_end_as_one_does(here, alone):
    """Two agents on this machine; what a user types on each differs in the number only."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        place = f"localhost:{probe.getsockname()[1]}"
    options = ("launch", "--processes", "2", "--nodes", "2", "--rendezvous", place)
    words = ("train", "substring", *LONG, *QUIET)
    machines = [start_outside(*options, "--node-rank", number, *words) for number in range(2)]
    (code, out, err), other = map(end, machines)
    assert (code, err) == (0, "")
    assert other == (0, "", "")
    assert out.startswith("substring-0001: 200 steps in ")
    assert read_end("runs") == alone


def test_the_printed_torchrun_command_does_the_same(here, run, alone):
    words = ("train", "substring", *LONG, *QUIET, "--out", "my runs")
    code, out, err = run("launch", "--processes", 2, "--dry-run", *words)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert shlex.split(out)[:5] == [
        "OMP_NUM_THREADS=1",
        "CLEARHEAD_TIMEOUT=600",
        "torchrun",
        "--standalone",
        "--nproc-per-node=2",
    ]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = os.environ | {"PATH": path, "PYTHONPATH": str(PACKAGE)}
    subprocess.run(["bash", "-c", out], env=variables, check=True, capture_output=True, timeout=120)
    assert read_end("my runs") == alone


def test_an_error_is_said_once_and_its_exit_code_kept(here):
    """A loss that is not finite, in both processes."""
    words = ("launch", "--processes", "2", "train", "substring", *EXACT, "training.lr=1e30")
    code, _, err = run_outside(*words, *QUIET, "training.clip=1e30", "training.steps=40")
    assert code == 3, err
    assert err.count("error: ") == 1
    assert "Traceback" not in err
    assert "starting all processes again" not in err


# Who shares a step


def test_several_processes_need_a_way_to_share_a_step(here, run, monkeypatch):
    monkeypatch.setattr(command, "_start", lambda *words: pytest.fail("started"))
    code, out, err = run("launch", "--processes", 3, "train", "substring")
    assert_a_mistake(code, out, err)
    assert err.startswith(
        "error: 3 processes need a way to share a step: add training.parallel=exact ("
    )
    assert "training.parallel=ddp" in err
    assert "training.parallel=fsdp" in err


@pytest.fixture
def started(monkeypatch):
    """The jobs that would have been started."""
    jobs = []
    monkeypatch.setattr(command, "_start", lambda *words: jobs.append(words))
    return jobs


def test_one_process_needs_no_mode(here, run, started):
    assert run("launch", "train", "substring")[0] == 0
    assert started[0][0].processes == 1


def test_the_mode_may_stand_in_the_recipe_of_the_user(here, run, started):
    Path("mine.py").write_text(
        "import dataclasses\n"
        "from clearhead.training import find_recipe\n"
        "def mine():\n"
        "    recipe = find_recipe('substring')\n"
        "    training = dataclasses.replace(recipe.training, parallel='ddp')\n"
        "    return dataclasses.replace(recipe, training=training)\n"
    )
    assert run("launch", "--processes", 2, "train", "mine.py")[0] == 0
    assert started[0][0].name == "clearhead-mine"


def test_a_resumed_run_has_its_mode(here, run, started):
    small_run("runs", "training.parallel=exact")
    words = ("launch", "--processes", 2, "train", "--resume", "last")
    assert run(*words)[0] == 0
    assert started[0][0].words == ["train", "--resume", "last"]
    assert started[0][0].name == "clearhead-substring-0001"
    small_run("others")
    assert_a_mistake(*run(*words, "--out", "others"))


def test_debug_is_passed_on(here, run, started):
    assert run("launch", "train", "substring", "--debug")[0] == 0
    assert started[0][0].words == ["train", "substring", "--debug"]


def test_all_settings_reach_the_agent(here, run, monkeypatch):
    found = {}

    def launch(words, **options):
        found.update(options, words=words)
        return 5

    monkeypatch.setattr("clearhead.parallel.launch.launch", launch)
    options = ("--processes", 2, "--nodes", 3, "--node-rank", 1, "--rendezvous", "here:123")
    words = ["train", "substring", "training.parallel=ddp"]
    assert run("launch", *options, "--restarts", 7, "--timeout", 8, *words)[0] == 5
    python, *flags = found.pop("words")
    assert python == sys.executable
    assert flags == ["-P", "-m", "clearhead", *words]  # files of this folder hide no modules
    assert found == {
        "processes": 2,
        "nodes": 3,
        "node_rank": 1,
        "rendezvous": "here:123",
        "restarts": 7,
        "timeout": 8,
    }


def test_processes_find_modules_where_the_launcher_does(here, run, monkeypatch):
    found = []
    monkeypatch.setattr("clearhead.parallel.launch.launch", lambda words, **_: found.extend(words))
    monkeypatch.syspath_prepend(here)  # as `python -m clearhead` does
    run("launch", "train", "substring")
    assert found == [sys.executable, "-m", "clearhead", "train", "substring"]


def test_no_recipe_of_ours_sets_the_mode():
    """So that the sentence about it is true of all of them."""
    from clearhead.training import find_recipe

    assert {find_recipe(name).training.parallel for name in RECIPES} == {None}


# Schedulers


@pytest.fixture
def fake(here, monkeypatch):
    """Put a program on the path that writes down its words and the file it is given."""

    def fake(name, code=0):
        program = here / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f'#!/bin/bash\necho "$@" > {here}/words\ncat "${{@: -1}}" > {here}/given\n'
            f'echo "Submitted batch job 7"\nexit {code}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return fake


RECIPE = ("train", "substring", "training.parallel=exact")


@pytest.mark.parametrize(
    ("engine", "name", "words"),
    [
        ("slurm", "sbatch", "out/clearhead-substring.sbatch"),
        ("sky", "sky", "jobs launch out/clearhead-substring.yaml"),
    ],
)
def test_a_job_is_handed_over(here, fake, run, engine, name, words):
    fake(name)
    options = ("launch", "--engine", engine, "--nodes", 2, "--processes", 4)
    printed = run(*options, "--dry-run", *RECIPE, "--out", "out")
    assert printed[0] == 0
    assert not (here / "out").exists()
    code, out, err = run(*options, *RECIPE, "--out", "out")
    assert (code, out) == (0, "Submitted batch job 7\n"), err
    assert (here / "words").read_text() == words + "\n"
    assert (here / "given").read_text() == printed[1]
    assert err == f"{name} {words}\n"


def test_a_job_that_is_refused_is_an_error(here, fake, run):
    fake("sbatch", code=9)
    code, _, err = run("launch", "--engine", "slurm", *RECIPE)
    assert code == 2
    assert "error: sbatch ended with exit code 9; see runs/clearhead-substring.sbatch" in err


@pytest.mark.parametrize(("engine", "program"), [("slurm", "sbatch"), ("sky", "sky")])
def test_a_missing_program_is_named(here, run, monkeypatch, engine, program):
    monkeypatch.setenv("PATH", str(here))
    code, out, err = run("launch", "--engine", engine, *RECIPE)
    assert_a_mistake(code, out, err)
    assert f"--engine {engine} needs the program {program}, which is not here" in err
    assert not (here / "runs").exists()


def test_without_ray_its_extra_is_named(here, run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = run("launch", "--engine", "ray", *RECIPE)
    assert_a_mistake(code, out, err)
    assert "pip install 'clearhead[ray]'" in err


def test_options_of_slurm_become_lines(here, run):
    options = ("--gpus-per-node", 8, "--time", "24:00:00", "--partition", "big")
    options += ("--scheduler-option", "account=ada", "--scheduler-option", "mem=0")
    code, out, err = run("launch", "--engine", "slurm", "--dry-run", *options, *RECIPE)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    for line in ("gpus-per-node=8", "time=24:00:00", "partition=big", "account=ada", "mem=0"):
        assert f"#SBATCH --{line}" in lines
    assert "    --processes 8 --restarts 3 --timeout 600 \\" in lines  # one for each GPU
    assert f"    {shlex.quote(sys.executable)} -m clearhead launch \\" in lines


def test_options_of_sky_and_ray_are_in_their_files(here, run):
    options = ("--dry-run", "--scheduler-option", "accelerators=A100:8", "--processes", 8)
    out = run("launch", "--engine", "sky", *options, *RECIPE)[1]
    assert '  accelerators: "A100:8"\n' in out
    assert f"clearhead=={__version__}" in out
    options = ("--dry-run", "--scheduler-option", "address=auto", "--gpus-per-node", 2)
    out = run("launch", "--engine", "ray", *options, "--nodes", 3, *RECIPE)[1]
    assert "ray.init(address='auto')" in out
    assert "ScalingConfig(num_workers=6, use_gpu=True)" in out
    assert f"FOLDER = {str(here)!r}" in out


def test_ray_trains_the_same_run(here, alone):
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'clearhead[ray]'")
    words = ("launch", "--engine", "ray", "--processes", "2", "train", "substring", *LONG, *QUIET)
    code, _, err = run_outside(*words, HOME=str(here), RAY_AUTH_MODE="disabled")
    assert code == 0, err
    assert read_end("runs") == alone


# Mistakes


MISTAKES = {
    ("--processes", "0", *RECIPE): "--processes must be 1 to 1000000, got 0",
    ("--nodes", "-1", *RECIPE): "--nodes must be 1 to 1000000, got -1",
    ("--restarts", "-1", *RECIPE): "--restarts must be 0 to",
    ("--timeout", "0", *RECIPE): "--timeout must be 1 to 86400, got 0",
    ("--timeout", "1.5", *RECIPE): "--timeout must be a whole number, got '1.5'",
    ("--node-rank", "0", *RECIPE): "--node-rank is for several machines; add --nodes",
    ("--rendezvous", "a:1", *RECIPE): "--rendezvous is for several machines; add --nodes",
    (
        "--nodes",
        "2",
        *RECIPE,
    ): "--node-rank must be the number of this machine, 0 to 1, got nothing",
    ("--nodes", "2", "--node-rank", "2", *RECIPE): "0 to 1, got 2",
    ("--nodes", "2", "--node-rank", "1", *RECIPE): "such as 10.0.0.1:29500, got nothing",
    ("--nodes", "2", "--node-rank", "1", "--rendezvous", "a", *RECIPE): "got 'a'",
    ("--nodes", "2", "--node-rank", "1", "--rendezvous", "a:0", *RECIPE): "got 'a:0'",
    ("--nodes", "2", "--node-rank", "1", "--rendezvous", ":7", *RECIPE): "got ':7'",
    ("--engine", "slrum", *RECIPE): "got 'slrum'; did you mean slurm?",
    ("--engine", "slurm", "--node-rank", "1", *RECIPE): "--node-rank is for --engine local",
    ("--engine", "ray", "--time", "1", *RECIPE): "--time is for --engine slurm, not for ray",
    ("--engine", "sky", "--gpus-per-node", "8", *RECIPE): "--scheduler-option accelerators=A100:8",
    (
        "--gpus-per-node",
        "8",
        *RECIPE,
    ): "--gpus-per-node is for --engine slurm or ray, not for local",
    (
        "--scheduler-option",
        "a=b",
        *RECIPE,
    ): "--scheduler-option is for --engine slurm or sky or ray",
    ("--engine", "slurm", "--scheduler-option", "a", *RECIPE): "must be KEY=VALUE, got 'a'",
    ("--engine", "slurm", "--scheduler-option", "a b=c", *RECIPE): "must be KEY=VALUE, got 'a b=c'",
    ("--engine", "slurm", "--scheduler-option", "nodes=2", *RECIPE): "use --nodes and --processes",
    ("eval", "runs"): "launch starts clearhead train, got 'eval'",
    ("--proceses", "2", *RECIPE): "No such option: --proceses; did you mean --processes?",
    ("train", "substrin"): "there is no recipe 'substrin'; the nearest is 'substring'",
    ("train",): "a recipe is missing",
    ("train", "substring", "--lr", "1"): "No such option: --lr",
    ("train", "substring", "nosuch"): "a change is written section.name=value, got 'nosuch'",
    ("train", "substring", "--threads", "0"): "--threads must be auto or a number",
    ("train", "--resume", "nosuch"): "nosuch",
    (*RECIPE, "--device", "cuda"): "--device 'cuda' cannot be used on this machine; use auto",
    (*RECIPE, "--device", "cuda:1"): "--device 'cuda:1' cannot be used on this machine",
    (*RECIPE, "--device", "gpu"): "--device 'gpu' cannot be used on this machine",
    (): "Missing argument",
}


@pytest.mark.parametrize("words", MISTAKES, ids=lambda words: " ".join(words[:4]) or "nothing")
def test_a_mistake_is_one_sentence_and_a_hint(here, run, monkeypatch, words):
    monkeypatch.setattr(command, "_start", lambda *words: pytest.fail("started"))
    code, out, err = run("launch", *words)
    assert_a_mistake(code, out, err)
    assert MISTAKES[words] in err


def test_a_wrong_setting_is_said_once_before_any_process_starts(here, run, monkeypatch):
    monkeypatch.setattr(command, "_start", lambda *words: pytest.fail("started"))
    code, out, err = run("launch", "--processes", 2, *RECIPE, "training.lr=abc")
    assert_a_mistake(code, out, err)
    assert "training.lr must be a number, got 'abc'" in err
    assert "hint: clearhead recipes show substring lists its settings" in err


def test_too_few_gpus_are_said_once_before_any_process_starts(here, run, monkeypatch):
    monkeypatch.setattr(command, "_start", lambda *words: pytest.fail("started"))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    code, out, err = run("launch", "--processes", 2, *RECIPE)
    assert_a_mistake(code, out, err)
    assert "2 processes on a machine need a cuda device each, but it has 1; start 1, or" in err


def test_a_first_machine_that_cannot_be_reached_is_one_sentence(here, monkeypatch):
    """Without the C++ stacks that torch prints about its connection."""
    monkeypatch.delenv(command.LOG_LEVEL, raising=False)
    place = ("--nodes", "2", "--node-rank", "1", "--rendezvous", "localhost:1", "--timeout", "1")
    code, _, err = run_outside("launch", *place, *RECIPE)
    way_out = "start the command on machine 0, or correct --rendezvous"
    assert (code, err) == (8, f"error: no connection at localhost:1; {way_out}\n")


def test_the_help_of_the_command_is_that_of_train(run):
    code, out, _ = run("launch", "train", "--help")
    assert code == 0
    assert "--overfit" in out
    code, out, _ = run("launch", "--help")
    assert code == 0
    assert "--rendezvous" in out
    assert "--threads" in out

"""C04: without a network, without a GPU and without any optional package.

The commands run in one process in which each use of a socket and each start of a program is written
down and then fails, as does every import of a package that is not required.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import SMALL

import clearhead
from clearhead.training.recipes import RECIPES

TEXT = "To be, or not to be, that is the question. " * 30
SMALL_TEXT = ["data.context=9", "data.sample_length=5", "model.d_model=8", "model.n_heads=2"]
SMALL_TEXT += ["model.n_layers=1", "training.steps=2", "training.batch_size=3"]

# Runs the commands of its second argument, tells of them on stdout, and keeps a list in its first.
OFFLINE = """
import contextlib, io, json, socket, sys

optional = ("ctranslate2", "safetensors", "tensorboard", "tokenizers", "transformers")
sys.modules.update(dict.fromkeys(optional))
log, commands = open(sys.argv[1], "a", buffering=1), json.loads(sys.argv[2])

def forbid(event, given):
    if event.startswith(("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn")):
        log.write(f"{event} {given}\\n")
        raise OSError(101, "Network is unreachable")

sys.addaudithook(forbid)
with contextlib.suppress(OSError):
    socket.socket()
    sys.exit("a socket could be had")
log.truncate(0)

from clearhead.cli.main import main

def run(command):
    sys.argv = ["clearhead", *command]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            return [stop.code or 0, out.getvalue(), err.getvalue()]

print(json.dumps([run(command) for command in commands]))
"""


@pytest.fixture
def offline(tmp_path):
    """Run commands: (exit code, stdout, stderr) of each; and what they asked of the network."""

    def offline(*commands):
        log = tmp_path / "log"
        log.write_text("")
        words = [[str(word) for word in command] for command in commands]
        done = subprocess.run(
            [sys.executable, "-c", OFFLINE, str(log), json.dumps(words)],
            capture_output=True,
            text=True,
            timeout=240,
            env=os.environ
            | {"PYTHONPATH": str(Path(clearhead.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
            | {"CLEARHEAD_HOME": str(tmp_path / "home"), "CUDA_VISIBLE_DEVICES": ""},
        )
        assert done.returncode == 0, done.stderr
        return [tuple(each) for each in json.loads(done.stdout)], log.read_text()

    return offline


@pytest.mark.slow
def test_C04_a_run_is_trained_and_used_without_a_network(offline, tmp_path):
    text, runs = tmp_path / "text.txt", tmp_path / "runs"
    text.write_text(TEXT)
    words, letters = runs / "substring-0001", runs / "shakespeare-char-0001"
    train = ("train", "--out", runs, "--threads", 1)
    done, asked = offline(
        (*train, "substring", *SMALL),
        ("eval", words),
        ("predict", words, "abcab|ca"),
        (*train, "shakespeare-char", f"data.path={text}", *SMALL_TEXT),
        ("generate", letters, "--prompt", "To be", "--tokens", 4),
        ("recipes", "list"),
        ("data", "list"),
    )
    assert [code for code, _, _ in done] == [0] * len(done), done
    assert all(out for _, out, _ in done)
    assert "val_accuracy" in done[1][1]
    assert done[2][1].startswith("abcab|ca → ")
    assert (words / "report.html").is_file()
    assert done[4][1].startswith("To be")
    assert asked == ""


DOWNLOADS = {
    "shakespeare-char": "shakespeare",
    "dialogue": "shakespeare",
    "vit-cifar10": "cifar10",
    "vit-cifar10-plain": "cifar10",
}


def test_C04_a_recipe_that_needs_a_download_names_the_command_and_gets_nothing(offline):
    commands = {("train", name, "--dry-run"): data for name, data in DOWNLOADS.items()}
    commands["train", "vit-digits", "data.pictures=mnist", "--dry-run"] = "mnist"
    done, asked = offline(*commands)
    for data, (code, out, err) in zip(commands.values(), done, strict=True):
        assert (code, out) == (2, "")
        assert f"error: {data} is not here yet; run clearhead data get {data}" in err
        assert len(err.splitlines()) == 2  # the error and a hint
    assert asked == ""


@pytest.mark.slow
def test_C04_every_other_recipe_has_all_it_needs(offline):
    """On its own data, of which only few are made."""
    fewer = {
        "substring": ["data.n_examples=64", "data.n_validation=32"],
        "vit-digits": ["data.n_train=200", "data.n_test=20"],
    }
    names = [name for name in RECIPES if name not in DOWNLOADS]
    done, asked = offline(
        *(("train", name, "--dry-run", "--threads", 1, *fewer.get(name, [])) for name in names)
    )
    for name, (code, out, err) in zip(names, done, strict=True):
        assert code == 0, (name, err)
        assert "all parts work" in out
    assert asked == ""


def test_C04_the_watch_sees_who_asks_the_network(offline):
    """The control: this command is there to fetch."""
    ((code, out, err),), asked = offline(("data", "get", "shakespeare"))
    assert (code, out) == (2, "")
    assert "error: shakespeare was not fetched" in err
    assert asked.startswith("subprocess.Popen ")

"""Runs that take a moment: the smallest settings of a recipe, and what a test asks of a command."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import clearhead

# of the substring recipe
SMALL = [
    "data.n_examples=64",
    "data.n_validation=32",
    "model.d_model=8",
    "model.n_heads=2",
    "model.n_layers=1",
    "training.accumulate=1",
    "training.workers=1",
    "training.steps=4",
    "training.batch_size=8",
    "training.eval_every=2",
    "training.save_every=2",
    "training.log_every=1",
]
# of any recipe
BRIEFLY = ["training.steps=2", "training.eval_every=2", "training.save_every=2"]


def choose_tolerance(name):
    """How closely a parameter is reached again on another processor.

    A bias of the keys moves all scores of a query alike, so its gradient is rounding noise, which
    AdamW enlarges to steps of full length: here two steps of at most 0.01.
    """
    return 0.02 if name.endswith("proj_k.bias") else 1e-6


def small_recipe(*changes):
    from clearhead.training import find_recipe, with_changes

    return with_changes(find_recipe("substring"), [*SMALL, *changes])


def small_run(out, *changes):
    """Train it; returns its folder."""
    from clearhead.training import train

    return train(small_recipe(*changes), out, threads=1).run


def _hears_ctrl_c():
    """As at a terminal; whoever runs the tests in the background has it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start_outside(*arguments, **variables):
    """A command in a process of its own, as a user starts it."""
    package = str(Path(clearhead.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "clearhead.cli.main", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hears_ctrl_c,
        env=os.environ | {"PYTHONPATH": package, "OMP_NUM_THREADS": "1"} | variables,
    )


def run_outside(*arguments, **variables):
    """(exit code, stdout, stderr)."""
    process = start_outside(*arguments, **variables)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


# Runs commands one after the other and prints how each has ended.
IN_TURN = """
import contextlib, io, json, sys
from clearhead.cli.main import main
ends = []
for words in json.loads(sys.argv[1]):
    sys.argv, out, err, code = ["clearhead", *words], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    ends.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(ends))
"""


def check_in_turn(commands, folder):
    """Each command ends well and prints something: all in one process, since importing torch for
    each takes longer than most of them."""
    package = str(Path(clearhead.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps(commands)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": package},
    )
    assert done.returncode == 0, done.stderr
    for words, (code, out, err) in zip(commands, json.loads(done.stdout), strict=True):
        assert code == 0, (words, err)
        assert out.strip(), words


def assert_a_mistake(code, out, err):
    """Exit 2, nothing on stdout, one line with the error, one with a hint, no traceback."""
    assert (code, out) == (2, ""), err
    lines = err.splitlines()
    assert len(lines) == 2, err
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")

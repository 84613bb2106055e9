"""The facts about a run that a list of runs shows, read without importing torch.

describe_run(RunFolder("runs/substring-0001"))["step"]
"""

import re
import shlex
import time
from contextlib import suppress
from typing import Any

from clearhead.files.lock import is_locked
from clearhead.files.reading import BadFile
from clearhead.runs.folder import METRICS, RunFolder

N_PROMPT = 20  # characters of a sample to use as a prompt


def describe_run(run: RunFolder) -> dict[str, Any]:
    """The facts about a run, and the command to run next; what cannot be read is None."""
    config, state = {}, run.read_state()
    with suppress(BadFile):
        config = run.config
    measure, value = _choose_measure(state.get("best_metrics"))
    finished = state.get("finished") is True
    running = not finished and is_locked(run.path)
    return {
        "run": str(run.path),
        "recipe": config.get("recipe"),
        "step": state.get("step", 0),
        "steps": _get(config, "training", "steps"),
        "finished": finished,
        "running": running,
        "measure": measure,
        "best": value,
        "age": max(0.0, time.time() - _find_last_change(run)),
        "next": _choose_next(run, config, finished, running),
    }


def _get(config: dict[str, Any], section: str, name: str) -> Any:
    values = config.get(section)
    return values.get(name) if isinstance(values, dict) else None


def _choose_measure(metrics: Any) -> tuple[str | None, float | None]:
    """The name and value of the best metric: the first other than val_loss, if there is one."""
    if not isinstance(metrics, dict) or not metrics:
        return None, None
    name = next((name for name in metrics if name != "val_loss"), "val_loss")
    value = metrics.get(name)
    return (name, float(value)) if isinstance(value, int | float) else (None, None)


def _find_last_change(run: RunFolder) -> float:
    """When the run last wrote a measurement, or else when it was started."""
    path = run / METRICS
    return (path if path.exists() else run.path).stat().st_mtime


def _choose_next(run: RunFolder, config: dict[str, Any], finished: bool, running: bool) -> str:
    """Look at a running run, resume a stopped one, try a finished one with a known input."""
    path = str(run.path)
    if running:
        return shlex.join(["clearhead", "plot", "curves", path])
    if not finished:
        return shlex.join(["clearhead", "train", "--resume", path])
    if (run / "example.png").exists():
        return shlex.join(["clearhead", "predict", path, str(run / "example.png")])
    line = _read_sample_line(run)
    if not line:
        return shlex.join(["clearhead", "eval", path])
    if _get(config, "model", "kind") == "GPTConfig":
        return shlex.join(["clearhead", "generate", path, "--prompt", line[:N_PROMPT]])
    return shlex.join(["clearhead", "predict", path, re.split(r" → |  ", line)[0]])


def _read_sample_line(run: RunFolder) -> str:
    """The first line of the last sample; empty if there is none that can be shown."""
    with suppress(BadFile):
        lines = [line for _, text in run.read_samples()[-1:] for line in text.splitlines()]
        line = next((line for line in lines if any(map(str.isalpha, line))), "").strip()
        return line if line.isprintable() else ""
    return ""

"""Where a run begins: a new folder, or the place where it was stopped.

The same command again goes on with its unfinished run. What a run's numbers depend on is written
down when it starts, its config and its environment, and compared when it goes on: a difference is
told field by field, and nothing is continued by mistake. A run can be forced to go on with other
training settings or in another environment, which are then its own; with another model or other
data it would be another run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.files.reading import BadFile, quote
from clearhead.training.checkpoint import newest_state
from clearhead.training.run_folder import RunFolder, find_runs

# Of what is written down, what the numbers do not depend on.
HARMLESS = ("asked", "python", "system")
# What a run is: it cannot be forced to be another.
FIXED = ("recipe", "data", "model", "overfit", "examples")

Tell = Callable[[str], None]


def unfinished_run(parent: Path, name: str, asked: str, tell: Tell) -> RunFolder | None:
    """The newest unfinished run for which the same was asked, None if there is none.

    It is found by what was asked, not by the data: if these have changed, that is told, and the
    run is not silently begun again.
    """
    for run in reversed(find_runs(parent, name)):
        try:
            if run.config.get("asked") == asked and not is_finished(run):
                return run
        except BadFile as fault:
            tell(f"{fault}; this run is left out")
    return None


def find_run(parent: Path, wanted: str, name: str) -> RunFolder:
    """The run at a path, or for "last" the one of this name with the highest number."""
    if wanted != "last":
        run = RunFolder(wanted)
        run.check()
        return run
    runs = find_runs(parent, name)
    if not runs:
        raise BadFile(f"{quote(parent)} has no run of {name}; start one: clearhead train {name}")
    return runs[-1]


def is_finished(run: RunFolder) -> bool:
    """Whether the newest good checkpoint says so."""
    return newest_state(run.checkpoints).get("finished") is True


def threads_of(run: RunFolder | None, threads: int | str, workers: int = 1) -> Any:
    """The number of threads that is wanted; a run that goes on keeps its own unless told.

    Workers have a thread each: they hardly wait for one another, so there is nothing to measure.
    """
    if threads != "auto":
        return int(threads)
    wanted = "auto" if workers == 1 else workers
    return wanted if run is None else run.environment.get("threads", wanted)


def check_same(
    run: RunFolder,
    config: Mapping[str, Any],
    environment: Mapping[str, Any],
    force: bool = False,
) -> list[str]:
    """What has changed of all that the numbers depend on; refused unless force covers it."""
    then, now = {**run.environment, **run.config}, {**environment, **config}
    different = list(_differences(then, now))
    is_another = any(line.partition(":")[0].partition(".")[0] in FIXED for line in different)
    if different and (is_another or not force):
        forced = "" if is_another else "give --force to go on with other numbers, or "
        raise ValueError(
            f"{quote(run.path)} cannot go on as it began:\n  "
            + "\n  ".join(different)
            + f"\nmake them equal, or {forced}take another --out to start anew"
        )
    return different


def adopt(
    run: RunFolder,
    config: Mapping[str, Any],
    environment: Mapping[str, Any],
    different: Sequence[str],
    tell: Tell,
) -> None:
    """What was forced is the run's own from now on; what it was is noted and told."""
    for difference in different:
        run.add_forced(difference)
        tell(f"going on although it differs: {difference}")
    if different:
        run.describe(config, environment)


def _differences(one: Any, other: Any, name: str = "") -> Iterator[str]:
    """Each field that differs, with both values."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            inside = f"{name}.{key}" if name else str(key)
            if inside not in HARMLESS:
                yield from _differences(one.get(key), other.get(key), inside)
    elif one != other:
        yield f"{name}: {one!r:.200} then, {other!r:.200} now"

"""Which run a command resumes, and whether it is still the same run.

The same command again resumes its unfinished run. Everything a run's numbers depend on is in its
config and its environment. Both are written when it starts and compared when it resumes, and every
difference is listed. With force a run resumes with other training settings or in another
environment, which replace the old ones in its files. It never resumes with another model or other
data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clearhead.files.reading import BadFile, quote
from clearhead.files.strict_json import hash_json
from clearhead.runs.checkpoint import MANIFEST, find_checkpoints, is_finished
from clearhead.runs.differences import list_differences
from clearhead.runs.folder import CHANGEABLE, CODE, REPORT, RunFolder, find_runs
from clearhead.runs.own_code import Kinds, find_code
from clearhead.runs.run import read_recipe
from clearhead.runtime import read_omp_threads
from clearhead.training.recipe import Recipe

# Fields of config.json and environment.json that do not change the numbers.
HARMLESS = ("asked", "python", "system", "code.file", "processes")
DEPENDENT = ("ddp", "fsdp")  # modes whose last digits depend on the number of processes
# Parts of config.json that force cannot change.
FIXED = ("recipe", "data", "model", "overfit", "examples")

Tell = Callable[[str], None]


def find_unfinished(parent: Path, config: Mapping[str, Any], tell: Tell) -> RunFolder | None:
    """The newest unfinished run of the command that gave this config, None if there is none.

    The examples are not compared: if they have changed, the run is found here and refused by
    `check_same`, so that a new run does not start silently. Nor does one start silently beside a
    finished run of the same command.
    """
    finished: RunFolder | None = None
    for run in reversed(find_runs(parent, config["recipe"])):
        try:
            if _is_same_command(run.config, config):
                if not is_finished(run.checkpoints):
                    return run
                finished = finished or run
        except BadFile as fault:
            tell(f"{fault}; this run is skipped")
    if finished is not None:
        tell(
            f"{quote(finished.path)} is finished and has the same settings; this new run repeats "
            f"it, with the same seed"
        )
    return None


def find_unreported(parent: Path, recipe: Recipe, overfit: int | None) -> RunFolder | None:
    """The newest run of a command, if it is finished but its report was interrupted.

    A run that was trained with another version of the user's file is not returned.
    """
    asked = digest_command(recipe, overfit)
    code = find_code(recipe, lambda sentence: None)
    about = None if code is None else code.describe()
    for run in reversed(find_runs(parent, recipe.name)):
        with suppress(BadFile, OSError):
            config = run.config
            if config.get("asked") == asked:
                is_other_code = any(_describe_differences({CODE: config.get(CODE)}, {CODE: about}))
                if is_other_code or _has_report(run) or not is_finished(run.checkpoints):
                    return None
                return run
    return None


def digest_command(recipe: Recipe, overfit: int | None) -> str:
    """The digest of what a command asks for, without the sizes that the data decide."""
    return hash_json({**recipe.to_dict(), "overfit": overfit})


def _has_report(run: RunFolder) -> bool:
    """Whether the report was written after the newest checkpoint."""
    newest = find_checkpoints(run.checkpoints)[-1:]
    try:
        written = (run / REPORT).stat().st_mtime
        return all((path / MANIFEST).stat().st_mtime <= written for path in newest)
    except FileNotFoundError:
        return False


def _is_same_command(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Compare "asked", the digest of the command; for an earlier release, compare all settings."""
    if then.get("asked") == now["asked"]:
        return True
    then = _translate_config(then)
    return all(then.get(name) == now[name] for name in ("data", "model", "training", "overfit"))


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


def decide_threads(
    run: RunFolder | None, threads: int | str, workers: int = 1, parallel: str | None = None
) -> Any:
    """The number of threads, or "auto"; a resumed run keeps its own unless a number is given.

    Workers have a thread each: they hardly wait for one another, so there is nothing to measure.
    OMP_NUM_THREADS has precedence, as it has for one worker. With parallel=exact every process and
    every worker has one thread: the number of threads may change the last digits, so it must not
    depend on how many cores the machine has.
    """
    if threads != "auto":
        return int(threads)
    wanted = "auto" if workers == 1 or read_omp_threads() else workers
    if parallel == "exact":
        wanted = 1
    return wanted if run is None else run.environment.get("threads", wanted)


def check_same(
    run: RunFolder,
    config: Mapping[str, Any],
    environment: Mapping[str, Any],
    force: bool = False,
    kinds: Kinds | None = None,
) -> list[str]:
    """List the differences that change the numbers; an error, unless force allows all of them.

    kinds: the classes that the config of the run may name.
    """
    then = {**run.environment, **_translate_config(run.config, kinds)}
    now = {**environment, **config}
    if CODE not in then:  # written by an earlier release, which kept no own code
        now.pop(CODE, None)
    differences = list(_describe_differences(then, now))
    is_another = any(line.partition(":")[0].partition(".")[0] in FIXED for line in differences)
    if differences and (is_another or not force):
        forced = "" if is_another else "give --force to resume with the new values, or "
        raise ValueError(
            f"{quote(run.path)} cannot be resumed, because these have changed:\n  "
            + "\n  ".join(differences)
            + f"\nrestore the old values, or {forced}use another --out to start a new run"
        )
    return differences


def _translate_config(config: Mapping[str, Any], kinds: Kinds | None = None) -> Mapping[str, Any]:
    """A config of an earlier release with today's names; unchanged if it cannot be read."""
    with suppress(ValueError, TypeError):
        return {**config, **read_recipe(config, kinds).to_dict()}
    return config


def record_forced(
    run: RunFolder,
    config: Mapping[str, Any],
    environment: Mapping[str, Any],
    differences: Sequence[str],
    tell: Tell,
) -> None:
    """Write forced settings to config.json and environment.json, and the old ones to forced.txt."""
    for difference in differences:
        run.add_forced(difference)
        tell(f"resuming although this differs: {difference}")
    # The other parts stay as the release that began the run wrote them.
    changed = {name: config[name] for name in CHANGEABLE if name in config}
    run.describe({**run.config, **changed}, environment)


def record_processes(run: RunFolder, environment: Mapping[str, Any], tell: Tell) -> None:
    """Tell the user, and record, that a run continues on another number of processes."""
    then, now = run.environment.get("processes", 1), environment.get("processes", 1)
    if then != now:
        processes = "1 process" if now == 1 else f"{now} processes"
        mode = run.config.get("training", {}).get("parallel")
        result = f", so with {mode} its last digits will be different" if mode in DEPENDENT else ""
        tell(f"this run continues on {processes}; before, it had {then}{result}")
        run.describe(run.config, {**run.environment, "processes": now})


def _describe_differences(before: Any, after: Any) -> Iterator[str]:
    """A line for each field that changes the numbers and differs, with both values."""
    for name, then, now in list_differences(before, after, ignore=HARMLESS):
        yield f"{name}: {then!r:.200} then, {now!r:.200} now"

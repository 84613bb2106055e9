"""The runs of a studio: what is known about each, how two differ, and the trainings it has started.

A run is looked up by its id. Of changed settings, `clearhead train` checks the values and this file
the names: each must be a setting of the recipe and not a path, because a page must not make the
studio read files.
"""

import re
from collections.abc import Mapping
from typing import Any

from clearhead.config import suggest, write_text
from clearhead.runs.description import describe_run
from clearhead.runs.differences import list_differences
from clearhead.runs.folder import CONFIG, RunFolder
from clearhead.studio.listing import Listing, Source
from clearhead.studio.supervisor import AskError
from clearhead.studio.training_process import Trainings

MAX_VALUE = 200  # characters of a value
NAME = re.compile(r"(?:data|model|training)\.[a-z0-9_]+")
PATHS = re.compile(r"(?:path|file|folder|directory)s?$")
DERIVED = ("asked", "examples")  # entries of config.json that follow from the others


class RunList:
    """The runs of a studio, and the trainings that it has started."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """settings: those of the worker, so that an id means the same run in both."""
        runs = settings.get("runs")
        self.listing = Listing(settings["paths"], lecture=bool(settings.get("lecture")), runs=runs)
        self.trainings = Trainings(runs or "runs")

    def describe_all(self) -> dict[str, Any]:
        """All runs, and the training that was started last; None if there is none."""
        runs = [self.describe(source) for source in self.listing.list_runs().values()]
        last, training = self.trainings.last, None
        if last is not None:
            place = last.find_run()
            id = next((each["id"] for each in runs if each["run"] == place), None)
            training = {**last.describe(), "run": id}
        return {"runs": runs, "training": training}

    def describe(self, source: Source) -> dict[str, Any]:
        """The facts about a run; state: finished, running or stopped."""
        facts: dict[str, Any] = {"run": source.path}
        try:
            facts = describe_run(RunFolder(source.path))
        except OSError as fault:  # its folder was removed meanwhile
            facts["error"] = f"this run cannot be read: {(fault.strerror or str(fault)).lower()}"
        state = next((name for name in ("finished", "running") if facts.get(name)), "stopped")
        own = {"id": source.id, "state": state, "is_lecture": source.is_lecture}
        return {**facts, **own, "is_ours": self.trainings.find(source.path) is not None}

    def find(self, id: str) -> Source:
        """The run of this id."""
        runs = self.listing.list_runs()
        if id not in runs:
            raise AskError(404, f"there is no run {id[:80]!r}{suggest(id, runs)}")
        return runs[id]

    def read(self, source: Source) -> dict[str, Any]:
        """Everything that the page shows of a run."""
        folder = RunFolder(source.path)
        config = _read_config(folder)
        samples = [{"heading": heading, "text": text} for heading, text in folder.read_samples()]
        own = {"config": config, "metrics": folder.read_metrics(), "samples": samples}
        return {**self.describe(source), **own}

    def compare(self, first: Source, second: Source) -> list[dict[str, Any]]:
        """The settings in which two runs differ."""
        configs = [_read_config(RunFolder(source.path)) for source in (first, second)]
        found = list_differences(*configs, ignore=DERIVED)
        return [{"name": name, "first": one, "second": other} for name, one, other in found]

    def resume(self, source: Source) -> None:
        """Resume a stopped run."""
        facts = self.describe(source)
        if source.is_lecture:
            raise AskError(400, f"{source.id} is a built-in model; start its recipe instead")
        if facts["state"] != "stopped":
            raise AskError(409, f"{source.id} is {facts['state']}, so there is nothing to resume")
        self.trainings.start([f"--resume={source.path}"], run=source.path)


def _read_config(folder: RunFolder) -> dict[str, Any]:
    """The config of a run; a link that leads to a file outside its folder is refused."""
    folder.find(CONFIG)
    return folder.config


def write_changes(recipe: str, changes: Any, described: Mapping[str, Any]) -> list[str]:
    """The arguments of `clearhead train` for changed settings, each "name=value".

    changes: {name: value}; described: the answer to describe_recipe. A name that is not a setting
    of the recipe is refused, and so is a value that is not printable.
    """
    if not isinstance(changes, dict):
        raise AskError(400, "changes must be an object: {name of a setting: its value}")
    fields = [field["name"] for section in described["sections"] for field in section["fields"]]
    arguments = []
    for name, value in changes.items():
        if not NAME.fullmatch(name) or name not in fields:
            raise AskError(400, f"{recipe} has no setting {name[:80]!r}{suggest(name, fields)}")
        if PATHS.search(name):
            command = f"clearhead train {recipe} {name}=…"
            raise AskError(400, f"{name} cannot be set from the page; in a terminal: {command}")
        if not isinstance(value, str | int | float | bool | None):
            raise AskError(400, f"{name} must be one value, got a {type(value).__name__}")
        text = write_text(value)
        if len(text) > MAX_VALUE or not text.isprintable():
            raise AskError(400, f"{name} must be at most {MAX_VALUE} printable characters")
        arguments.append(f"{name}={text}")
    return arguments

"""The models of a studio by id, read from folders without importing torch.

    listing = Listing(["runs/substring-0001"], runs="runs")
    listing.find("substring-0001").path

The server and the worker make the same list from the same settings, so an id means the same model
in both. A run that is new in the folder `runs` is found by the name of its folder. A question names
a model by its id, never by a path.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from clearhead.runs.folder import is_run, list_runs

LECTURE = Path(__file__).parent / "lecture"
LECTURE_MODELS = ("substring", "shakespeare", "digits", "dates")  # in the order of a lecture


@dataclass(frozen=True)
class Source:
    """A model that can be opened. id: its name in questions and addresses."""

    id: str
    path: str
    is_run: bool

    @property
    def is_lecture(self) -> bool:
        """Whether it is a built-in model, which is never trained further."""
        return Path(self.path).parent == LECTURE


class Listing:
    """The models of a studio. listed: those given by path, the built-in ones, and found runs."""

    def __init__(
        self, paths: Sequence[str], *, lecture: bool = False, runs: str | None = None
    ) -> None:
        """lecture: add the built-in models. runs: a folder whose runs can be opened too."""
        self.listed: dict[str, Source] = {}
        for path in [*paths, *(list_lecture() if lecture else [])]:
            self.add(path)
        self.runs, self._given = runs, dict(self.listed)

    def add(self, path: str) -> Source:
        """List the model at a path. Its id is the name of its folder; a number makes it unique."""
        path = str(Path(path))  # ./runs/x and runs/x/ are runs/x, as everywhere else
        place = Path(path).resolve()
        for known in self.listed.values():
            if Path(known.path).resolve() == place:
                return known
        source = Source(_choose_id(place.name or "model", self.listed), path, is_run(path))
        self.listed[source.id] = source
        return source

    def find(self, id: str) -> Source:
        """The model with this id; a run found in the folder of runs is listed from now on."""
        if id not in self.listed and (found := self.list_runs().get(id)):
            self.listed[id] = found
        if id not in self.listed:
            known = ", ".join(self.listed) or "none"
            raise ValueError(f"there is no model {id[:80]!r}; the models are {known}")
        return self.listed[id]

    def list_runs(self) -> dict[str, Source]:
        """All runs: those in the folder of runs, the newest first, then those given by path."""
        given = {id: source for id, source in self._given.items() if source.is_run}
        places = {Path(source.path).resolve() for source in given.values()}
        folders = [] if self.runs is None else list_runs(Path(self.runs))[::-1]
        new = [folder.path for folder in folders if folder.path.resolve() not in places]
        used = {*self._given, *(path.name for path in new)}
        found = {}
        for path in new:
            id = _choose_id(path.name, used) if path.name in self._given else path.name
            found[id] = Source(id, str(path), is_run=True)
        return {**found, **given}


def _choose_id(name: str, used: Container[str]) -> str:
    """The name, or the first of name-2, name-3, … that is free."""
    ids = (name if n == 1 else f"{name}-{n}" for n in count(1))
    return next(id for id in ids if id not in used)


def list_lecture() -> list[str]:
    """The folders of the built-in models, in the order of a lecture."""
    return [str(LECTURE / name) for name in LECTURE_MODELS]

"""Submissions with known verdicts: honest ones in many styles, and wrong ones for every mistake.

A file corpus/NAME.txt holds those of one exercise, each under a line that says what it is:

    === honest: einsum
    …source…
    === no_scaling: einsum          the mistake, and the style
    from: honest: einsum
    replace: / math.sqrt(q.shape[-1])
    by:
    === outside scale: einsum       a mistake that has no name, in this term
    …source…

`from` takes an earlier submission; each pair of `replace` and `by` changes its text once. A text of
several lines stands on the lines after the colon.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class CorpusEntry:
    """A submission and its right verdict.

    expected: honest, the id of a mistake, two ids joined by " + ", or "outside TERM"; style: how
    it is written.
    """

    exercise: str
    expected: str
    style: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.expected}: {self.style}"


def read_corpus(exercise: str) -> list[CorpusEntry]:
    """The submissions of one exercise, in the order of the file; none if it has no file."""
    path = FOLDER / f"{exercise}.txt"
    if not path.exists():
        return []
    found: dict[str, CorpusEntry] = {}
    for title, text in _sections(path.read_text(encoding="utf-8")):
        expected, _, style = title.partition(": ")
        if title in found:
            raise ValueError(f"{path.name}: {title!r} stands there twice")
        if text.startswith("from: "):
            text = _edit(found, text, f"{path.name}: {title}")
        found[title] = CorpusEntry(exercise, expected, style, text)
    return list(found.values())


def _sections(text: str) -> Iterator[tuple[str, str]]:
    parts = re.split(r"^=== (.+)\n", text, flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def _edit(found: dict[str, CorpusEntry], text: str, where: str) -> str:
    first, _, rest = text.partition("\n")
    source = found[first.removeprefix("from: ").strip()].source
    parts = re.split(r"^(replace|by):[ \t]?", rest, flags=re.MULTILINE)[1:]
    texts = [part.strip("\n") for part in parts[1::2]]
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        if source.count(old) != 1:
            raise ValueError(f"{where}: {old!r} occurs {source.count(old)} times, not once")
        source = source.replace(old, new)
    return source

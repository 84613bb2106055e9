"""What a check found, as text for a terminal, as JSON, and as HTML in a notebook."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

SHOWN = ["exercise", "verdict", "outcome", "mistake", "sentence", "line", "example", "points"]
SHOWN += ["max_points", "mistakes", "term", "page", "where", "notes"]
NOT_FINITE = re.compile(r'"(nan|-?inf)"')  # in quotes, since JSON has no such numbers
LEVELS = ("none", "property", "term", "line")  # how much a hint tells


def check_level(level: str, name: str = "hints") -> None:
    """Refuse a level of hints that does not exist."""
    if level not in LEVELS:
        raise ValueError(f"{name} must be one of {', '.join(LEVELS)}, got {level!r}")


@dataclass
class Part:
    """The result for one exercise. verdict: passed, failed, error or missing; outcome: named,
    narrowed, unknown or None; mistake: its id, the first of `mistakes` if two were made."""

    exercise: str
    verdict: str
    outcome: str | None = None
    mistake: str | None = None
    sentence: str = ""
    line: int | None = None
    example: Mapping[str, Any] | None = None
    points: float = 0.0
    max_points: float = 10.0
    term: str | None = None
    says: str | None = None
    term_in_words: str | None = None
    formula: str = ""
    page: str = ""
    where: str | None = None
    code: str | None = None
    notes: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SHOWN}

    @property
    def text(self) -> str:
        """For a terminal."""
        return "\n".join(_write_lines(self))

    def limit(self, level: str) -> "Part":
        """The same result with no more than this level of hints; none is the verdict alone."""
        if level == "none":
            return Part(self.exercise, self.verdict, points=self.points, max_points=self.max_points)
        if self.verdict != "failed" or level == "line":  # what the code raises is no hint
            return self
        hidden: dict[str, Any] = {"line": None, "where": None, "code": None, "mistake": None}
        hidden["mistakes"] = []
        if level == "property":
            sentence = f"this case fails: {self.says}" if self.says else "some values are wrong"
            hidden |= {"sentence": sentence, "term": None, "term_in_words": None}
        elif self.term_in_words:
            hidden["sentence"] = f"look at {self.term_in_words}"
        return replace(self, **hidden)


@dataclass
class Report:
    """The results for one submission. sandbox: the level of protection it ran under."""

    file: str
    sandbox: str
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_passed(self) -> bool:
        return bool(self.parts) and all(part.verdict == "passed" for part in self.parts)

    @property
    def points(self) -> float:
        return sum(part.points for part in self.parts)

    @property
    def max_points(self) -> float:
        return sum(part.max_points for part in self.parts)

    def limit(self, level: str) -> "Report":
        """The same report with no more than this level of hints."""
        check_level(level)
        return replace(self, parts=[part.limit(level) for part in self.parts])

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "sandbox": self.sandbox,
            "parts": [part.to_json() for part in self.parts],
            "notes": self.notes,
        }

    @property
    def text(self) -> str:
        """For a terminal."""
        lines = [line for part in self.parts for line in _write_lines(part)]
        lines += ["", *(f"note: {note}" for note in self.notes)]
        n = sum(part.verdict == "passed" for part in self.parts)
        total = f"{self.points:g} of {self.max_points:g} points"
        lines.append(f"{n} of {len(self.parts)} parts passed, {total}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        rows = "".join(_write_row(part) for part in self.parts)
        return f'<table class="clearhead-check">{rows}</table>'


def _write_lines(part: Part) -> Iterator[str]:
    """One line if it passed; else what is wrong, where, an example, and what to read."""
    yield f"{part.exercise}: {part.verdict}" + (f", {part.sentence}" if part.sentence else "")
    if part.verdict != "passed":
        yield from _explain(part)
    yield from (f"  note     {note}" for note in part.notes)


def _explain(part: Part) -> Iterator[str]:
    if part.term_in_words:
        yield f"  term     {part.term_in_words}, in {part.formula}"
    if part.where:
        yield f"  {part.where + ':':8} {part.code or ''}"
    if part.example:
        yield from _write_example(part.example)
    if part.mistake:
        yield f"  name     {', '.join(part.mistakes) or part.mistake}"
    if part.page:
        yield f"  read     docs/{part.page}"


def _write_example(example: Mapping[str, Any]) -> Iterator[str]:
    start = "  example  "
    for name, value in {**example.get("sizes", {}), **example["inputs"]}.items():
        yield f"{start}{name} = {_shorten(value)}"
        start = " " * 11
    for word in ("expected", "got"):
        value = example[word]
        values = value if isinstance(value, dict) else {"": value}
        for name, each in values.items():
            yield f"           {word + ' ' + name:16} {_shorten(each)}"


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = NOT_FINITE.sub(r"\1", text)
    return text if len(text) <= 200 else text[:197] + "…"


def _write_row(part: Part) -> str:
    words = [f"<b>{escape(part.verdict)}</b>"]
    if part.sentence and part.verdict != "passed":
        words.append(escape(part.sentence))
    if part.where:
        words.append(f"{escape(part.where)}: <code>{escape(part.code or '')}</code>")
    if part.example:
        lines = "\n".join(_write_example(part.example))
        words.append(f"<pre>{escape(lines)}</pre>")
    return f"<tr><th>{escape(part.exercise)}</th><td>{'<br>'.join(words)}</td></tr>"

"""A class report: the mistakes, their counts, and what to say in the lecture, as one HTML page.

The page names no student, so it can be shown to the class. It loads nothing, and text from
submissions is escaped.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from statistics import mean, median

from clearhead.exercises.catalogue import read_entry
from clearhead.exercises.gradebook import Grade
from clearhead.exercises.report import Part
from clearhead.files.page import write_page

N_SHOWN = 3  # the mistakes for the lecture
VERDICTS = {"passed": "right", "failed": "wrong", "error": "not running", "missing": "missing"}


@dataclass(frozen=True)
class Finding:
    """A kind of mistake in one exercise, and what there is to say about it.

    mistake: its id; "" if it has no name and only the term is known.
    """

    exercise: str
    mistake: str
    sentence: str
    term: str | None


def count_mistakes(grades: Sequence[Grade]) -> list[tuple[Finding, int]]:
    """How many submissions make each mistake, the most common first."""
    counts = Counter(
        finding for grade in grades for part in grade.parts for finding in _find_mistakes(part)
    )
    order = {finding: number for number, finding in enumerate(counts)}
    return sorted(counts.items(), key=lambda item: (-item[1], order[item[0]]))


def _find_mistakes(part: Part) -> Iterator[Finding]:
    """Each named mistake of a part; a nameless one by its term."""
    known = read_entry(part.exercise).mistakes
    for id in part.mistakes or ([part.mistake] if part.mistake else []):
        if id in known:
            yield Finding(part.exercise, id, known[id]["sentence"], known[id]["term"])
        else:  # one that every exercise has, such as modifies_input
            yield Finding(part.exercise, id, part.sentence, part.term)
    if part.verdict == "failed" and not part.mistake:
        yield Finding(part.exercise, "", "no named mistake", part.term)


def write_class_report(title: str, grades: Sequence[Grade]) -> str:
    """The whole page."""
    style = resources.files("clearhead.exercises").joinpath("class_report.css").read_text("utf-8")
    found = count_mistakes(grades)
    lecture = [item for item in found if item[0].mistake][:N_SHOWN]
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            f"<p class=soft>{escape(_write_summary(grades))}</p>",
            "<h2>What to say in the lecture</h2>",
            *(_write_mistake(number, *item) for number, item in enumerate(lecture, 1)),
            *([] if lecture else ["<p>No named mistake was found.</p>"]),
            "<h2>The exercises</h2>",
            _write_exercises(grades),
            *(["<h2>All mistakes</h2>", _write_table(found)] if found else []),
        ]
    )
    return write_page(title, body, style)


def _write_summary(grades: Sequence[Grade]) -> str:
    points = [grade.points for grade in grades]
    most = max((grade.max_points for grade in grades), default=0.0)
    right = sum(all(p.verdict == "passed" for p in g.parts) and bool(g.parts) for g in grades)
    return (
        f"{count(len(grades), 'submission')}, {right} right in every part. Points: mean "
        f"{mean(points):.1f}, median {median(points):.1f} of {most:g}."
    )


def count(n: int, noun: str) -> str:
    """1 submission, 2 submissions"""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def _write_mistake(number: int, finding: Finding, n: int) -> str:
    entry = read_entry(finding.exercise)
    sentence = finding.sentence[:1].upper() + finding.sentence[1:]
    rows = {"exercise": entry.title, "formula": f"<code>{escape(entry.formula)}</code>"}
    rows["exercise"] = escape(rows["exercise"])
    if finding.term:
        rows["term"] = escape(entry.terms.get(finding.term, finding.term))
    rows["read"] = f"<code>docs/{escape(entry.page)}</code>"
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows.items())
    return (
        f"<section class=mistake><h3>{number}. <code>{_write_name(finding.mistake)}</code> "
        f"<span class=count>{count(n, 'submission')}</span></h3>"
        f"<p>{escape(sentence)}.</p><dl>{listed}</dl></section>"
    )


def _write_exercises(grades: Sequence[Grade]) -> str:
    parts = [part for grade in grades for part in grade.parts]
    rows = []
    for name in dict.fromkeys(part.exercise for part in parts):
        own = [part for part in parts if part.exercise == name]
        counts = Counter(part.verdict for part in own)
        share = sum(part.points for part in own) / (sum(part.max_points for part in own) or 1)
        bar = "".join(
            f'<i class={verdict} style="width:{100 * counts[verdict] / len(own):.2f}%"></i>'
            for verdict in VERDICTS
        )
        words = ", ".join(f"{counts[v]} {word}" for v, word in VERDICTS.items() if counts[v])
        rows.append(
            f"<tr><td>{_write_name(name)}<div class=bar>{bar}</div></td><td>{words}</td>"
            f"<td class=number>{share:.0%}</td></tr>"
        )
    key = " ".join(f"<span><i class={v}></i>{word}</span>" for v, word in VERDICTS.items())
    head = "<tr><th>exercise</th><th>submissions</th><th class=number>points</th></tr>"
    return f'<p class="soft key">{key}</p><table>{head}{"".join(rows)}</table>'


def _write_table(found: Sequence[tuple[Finding, int]]) -> str:
    rows = "".join(
        f"<tr><td class=number>{n}</td><td>{_write_name(finding.exercise)}</td>"
        f"<td>{_write_kind(finding)}</td></tr>"
        for finding, n in found
    )
    head = "<tr><th class=number>how many</th><th>exercise</th><th>mistake</th></tr>"
    return f"<table>{head}{rows}</table>"


def _write_kind(finding: Finding) -> str:
    if finding.mistake:
        return f"<code>{_write_name(finding.mistake)}</code>"
    terms = read_entry(finding.exercise).terms
    where = f"; look at {terms.get(finding.term, finding.term)}" if finding.term else ""
    return escape(finding.sentence + where)


def _write_name(name: str) -> str:
    """A name that may be broken after an underscore."""
    return escape(name).replace("_", "_<wbr>")

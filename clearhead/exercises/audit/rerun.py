"""Run the code of a handout in the sandbox; compare what it prints and makes with its claims."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearhead.exercises.audit.digits import agree
from clearhead.exercises.audit.findings import Finding, Note
from clearhead.exercises.audit.handout import MAX_LINES, Block
from clearhead.exercises.audit.instrument import Program, instrument, read_stated_shapes
from clearhead.exercises.sandbox import Stopped, StudentError

PROBE = Path(__file__).parent / "probe.py"
FAR = MAX_LINES + 1  # the line number of code that is not from the handout
SECONDS = 30.0  # for one block
TOTAL = 300.0


@dataclass
class Run:
    """The records of one run of a handout, by line. failures: line → the error raised there."""

    shown: list[tuple[int, str]] = field(default_factory=list)
    values: dict[int, str] = field(default_factory=dict)
    shapes: list[tuple[int, list[int] | None, list[list[int]]]] = field(default_factory=list)
    closes: list[tuple[int, bool, float, float, float]] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)
    stop: str = ""  # why the run ended early
    n_done: int = 0  # groups of cells that ran to their end

    def add(self, records: Any) -> None:
        """Add the records of the sandbox; they are not trusted, so their types are checked."""
        self.shown += [(int(line), str(text)) for line, text in records["shown"]]
        self.values |= {int(line): str(text) for line, text in records["values"]}
        for line, claimed, shapes in records["shapes"]:
            sizes = None if claimed is None else [int(n) for n in claimed]
            self.shapes.append((int(line), sizes, [[int(n) for n in each] for each in shapes]))
        for line, accepts, largest, rtol, atol in records["closes"]:
            self.closes.append((int(line), bool(accepts), float(largest), float(rtol), float(atol)))
        self.outputs += list(records["outputs"])

    def read_printed(self, first: int, last: int) -> str:
        """Read what lines first … last printed."""
        return "\n".join(text for line, text in self.shown if first <= line <= last)

    def fails_in(self, first: int, last: int) -> str | None:
        """Find the error that was raised in these lines; None if there was none."""
        return next((self.failures[n] for n in range(first, last + 1) if n in self.failures), None)


class Runner:
    """Runs cells in a session of the sandbox; after a stop, in a new one."""

    def __init__(self, sandbox: Any) -> None:
        self.sandbox = sandbox
        self.stack = ExitStack()
        self.session: Any = None

    def run(self, groups: Sequence[Sequence[tuple[int, str]]], seed: int = 1) -> Run:
        """Run groups of cells in order. What they raise is recorded; a stop ends the run."""
        found = Run()
        try:
            if self.session is None:
                self.session = self.stack.enter_context(
                    self.sandbox.open(seconds=SECONDS, total=TOTAL)
                )
                self._load([(FAR, PROBE.read_text(encoding="utf-8"))], found)
            self._load([(FAR, f"audit_start({seed})"), (FAR, "print = audit_print")], found)
            for group in groups:
                self._load(group, found)
                reply = self.session.request("call", target="audit_take", args=[], kwargs={})
                found.add(reply["output"])
                found.n_done += 1
        except (Stopped, StudentError, KeyError, TypeError, ValueError, AttributeError) as fault:
            found.stop = str(fault)
            self.close()
        return found

    def _load(self, cells: Sequence[tuple[int, str]], found: Run) -> None:
        loaded = self.session.request("load", cells=[list(cell) for cell in cells])
        for failure in loaded["failures"]:
            sentence = f"{failure['type']}: {failure['message']}"
            found.failures.setdefault(int(failure["line"] or 0), sentence)

    def close(self) -> None:
        """End the session."""
        self.stack.close()
        self.session = None


def group_cells(
    blocks: Sequence[Block], programs: dict[int, Program]
) -> list[list[tuple[int, str]]]:
    """Group the cells by code block, each followed by checks of the shapes that the text claims.

    A text may be about the code before it or after it, so its claims are tried after both."""
    groups: list[list[tuple[int, str]]] = []
    waiting: list[tuple[int, str]] = []
    for i, block in enumerate(blocks):
        if i in programs:
            groups.append([*programs[i].cells, *waiting])
            waiting = []
        elif block.kind == "text":
            new = [
                (line, f"audit_shape({line}, {name}, lambda: ({sizes},))")
                for line, name, sizes in find_stated_shapes(block)
            ]
            waiting += new
            groups += [new] if new else []
    return groups


def find_stated_shapes(block: Block) -> Iterator[tuple[int, str, str]]:
    """(line, name, sizes) of each shape that a text claims."""
    for offset, name, sizes in read_stated_shapes(block.text):
        yield block.line + block.text[:offset].count("\n"), name, sizes


def read_programs(blocks: Sequence[Block]) -> tuple[dict[int, Program], list[Note]]:
    """The instrumented code blocks by index, and a note for each that is not Python."""
    programs = {i: instrument(block) for i, block in enumerate(blocks) if block.kind == "code"}
    unread = {i: each for i, each in programs.items() if each.fault}
    notes = [
        Note(blocks[i].line, f"this code cannot be read: {p.fault}") for i, p in unread.items()
    ]
    return {i: each for i, each in programs.items() if i not in unread}, notes


# Claims


@dataclass(frozen=True)
class Claim:
    """Numbers that lines first … last should print, according to line `line` of the handout; block:
    the index of the code block."""

    line: int
    first: int
    last: int
    printed: str
    block: int

    def read(self, run: Run) -> str:
        """The output of these lines in a run: printed text, or the value of an expression."""
        text = run.read_printed(self.first, self.last)
        return text or run.values.get(self.first, "")


def find_claims(blocks: Sequence[Block], programs: dict[int, Program]) -> Iterator[Claim]:
    """Find claims: comments beside prints, and the first block of output after code."""
    latest: int | None = None
    for i, block in enumerate(blocks):
        if i in programs:
            latest = i
            for line, printed in programs[i].claims.items():
                yield Claim(line, line, line, printed, i)
        elif block.kind == "output" and latest is not None:
            first = blocks[latest].line
            last = first + blocks[latest].text.count("\n")
            yield Claim(block.line, first, last, block.text, latest)
            latest = None
        elif block.kind not in ("text", "output"):
            latest = None


def find_shape_lines(blocks: Sequence[Block], programs: dict[int, Program]) -> list[int]:
    """The lines that claim a shape, in comments and in the text."""
    said = [
        each[0] for block in blocks if block.kind == "text" for each in find_stated_shapes(block)
    ]
    return sorted({*said, *(line for program in programs.values() for line in program.shapes)})


def check_shape(line: int, runs: Iterable[Run]) -> list[Finding | int] | None:
    """Compare a claimed shape with the values of all runs; None if no run has recorded both.

    For a line that runs several times, one matching shape is enough."""
    known = [
        (claimed, shapes)
        for run in runs
        for number, claimed, shapes in run.shapes
        if number == line and claimed is not None and shapes
    ]
    if not known or any(claimed in shapes for claimed, shapes in known):
        return [1] if known else None
    claimed, shapes = known[-1]
    got = " and ".join(_write(shape) for shape in shapes)
    sentence = f"the shape is {got}, not {_write(claimed)}"
    return [1, Finding(line, "wrong", sentence, f"running it gives the shape {got}")]


def _write(shape: list[int] | None) -> str:
    sizes = [str(size) for size in shape or ()]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def check_closes(found: Run) -> Iterator[Finding | int]:
    """Find comparisons whose tolerance is so large that zeros pass."""
    for line, accepts, largest, rtol, atol in found.closes:
        yield 1
        if accepts:
            sentence = f"with rtol={rtol:g} and atol={atol:g} an answer of zeros passes this test"
            proof = f"|0 − expected| ≤ {largest:.4g} ≤ {atol:g} + {rtol:g}·|expected|"
            yield Finding(line, "weak test", sentence, proof)


def check_claims(
    claims: Sequence[Claim], found: Run, again: Run
) -> Iterator[Finding | Note | int | Claim]:
    """Compare claimed numbers with computed ones. again: a run from another seed; numbers that
    depend on the seed are noted. A claim that could not be compared is passed on."""
    for claim in claims:
        computed = claim.read(found)
        fault = found.fails_in(claim.first, claim.last)
        matches = agree(claim.printed, computed) if computed else None
        if fault or matches is None:
            yield claim
        elif matches:
            yield 1
        elif claim.read(again) != computed:
            yield Note(claim.line, "the numbers differ from run to run: no seed is set before them")
        else:
            yield 1
            yield refute(claim, computed)


def refute(claim: Claim, computed: str) -> Finding:
    """Report a claim as wrong: running the code printed other numbers."""
    sentence = f"the code prints {shorten(computed)}, not {shorten(claim.printed)}"
    return Finding(claim.line, "wrong", sentence, f"running it gives\n{computed[:600]}")


def shorten(text: str) -> str:
    """One line of at most 80 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "…"

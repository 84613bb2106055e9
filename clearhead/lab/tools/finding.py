"""What an experiment returns: a claim, tables of numbers, sentences on the result, a picture."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Self

from clearhead.inspection.picture import Picture

Number = float | Sequence[float]


@dataclass(frozen=True)
class Table:
    """Rows under column names; the caption says what is measured, in which unit.

    A cell is a text, or a number that `format_cell` formats.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells under {len(self.columns)} columns")

    @classmethod
    def from_columns(cls, caption: str, *columns: tuple[str, Iterable[Any]]) -> Self:
        """A table from (name, cells) pairs; all columns have equal length."""
        names, cells = zip(*columns, strict=True)
        return cls(caption, names, [list(row) for row in zip(*cells, strict=True)])

    @property
    def text(self) -> str:
        """For a terminal: the first column aligned left, the others right."""
        lines = [list(self.columns), *([format_cell(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = (
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )
        return "\n".join([self.caption, "", *table])


@dataclass(frozen=True)
class Finding:
    """The result of an experiment.

    claim: one sentence. seen: the result in two sentences. numbers: every number in tables and
    sentences, by name and unrounded. `text`: tables and sentences for a terminal.
    """

    claim: str
    tables: Sequence[Table]
    seen: str
    numbers: Mapping[str, Number]
    picture: Picture

    @property
    def text(self) -> str:
        return "\n\n".join([*(table.text for table in self.tables), self.seen])


def format_cell(cell: Any) -> str:
    """A float with three significant digits; a whole number and a text as they are."""
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    if cell == 0 or 1e-3 <= abs(cell) < 1e5:
        exponent = int(f"{cell:.2e}".partition("e")[2])  # after rounding: 9.999 is 1.00e+01
        return f"{cell:,.{max(0, 2 - exponent)}f}"
    return f"{cell:.1e}"


def format_vector(numbers: Iterable[float]) -> str:
    """(1, 4, −0.25)"""
    return "(" + ", ".join(f"{number:.3g}" for number in numbers).replace("-", "−") + ")"


def wrap(*sentences: str) -> str:
    """Each sentence from the start of a line, in lines of up to 100 characters."""
    return "\n".join(fill(sentence, 100) for sentence in sentences)

"""What an experiment gives: a claim, the numbers as tables, what was seen, one picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.inspection.picture import Picture

Number = float | Sequence[float]


@dataclass(frozen=True)
class Table:
    """Rows under the names of their columns; the caption says what is counted, in which unit.

    A cell is a text, or a number that is written as `written` does.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells under {len(self.columns)} columns")

    @property
    def text(self) -> str:
        """For a terminal: the first column to the left, the others to the right."""
        lines = [list(self.columns), *([written(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = (
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )
        return "\n".join([self.caption, "", *table])


@dataclass(frozen=True)
class Finding:
    """What an experiment has shown.

    claim: one sentence. seen: what was seen, in two sentences. numbers: all that tables and
    sentences say, by name and unrounded. `text` is all of it for a terminal.
    """

    claim: str
    tables: Sequence[Table]
    seen: str
    numbers: Mapping[str, Number]
    picture: Picture

    @property
    def text(self) -> str:
        return "\n\n".join([*(table.text for table in self.tables), self.seen])


def written(cell: Any) -> str:
    """A number with three digits that count, a whole one as it is; a text as it is."""
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    if cell == 0 or 1e-3 <= abs(cell) < 1e5:
        return f"{cell:,.{max(0, 2 - _power(cell))}f}"
    return f"{cell:.1e}"


def _power(number: float) -> int:
    """Of ten, in the number as it is written with three digits."""
    return int(f"{number:.2e}".partition("e")[2])

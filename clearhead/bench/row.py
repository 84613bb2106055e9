"""A line of the speed table: ours against another way, measured side by side."""

from collections.abc import Callable
from dataclasses import dataclass

UNITS = {"ms": 1e3, "MB": 1e-6}  # of a second, of a byte
TOO_SMALL = "below what can be measured"


@dataclass(frozen=True)
class Row:
    """Ours against another way, both in seconds or both in bytes, and what we aim at."""

    what: str
    ours: float
    other: str
    theirs: float
    aim: str = ""
    unit: str = "ms"  # or MB

    @property
    def ratio(self) -> float | None:
        """Ours divided by theirs, so below 1 we are better; None if one is too small to measure."""
        return self.ours / self.theirs if self.ours > 0 and self.theirs > 0 else None

    def text(self) -> str:
        """The row as it is printed."""
        ours, theirs, ratio = self._format(self.ours), self._format(self.theirs), self.ratio
        if ratio is None:
            number, note = "–", TOO_SMALL
        else:
            number = f"{1 / ratio:.1f}× less" if ratio < 0.5 else f"{ratio:.2f}×"
            note = self.aim
        return f"{self.what:<44}{ours}   {self.other:<34}{theirs}   {number:<12} {note}".rstrip()

    def _format(self, value: float) -> str:
        number = f"{value * UNITS[self.unit]:.3f} {self.unit}" if value > 0 else "–"
        return f"{number:>12}"


Rows = list[Row]
Work = Callable[[], object]  # what is measured

"""A line of the speed table: ours against another way, measured side by side."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table: ours against another way, in seconds or bytes, and the aim."""

    what: str
    ours: float
    other: str
    theirs: float
    aim: str = ""
    unit: str = "ms"  # or MB

    @property
    def ratio(self) -> float:
        """Ours divided by theirs: below 1 we are better."""
        return self.ours / self.theirs

    def text(self) -> str:
        """The row as it is printed."""
        number = f"{1 / self.ratio:.1f}× less" if self.ratio < 0.5 else f"{self.ratio:.2f}×"
        factor = {"ms": 1e3, "MB": 1e-6}[self.unit]
        ours, theirs = (f"{x * factor:9.3f} {self.unit}" for x in (self.ours, self.theirs))
        return f"{self.what:<44}{ours}   {self.other:<34}{theirs}   {number:<12} {self.aim}"

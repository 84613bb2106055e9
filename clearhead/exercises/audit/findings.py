"""What an audit found, as text for a terminal and as JSON."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """A line that is wrong, or a weak test: one that a wrong answer passes.

    proof: lines to run, the result of a run, or the wrong answer. where: "line 7", or "cell 3,
    line 2".
    """

    line: int
    kind: str  # "wrong" or "weak test"
    sentence: str
    proof: str
    where: str = ""


@dataclass(frozen=True)
class Note:
    """A claim that could not be checked, and why."""

    line: int
    sentence: str
    where: str = ""


@dataclass
class AuditReport:
    """What the audit of a handout found.

    checked: the number of claims that were compared: formulas, printed values, shapes and tests.
    notes: claims that were not compared.
    """

    file: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    checked: int = 0
    sandbox: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "findings": [vars(finding) for finding in self.findings],
            "checked": self.checked,
            "unchecked": len(self.notes),
            "notes": [vars(note) for note in self.notes],
            "sandbox": self.sandbox,
        }

    @property
    def text(self) -> str:
        """For a terminal."""
        lines = []
        for finding in self.findings:
            lines += [f"{finding.where}: {finding.kind}: {finding.sentence}"]
            lines += [f"    {line}" for line in finding.proof.splitlines()] + [""]
        lines += [f"{note.where}: unchecked: {note.sentence}" for note in self.notes]
        n_weak = sum(finding.kind == "weak test" for finding in self.findings)
        n_wrong = len(self.findings) - n_weak
        counts = f"{n_wrong} wrong, {n_weak} weak tests"
        lines.append(f"{counts}; {self.checked} checked, {len(self.notes)} unchecked")
        return "\n".join(lines)

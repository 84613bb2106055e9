"""Whether a finding of the laboratory says what it should, number by number."""

from dataclasses import dataclass

from clearhead.lab.tools.finding import Finding


@dataclass(frozen=True)
class Between:
    """Equal to every number from low to high."""

    low: float
    high: float

    def __eq__(self, other):
        return self.low <= other <= self.high


def check_numbers(finding: Finding, expected):
    """Every number is expected, and each is as expected: pytest.approx, or Between."""
    assert finding.numbers.keys() == expected.keys()
    for name, value in expected.items():
        assert finding.numbers[name] == value, f"{name} is {finding.numbers[name]}"

"""Whether a finding of the laboratory says what it should, number by number, as does its page."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearhead import lab
from clearhead.lab.tools.finding import Finding

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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


# The page of an experiment


def check_page(name, finding: Finding, within=0.0):
    """Every number in the section of an experiment is one that it found, printed or was set to.

    within: how far it may be from a number found, as a share: training on a processor of another
    kind ends with other digits.
    """
    values = [x for value in finding.numbers.values() for x in np.ravel(value).tolist()]
    printed = {*numbers_in(finding.text), *numbers_in(settings_of(name).replace("_", ","))}
    shown = numbers_in(section_of(name))
    assert shown
    assert [x for x in shown if x not in printed and not is_rounded(x, values, within)] == []


def numbers_in(text):
    """Those of three digits, with a point, a comma or a percent sign, as they are written."""
    written = r"\d[\d,]*\.\d+(?:e-?\d+)?%?|\d{1,3}(?:,\d{3})+|\d+ ?%|\d{3,}"
    return [x.replace(" ", "") for x in re.findall(rf"(?<![\w.,])(?:{written})", text)]


def is_rounded(shown, values, within=0.0):
    """Whether one of these values, or its share of a hundred, is written so, or is near."""
    share = 100 if shown.endswith("%") else 1
    plain = shown.rstrip("%").replace(",", "")
    digits = len(plain.partition(".")[2].partition("e")[0])
    half = 0.5000001 * 10.0 ** ((int(plain.partition("e")[2]) if "e" in plain else 0) - digits)
    half = max(half, within * float(plain))
    return any(abs(float(plain) - share * abs(value)) <= half for value in values)


def section_of(name):
    """The part of a page that tells of an experiment, from its heading to the next."""
    for page in PAGES:
        for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE):
            if f"`clearhead lab {name}`" in section:
                return section
    raise AssertionError(f"no page tells of {name}")


def settings_of(name):
    """The text of the file of an experiment, or of all files in its folder."""
    home = Path(lab.__file__).with_name(name.replace("-", "_"))
    files = sorted(home.glob("*.py")) if home.is_dir() else [home.with_suffix(".py")]
    return "\n".join(file.read_text() for file in files)

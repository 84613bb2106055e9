"""Whether printed numbers agree with computed ones, to the digits that are printed."""

import re

NUMBER = re.compile(
    r"(?<![\w.])[-−+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?![\w])|(?<!\w)-?(?:nan|inf)\b"
)
ELLIPSIS = re.compile(r"\.\.\.|…|⋯")
MANY = 3  # decimals from which numbers may be cut off instead of rounded


def read_numbers(text: str) -> list[str]:
    """The numbers in a printed text, as written; those in dtype=… and device=… are left out."""
    text = re.sub(r"(dtype|device|grad_fn|size)\s*=\s*[^,)]+(\([^)]*\))?", "", text)
    return [each.replace("−", "-") for each in NUMBER.findall(text)]


def agree(printed: str, computed: str) -> bool | None:
    """Whether all printed numbers agree with the computed ones; None if the counts differ."""
    got = read_numbers(computed)
    parts = [read_numbers(part) for part in ELLIPSIS.split(printed)]
    if len(parts) == 1:
        return _agree_all(parts[0], got) if len(parts[0]) == len(got) else None
    head, tail = parts[0], parts[-1]
    if len(parts) > 2 or not head + tail or len(head) + len(tail) > len(got):
        return None
    return _agree_all(head, got) and (not tail or _agree_all(tail, got[-len(tail) :]))


def measure_agreement(printed: str, computed: str) -> float:
    """The share of printed numbers that agree with the computed ones; 0 if the counts differ."""
    some, others = read_numbers(printed), read_numbers(computed)
    if not some or len(some) != len(others):
        return 0.0
    return sum(map(is_near, some, others)) / len(some)


def _agree_all(printed: list[str], computed: list[str]) -> bool:
    return all(is_near(a, b) for a, b in zip(printed, computed, strict=False))


def is_near(printed: str, computed: str) -> bool:
    """Whether the printed number is the computed one, rounded or cut off to its digits."""
    if "n" in printed or "n" in computed:  # nan, inf
        return printed == computed
    digits, _, exponent = printed.partition("e")
    decimals = len(digits.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - decimals)
    a, b = float(printed), float(computed)
    is_cut = decimals >= MANY and abs(a) < abs(b)
    return abs(a - b) <= (1.01 if is_cut else 0.51) * unit

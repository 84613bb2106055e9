"""A check that raises: for otter, nbgrader, pytest and any other grader that expects an assert.

assert_passed(attention, "attention")             a function or class, also of a notebook
assert_passed("my_attention.py", "attention")     a file, a notebook or a folder
"""

from typing import TYPE_CHECKING, Any

from clearhead.exercises.check import check

if TYPE_CHECKING:
    from clearhead.exercises.report import Report


def assert_passed(
    target: Any, exercise: str | None = None, *, hints: str = "line", seed: int | None = None
) -> "Report":
    """The report, if every part passed; else AssertionError, whose text says what is wrong.

    hints: how much it tells: none, property, term or line. Other arguments as in `clearhead.check`.
    """
    __tracebackhide__ = True  # pytest shows the caller's line instead of this one
    report = check(target, exercise, seed=seed).limit(hints)
    if not report.is_passed:
        raise AssertionError(f"\n{report.text if report.parts else 'no known exercise was found'}")
    return report

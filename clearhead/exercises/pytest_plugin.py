"""A plugin of pytest, found by its entry point: the fixture `clearhead_check`.

    def test_attention(clearhead_check):
        clearhead_check("my_attention.py", "attention")

torch is imported when a test uses the fixture, not when pytest starts.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from clearhead.exercises.report import Report


@pytest.fixture
def clearhead_check() -> "Callable[..., Report]":
    """`assert_passed` of clearhead: a failed check fails the test with what is wrong."""
    from clearhead.exercises.testing import assert_passed

    return assert_passed

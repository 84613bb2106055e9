"""The browser of the tests of the page."""

import os
import shutil

import pytest

MISSING = "chromium is missing; `make browser` installs it"


def find_chromium() -> str:
    """Its path. Without it a test is skipped; where CI is set, it fails."""
    path = shutil.which("chromium")
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
    return path

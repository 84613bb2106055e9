"""docs/promises.md and the tests agree: a promise lists its tests, a code has its promise."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from exercises.hostile import HOSTILE, REACHING

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "promises.md"
ROW = re.compile(r"^\| ([A-Z]\d\d) \| [^|]+\.(?: \| (.+))? \|$", re.MULTILINE)


@cache
def promises():
    """Code → test files, as the page lists them; a promise that is not built yet lists none."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rows) == len(dict(rows)), "a code stands in two rows"
    return {code: set(re.findall(r"`([^`]+)`", files)) for code, files in rows}


def all_tests():
    """(file, name) of every test."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path.relative_to(TESTS).as_posix(), node.name


@cache
def files_by_code():
    """Code → the files with a test that has this code in its name, or in that of a case."""
    found = {}
    for file, name in all_tests():
        for code in re.findall(r"(?<=_)[A-Z]\d\d(?=_)", name):
            found.setdefault(code, set()).add(file)
    for case in [*HOSTILE, *REACHING]:
        found.setdefault(case.name[:3], set()).add("exercises/test_hostile.py")
    return found


@pytest.mark.parametrize("code", sorted(promises()))
def test_a_promise_lists_exactly_the_files_whose_tests_carry_its_code(code):
    files = sorted(files_by_code().get(code, []))
    assert sorted(promises()[code]) == files, ", ".join(f"`{file}`" for file in files)


def test_every_code_in_the_name_of_a_test_is_a_promise():
    assert sorted(files_by_code().keys() - promises().keys()) == []


def test_codes_are_written_in_one_way():
    """As test_N06_…, so that `pytest -k N06` finds all of them."""
    assert [name for _, name in all_tests() if re.match(r"test_[a-z]\d\d_", name)] == []

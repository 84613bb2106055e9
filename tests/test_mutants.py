"""The list of mutants fits the code, so that `make mutants` tests what it says."""

import ast

import pytest
from mutants import MUTANTS, ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_N32_a_mutant_changes_its_file_and_is_still_python(mutant):
    source = (ROOT / "clearhead" / mutant.file).read_text(encoding="utf-8")
    assert mutant.right in source
    ast.parse(source.replace(mutant.right, mutant.wrong))
    assert all((ROOT / "tests" / name).exists() for name in mutant.tests.split())


def test_N32_there_are_mutants_of_every_part():
    assert len(MUTANTS) >= 60
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)

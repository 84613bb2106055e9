"""The door of the folder: every public name is there, and nothing heavy comes with the door."""

import subprocess
import sys

import pytest

import clearhead.data


def test_every_public_name_has_a_home_and_every_home_is_right():
    for name in clearhead.data.__all__:
        found = getattr(clearhead.data, name)
        if name != "IGNORE":  # a number
            assert found.__module__.startswith("clearhead.data.")
            assert found.__name__ == name


def test_opening_the_folder_imports_nothing_heavy():
    code = "import clearhead.data, sys; print({'torch', 'numpy', 'nltk'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Tokeniser'"):
        clearhead.data.Tokeniser  # noqa: B018

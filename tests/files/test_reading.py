"""A file is opened only after it was checked."""

import os
import socket

import pytest

from clearhead.files import BadFile
from clearhead.files.reading import open_regular, quote, read_bytes


def test_a_file_is_read_whole(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert read_bytes(tmp_path / "a", 3) == b"abc"


def test_a_bad_file_is_a_value_error():
    assert issubclass(BadFile, ValueError)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # a plain open would wait for a writer for ever
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        cases = {
            tmp_path: "is a folder, not a file",
            tmp_path / "none": "is not there",
            tmp_path / "pipe": "is not a regular file but a pipe",
            tmp_path / "socket": "cannot be opened",
            "/dev/zero": "is not a regular file",
            "a\0b": "cannot be opened: its name holds a NUL character",
            "x" * 5000: "cannot be opened: file name too long",
        }
        for path, words in cases.items():
            with pytest.raises(BadFile, match=words):
                open_regular(path, 10)


def test_a_file_that_may_not_be_read_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "secret").touch()

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # the tests may run as root, who may read all
    with pytest.raises(BadFile, match=r"secret cannot be opened: permission denied$"):
        open_regular(tmp_path / "secret", 10)


def test_a_file_over_the_cap_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(1 << 40)  # a hole: no bytes on the disk
    with pytest.raises(BadFile, match="big has 1,099,511,627,776 bytes, more than the 5 read"):
        read_bytes(tmp_path / "big", 5)


def test_a_name_is_shown_on_one_short_line():
    assert quote("plain name é") == "plain name é"
    assert quote("two\nlines\x1b[31m") == r"'two\nlines\x1b[31m'"
    assert len(quote("x" * 9999)) < 200
    assert quote(b"\xff") == r"'\udcff'"

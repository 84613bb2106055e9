"""One process at a time works in a folder."""

import errno
import fcntl
import os
import signal
import threading
import time

import pytest
from runs.tiny_runs import Child

from clearhead.files import lock
from clearhead.files.lock import LOCK, MARKER, NO_LOCKS, Busy, lock_folder, read_owner


@pytest.fixture(params=["flock", *NO_LOCKS])
def folder(request, tmp_path, monkeypatch):
    """A folder on a disk with locks, and on one that answers as a disk without."""
    if request.param != "flock":

        def missing(*_):
            raise OSError(request.param, os.strerror(request.param))

        monkeypatch.setattr(fcntl, "flock", missing)
    return tmp_path


def hold(folder):
    """A process that holds the lock."""

    def work(ready):
        with lock_folder(folder):
            ready()
            time.sleep(60)

    child = Child(work)
    child.wait_ready()
    return child


def refused(folder):
    """The sentence of a refusal."""
    with pytest.raises(Busy) as caught, lock_folder(folder):
        raise AssertionError("two at once")
    return str(caught.value)


def test_T22_a_second_process_is_refused_and_told_which_one_holds_the_lock(folder):
    child = hold(folder)
    try:
        assert f"is in use by process {child.number}; wait or stop it" in refused(folder)
    finally:
        child.send()
        child.end()


def test_T22_a_process_is_refused_by_its_own_lock_and_free_after_it(folder):
    with lock_folder(folder):
        assert f"is in use by process {os.getpid()}; " in refused(folder)
    with lock_folder(folder):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_T22_a_killed_process_leaves_no_lock(folder, number):
    child = hold(folder)
    child.send(number)
    assert child.end() == -number
    began = time.monotonic()
    with lock_folder(folder):
        assert str(os.getpid()) in refused(folder)
    assert time.monotonic() - began < 1


def test_an_error_inside_releases_the_lock(folder):
    with pytest.raises(ZeroDivisionError), lock_folder(folder):
        raise ZeroDivisionError
    with lock_folder(folder):
        pass


@pytest.mark.parametrize("content", ["process 123", "", "\0" * 5000, "no number"])
def test_what_an_earlier_lock_file_says_does_not_matter(folder, content):
    """Such as that of an earlier version, or of a copied run folder."""
    (folder / LOCK).write_text(content)
    with lock_folder(folder):
        assert f"process {os.getpid()}" in refused(folder)


def test_a_marker_of_another_machine_is_respected_and_the_way_out_named(tmp_path, monkeypatch):
    def missing(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", missing)
    (tmp_path / (LOCK + MARKER)).write_text("123\nanother-machine\n")
    sentence = refused(tmp_path)
    assert "in use by process 123; wait or stop it, or remove .lock-marker" in sentence
    (tmp_path / (LOCK + MARKER)).unlink()
    with lock_folder(tmp_path):
        pass


def test_who_only_looks_does_not_make_a_writer_fail(tmp_path, monkeypatch):
    """`is_locked` holds the lock for a moment; a writer that comes then waits for it."""
    monkeypatch.setattr(lock, "PATIENCE", 60.0)
    looking = open(tmp_path / LOCK, "w")  # noqa: SIM115  # closed by the timer
    fcntl.flock(looking, fcntl.LOCK_EX)
    timer = threading.Timer(0.05, looking.close)
    timer.start()
    with lock_folder(tmp_path):
        assert read_owner(tmp_path) == os.getpid()
    timer.join()
    assert read_owner(tmp_path / "nowhere") is None

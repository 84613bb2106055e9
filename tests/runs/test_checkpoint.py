"""A checkpoint is whole, checked, or not there."""

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from runs.faulty_disk import FAULTS, Disk
from runs.tiny_runs import in_child, memory_folder

from clearhead.files import BadFile
from clearhead.runs.checkpoint import (
    MANIFEST,
    MODEL,
    OPTIMIZER,
    STATE,
    Checkpoint,
    NoGoodCheckpoint,
    check,
    find_checkpoints,
    hash_json,
    load,
    load_best,
    load_newest,
    parse_step,
    remove_old,
    save,
)

RUN = "the digest of a config"
FILES = (MODEL, OPTIMIZER, STATE, MANIFEST)
GOLDEN = Path(__file__).parent / "golden_checkpoints"


def made(step, run=RUN):
    weights = torch.arange(7.0) + step
    return Checkpoint(step, run, {"w": weights}, {"m": weights / 3}, {"logged": step, "best": 0.1})


def same(one, other):
    tensors = zip(
        [*one.model.values(), *one.optimizer.values()],
        [*other.model.values(), *other.optimizer.values()],
        strict=True,
    )
    return (one.step, one.run, one.state) == (other.step, other.run, other.state) and all(
        torch.equal(a, b) for a, b in tensors
    )


@pytest.fixture
def folder():
    with memory_folder() as path:
        yield path / "checkpoints"


@pytest.fixture
def two(folder):
    """A folder with checkpoints of steps 5 and 9."""
    for step in (5, 9):
        save(folder, made(step))
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def newest(folder, said=None):
    return load_newest(folder, RUN, (lambda sentence: None) if said is None else said.append)


# Good days


def test_what_was_saved_is_loaded(folder):
    place = save(folder, made(12))
    assert place == folder / "step-0000012"
    assert names(place) == sorted(FILES)
    assert same(load(place, RUN), made(12))
    assert same(newest(folder), made(12))


def test_a_damaged_checkpoint_that_was_saved_again_is_not_the_best(two):
    old = two / "step-0000005.0123abcd.old"
    shutil.copytree(two / "step-0000005", old)
    (old / MODEL).write_bytes(b"")
    notices = []
    best = load_best(two, RUN, 5, notices.append)
    assert (best.path.name, notices) == ("step-0000005", [])


def test_where_nothing_was_saved_nothing_is_found(folder):
    assert newest(folder) is None
    folder.mkdir()
    assert newest(folder) is None


def test_the_manifest_has_size_and_digest_of_each_file(two):
    manifest = json.loads((two / "step-0000009" / MANIFEST).read_text())
    for name in (MODEL, OPTIMIZER, STATE):
        data = (two / "step-0000009" / name).read_bytes()
        assert manifest["files"][name] == [len(data), hashlib.sha256(data).hexdigest()]


def test_a_checkpoint_saved_again_takes_the_place_of_the_first(two):
    again = Checkpoint(9, RUN, {"w": torch.ones(2)}, {}, {"finished": True})
    save(two, again)
    remove_old(two, 9, 2, None)
    assert same(newest(two), again)
    assert names(two) == ["step-0000005", "step-0000009"]


def test_T23_the_newest_is_so_by_its_step_whatever_the_clock_says(two):
    os.utime(two / "step-0000009", (0, 0))
    os.utime(two / "step-0000009" / MANIFEST, (0, 0))
    save(two, made(10_000_000))
    os.utime(two / "step-10000000", (1, 1))
    assert newest(two).step == 10_000_000
    shutil.rmtree(two / "step-10000000")
    assert newest(two).step == 9


# Kills


def killed_at(k, work, folder):
    def doomed():
        with Disk(k, "kill"):
            work(folder)

    return in_child(doomed)


def calls_of(work, folder):
    with Disk() as disk:
        work(folder)
    return disk.n_calls


@pytest.mark.parametrize("steps", [(), (5,), (5, 9), (9,)])
def test_T02_T28_a_kill_at_any_call_of_a_save_leaves_a_good_checkpoint(folder, steps):
    """Steps saved before; then 9 is saved, also in the place of an old one, and old ones go."""

    def work(where):
        save(where, made(9))
        remove_old(where, 9, 1, None)

    def prepared():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for step in steps:
            save(folder, made(step))

    prepared()
    n_calls = calls_of(work, folder)
    assert n_calls > 20
    for k in range(1, n_calls + 1):
        prepared()
        assert killed_at(k, work, folder) == -signal.SIGKILL
        found = newest(folder)
        assert found is not None or not steps, k
        assert found is None or same(found, made(found.step)), k
        work(folder)  # the run continues
        assert names(folder) == ["step-0000009"], k
    prepared()


def test_T28_a_kill_while_old_ones_are_removed_spares_the_good_the_best_and_the_foreign(folder):
    def prepared():
        shutil.rmtree(folder, ignore_errors=True)
        for step in (1, 2, 3, 4, 5, 6):
            save(folder, made(step))
        (folder / "step-0000003" / "notes.txt").write_text("mine")
        (folder / "mine").mkdir()

    def work(where):
        remove_old(where, 6, 2, 1)

    prepared()
    n_calls = calls_of(work, folder)
    for k in range(1, n_calls + 1):
        prepared()
        assert killed_at(k, work, folder) == -signal.SIGKILL
        assert same(newest(folder), made(6))
        work(folder)
        left = ["mine", "step-0000001", "step-0000003", "step-0000005", "step-0000006"]
        assert names(folder) == left
        assert names(folder / "step-0000003") == ["notes.txt"]
        for step in (1, 5, 6):
            check(folder / f"step-{step:07d}")


def test_T28_damaged_ones_of_later_steps_do_not_count_as_kept(folder):
    for step in (7, 14, 21, 28):
        save(folder, made(step))
    for step in (21, 28):
        (folder / f"step-{step:07d}" / MODEL).write_bytes(b"")
    assert newest(folder).step == 14
    save(folder, made(16))
    remove_old(folder, 16, 1, None)
    assert newest(folder).step == 16
    save(folder, made(28))
    remove_old(folder, 28, 2, None)
    assert names(folder) == ["step-0000021", "step-0000028"]


def test_T28_what_cannot_be_removed_is_reported_and_the_run_continues(folder):
    for step in (1, 2, 3):
        save(folder, made(step))
    said = []
    with Disk(1, errno.EACCES):
        remove_old(folder, 3, 1, None, said.append)
    assert len(said) == 1
    assert "step-0000001 could not be removed: permission denied" in said[0]
    assert names(folder) == ["step-0000001", "step-0000003"]


# Faults of the disk


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids=errno.errorcode.get)
def test_T05_T06_T32_a_fault_at_any_call_of_a_save_is_never_called_saved(folder, fault, again):
    """again: the save takes the place of one of the same step."""
    step = 5 if again else 9

    def prepared():
        shutil.rmtree(folder, ignore_errors=True)
        save(folder, made(5))

    prepared()
    n_calls = calls_of(lambda where: save(where, made(step)), folder)
    refused = 0
    for k in range(1, n_calls + 1):
        prepared()
        place, reason = None, None
        try:
            with Disk(k, fault):
                place = save(folder, made(step))
        except OSError as caught:
            reason = caught
        assert place is None, k
        refused += 1
        assert reason.errno == fault
        assert ".part" not in str(reason.filename), "the user knows no such name"
        # At the last sync of the folder the new one is there already, but not called saved.
        assert same(newest(folder), made(5 if k < n_calls else step))
        assert not [name for name in names(folder) if name.endswith(".part")], k
    assert refused == n_calls > 15


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_T05_a_disk_that_stays_full_keeps_the_last_good_one(two, fault):
    n_calls = calls_of(lambda where: save(where, made(11)), two)
    shutil.rmtree(two / "step-0000011")
    for k in range(1, n_calls - 1):
        with Disk(k, fault, once=False, writes_only=True), pytest.raises(OSError, match="step-"):
            save(two, made(11))
        assert same(newest(two), made(9))
        assert names(two) == ["step-0000005", "step-0000009"]


def test_T32_what_does_not_read_back_is_not_saved(two, monkeypatch):
    rename = os.replace

    def bad_disk(source, target):
        rename(source, target)
        if Path(target).name == "step-0000011":
            data = (Path(target) / MODEL).read_bytes()
            (Path(target) / MODEL).write_bytes(data[:-1] + b"?")

    monkeypatch.setattr(os, "replace", bad_disk)
    with pytest.raises(OSError, match="does not read back") as caught:
        save(two, made(11))
    assert caught.value.errno == errno.EIO
    assert same(newest(two), made(9))


def test_T31_no_file_of_a_save_is_opened_outside_its_folder(two, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/nowhere/at/all")
    report = two.parent / "opened"

    def work():
        seen = []
        kinds = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
        watching = [True]

        def watch(event, given):
            if watching[0] and event in kinds:
                seen.extend(str(path) for path in given[:2] if isinstance(path, str | os.PathLike))

        sys.addaudithook(watch)
        save(two, made(11))
        remove_old(two, 11, 2, None)
        watching[0] = False
        report.write_text(json.dumps(seen))

    assert in_child(work) == 0
    paths = [path for path in json.loads(report.read_text()) if "/" in path]
    assert len(paths) > 20
    assert [path for path in paths if not path.startswith(str(two))] == []


# Damage


def falls_back(folder, words="skipped"):
    said = []
    found = newest(folder, said)
    assert same(found, made(5))
    assert len(said) == 1
    assert words in said[0]
    assert "step-0000009" in said[0]


@pytest.mark.parametrize("name", FILES)
def test_T07_a_file_cut_anywhere_is_found_and_the_one_before_is_taken(two, name):
    path = two / "step-0000009" / name
    data = path.read_bytes()
    cuts = {round(i * (len(data) - 1) / 63) for i in range(64)}
    assert len(cuts) == 64
    for cut in cuts:
        path.write_bytes(data[:cut])
        falls_back(two)
    path.write_bytes(data)
    assert newest(two).step == 9


def test_T08_a_thousand_flipped_bits_are_all_found(two):
    randomly, place = random.Random(3), two / "step-0000009"
    whole = {name: (place / name).read_bytes() for name in FILES}
    for trial in range(1000):
        name = FILES[trial % 4]
        data = bytearray(whole[name])
        bit = randomly.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        (place / name).write_bytes(data)
        with pytest.raises(BadFile):
            check(place)
        if trial % 10 == 0:
            falls_back(two)
        (place / name).write_bytes(whole[name])
    assert newest(two).step == 9


def edited(place, name, old, new):
    text = (place / name).read_text()
    assert old in text
    (place / name).write_text(text.replace(old, new))


def signed(place, **changes):
    """A manifest that somebody changed and signed again."""
    manifest = json.loads((place / MANIFEST).read_text())
    manifest.pop("sha256")
    manifest |= changes
    (place / MANIFEST).write_text(json.dumps({**manifest, "sha256": hash_json(manifest)}) + "\n")


def swapped(folder, name):
    one, other = folder / "step-0000005" / name, folder / "step-0000009" / name
    data = one.read_bytes()
    shutil.copy(other, one)
    other.write_bytes(data)


DAMAGE = {
    "model missing": (lambda f, p: (p / MODEL).unlink(), "model.safetensors is missing"),
    "optimizer missing": (lambda f, p: (p / OPTIMIZER).unlink(), "optimizer.safetensors is miss"),
    "state missing": (lambda f, p: (p / STATE).unlink(), "state.json is missing"),
    "manifest missing": (lambda f, p: (p / MANIFEST).unlink(), "manifest.json is not there"),
    "extra file": (lambda f, p: (p / "x").write_text(""), "x does not belong there"),
    "extra folder": (lambda f, p: (p / "y").mkdir(), "y does not belong there"),
    "edited state": (lambda f, p: edited(p, STATE, "0.1", "0.2"), "state.json is damaged"),
    "edited manifest": (
        lambda f, p: edited(p, MANIFEST, '"step": 9', '"step": 8'),
        "manifest.json is damaged",
    ),
    "another step": (lambda f, p: signed(p, step=8), "has a manifest of step 8"),
    "other files": (lambda f, p: signed(p, files={}), "does not list the three files"),
    "files of a wrong kind": (lambda f, p: signed(p, files=[1]), "does not list the three files"),
    "file outside": (
        lambda f, p: signed(p, files={"../x": [0, ""], MODEL: [0, ""], STATE: [0, ""]}),
        "does not list the three files",
    ),
    "wrong sizes": (
        lambda f, p: signed(p, files={MODEL: 1, STATE: [], OPTIMIZER: None}),
        "is damaged",
    ),
    "no manifest at all": (lambda f, p: (p / MANIFEST).write_text("[]"), "is no whole manifest"),
    "a folder for a file": (
        lambda f, p: ((p / STATE).unlink(), (p / STATE).mkdir()),
        "is a folder, not a file",
    ),
    "a copy of another": (
        lambda f, p: (shutil.rmtree(p), shutil.copytree(f / "step-0000005", p)),
        "has a manifest of step 5",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_T09_what_is_missing_too_much_or_changed_is_found_and_named(two, damage):
    change, words = DAMAGE[damage]
    change(two, two / "step-0000009")
    falls_back(two, words)


@pytest.mark.parametrize("name", FILES)
def test_T09_swapped_files_of_two_checkpoints_are_found(two, name):
    save(two, made(3))
    swapped(two, name)
    said = []
    assert newest(two, said).step == 3
    assert len(said) == 2


def test_T09_a_checkpoint_of_another_run_is_not_taken(two):
    save(two.parent / "other", made(11, run="another"))
    shutil.move(two.parent / "other" / "step-0000011", two)
    said = []
    assert newest(two, said).step == 9
    assert "step-0000011 belongs to another run" in said[0]


def test_T10_what_only_looks_like_a_checkpoint_is_left_out_with_a_sentence(two):
    (two / "step-0000011").mkdir()
    (two / ".step-0000012.0a1b2c3d.part").mkdir()
    (two / ".step-0000012.0a1b2c3d.part" / MODEL).write_bytes(b"half")
    (two / "latest").symlink_to("step-0000099")
    (two / "step-0000013").symlink_to(two / "step-0000005")
    (two / "step-0000014").write_text("no folder")
    said = []
    assert same(newest(two, said), made(9))
    assert any("step-0000011 is an empty folder" in sentence for sentence in said)
    assert any("0000012" in sentence and "did not finish" in sentence for sentence in said)
    save(two, made(11))
    save(two, made(13))
    save(two, made(14))
    remove_old(two, 14, 5, None)
    assert [parse_step(place) for place in find_checkpoints(two)] == [5, 9, 11, 13, 14]
    assert not list(two.glob("*.part"))
    assert (two / "latest").is_symlink()
    check(two / "step-0000005")  # the link was removed, not what it showed


def test_T10_nothing_but_an_empty_folder_is_no_checkpoint(folder):
    (folder / "step-0000003").mkdir(parents=True)
    assert newest(folder) is None


def test_T11_if_all_are_bad_nothing_is_started_anew(two):
    for place in find_checkpoints(two):
        (place / STATE).write_text("{}")
    said = []
    with pytest.raises(NoGoodCheckpoint, match=r"none of the 2 .* because .*step-0000009/state"):
        newest(two, said)
    assert len(said) == 2


# Formats


def test_T29_a_checkpoint_of_format_1_still_loads(tmp_path):
    shutil.copytree(GOLDEN / "format-1", tmp_path / "checkpoints")
    found = load_newest(tmp_path / "checkpoints", "golden")
    assert found.step == 3
    assert torch.equal(found.model["w"], torch.tensor([[0.5, -1.25], [3.0, 0.0]]))
    assert torch.equal(found.optimizer["adamw.step.w"], torch.tensor(3.0))
    assert found.state == {"logged": 3, "best": 0.1, "best_step": None}


@pytest.mark.parametrize("number", [0, 4, "1", None])
def test_T29_another_format_is_refused_with_the_version_that_reads_it(two, number):
    signed(two / "step-0000009", format=number, clearhead="9.8")
    falls_back(
        two,
        "written by clearhead '9.8'; this version reads (1, 2, 3): use the version that wrote it",
    )


def test_numbers_that_are_none_are_not_written_into_a_state(folder):
    bad = Checkpoint(1, RUN, {}, {}, {"best": float("nan")})
    with pytest.raises(BadFile, match="cannot be written as JSON"):
        save(folder, bad)
    assert names(folder) == []


def test_a_checkpoint_that_goes_while_it_is_read_is_looked_for_again(folder, monkeypatch):
    """A running training removes old checkpoints while another process looks."""
    from clearhead.runs import checkpoint

    save(folder, made(3))
    listed, calls = find_checkpoints(folder), []

    def stale(where):
        calls.append(where)
        if len(calls) > 1:
            return find_checkpoints(where)
        shutil.rmtree(listed[0])
        save(folder, made(5))
        return listed

    monkeypatch.setattr(checkpoint, "find_checkpoints", stale)
    found = load_newest(folder, RUN)
    assert found is not None
    assert same(found, made(5))
    assert len(calls) == 2

"""What a run leaves behind, and who may write it."""

import errno
import os
import stat

import pytest
from runs.faulty_disk import Disk
from runs.tiny_runs import Child, in_child

from clearhead.files import BadFile
from clearhead.runs.folder import RunFolder, describe_environment, find_runs, new_run


@pytest.fixture
def run(tmp_path):
    return new_run(tmp_path, "tiny", lambda new: new.describe({"recipe": "tiny"}, {"threads": 1}))


def nothing_said(sentence):
    raise AssertionError(sentence)


def empty(new):
    """Write down a run of nothing."""
    new.describe({}, {})


def test_new_runs_are_numbered_after_the_highest(tmp_path):
    parent = tmp_path / "a" / "b"
    assert new_run(parent, "x", empty).path == parent / "x-0001"
    (parent / "x-0041").mkdir()
    (parent / "x-y-0099").mkdir()
    (parent / "x-77").mkdir()
    assert new_run(parent, "x", empty).path.name == "x-0042"
    assert new_run(parent, "x-y", empty).path.name == "x-y-0100"
    with pytest.raises(BadFile):
        new_run(parent, "../x", empty)


def test_runs_are_found_in_the_order_of_numbers_and_other_folders_are_none(tmp_path):
    for _ in range(3):
        new_run(tmp_path, "x", empty)
    (tmp_path / "x-0002/config.json").unlink()
    assert [run.path.name for run in find_runs(tmp_path, "x")] == ["x-0001", "x-0003"]
    assert find_runs(tmp_path, "y") == []
    assert find_runs(tmp_path / "none", "x") == []


def test_T23_the_clock_does_not_change_the_order_of_runs(tmp_path):
    for n in range(3):
        run = new_run(tmp_path, "x", empty)
        os.utime(run.path, (1000 - n, 1000 - n))
    assert [run.path.name[-1] for run in find_runs(tmp_path, "x")] == ["1", "2", "3"]


CONFIG, ENVIRONMENT = {"a": 1}, {"b": 2}


def described(new):
    new.describe(CONFIG, ENVIRONMENT)


def seen(folder):
    """What people see in a folder: names that begin with a dot are of what did not finish."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize("fault", ["kill", errno.EIO])
def test_T02_a_new_run_is_whole_or_not_there_wherever_its_start_ends(tmp_path, fault):
    with Disk() as disk:
        new_run(tmp_path, "x", described)
    for k in range(1, disk.n_calls + 1):
        out = tmp_path / f"{k}"
        out.mkdir()

        def start(k=k, out=out):
            with Disk(k, fault):
                new_run(out, "x", described)

        in_child(start)
        assert seen(out) in ([], ["x-0001"])
        for run in find_runs(out, "x"):
            assert (run.config, run.environment) == (CONFIG, ENVIRONMENT)
        number = 2 if seen(out) else 1
        assert new_run(out, "x", described).path.name == f"x-{number:04d}"
        if fault != "kill":
            assert not [path for path in out.iterdir() if path.name.startswith(".")]
    assert disk.n_calls > 8


def test_of_two_starts_at_once_each_has_its_own_folder(tmp_path):
    """The other one takes the name while ours is filled."""
    others = []

    def slow(new):
        if len(others) < 2:
            others.append(new_run(tmp_path, "x", empty))
        described(new)

    mine = new_run(tmp_path, "x", slow)
    assert [run.path.name for run in others] == ["x-0001", "x-0002"]
    assert mine.path.name == "x-0003"
    assert len(os.listdir(tmp_path)) == 3
    assert [run.config for run in find_runs(tmp_path, "x")] == [{}, {}, CONFIG]


def test_many_starts_at_once_lose_nothing(tmp_path):
    children = [Child(lambda ready: new_run(tmp_path, "x", described)) for _ in range(6)]
    assert [child.end() for child in children] == [0] * 6
    assert seen(tmp_path) == [f"x-{n:04d}" for n in range(1, 7)]
    assert all(run.config == CONFIG for run in find_runs(tmp_path, "x"))
    assert len(os.listdir(tmp_path)) == 6


def test_a_fault_of_filling_is_told_and_leaves_nothing(tmp_path):
    def bad(new):
        raise BadFile("no tokenizer")

    with pytest.raises(BadFile, match="no tokenizer"):
        new_run(tmp_path, "x", bad)
    assert os.listdir(tmp_path) == []


def test_what_is_no_run_is_refused_by_its_name(tmp_path, run):
    with pytest.raises(BadFile, match="is not a run folder: there is no such folder"):
        _ = RunFolder(tmp_path / "none").config
    with pytest.raises(BadFile, match=r"is a folder of runs; give one of them: .*tiny-0001"):
        _ = RunFolder(tmp_path).config
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadFile, match=r"config\.json is not there"):
        _ = RunFolder(tmp_path / "empty").config
    (run / "config.json").write_text("[1]")
    with pytest.raises(BadFile, match=r"config\.json must hold values by name"):
        _ = run.config


# Lines


def test_metrics_are_lines_in_order_and_a_cut_or_foreign_line_is_none(run):
    assert run.read_metrics() == []
    run.add_metrics({"step": 1, "loss": 0.5})
    run.add_metrics({"step": 2})
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b'nonsense\n[3]\n{"loss": 1}\n{"step": true}\n{"step": 3}\n{"step": 4}')
    assert [line["step"] for line in run.read_metrics()] == [1, 2, 3]


def test_a_metric_that_is_no_number_is_not_written(run):
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.add_metrics({"step": 1, "loss": float("nan")})
    assert run.read_metrics() == []


def test_T27_metrics_and_samples_cut_at_any_byte_are_as_at_the_checkpoint(run):
    run.add_metrics({"step": 1, "loss": 0.5})
    run.add_sample(1, "Grüße\n")
    sizes = run.sync_sizes()
    known = {name: (run / name).read_bytes() for name in sizes}
    run.add_metrics({"step": 2, "loss": 0.25})
    run.add_sample(2, "two")
    whole = {name: (run / name).read_bytes() for name in sizes}
    assert known.keys() == {"metrics.jsonl", "samples.txt"}
    for name in sizes:
        for cut in range(sizes[name], len(whole[name]) + 1):
            (run / name).write_bytes(whole[name][:cut])
            run.cut_back(sizes, nothing_said)
            assert (run / name).read_bytes() == known[name]


def test_T27_what_was_lost_before_the_checkpoint_is_told_and_no_half_line_stays(run):
    for step in (1, 2, 3):
        run.add_metrics({"step": step})
    sizes = run.sync_sizes()
    whole = (run / "metrics.jsonl").read_bytes()
    for cut in range(len(whole)):
        (run / "metrics.jsonl").write_bytes(whole[:cut])
        said = []
        run.cut_back(sizes, said.append)
        assert len(said) == 1
        assert f"has lost {len(whole) - cut} bytes" in said[0]
        left = (run / "metrics.jsonl").read_bytes()
        assert whole.startswith(left)
        assert left == b"" or left.endswith(b"\n")
    (run / "metrics.jsonl").unlink()
    run.cut_back(sizes, said.append)
    assert not (run / "metrics.jsonl").exists()


def test_without_a_checkpoint_all_is_cut(run):
    run.add_metrics({"step": 1})
    run.cut_back({}, nothing_said)
    assert (run / "metrics.jsonl").read_bytes() == b""
    assert not (run / "samples.txt").exists()


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_T05_a_line_that_cannot_be_written_is_an_error_with_the_name_of_the_file(run, fault):
    for k in (1, 2):
        with Disk(k, fault), pytest.raises(OSError, match=r"metrics\.jsonl") as caught:
            run.add_metrics({"step": 1})
        assert caught.value.errno == fault


def test_the_environment_tells_what_numbers_depend_on():
    found = describe_environment(3, "cpu")
    assert (found["threads"], found["device"]) == (3, "cpu")
    assert {"clearhead", "torch", "python", "machine", "processor", "system"} < found.keys()


def test_what_is_synced_was_opened_for_writing(run, monkeypatch):
    """Windows refuses to sync a file that was opened for reading."""
    fcntl = pytest.importorskip("fcntl")
    run.add_metrics({"step": 1, "loss": 0.5})
    sync, refused = os.fsync, []

    def refuse_readers(number):
        is_folder = stat.S_ISDIR(os.fstat(number).st_mode)
        if not is_folder and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            refused.append(number)
        sync(number)

    monkeypatch.setattr(os, "fsync", refuse_readers)
    assert run.sync_sizes()["metrics.jsonl"] > 0
    assert refused == []


def test_what_a_checkpoint_counts_on_is_on_the_disk(run, monkeypatch):
    """Metrics that were lost in a crash would stay lost: no step before it is made again."""
    run.add_metrics({"step": 1})
    run.add_sample(1, "text")
    synced, sync = [], os.fsync

    def note(number):
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        sync(number)

    monkeypatch.setattr(os, "fsync", note)
    assert run.sync_sizes().keys() == {"metrics.jsonl", "samples.txt"}
    assert synced == [str(run / "metrics.jsonl"), str(run / "samples.txt"), str(run.path)]

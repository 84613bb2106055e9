"""A run folder from elsewhere makes us write nowhere else, never hang, and ask for no memory."""

import json
import os
import shutil
import stat

import pytest
from runs.tiny_runs import Killed, in_child, run_tiny, stop_at_call
from small_runs import small_recipe, small_run
from training.tiny_task import tiny

from clearhead.files import BadFile
from clearhead.files.lock import LOCK, MARKER
from clearhead.files.writing import open_target
from clearhead.inspection.tensorboard import EVENTS, write_events
from clearhead.runs import checkpoint, find_runs, load_run, train
from clearhead.runs.folder import CONFIG, ENVIRONMENT, FORCED, METRICS, REPORT, SAMPLES, RunFolder
from clearhead.runs.run import read_recipe

WRITTEN = (CONFIG, ENVIRONMENT, METRICS, SAMPLES, FORCED, REPORT, LOCK, LOCK + MARKER)


@pytest.fixture
def unfinished(folder, monkeypatch):
    """A run that was stopped in the middle."""
    undo = stop_at_call(monkeypatch, "loss", 5)
    with pytest.raises(Killed):
        run_tiny(folder, tiny(6, save_every=2))
    undo()
    return find_runs(folder, "tiny")[0]


def resume(run):
    return run_tiny(run.path.parent, tiny(6, save_every=2))


def plant_link(path, victim):
    """A link to a file outside, with the same content, where the run has its own file."""
    victim.write_bytes(path.read_bytes() if path.exists() else b"mine\n")
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    return victim.read_bytes()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_link_in_a_run_folder_is_refused_and_its_target_stays(unfinished, tmp_path, name):
    before = plant_link(unfinished / name, tmp_path / "victim")
    with pytest.raises(BadFile, match=f"{name} is a symbolic link, .* remove the link"):
        resume(unfinished)
    assert (tmp_path / "victim").read_bytes() == before
    (unfinished / name).unlink()
    if name not in (CONFIG, ENVIRONMENT):
        assert resume(unfinished).steps == 6


@pytest.mark.parametrize("name", [METRICS, SAMPLES, FORCED, LOCK])
def test_a_hard_link_is_refused_where_the_file_is_changed_in_place(unfinished, folder, name):
    before = plant_link(unfinished / name, folder / "victim")
    (unfinished / name).unlink()
    (unfinished / name).hardlink_to(folder / "victim")
    with pytest.raises(BadFile, match=f"{name} is a hard link: .* replace it with a copy"):
        resume(unfinished)
    assert (folder / "victim").read_bytes() == before
    (unfinished / name).unlink()
    (unfinished / name).write_bytes(before)
    assert resume(unfinished).steps == 6


@pytest.mark.parametrize("name", WRITTEN)
def test_a_pipe_in_a_run_folder_is_refused_at_once(unfinished, name):
    (unfinished / name).unlink(missing_ok=True)
    os.mkfifo(unfinished / name)

    def work():
        with pytest.raises(BadFile, match="is not a regular file but a pipe"):
            RunFolder(unfinished.path).lock().__enter__()

    assert in_child(work) == 0


def test_checkpoints_are_neither_written_nor_removed_behind_a_link(unfinished, folder):
    outside = folder / "outside"
    unfinished.checkpoints.rename(outside)
    unfinished.checkpoints.symlink_to(outside)
    before = sorted(os.listdir(outside))
    with pytest.raises(BadFile, match=r"checkpoints is a symbolic link, .* the folder itself"):
        resume(unfinished)
    assert sorted(os.listdir(outside)) == before


@pytest.mark.parametrize("write", [lambda run: run.add_metrics({"step": 1}), RunFolder.sync_sizes])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_every_write_is_checked_not_only_the_start(unfinished, tmp_path, write, kind):
    """A training process is not asked again after it has the lock."""
    if kind == "link":
        plant_link(unfinished / METRICS, tmp_path / "victim")
    else:
        (unfinished / METRICS).unlink()
        os.mkfifo(unfinished / METRICS)

    def work():
        with pytest.raises(BadFile):
            write(unfinished)

    assert in_child(work) == 0


def test_metrics_for_tensorboard_follow_no_link(unfinished, tmp_path):
    write_events(unfinished.path)
    victim = tmp_path / "victim"
    begin = plant_link(unfinished / EVENTS, victim)[:40]
    for known in (begin, b"mine"):  # to be continued, and to be replaced
        victim.write_bytes(known)
        with pytest.raises(BadFile, match="symbolic link"):
            write_events(unfinished.path)
        assert victim.read_bytes() == known


def test_a_link_that_appears_after_the_check_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    monkeypatch.setattr("clearhead.files.writing.check_target", lambda *args, **options: None)
    with pytest.raises(OSError, match="symbolic link"):
        open_target(tmp_path / "link", "ab")
    assert not (tmp_path / "victim").exists()


def test_files_keep_the_permissions_of_the_user(unfinished, tmp_path):
    mask = os.umask(0o027)
    try:
        (unfinished / SAMPLES).unlink(missing_ok=True)
        unfinished.add_sample(1, "text")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((unfinished / SAMPLES).stat().st_mode) == 0o640


# A config decides how much memory a model takes: it is compared with the weights first


@pytest.fixture(scope="module")
def substring(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("runs"), "model.positions=learned")


def forge(run, out, **sizes):
    """A copy of a run with other sizes of the model, and every signature of it renewed."""
    shutil.copytree(run, out)
    forged = RunFolder(out)
    config = forged.config
    config["model"] |= sizes
    (out / CONFIG).write_text(json.dumps(config))
    for path in checkpoint.find_checkpoints(forged.checkpoints):
        state = json.loads((path / checkpoint.STATE).read_text())
        state |= {"run": forged.identity, "finished": False}
        (path / checkpoint.STATE).write_text(json.dumps(state))
        manifest = checkpoint._make_manifest(path, checkpoint.parse_step(path), {})
        (path / checkpoint.MANIFEST).write_text(json.dumps(manifest) + "\n")
    return out


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"max_len": 2**28}, r"'positions.*' has shape \(\d+, 8\), not \(268435456, 8\)"),
        ({"d_ff": 2**30}, r"has shape .*, not \(1073741824"),
        ({"d_ff": 2**62}, "d_ff must be at most 2,147,483,648, got 4,611,686,018,427,387,904"),
        ({"n_layers": 2**40}, "n_layers must be at most 1,000, got 1,099,511,627,776"),
    ],
)
def test_sizes_that_are_not_those_of_the_weights_take_no_memory(
    substring, tmp_path, monkeypatch, sizes, words
):
    run = forge(substring, tmp_path / "substring-0001", **sizes)

    def take(*_, **__):
        raise AssertionError("memory was taken")

    monkeypatch.setattr("clearhead.runs.run.build_model", take)
    monkeypatch.setattr("clearhead.training.tasks.task.build_model", take)
    with pytest.raises(BadFile, match=words) as fault:
        load_run(run)
    assert str(run) in str(fault.value)

    def resume():
        train(read_recipe(RunFolder(run).config), tmp_path, resume=str(run), threads=1, force=True)

    with pytest.raises(ValueError, match=f"{words}|choose smaller sizes"):
        resume()


def test_a_model_too_large_to_be_saved_is_refused_before_a_run_is_there(tmp_path):
    with pytest.raises(ValueError, match=r"the model may have up to .* choose smaller sizes"):
        train(small_recipe("model.d_model=1000000", "model.n_heads=1"), tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", [METRICS, SAMPLES, FORCED])
def test_a_link_to_a_file_outside_is_not_read_and_one_to_a_file_inside_is(
    unfinished, tmp_path, name
):
    reads = {
        METRICS: unfinished.read_metrics,
        SAMPLES: unfinished.read_samples,
        FORCED: unfinished.read_forced,
    }
    plant_link(unfinished / name, tmp_path / "victim")
    with pytest.raises(BadFile, match=f"{name} is a link to a file outside the run folder"):
        reads[name]()
    shutil.move(tmp_path / "victim", unfinished / "moved")
    (unfinished / name).unlink()
    (unfinished / name).symlink_to("moved")
    reads[name]()

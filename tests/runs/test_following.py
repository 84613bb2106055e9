"""Following a run: new lines only, never half a line, and all again if the run was cut back."""

import shutil
from pathlib import Path

import pytest

from clearhead.runs.differences import list_differences
from clearhead.runs.folder import METRICS, RunFolder
from clearhead.runs.following import Follower, News

GOLDEN = Path(__file__).parents[1] / "golden" / "substring-0001"


@pytest.fixture
def run(tmp_path):
    return RunFolder(shutil.copytree(GOLDEN, tmp_path / "run"))


def follow(follower, known):
    """What a reader knows after the news."""
    news = follower.read_metrics()
    return known if news is None else [*known[: news.start], *news.items]


def test_only_new_whole_lines_are_read(run):
    follower = Follower(run)
    known = follow(follower, [])
    assert known == run.read_metrics()
    assert follower.read_metrics() is None
    with run.open(METRICS, "ab") as file:
        file.write(b'{"step": 5, "loss"')
    assert follower.read_metrics() is None
    with run.open(METRICS, "ab") as file:
        file.write(b": 0.25}\nnot a line\n")
    assert follower.read_metrics() == News(len(known), [{"step": 5, "loss": 0.25}])


@pytest.mark.parametrize("n_lines", [1, 9])
def test_a_run_that_is_cut_back_is_read_anew(run, n_lines):
    """Also if it has by then written more than was cut off."""
    follower = Follower(run)
    known = follow(follower, [])
    first = (run / METRICS).read_bytes().index(b"\n") + 1
    run.cut_back({METRICS: first}, lambda sentence: None)
    for step in range(2, 2 + n_lines):
        run.add_metrics({"step": step, "loss": 0.125})
    known = follow(follower, known)
    assert known == run.read_metrics()
    assert len(known) == 1 + n_lines
    assert known[1] == {"step": 2, "loss": 0.125}


def test_samples_are_read_as_they_appear(run):
    follower = Follower(run)
    assert follower.read_samples() == News(0, run.read_samples())
    assert follower.read_samples() is None
    run.add_sample(6, "abc")
    assert follower.read_samples() == News(2, [("step 6", "abc")])
    run.cut_back({"samples.txt": 0, METRICS: 10**6}, lambda sentence: None)
    assert follower.read_samples() == News(0, [])


def test_a_run_without_files_has_no_news(tmp_path):
    follower = Follower(RunFolder(tmp_path))
    assert follower.read_metrics() is None
    assert follower.read_samples() is None


def test_differences_are_named_with_dots():
    one = {"model": {"kind": "GPT", "d": 3, "old": 1}, "seed": 0}
    other = {"model": {"kind": "GPT", "d": 5}, "seed": 1, "new": [2]}
    found = list(list_differences(one, other, ignore=["seed"]))
    assert found == [("model.d", 3, 5), ("model.old", 1, None), ("new", None, [2])]

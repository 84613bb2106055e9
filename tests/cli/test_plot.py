"""clearhead plot RUN --tensorboard."""

import json

import pytest
from small_runs import assert_a_mistake, small_run

from clearhead.cli import plot


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("my runs"))


@pytest.mark.parametrize("installed", [True, False])
def test_a_run_is_written_for_tensorboard_and_the_way_to_look_is_named(
    run, trained, monkeypatch, installed
):
    monkeypatch.setattr(plot, "find_spec", lambda name: installed or None)
    code, out, err = run("plot", trained, "--tensorboard")
    assert (code, err) == (0, "")
    (path,) = trained.glob("*tfevents*")
    get = "" if installed else "pip install 'clearhead[tb]' && "
    assert out == f"events: {path}\nnext:   {get}tensorboard --logdir '{trained.parent}'\n"
    assert b"val_accuracy" in path.read_bytes()


def test_json_is_one_object(run, trained):
    code, out, _ = run("plot", trained, "--tensorboard", "--json")
    assert code == 0
    assert json.loads(out)["events"].startswith(str(trained))


def test_C01_what_is_no_run_has_no_measures(run, tmp_path):
    code, out, err = run("plot", "waves", "--tensorboard")
    assert_a_mistake(code, out, err)
    assert "'waves'" in err
    code, out, err = run("plot", tmp_path, "--tensorboard")
    assert_a_mistake(code, out, err)
    assert "config.json" in err

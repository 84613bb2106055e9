"""clearhead plot: schedules, curves and attention of runs, and a run for TensorBoard."""

import json
import re
import shutil

import pytest
from small_runs import assert_a_mistake, small_run

from clearhead.cli import plot
from clearhead.training.schedule import WarmupCosine


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


def test_waves_of_chosen_dimensions_are_drawn(run, tmp_path):
    code, _, err = run("plot", "waves", 0, 1, 9, "--out", tmp_path, "--svg")
    assert (code, err) == (0, "")
    text = (tmp_path / "waves.svg").read_text()
    shown = [i for i in range(20) if f">dimension {i} (" in text]
    assert shown == [0, 1, 9]


# Pictures of runs


@pytest.mark.parametrize("of", [(), ("substring", "vit-cifar10")], ids=["kinds", "recipes"])
def test_schedules_are_drawn(run, tmp_path, of):
    code, out, err = run("plot", "schedule", *of, "--out", tmp_path, "--svg")
    assert (code, err) == (0, "")
    assert out == f"picture: {tmp_path / 'schedule.svg'}\n"
    text = (tmp_path / "schedule.svg").read_text()
    assert all(name in text for name in of or ("linear", "cosine", "stable"))


def test_changes_belong_to_the_recipe_or_run_before_them(run, trained, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        "clearhead.inspection.report.curves.schedules_picture",
        lambda schedules: drawn.update(schedules) or Drawn(),
    )
    changes = ("training.schedule=cosine", "training.lr=0.5", "training.steps=40")
    words = ("substring", "substring", *changes, str(trained), "training.lr=0.25")
    code, _, err = run("plot", "schedule", *words, "--out", tmp_path)
    assert (code, err) == (0, "")
    plain, changed, of_run = drawn
    assert (plain, changed) == ("substring", "substring " + " ".join(changes))
    assert of_run == f"{trained} training.lr=0.25"
    assert isinstance(drawn[changed][0], WarmupCosine)
    assert (drawn[changed][0].max_steps, drawn[changed][1], drawn[of_run][1]) == (40, 0.5, 0.25)
    assert drawn[plain][1] not in (0.5, 0.25)


class Drawn:
    def save(self, path):
        return path


def test_a_run_has_its_own_schedule(run, trained, tmp_path):
    code, _, err = run("plot", "schedule", trained, "--out", tmp_path, "--svg")
    assert (code, err) == (0, "")


def test_the_curves_of_runs_stand_beside_each_other(run, trained, tmp_path):
    other = trained.with_name("another")
    if not other.exists():
        shutil.copytree(trained, other)
    code, _, err = run("plot", "curves", trained, other, "--out", tmp_path, "--svg")
    assert (code, err) == (0, "")
    text = (tmp_path / f"curves-{trained.name}-another.svg").read_text()
    for word in (trained.name, "another", "val_accuracy", "val_loss", ">loss<"):
        assert word in text
    assert ">lr<" not in text


def test_the_attention_of_a_run_on_an_input_is_drawn(run, trained, tmp_path):
    code, out, err = run("plot", "attention", trained, "abca|ca", "--out", tmp_path, "--svg")
    assert code == 0
    assert err.startswith("Every head (column) of every layer (row), reading “abca|ca”.")
    (path,) = tmp_path.glob("*.svg")
    assert out == f"picture: {path}\n"
    assert path.name.startswith(f"attention-{trained.name}-abca-ca-")
    text = path.read_text()
    assert text.count("[CLS]") >= 1
    assert "head 1" in text
    assert "layer 0" in text
    assert "blocks" not in text


def test_no_two_runs_or_inputs_share_a_picture():
    words = [["a", "x"], ["b", "x"], ["a", "y"], ["a", "x|y"], ["a", "x-y"], ["a", "x" * 99]]
    names = [plot._name_file("attention", each) for each in [*words, ["a", "x" * 98]]]
    assert len(set(names)) == len(names)
    assert names[0] == "attention-a-x"
    assert all(re.fullmatch(r"[\w.+,=-]+", name) for name in names)
    assert plot._name_file("curves", ["runs/a", "runs/b"]) == "curves-a-b"
    assert plot._name_file("mask", []) == "mask"


def test_runs_of_the_same_name_are_told_apart_by_their_folders(run, trained, tmp_path):
    other = tmp_path / "others" / trained.name
    shutil.copytree(trained, other)
    code, _, err = run("plot", "curves", trained, other, "--out", tmp_path, "--svg")
    assert (code, err) == (0, "")
    (path,) = tmp_path.glob("curves-*.svg")
    text = path.read_text()
    assert str(trained) in text
    assert str(other) in text


def test_waves_of_a_chosen_table_are_drawn(run, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        "clearhead.inspection.position_figures.position_waves",
        lambda **asked: drawn.update(asked) or Drawn(),
    )
    words = ("n_positions=60", 6, 9, "d_model=32")
    code, _, err = run("plot", "waves", *words, "--out", tmp_path)
    assert (code, err) == (0, "")
    assert drawn == {"dimensions": [6, 9], "d_model": 32, "n_positions": 60}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("curves",), "curves needs one run or more"),
        (("attention",), "attention needs a run and one input, got 0 words"),
        (("attention", "RUN"), "got 1 words"),
        (("attention", "RUN", ""), "the input is empty"),
        (("attention", "RUN", "xyz"), "'x'"),
        (("table", "RUN"), "table takes nothing else"),
        (("waves", "RUN"), "waves takes numbers of dimensions"),
        (("waves", "4", "20"), "they go from 0 to 19"),
        (("waves", "6", "d_model=4"), "they go from 0 to 3"),
        (("waves", "4", "d_modell=8"), "d_model=NUMBER and n_positions=NUMBER, got 'd_modell=8'"),
        (("waves", "n_positions=x"), "got 'n_positions=x'"),
        (("waves", "n_positions=0"), "n_positions must be at least 1"),
        (("waves", "=4"), "got '=4'"),
        (("schedule", "substrin"), "the nearest is 'substring'"),
        (("schedule", "substring", "training.lrr=1"), "the nearest is 'training.lr'"),
        (("schedule", "substring", "training.lr=fast"), "training.lr must be"),
        (("schedule", "training.lr=1"), "must follow the recipe it changes"),
        (("curves", "nowhere"), "nowhere"),
        (("nothing",), "picture must be one of waves"),
    ],
)
def test_C01_wrong_words_are_answered(run, trained, tmp_path, words, sentence):
    words = [str(trained) if word == "RUN" else word for word in words]
    code, out, err = run("plot", *words, "--out", tmp_path)
    assert_a_mistake(code, out, err)
    assert sentence in err
    assert list(tmp_path.iterdir()) == []


ODD_LINES = ['{"step": 32, "loss": "x"}', '{"step": 33, "loss": null}', '{"step": 34, "loss": [1]}']
ODD_LINES += [
    '{"step": 35, "loss": 1e308}',
    '{"step": 36, "loss": -1e308}',
    '{"step": -1}',
]


@pytest.mark.parametrize("words", [["curves"], []])
def test_odd_lines_among_the_metrics_are_left_out(run, trained, tmp_path, words):
    other = tmp_path / "substring-0001"
    shutil.copytree(trained, other)
    with open(other / "metrics.jsonl", "a") as file:
        file.write("\n".join([*ODD_LINES, ""]))
    code, _, err = run("plot", *words, other, *(["--out", tmp_path] if words else []))
    assert code == 0, err

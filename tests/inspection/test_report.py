"""The report of a run: all on one page, of any task, finished or not, whole or not there."""

import base64
import dataclasses
import hashlib
import html
import os
import re
import shutil
import signal

import pytest
import torch
from small_runs import small_run

from clearhead.config import UNDECIDED
from clearhead.files import BadFile
from clearhead.inspection import head_scores
from clearhead.inspection.picture import style
from clearhead.inspection.report import answers, look_at, page, write_report
from clearhead.inspection.report.attention import look_at_examples, name_by_number
from clearhead.inspection.report.curves import compare_runs, confusion_picture, curve
from clearhead.models import (
    GPTConfig,
    Seq2SeqGRUConfig,
    Seq2SeqTransformerConfig,
    TorchTransformerConfig,
    ViTConfig,
)
from clearhead.runs import checkpoint
from clearhead.training import Recipe, TrainingConfig, load_run, train
from clearhead.training.tasks.characters import CharacterData, CharacterTask
from clearhead.training.tasks.dialogue import DialogueData
from clearhead.training.tasks.pictures import PictureData
from clearhead.training.tasks.sequences import SequenceData
from clearhead.training.tasks.translation import TranslationData

SHORT = TrainingConfig(steps=2, batch_size=4, log_every=1, eval_every=1, save_every=1)
PLAY = "\n\n".join(f"ROMEO:\nspeak no more of {i % 7}, {i}." for i in range(60))
TEXT = "the cat <b>sat</b> & the mat. " * 20
SIZES = {"d_model": 12, "n_layers": 2, "n_heads": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def text(folder):
    return write_report(folder).read_text(encoding="utf-8")


def pictures(text):
    """The PNG files that a page holds."""
    return [base64.b64decode(data) for data in re.findall(r"data:image/png;base64,([^\"]+)", text)]


# What every page has


def test_it_says_what_was_trained_and_gives_the_result(text, folder):
    run = load_run(folder)
    assert "<h1>substring-0001</h1>" in text
    assert "whether a needle occurs in a haystack" in text
    assert f"{run.model.n_parameters:,}" in text
    for section in (
        "Metrics over steps",
        "Samples during training",
        "What it answers",
        "What it attends to",
    ):
        assert f"<h2>{section}</h2>" in text
    for name, value in run.evaluate().items():
        assert f"<dt>{name}</dt><dd>{value:.4g}" in text
    for name in ("d_model", "batch_size", "n_validation", "torch", "threads"):
        assert f"<tr><td>{name}<td>" in text
    assert html.escape(run.task.next_command(folder)) in text
    assert "not finished" not in text


def test_it_loads_nothing(text):
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert not re.findall(r"(?:src|href)=\"(?!data:)", text)
    assert "{{" not in text


def test_its_pictures_are_drawn_and_described(text):
    found = pictures(text)
    assert len(found) == 5  # loss, accuracy, learning rate, accuracy by length, attention
    assert all(png.startswith(b"\x89PNG") and len(png) > 5000 for png in found)
    assert len(re.findall(r'<img alt="[^"]{10,}"', text)) == 5


def test_wide_pictures_are_scrolled_on_a_phone(text):
    assert "figure.wide img { max-width: 46rem !important; }" in text
    kinds = re.findall(r"<figure( class=\"wide\")?><div><img alt=\"(\w+)", text)
    assert (' class="wide"', "Attention") in kinds
    assert ("", "loss") in kinds


def test_short_answers_are_not_broken_into_lines(text):
    assert '<div class="scroll"><table class="short">' in text
    assert "table.short td + td { white-space: nowrap; }" in text


def test_the_worst_answers_stand_first_beside_the_right_ones(text, folder):
    run = load_run(folder)
    right = dict(run.task.examples(32))
    pattern = r"<tr( class=\"wrong\")?><td>(\S+)<td>(yes|no)<td>(yes|no)<td>([\d.]+)"
    rows = re.findall(pattern, text)
    assert len(rows) == answers.N_SHOWN
    assert all(right[text] == is_right for _, text, _, is_right, _ in rows)
    assert all(bool(wrong) == (given != is_right) for wrong, _, given, is_right, _ in rows)
    ranks = [-1 - float(p) if wrong else float(p) for wrong, *_, p in rows]
    assert ranks == sorted(ranks)
    found = [run.predict(text) for text in right]
    sures = [
        a["probability"]
        for a, true in zip(found, right.values(), strict=True)
        if a["answer"] != true
    ]
    assert float(rows[0][4]) == pytest.approx(max(sures), abs=5e-4)


def test_the_example_shown_is_one_with_something_to_find(folder):
    task = load_run(folder).task
    ((text, _),) = task.pictures(None)
    haystack, _, needle = text.partition("|")
    assert len(needle) == 3
    assert haystack.find(needle) >= 2
    assert text in task.next_command(folder)


def test_the_interactive_view_is_inside_and_only_its_script_may_run(text):
    view = html.unescape(re.search(r'srcdoc="([^"]*)"', text)[1])
    script = view.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert '"layer 0"' in view
    assert "blocks" not in view


def test_shares_have_one_scale_and_steps_start_at_0():
    axes = curve("val_accuracy", {"validation": [(100, 0.97), (200, 0.98)]}).figure.axes[0]
    assert axes.get_ylim() == pytest.approx((-0.02, 1.02))
    assert axes.get_xlim()[0] == 0
    loss = curve("loss", {"training": [(100, 3.0), (200, 2.9)]}).figure.axes[0]
    assert loss.get_ylim()[0] > 2
    assert loss.get_xlim()[0] == 0


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["stack.blocks.0.attention", "stack.blocks.1.attention"], ["layer 0", "layer 1"]),
        (["blocks.0.self", "blocks.0.cross"], ["blocks.0.self", "blocks.0.cross"]),
        (["attention"], ["attention"]),
    ],
)
def test_layers_are_numbered_where_that_tells_them_apart(names, shown):
    assert name_by_number(names) == shown


def test_samples_are_shown_from_the_first_to_the_last(text):
    assert text.index("After step 2") < text.index("After step 4")


def test_of_many_samples_a_few_are_shown(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "many")
    with open(tmp_path / "many/samples.txt", "a") as file:
        file.writelines(f"--- step {n}\nsample <{n}>\n\n" for n in range(10, 500))
    shown = re.findall(r"After step (\d+)", write_report(tmp_path / "many").read_text())
    assert len(shown) == page.N_SAMPLES
    assert (shown[0], shown[-1]) == ("2", "499")


def test_it_says_what_it_learned_from_and_what_it_is_measured_on(text):
    told = html.unescape(text)
    assert "learned from texts drawn at random while it learned; short ones come again" in told
    assert "It is measured on 32 texts that it was not trained on." in told
    assert "64 training examples" not in told  # 64 make an epoch, and each epoch draws others
    assert "come from its best checkpoint by val_accuracy (step" in told


def test_metrics_are_explained(text):
    for name, meaning in (
        ("val_accuracy", "share of right answers"),
        ("val_loss", "mean loss of a prediction: low is good"),
    ):
        assert re.search(f"<dt>{name}</dt><dd>[0-9.]+<small>{meaning}</small>", text)


def test_no_metric_of_a_task_is_without_a_meaning(tmp_path):
    (tmp_path / "pairs.tsv").write_text("\n".join(f"cat {i}\tgato {i}" for i in range(40)))
    data = TranslationData(str(tmp_path / "pairs.tsv"), n_decoded=3)
    model = Seq2SeqGRUConfig(*[UNDECIDED] * 5, d_embedding=6, d_hidden=8)
    run = trained(tmp_path, Recipe("pairs", data, model, dataclasses.replace(SHORT, steps=1)))
    measures = {*load_run(run).evaluate(), "val_accuracy", "val_perplexity", "val_worst"}
    assert measures == page.MEANINGS.keys()


# Writing it


def test_it_is_written_whole_or_not_at_all(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run/report.html").write_text("the old one")
    before = sorted(os.listdir(tmp_path / "run"))
    monkeypatch.setattr("os.replace", _raise(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_report(tmp_path / "run")
    assert (tmp_path / "run/report.html").read_text() == "the old one"
    assert sorted(os.listdir(tmp_path / "run")) == before


def _raise(error):
    def function(*_, **__):
        raise error

    return function


def test_twice_the_same_run_is_twice_the_same_page(folder, text):
    assert write_report(folder).read_text() == text


def test_a_report_reads_and_hashes_a_checkpoint_once(folder, monkeypatch):
    checked, check = [], checkpoint.check
    monkeypatch.setattr(checkpoint, "check", lambda path: checked.append(path) or check(path))
    write_report(folder)
    assert checked
    assert len(checked) == len(set(checked))


def test_a_run_that_was_stopped_has_a_report_that_says_so(tmp_path, monkeypatch):
    from clearhead.runs import Interrupted
    from clearhead.training import Training

    def stop_at_two(self):
        if self.state.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            advance(self)

    advance = Training.advance
    monkeypatch.setattr(Training, "advance", stop_at_two)
    with pytest.raises(Interrupted) as stop:
        small_run(tmp_path)
    text = write_report(stop.value.run).read_text()
    assert "This run is not finished: step 2 of 4 is saved." in text
    assert f"clearhead train --resume {stop.value.run}" in text


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(BadFile, match="is not there"):
        write_report(tmp_path)
    with pytest.raises(BadFile, match="no such folder"):
        write_report(tmp_path / "nowhere")
    assert os.listdir(tmp_path) == []


def test_names_and_texts_are_escaped(folder, tmp_path):
    """Whatever a folder is called and a model says, it is no HTML."""
    shutil.copytree(folder, tmp_path / "<b>&run{{body}}")
    (tmp_path / "<b>&run{{body}}/samples.txt").write_text("--- step 2\n<img src=x> & {{title}}\n")
    text = write_report(tmp_path / "<b>&run{{body}}").read_text()
    assert "<h1>&lt;b&gt;&amp;run{{body}}</h1>" in text
    assert "&lt;img src=x&gt; &amp; {{title}}" in text
    assert "<img src=x>" not in text


# Other tasks


def trained(tmp_path, recipe):
    return train(recipe, tmp_path / "runs", threads=1).run


def test_a_language_model_shows_its_heads_over_what_it_wrote(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    data = CharacterData(str(tmp_path / "text.txt"), context=8, sample_length=30)
    run = trained(tmp_path, Recipe("letters", data, GPTConfig(UNDECIDED, 8, **SIZES), SHORT))
    text = write_report(run).read_text()
    assert "a recipe of your own" in text
    assert re.search(r"reading the first 8 of the \d+ tokens of what it wrote last", text)
    assert "<b>" not in text
    assert "What kind each head is" in text
    _, kinds, lens = look_at_examples(load_run(run), "abc abc abc abc abc")
    model = load_run(run).model
    numbers = [float(cell.get_text()) for cell in kinds.picture.figure.axes[2].texts]
    induction = head_scores(model).induction.flatten().tolist()
    assert numbers == pytest.approx(induction, abs=0.006)
    (axes, _) = lens.picture.figure.axes
    assert axes.images[0].get_array().shape == (SIZES["n_layers"] + 1, 8)
    assert "the start of what it wrote last" in lens.caption


def test_a_language_model_of_two_tokens_has_no_kinds_of_heads(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    data = CharacterData(str(tmp_path / "text.txt"), context=2, sample_length=30)
    run = trained(tmp_path, Recipe("letters", data, GPTConfig(UNDECIDED, 2, **SIZES), SHORT))
    assert len(look_at_examples(load_run(run), "ab")) == 1


def test_a_baseline_is_a_dashed_line_and_a_note(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT)
    data = CharacterData(str(tmp_path / "text.txt"), context=8)
    run = trained(tmp_path, Recipe("letters", data, GPTConfig(UNDECIDED, 8, **SIZES), SHORT))
    given = {"order": 3, "val_loss": 1.2345, "val_perplexity": 9.0}
    monkeypatch.setattr(CharacterTask, "baseline", lambda self: dict(given))
    drawn = []
    monkeypatch.setattr(page, "curve", lambda *a: drawn.append(a) or curve(*a))
    text = write_report(run).read_text()
    assert "baseline, 3-gram counts: 1.23" in text
    assert drawn[0][2] == {"baseline, 3-gram counts": 1.2345}
    assert drawn[1][2] == {}
    axes = curve(*drawn[0]).figure.axes[0]
    level = axes.get_lines()[-1]
    assert set(level.get_ydata()) == {1.2345}
    assert level.is_dashed()
    assert axes.get_xlabel() == "step"
    assert axes.get_ylabel() == "loss"


def test_every_language_model_is_compared_with_ngram_counts(tmp_path):
    (tmp_path / "text.txt").write_text(PLAY)
    path, short = str(tmp_path / "text.txt"), dataclasses.replace(SHORT, steps=1)
    for data in (CharacterData(path, context=8), DialogueData(path, context=24, sample_length=5)):
        recipe = Recipe(type(data).__name__, data, GPTConfig(UNDECIDED, 8, **SIZES), short)
        run = trained(tmp_path, recipe)
        found = load_run(run).task.baseline()
        order, loss = found["order"], found["val_loss"]
        text = write_report(run).read_text()
        assert f"<small>baseline, {order}-gram counts: {loss:.4g}</small>" in text
        assert f"it counts how often each group of {order} tokens occurs" in text


def test_the_legend_of_compared_runs_is_inside_the_first_panel_above_its_lines():
    runs = {
        f"a-rather-long-name-of-a-run-{i}": {"loss": [(1, i + 2.0), (9, 1.0)]} for i in range(4)
    }
    figure = compare_runs(runs).figure
    with style():
        figure.draw_without_rendering()
    assert not figure.legends
    axes = figure.axes[0]
    box, panel = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert panel.x0 <= box.x0
    assert box.y1 <= panel.y1
    assert axes.transData.transform((1, 5.0))[1] <= box.y0


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_a_picture_model_shows_confusion_and_attention(tmp_path, pool):
    model = ViTConfig(
        image_size=8, patch_size=4, channels=1, pool=pool, class_token=pool == "class", **SIZES
    )
    data = PictureData(size=8, n_train=40, n_test=30)
    run = trained(tmp_path, Recipe("digits", data, model, SHORT))
    text = write_report(run).read_text()
    assert "measured on the 30 test pictures, which it did not learn from" in text
    assert "<h2>Which classes it confuses</h2>" in text
    what = "the class token" if pool == "class" else "the mean of all patches"
    assert f"What {what} attends to in validation pictures" in text
    assert "What it answers" not in text
    loaded = load_run(run)
    few = look_at(loaded, "3,17").picture.figure.axes  # a row for each: picture, four maps
    labels = loaded.task.validation.labels.tolist()
    titles = [axes.get_xlabel().split("\n")[0] for axes in few[::5]]
    assert titles == [loaded.task.class_names[labels[i]] for i in (3, 17)]
    assert [axes.get_title() for axes in few[5:]] == [""] * 5
    assert few[0].get_title() == "picture"
    assert few[4].get_title() == "mean, before\ntraining"
    with pytest.raises(ValueError, match="no validation picture 30: they go from 0 to 29"):
        look_at(loaded, "30")
    mistakes, look = look_at_examples(loaded, None)
    assert mistakes.caption.startswith("Its worst mistakes")
    shown = mistakes.picture.figure.axes
    assert all("taken for" in axes.get_xlabel() for axes in shown[::5] if axes.images)
    drawn = look.picture.figure.axes
    assert len(drawn) == 50  # 10 pictures; mean, rollout, gradient, and before training
    for image, *maps in (drawn[i : i + 5] for i in range(0, 50, 5)):
        assert image.images[0].get_extent() == maps[0].images[0].get_extent()
        mean, _, _, untrained = (axes.images[0].get_array() for axes in maps)
        assert (mean != untrained).any()
        low, high = (float(x) for x in maps[0].get_xlabel().split(" … "))
        assert (low, high) == pytest.approx((mean.min(), mean.max()), rel=0.06)
    columns = {round(axes.get_position().x0, 3) for axes in drawn}
    assert len(columns) == 10  # two images in a row, each with its maps beside it


def test_the_run_of_unique_shows_its_signs_beside_those_by_hand_and_the_right_ones(tmp_path):
    model = TorchTransformerConfig(UNDECIDED, 5, UNDECIDED, d_pos=3)
    run = trained(tmp_path, Recipe("signs", SequenceData("unique", n_examples=9), model, SHORT))
    text = write_report(run).read_text()
    assert "the weights set by hand, the trained ones, and what is right" in text
    loaded = load_run(run)
    matrices, signs = look_at_examples(loaded, None)
    (axes,) = signs.picture.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "by hand",
        "trained",
        "expected",
    ]
    ((text, _),) = loaded.task.pictures(None)
    example = loaded.predictor.read(text)
    right = ["+1" if sign > 0 else "−1" for sign in example.targets[0, :, 0]]
    written = [cell.get_text() for cell in axes.texts]
    assert written[: len(right)] == written[-len(right) :] == right
    learned = loaded.model(example.inputs)[0, :, 0].sign().tolist()
    assert written[len(right) : -len(right)] == ["+1" if sign > 0 else "−1" for sign in learned]
    assert len(matrices.picture.figure.axes) == 8


@pytest.mark.parametrize("rule", ["identity", "first"])
def test_other_rules_of_the_smallest_transformer_show_only_its_matrices(tmp_path, rule):
    model = TorchTransformerConfig(UNDECIDED, 5, UNDECIDED)
    run = trained(tmp_path, Recipe("signs", SequenceData(rule, n_examples=9), model, SHORT))
    assert len(look_at_examples(load_run(run), None)) == 1


@pytest.mark.parametrize(
    "model",
    [
        Seq2SeqGRUConfig(*[UNDECIDED] * 5, d_embedding=6, d_hidden=8),
        Seq2SeqTransformerConfig(*[UNDECIDED] * 5, max_len=UNDECIDED, **SIZES),
    ],
    ids=["gru", "transformer"],
)
def test_a_translator_shows_alignments_and_answers(tmp_path, model):
    data = TranslationData(n_examples=20, n_validation=8, n_decoded=4)
    run = trained(tmp_path, Recipe("dates", data, model, SHORT))
    text = write_report(run).read_text()
    loaded = load_run(run)
    captions = r"What each (token|of the first 32 tokens) of the translation \(row\) attends to"
    assert len(re.findall(captions, text)) == 2
    for source, right in loaded.task.validation_pairs[:3]:
        assert f"<td>{html.escape(source)}<td>" in text
        assert f"<td>{html.escape(right)}<td>" in text


# Pictures


def test_confusion_writes_counts_and_names():
    table = torch.tensor([[5, 1], [0, 9]])
    axes = confusion_picture(table, ["cat", "d$g"]).figure.axes[0]
    assert sorted(text.get_text() for text in axes.texts) == ["1", "5", "9"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cat", "d$g"]
    shares = axes.images[0].get_array()
    assert shares[0].tolist() == pytest.approx([5 / 6, 1 / 6])


def test_a_loss_that_falls_far_is_drawn_on_a_logarithmic_scale():
    far, near = (
        curve("loss", {"loss": [(1, 1.0), (2, low)]}).figure.axes[0].get_yscale()
        for low in (0.001, 0.5)
    )
    assert (far, near) == ("log", "linear")


def test_if_the_best_checkpoint_is_damaged_the_page_says_so_and_shows_the_other(
    tmp_path, monkeypatch
):
    worse = iter([0.25, 0.5])
    monkeypatch.setattr(CharacterTask, "evaluate", lambda self, model: {"val_loss": next(worse)})
    (tmp_path / "text.txt").write_text(TEXT)
    data = CharacterData(str(tmp_path / "text.txt"), context=8)
    run = trained(tmp_path, Recipe("letters", data, GPTConfig(UNDECIDED, 8, **SIZES), SHORT))
    assert load_run(run).step == 1
    weights = run / "checkpoints/step-0000001/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")
    told = []
    text = write_report(run, tell=told.append).read_text(encoding="utf-8")
    assert any("instead of the best" in sentence for sentence in told)
    assert "The best checkpoint (step 1) cannot be used" in text
    assert "shows the one of step 2" in text
    assert "<dt>val_loss</dt><dd>0.5" in text


def test_the_report_says_what_was_forced(folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / folder.name)
    assert "forced" not in write_report(copied).read_text()
    (copied / "forced.txt").write_text("training.lr: 1 then, <2> now\nthreads: 1 then, 2 now\n")
    assert "training.lr: 1 then, &lt;2&gt; now; threads: 1 then, 2 now." in (
        write_report(copied).read_text()
    )

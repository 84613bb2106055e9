"""The report of a run: one page, written from its folder and the data it is measured on.

    write_report("runs/substring-0001")         → runs/substring-0001/report.html

The run needs a checkpoint but need not be finished. What a section shows comes from the task's
methods `baseline`, `confusion`, `hardest`, `accuracy_by_length` and `pictures`.
"""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.inspection.report import html
from clearhead.inspection.report.answers import show_answers
from clearhead.inspection.report.attention import look_at_examples
from clearhead.inspection.report.curves import curve, lengths_picture
from clearhead.runs import Run, load_run
from clearhead.runs.folder import CODE, COPY, REPORT
from clearhead.timing import format_duration
from clearhead.training.recipes import RECIPES

N_SAMPLES = 6  # samples shown, of all written during training
VIEW = "Explore it: choose a head, point at a token"
MAX_CHARACTERS = 3000  # of one sample
LABELS = {"loss": "training", "val_loss": "validation"}
MEANINGS = {
    "val_loss": "mean loss of a prediction: low is good",
    "val_accuracy": "share of right answers",
    "val_perplexity": "exp(loss): as uncertain as a choice among this many equally likely words",
    "val_exact": "share of sentences without any mistake",
    "val_bleu": "agreement with the right sentences, 0 to 100",
    "val_worst": "largest error of any number",
}

Points = Sequence[tuple[int, float]]


def write_report(
    run: str | os.PathLike[str] | Run,
    *,
    device: str = "auto",
    trust: bool = False,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Write report.html into a run folder, whole or not at all, and return its path.

    run: its folder, or the run itself if it is loaded already. trust: as in load_run.
    tell(sentence) is called for each checkpoint that cannot be used.
    """
    if not isinstance(run, Run):
        run = load_run(run, device=device, trust=trust, tell=tell)
    page = html.page(run.folder.path.resolve().name, "\n".join(_body(run)))
    with run.folder.replace(REPORT) as file:
        file.write(page)
    return run.folder / REPORT


def _body(run: Run) -> Iterator[str]:
    samples, series = run.folder.read_samples(), collect_series(run.folder.read_metrics())
    baseline = Baseline.of(run, series)
    yield from _heading(run)
    yield from _results(run, baseline)
    yield from _curves(series, baseline)
    yield from _samples(samples)
    yield from show_answers(run)
    yield from _lengths(run)
    yield from _attention(run, samples[-1][1] if samples else None)
    yield from _settings(run)


class Baseline(NamedTuple):
    """The metrics that n-gram counts reach, by name."""

    order: int
    values: Mapping[str, float]

    @classmethod
    def of(cls, run: Run, series: Mapping[str, Points]) -> "Baseline":
        """The baseline of the task, for the metrics that the run has."""
        found = dict(run.task.baseline())
        order = int(found.pop("order", 0))
        return cls(order, {name: value for name, value in found.items() if name in series})

    @property
    def label(self) -> str:
        """Its name in notes and legends."""
        return f"baseline, {self.order}-gram counts"

    def note(self, name: str) -> str:
        """A note for the metric of this name."""
        return f"{self.label}: {html.number(self.values[name])}" if name in self.values else ""

    def levels(self, names: Sequence[str]) -> dict[str, float]:
        """The dashed line in the chart of these metrics: its name and height."""
        found = [self.values[name] for name in names if name in self.values]
        return {self.label: found[0]} if found else {}


# The run and its result


def _heading(run: Run) -> Iterator[str]:
    recipe, path, state = run.recipe.name, run.folder.path, run.state
    about = RECIPES[recipe].about if recipe in RECIPES else "a recipe of your own"
    yield f"<h1>{html.text(path.resolve().name)}</h1>"
    yield f'<p class="soft">Recipe {html.text(recipe)}: {html.text(about)}.</p>'
    if not state.finished:
        command = html.text(f"clearhead train --resume {shlex.quote(str(path))}")
        yield (
            f'<p class="notice">This run is not finished: step {state.step:,} of '
            f"{run.recipe.training.steps:,} is saved. <code>{command}</code> continues it.</p>"
        )
    if state.best_step not in (None, run.step):
        yield (
            f'<p class="notice">The best checkpoint (step {state.best_step:,}) cannot be used; '
            f"this page shows the one of step {run.step:,}.</p>"
        )
    if forced := run.folder.read_forced():
        yield (
            f'<p class="notice">Some of the settings below were changed by --force during the '
            f"run: {html.text('; '.join(forced))}.</p>"
        )


def _results(run: Run, baseline: Baseline) -> Iterator[str]:
    yield f"<p>{html.text(_summarise(run))}</p>"
    yield '<dl class="figures">'
    for name, value in _metrics(run).items():
        yield html.number_box(name, html.number(value), MEANINGS.get(name, ""), baseline.note(name))
    yield html.number_box("parameters", f"{run.model.n_parameters:,}", "numbers that were learned")
    yield html.number_box("steps", f"{run.state.step:,}", f"shown here: step {run.step:,}")
    yield html.number_box("time", format_duration(run.state.seconds), "training and evaluation")
    yield "</dl>"
    if baseline.values:
        yield (
            f"<p>The baseline uses no network: it counts how often each group of {baseline.order} "
            f"tokens occurs in the training examples, and predicts by these counts.</p>"
        )
    yield f"<p>Try it: <code>{html.text(run.task.next_command(run.folder.path))}</code></p>"


def _summarise(run: Run) -> str:
    c, here, task = run.recipe.training, run.folder.environment, run.task
    what = f"A {type(run.model).__name__} with {run.model.n_parameters:,} parameters learned "
    if run.folder.config["overfit"] is not None:
        return what + (
            f"{task.n_examples:,} examples and is evaluated on the same examples: this tests the "
            f"training code, not how well the model generalises."
        )
    is_best = run.state.best_step == run.step
    which = f"its best checkpoint by {task.best_by}" if is_best else "its newest good checkpoint"
    each = f"{c.batch_size}" + (f" × {c.accumulate}" if c.accumulate > 1 else "")
    return what + (
        f"from {task.learned_from}; {each} at a time, by {c.optimizer} with a {c.schedule} "
        f"schedule, on {here.get('device')} (threads: {here.get('threads')}), seed {c.seed}. It is "
        f"measured on {task.measured_on}. Metrics, answers and pictures come from {which} "
        f"(step {run.step:,})."
    )


def _metrics(run: Run) -> dict[str, float]:
    """The metrics of the model shown here; none if it was saved between two evaluations."""
    if run.state.best_step == run.step:
        return run.state.best_metrics
    lines = [line for line in run.folder.read_metrics() if line["step"] == run.step]
    found = lines[-1] if lines else {}
    return {name: value for name, value in found.items() if name.startswith("val_")}


# Curves


def collect_series(lines: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """The lines of metrics.jsonl as name → (step, value) pairs."""
    names = dict.fromkeys(name for line in lines for name in line if name != "step")
    return {name: [(line["step"], line[name]) for line in lines if name in line] for name in names}


def _curves(series: Mapping[str, Points], baseline: Baseline) -> Iterator[str]:
    """Training and validation loss together, then each metric, then the learning rate."""
    panels = [("loss", ["loss", "val_loss"])]
    panels += [(name, [name]) for name in series if name not in ("loss", "val_loss", "lr")]
    panels += [("learning rate", ["lr"])]
    yield "<h2>Metrics over steps</h2>"
    yield '<div class="side">'
    for title, names in panels:
        lines = {LABELS.get(name, name): series[name] for name in names if series.get(name)}
        if lines:
            yield html.embed(curve(title, lines, baseline.levels(names)))
    yield "</div>"


# Samples, answers, attention


def _samples(samples: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not samples:
        return
    n, few = len(samples), min(len(samples), N_SAMPLES)
    chosen = sorted({round(i * (n - 1) / max(1, few - 1)) for i in range(few)})
    yield "<h2>Samples during training</h2>"
    yield "<p>Written at some of the evaluations, always from the same prompts.</p>"
    for i in chosen:
        heading, text = samples[i]
        cut = text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " …"
        opened = " open" if i in (chosen[0], chosen[-1]) else ""
        yield f"<details{opened}><summary>After {html.text(heading)}</summary>"
        yield f"<pre>{html.text(cut)}</pre></details>"


def _lengths(run: Run) -> Iterator[str]:
    if not (accuracy := run.task.accuracy_by_length(run.model)):
        return
    trained = run.task.trained_lengths
    yield "<h2>How far it generalises</h2>"
    yield html.embed(
        lengths_picture(accuracy, trained),
        f"Accuracy on new inputs of each length. Training had lengths {trained[0]} to "
        f"{trained[1]}; beyond them an answer may be a guess.",
    )


def _attention(run: Run, sample: str | None) -> Iterator[str]:
    if looks := look_at_examples(run, sample):
        yield "<h2>What it attends to</h2>"
    for look in looks:
        yield html.embed(look.picture, look.caption)
        if look.view is not None:
            yield f'<details class="view"><summary>{VIEW}</summary>{look.view._repr_html_()}'
            yield "</details>"


# Settings


def _settings(run: Run) -> Iterator[str]:
    config = run.folder.config
    yield '<h2>Settings</h2><div class="side">'
    for section in ("data", "model", "training"):
        yield html.table(f"{section}: {config[section]['kind']}", config[section], leave_out="kind")
    yield html.table("environment", run.folder.environment)
    if CODE in config:
        yield html.table(f"user-defined classes: {COPY}", config[CODE])
    yield "</div><details><summary>All layers of the model</summary>"
    yield f'<pre class="wide">{html.text(run.model.describe())}</pre></details>'

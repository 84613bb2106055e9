"""A run on one page: what was trained, how it went, what it says, where it looks.

    write_report("runs/substring-0001")         → runs/substring-0001/report.html

It is made of the run folder – settings, measures, samples, best checkpoint – and of the data that
the run is measured on, and can be written for any run that has saved a checkpoint, finished or not.
What a task can tell more of is asked for by name: `baseline()`, `confusion(model)` with
`class_names`, `examples()`.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.files.reading import read_bytes
from clearhead.files.writing import replace_file
from clearhead.inspection import report_html as html
from clearhead.inspection.report_looks import looks
from clearhead.inspection.report_pictures import confusion_picture, curve
from clearhead.runs import Run, load_run
from clearhead.runs.checkpoint import newest_state
from clearhead.runs.folder import MAX_METRICS, SAMPLES
from clearhead.training.recipes import RECIPES

N_SAMPLES = 6  # shown of those that were written on the way
N_EXAMPLES = 12
MOST_LETTERS = 3000  # of one sample
LABELS = {"loss": "training", "val_loss": "validation"}
MEANINGS = {
    "val_loss": "mean cost of a prediction: low is good",
    "val_accuracy": "share of right answers",
    "val_perplexity": "as unsure as between so many words",
    "val_exact": "share of sentences without any mistake",
    "val_bleu": "likeness to the right sentences, 0 to 100",
    "val_worst": "largest error in any number",
}

Points = Sequence[tuple[int, float]]


def write_report(
    run: str | os.PathLike[str],
    *,
    device: str = "auto",
    tell: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Write report.html into a run folder, whole or not at all, and return where it is.

    tell: is given a sentence on each checkpoint that cannot be used.
    """
    loaded = load_run(run, device=device, tell=tell)
    path = loaded.folder / "report.html"
    page = html.page(loaded.folder.path.resolve().name, "\n".join(_body(loaded)))
    with replace_file(path) as file:
        file.write(page)
    return path


def _body(run: Run) -> Iterator[str]:
    samples, series = _samples(run), series_of(run.folder.metrics())
    baseline = _baseline(run, series)
    yield from _heading(run, baseline)
    yield from _curves(series, baseline)
    yield from _said(samples)
    yield from _answers(run)
    yield from _attention(run, samples[-1][1] if samples else None)
    yield from _settings(run)


# What it was and what it came to


def _heading(run: Run, baseline: "Baseline") -> Iterator[str]:
    state, steps = _state(run), run.recipe.training.steps
    recipe, path = run.recipe.name, run.folder.path
    about = RECIPES[recipe][1] if recipe in RECIPES else "a recipe of your own"
    yield f"<h1>{html.text(path.resolve().name)}</h1>"
    yield f'<p class="soft">Recipe {html.text(recipe)}: {html.text(about)}.</p>'
    if not state.get("finished"):
        command = html.text(f"clearhead train --resume {shlex.quote(str(path))}")
        yield (
            f'<p class="notice">This run is not finished: step {state["step"]:,} of {steps:,} is '
            f"saved. <code>{command}</code> goes on with it.</p>"
        )
    if state.get("best_step") not in (None, run.step):
        yield (
            f'<p class="notice">The best checkpoint, that of step {state["best_step"]:,}, cannot '
            f"be used; this page shows that of step {run.step:,}.</p>"
        )
    if forced := run.folder.forced():
        yield (
            f'<p class="notice">It did not have all of the settings below from its beginning, but '
            f"was forced to change on the way: {html.text('; '.join(forced))}.</p>"
        )
    yield f"<p>{html.text(_summary(run))}</p>"
    yield '<dl class="figures">'
    for name, value in _measures(run, state).items():
        yield html.figure(name, html.number(value), MEANINGS.get(name, ""), baseline.beside(name))
    yield html.figure("parameters", f"{run.model.n_parameters:,}", "numbers that were learned")
    yield html.figure("steps", f"{state['step']:,}", f"shown here: step {run.step:,}")
    yield html.figure("time", html.duration(state.get("seconds", 0.0)), "training and evaluation")
    yield "</dl>"
    if baseline.values:
        yield f"<p>{html.text(baseline.meaning)}</p>"
    yield f"<p>Try it: <code>{html.text(run.task.next_command(path))}</code></p>"


def _summary(run: Run) -> str:
    c, here, task = run.recipe.training, run.folder.environment, run.task
    what = f"A {type(run.model).__name__} with {run.model.n_parameters:,} parameters learned "
    if run.folder.config["overfit"] is not None:
        return what + (
            f"{task.n_examples:,} examples by heart, and is measured on the same: this tests the "
            f"training, not what the model can do."
        )
    is_best = _state(run).get("best_step") == run.step
    which = f"its best checkpoint by {task.best_by}" if is_best else "its newest good checkpoint"
    each = f"{c.batch_size}" + (f" × {c.accumulate}" if c.accumulate > 1 else "")
    return what + (
        f"from {task.learned_from}; {each} at a time, by {c.optimizer} with a {c.schedule} "
        f"schedule, on {here.get('device')} (threads: {here.get('threads')}), seed {c.seed}. It is "
        f"measured on {task.measured_on}. Measures, answers and pictures are of {which}, that of "
        f"step {run.step:,}."
    )


def _measures(run: Run, state: Mapping[str, Any]) -> dict[str, float]:
    """What was measured of the model that is shown; nothing if it was saved in between."""
    if state.get("best_step") == run.step:
        return dict(state["best_metrics"])
    lines = [line for line in run.folder.metrics() if line["step"] == run.step]
    found = lines[-1] if lines else {}
    return {name: value for name, value in found.items() if name.startswith("val_")}


def _state(run: Run) -> dict[str, Any]:
    """What the newest good checkpoint says of the run."""
    return newest_state(run.folder.checkpoints) or {"step": run.step}


class Baseline(NamedTuple):
    """What is reached without a network, by the names of the measures."""

    label: str
    meaning: str
    values: Mapping[str, float]

    def beside(self, name: str) -> str:
        """A note for the measure of this name."""
        return f"{self.label}: {html.number(self.values[name])}" if name in self.values else ""


def _baseline(run: Run, series: Mapping[str, Points]) -> Baseline:
    """What the task says of it: values of the measures, and the order of n-grams."""
    task: Any = run.task
    found: dict[str, float] = task.baseline() if hasattr(task, "baseline") else {}
    order = int(found.pop("order", 0))
    meaning = (
        f"The baseline uses no network: it counts how often each group of {order} tokens occurs "
        f"where the model learned, and predicts by these counts."
    )
    values = {name: value for name, value in found.items() if name in series}
    return Baseline(f"baseline, {order}-gram counts", meaning, values)


# How it went


def series_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """name → its (step, value) pairs."""
    names = dict.fromkeys(name for line in lines for name in line if name != "step")
    return {name: [(line["step"], line[name]) for line in lines if name in line] for name in names}


def _curves(series: Mapping[str, Points], baseline: Baseline) -> Iterator[str]:
    """Training and validation loss together, then each measure, then the learning rate."""
    panels = [("loss", ["loss", "val_loss"])]
    panels += [(name, [name]) for name in series if name not in ("loss", "val_loss", "lr")]
    panels += [("learning rate", ["lr"])]
    yield "<h2>How it went</h2>"
    yield '<div class="side">'
    for title, names in panels:
        lines = {LABELS.get(name, name): series[name] for name in names if series.get(name)}
        if lines:
            levels = [baseline.values[name] for name in names if name in baseline.values]
            yield html.drawn(curve(title, lines, dict(zip([baseline.label], levels, strict=False))))
    yield "</div>"


# What it says


def _samples(run: Run) -> list[tuple[str, str]]:
    """What samples.txt holds: (heading, text), oldest first."""
    path = run.folder / SAMPLES
    if not path.exists():
        return []
    text = read_bytes(path, MAX_METRICS).decode("utf-8", "replace")
    parts = re.split(r"^--- (step \d+)$\n?", text, flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [(heading, body.strip("\n")) for heading, body in pairs]


def _said(samples: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not samples:
        return
    n, few = len(samples), min(len(samples), N_SAMPLES)
    chosen = sorted({round(i * (n - 1) / max(1, few - 1)) for i in range(few)})
    yield "<h2>What it said on the way</h2>"
    yield "<p>At some of its evaluations, always to the same questions.</p>"
    for i in chosen:
        heading, text = samples[i]
        cut = text if len(text) <= MOST_LETTERS else text[:MOST_LETTERS] + " …"
        opened = " open" if i in (chosen[0], chosen[-1]) else ""
        yield f"<details{opened}><summary>After {html.text(heading)}</summary>"
        yield f"<pre>{html.text(cut)}</pre></details>"


def _answers(run: Run) -> Iterator[str]:
    """A table of what is mixed up, or of a few examples with their answers."""
    task: Any = run.task
    if hasattr(task, "confusion"):
        table = task.confusion(run.model)
        yield "<h2>What it mixes up</h2>"
        yield html.drawn(
            confusion_picture(table, task.class_names),
            "How many pictures of each class (row) were taken for which class (column). "
            "Those on the diagonal are right.",
        )
        return
    examples = _examples(task)
    if not examples:
        return
    yield "<h2>What it answers</h2>"
    yield "<p>Examples that it is measured on; wrong answers are coloured.</p>"
    yield "<table><tr><th>input<th>its answer<th>right answer<th>how sure it is</tr>"
    for text, right in examples:
        found = run.predict(text)
        wrong = "" if found["answer"] == right else ' class="wrong"'
        sure = f"{found['probability']:.3f}" if "probability" in found else ""
        cells = "".join(f"<td>{html.text(cell)}" for cell in (text, found["answer"], right, sure))
        yield f"<tr{wrong}>{cells}</tr>"
    yield "</table>"


def _examples(task: Any) -> list[tuple[str, str]]:
    """Validation inputs and the right answers to them."""
    if hasattr(task, "validation_pairs"):
        return list(task.validation_pairs[:N_EXAMPLES])
    if hasattr(getattr(task, "validation", None), "examples"):
        texts, labels = task.validation.examples(range(min(N_EXAMPLES, task.n_validation)))
        return [(text, "yes" if label else "no") for text, label in zip(texts, labels, strict=True)]
    return []


def _attention(run: Run, sample: str | None) -> Iterator[str]:
    found = looks(run, sample)
    if found:
        yield "<h2>Where it looks</h2>"
    for look in found:
        yield html.drawn(look.picture, look.caption)


# How it can be done again


def _settings(run: Run) -> Iterator[str]:
    config = run.folder.config
    yield '<h2>Settings</h2><div class="side">'
    for section in ("data", "model", "training"):
        yield html.table(f"{section}: {config[section]['kind']}", config[section], leave_out="kind")
    yield html.table("environment", run.folder.environment)
    yield "</div><details><summary>All layers of the model</summary>"
    yield f'<pre class="wide">{html.text(run.model.describe())}</pre></details>'

"""Length generalization: accuracy on haystacks of the lengths seen in training, and on longer ones.

    [CLS] a b c c a b | c → yes         trained with haystacks of 3 to 8 letters, tested up to 16

The recipe `substring` is trained with learned, Toeplitz, rotary, ALiBi and no positions, and with
the same settings otherwise. A learned table has parameters for each position, a Toeplitz matrix for
each distance, so both are built for the longest test. Their parameters for positions and distances
that do not occur in training get no gradient and keep their initial values. Rotary angles and ALiBi
penalties can be computed for any length, but the model was not trained on the larger ones.

By default a small model is trained within seconds, to search for a single letter. `full` trains the
whole recipe, whose needles have up to three letters, so that their order matters.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import cast

import torch

from clearhead.inspection.matrices import array
from clearhead.inspection.picture import Axes, Picture
from clearhead.lab import EXPERIMENTS
from clearhead.lab.positions.report import LINE_STYLES, NAMES
from clearhead.lab.tools.drawing import NOTE, panels
from clearhead.lab.tools.finding import Finding, Table, wrap
from clearhead.lab.tools.training import train_temporarily
from clearhead.models import SequenceClassifier
from clearhead.training import Recipe, with_changes
from clearhead.training.recipes.substring import substring
from clearhead.training.tasks.substrings import N_PER_LENGTH, SubstringData, SubstringTask

KINDS = ("learned", "toeplitz", "rotary", "alibi", "none")
STEPS, N_RUNS = 500, 2  # training steps of a small model; runs for each kind of positions
SMALL = (
    *("data.needle=1,1", "data.n_validation=500", "model.d_model=32", "model.n_layers=2"),
    *("training.batch_size=32", "training.accumulate=1", "training.workers=1"),
    *(f"training.{name}={STEPS}" for name in ("steps", "eval_every", "save_every")),
)

Numbers = dict[str, list[float]]


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Learned positions fail on texts longer than any seen; rotary and ALiBi go farther."""
    data = cast(SubstringData, build_recipe("none", seed, full).data)
    seeds = [seed] if full else range(100 * seed, 100 * seed + N_RUNS)
    numbers: Numbers = {}
    for kind in KINDS:
        runs = [measure(build_recipe(kind, each, full), device) for each in seeds]
        numbers |= summarize(kind, runs, data)
    numbers["lengths"] = [float(n) for n in runs[0]]
    return Finding(
        claim=EXPERIMENTS["sizes"],
        tables=[_tabulate(numbers, data), _tabulate_untrained(data)],
        seen=_describe(numbers, data),
        numbers=numbers,
        picture=_draw(numbers, data),
    )


def build_recipe(kind: str, seed: int, full: bool) -> Recipe:
    """The recipe with these positions, small unless full, and max_len for the longest test."""
    recipe = with_changes(substring(), () if full else SMALL)
    data = cast(SubstringData, recipe.data)
    room = count_tokens(2 * data.haystack[1], data)
    changes = (f"model.positions={kind}", f"model.max_len={room}", f"training.seed={seed}")
    return with_changes(recipe, changes)


def count_tokens(haystack: int, data: SubstringData) -> int:
    """The number of tokens of the longest text with this haystack: [CLS] haystack | needle."""
    return 1 + haystack + 1 + data.needle[1]


def measure(recipe: Recipe, device: torch.device | str) -> dict[int, float]:
    """Train a model; return haystack length → accuracy. Half of the right answers are yes."""
    run = train_temporarily(recipe, device).trained
    task, model = cast(SubstringTask, run.task), cast(SequenceClassifier, run.model)
    return task.accuracy_by_length(model)


def summarize(kind: str, runs: Sequence[dict[int, float]], data: SubstringData) -> Numbers:
    """Mean, lowest and highest accuracy of several runs, by length and over the seen lengths."""
    by_length = list(zip(*(run.values() for run in runs), strict=True))
    inside = [fmean(x for n, x in run.items() if n <= data.haystack[1]) for run in runs]
    return {
        f"{kind}_right": [fmean(shares) for shares in by_length],
        f"{kind}_low": [min(shares) for shares in by_length],
        f"{kind}_high": [max(shares) for shares in by_length],
        f"{kind}_seen": [fmean(inside), min(inside), max(inside)],
    }


# Tables, summary and picture


def _format_range(mean: float, low: float, high: float) -> str:
    """The mean accuracy of several runs in percent, with the lowest and highest if they differ."""
    middle, least, most = (f"{100 * x:.1f}" for x in (mean, low, high))
    return middle if least == most else f"{middle} ({least}–{most})"


def _read_length(numbers: Numbers, kind: str, n: int) -> tuple[float, float, float]:
    """The mean, lowest and highest accuracy for haystacks of n letters."""
    i = numbers["lengths"].index(n)
    mean, low, high = (numbers[f"{kind}_{name}"][i] for name in ("right", "low", "high"))
    return mean, low, high


def _tabulate(numbers: Numbers, data: SubstringData) -> Table:
    least, most = data.haystack
    longer = [most + 1, most + 2, most + most // 2, 2 * most]
    rows = []
    for kind in KINDS:
        seen = _format_range(*numbers[f"{kind}_seen"])
        cells = [_format_range(*_read_length(numbers, kind, n)) for n in longer]
        rows.append([NAMES[kind], seen, *cells])
    error = 100 * math.sqrt(0.25 / N_PER_LENGTH)
    return Table(
        f"Percent right by letters of the haystack, trained with {least} to {most}; guessing gives "
        f"50.\nOf several trainings the mean (lowest–highest). {N_PER_LENGTH} new texts of each "
        f"length:\nstandard error up to {error:.1f} points.",
        ["positions", f"{least} to {most}", *map(str, longer)],
        rows,
    )


def _tabulate_untrained(data: SubstringData) -> Table:
    seen, longest = (count_tokens(n, data) for n in (data.haystack[1], 2 * data.haystack[1]))
    more = longest - seen
    beyond = {
        "learned": f"{more} of {longest} position vectors",
        "toeplitz": f"{2 * more} of {2 * longest - 1} distances, in every head",
        "rotary": "no parameter; larger angles",
        "alibi": "no parameter; larger penalties",
        "none": "nothing",
    }
    return Table(
        f"What {longest} tokens need but training on at most {seen} tokens leaves untrained.",
        ["positions", "untrained"],
        [[NAMES[kind], beyond[kind]] for kind in KINDS],
    )


def _describe(numbers: Numbers, data: SubstringData) -> str:
    longest = 2 * data.haystack[1]
    with_positions = KINDS[:-1]
    least = min(numbers[f"{kind}_seen"][1] for kind in with_positions)
    shares = {
        NAMES[kind]: f"{_read_length(numbers, kind, longest)[0]:.0%}" for kind in with_positions
    }
    next_length = _read_length(numbers, "learned", data.haystack[1] + 1)[0]
    return wrap(
        f"On trained lengths every model with positions gives at least {least:.1%} right answers, "
        f"without positions {numbers['none_seen'][0]:.1%}.",
        f"On haystacks of {longest} letters they give "
        f"{', '.join(f'{x} ({name})' for name, x in shares.items())}; with learned positions "
        f"{next_length:.0%} are right with one letter more than seen.",
    )


def _draw(numbers: Numbers, data: SubstringData) -> Picture:
    with panels(7.2, 3.6, 1) as (figure, [axes]):
        _draw_lines(axes, numbers)
        least, most = data.haystack
        axes.axvspan(least, most, color="#000000", alpha=0.07, linewidth=0)
        axes.text((least + most) / 2, 42, "lengths seen in training", ha="center", **NOTE)
        axes.axhline(50, color="#999999", linewidth=0.8)
        axes.text(least, 50.6, "guessing", **NOTE)
        axes.set(xlabel="letters of the haystack", ylabel="right answers (%)")
        axes.set(ylim=(40, 102), xticks=[int(n) for n in numbers["lengths"]])
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    words = f"Right answers by letters of the haystack, trained on {least} to {most}"
    return Picture(figure, words)


def _draw_lines(axes: Axes, numbers: Numbers) -> None:
    """A line for each scheme, with error bars from the lowest to the highest run."""
    for kind in KINDS:
        right, low, high = (
            100 * array(numbers[f"{kind}_{name}"]) for name in ("right", "low", "high")
        )
        look = LINE_STYLES[kind] | {"capsize": 2, "elinewidth": 0.8, "label": NAMES[kind]}
        axes.errorbar(numbers["lengths"], right, [right - low, high - right], **look)

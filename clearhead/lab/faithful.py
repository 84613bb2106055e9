"""Which heat map of a VisionTransformer predicts what happens if a patch is covered?

    effect[p] = logit(picture) − logit(picture with patch p covered)      of the right class

The effect is measured for each patch. Heat maps of attention are often read as if they showed this
effect. The experiment compares each map with it in two ways: by the rank correlation within each
picture, and by the deletion and insertion curves (inspection/picture_maps.py). A covered patch
shows the mean of all training pictures at its position.

Ink is the brightness of a patch: digits are bright on a dark background. Covering ink has a larger
effect than covering background. So a map may correlate with the effect only because it follows the
ink, and the ink itself is used as a baseline. `beyond ink` is the correlation among patches that
have the same rank in ink. The other baselines are a random map, maps of untrained models, and the
effect itself.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from clearhead.inspection import measure_covering, measure_faithfulness, picture_map
from clearhead.inspection.cause_figures import draw_map, draw_pixels
from clearhead.inspection.matrices import array
from clearhead.inspection.picture import (
    LINES,
    Axes,
    Picture,
    add_legend_above,
    new_figure,
    open_axes,
    style,
)
from clearhead.inspection.picture_maps import Faithfulness
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.finding import Finding, Table
from clearhead.lab.tools.training import train_temporarily
from clearhead.models import VisionTransformer
from clearhead.training import with_changes
from clearhead.training.recipes.vit_digits import vit_digits
from clearhead.training.tasks.pictures import PictureTask

STEPS, N_PICTURES = 400, 300  # out of the recipe's 800 steps and 2,000 test pictures
FULL_PICTURES, N_UNTRAINED = 2000, 8  # test pictures; untrained models
# Names of maps, in the order of the table.
LEARNED = {"mean": "mean attention", "rollout": "rollout", "gradient": "attention × gradient"}
BEFORE = {method: f"{name}, untrained" for method, name in LEARNED.items()}
INK, RANDOM, EFFECT = "ink", "random", "effect of covering"
MAPS = (*LEARNED.values(), *BEFORE.values(), INK, RANDOM, EFFECT)
DRAWN = (EFFECT, *LEARNED.values(), BEFORE["mean"])
CURVES = (EFFECT, LEARNED["gradient"], LEARNED["mean"], RANDOM, INK)
KINDS = {"deletion": "covered", "insertion": "shown"}
N_DRAWN = 3  # digits

Numbers = dict[str, Any]


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Attention is little better than ink at telling what a ViT needs; gradients help."""
    model, task = learn(seed, full, device)
    n = FULL_PICTURES if full else N_PICTURES
    pictures, labels = task.validation.images[:n], task.validation.labels[:n].to(device)
    cover = task.predictor.normalise(task.train.images).mean(dim=0).to(device)
    images = task.predictor.normalise(pictures).to(device)
    maps = collect_maps(model, images, labels, cover, seed)
    curves = {
        name: measure_faithfulness(model, images, heats, labels, cover=cover)
        for name, heats in maps.items()
    }
    numbers = {
        "accuracy": float((model(images).argmax(-1) == labels).float().mean()),
        **measure_maps(maps),
        "deletion": [float(curves[name].deletion.mean()) for name in MAPS],
        "insertion": [float(curves[name].insertion.mean()) for name in MAPS],
        "score": [curves[name].score for name in MAPS],
    }
    shown = task.validation.choose_examples(len(task.class_names))[1 : 1 + N_DRAWN]
    return Finding(
        claim=EXPERIMENTS["faithful"],
        tables=_tabulate(numbers),
        seen=_describe(numbers),
        numbers=numbers,
        picture=_draw(pictures / 255, maps, curves, shown),
    )


def learn(
    seed: int, full: bool, device: torch.device | str = "cpu"
) -> tuple[VisionTransformer, PictureTask]:
    """Train the recipe, with fewer steps unless full; return the model and its task."""
    short = [f"training.{name}={STEPS}" for name in ("steps", "eval_every", "save_every")]
    changes = [f"training.seed={seed}", *([] if full else short)]
    run = train_temporarily(with_changes(vit_digits(), changes), device).trained
    return cast(VisionTransformer, run.model.eval()), cast(PictureTask, run.task)


# Maps, and their agreement with the effect


def collect_maps(
    model: VisionTransformer, images: Tensor, labels: Tensor, cover: Tensor, seed: int
) -> dict[str, Tensor]:
    """Every map by its name in MAPS, (B, rows, columns) each."""
    torch.manual_seed(seed + 1)
    maps = {name: picture_map(model, images, m, labels) for m, name in LEARNED.items()}
    maps |= map_before_training(model, images, labels)
    maps[INK] = mean_by_patch(images, model.grid_of(images))
    maps[RANDOM] = torch.rand(maps[INK].shape).to(images.device)
    maps[EFFECT] = measure_covering(model, images, labels, cover)
    return maps


def map_before_training(
    model: VisionTransformer, images: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """Maps of N_UNTRAINED untrained models, each for its own share of the images.

    Several models, because the maps depend on the random initial weights.
    """
    parts: dict[str, list[Tensor]] = {name: [] for name in BEFORE.values()}
    for x, target in zip(images.chunk(N_UNTRAINED), labels.chunk(N_UNTRAINED), strict=True):
        untrained = VisionTransformer(model.config).to(x.device)
        for method, name in BEFORE.items():
            parts[name].append(picture_map(untrained, x, method, target))
    return {name: torch.cat(maps) for name, maps in parts.items()}


def mean_by_patch(images: Tensor, grid: tuple[int, int]) -> Tensor:
    """The mean brightness of each patch: (B, channels, height, width) → (B, rows, columns)."""
    rows, columns = grid
    by_patch = images.mean(dim=1).unflatten(-2, (rows, -1)).unflatten(-1, (columns, -1))
    return by_patch.mean(dim=(2, 4))


def rank_patches(maps: Tensor) -> Tensor:
    """The rank of each patch within its picture, minus the mean rank: (B, P). Ties share a rank."""
    x = maps.flatten(1).double()
    lower = (x[:, None, :] < x[:, :, None]).sum(dim=-1)
    equal = (x[:, None, :] == x[:, :, None]).sum(dim=-1)
    return lower + (equal - x.size(1)) / 2


def correlate(a: Tensor, b: Tensor) -> Tensor:
    """The correlation within each picture: (B, P), (B, P) → (B,); 0 where one is constant.

    Both have mean 0 in each picture.
    """
    product = a.norm(dim=1) * b.norm(dim=1)
    return (a * b).sum(dim=1) / product.clamp(min=1e-12)


def remove_ink(ranks: Tensor, ink: Tensor) -> Tensor:
    """Subtract from each rank the mean rank of all patches with the same rank in ink.

    ranks, ink (B, P) → (B, P), ordered by rank in ink. Unlike a linear regression on the ink, this
    also removes a nonlinear dependence.
    """
    by_ink = ranks.gather(1, ink.argsort(dim=1))
    return by_ink - by_ink.mean(dim=0)


def measure_maps(maps: Mapping[str, Tensor]) -> Numbers:
    """Correlations of each map with the effect and with ink: means over pictures, as in MAPS.

    better_than_ink: the correlation of the map with the effect minus that of ink. uncertainty: two
    standard errors of this difference.
    """
    ranks = {name: rank_patches(maps[name]) for name in MAPS}
    effect, ink = ranks[EFFECT], ranks[INK]
    by_picture = {name: correlate(x, effect) for name, x in ranks.items()}
    better = {name: x - by_picture[INK] for name, x in by_picture.items()}
    left = {name: remove_ink(x, ink) for name, x in ranks.items()}
    beyond = {name: correlate(x, left[EFFECT]) for name, x in left.items()}
    return {
        "with_effect": [float(by_picture[name].mean()) for name in MAPS],
        "beyond_ink": [float(beyond[name].mean()) for name in MAPS],
        "with_ink": [float(correlate(ranks[name], ink).mean()) for name in MAPS],
        "better_than_ink": [float(better[name].mean()) for name in MAPS],
        "uncertainty": [2 * float(better[name].std()) / math.sqrt(len(ink)) for name in MAPS],
    }


# Table, summary and picture


def _format(x: float) -> str:
    """Format with two decimals; never −0.00."""
    return f"{round(x, 2) + 0.0:.2f}".replace("-", "−")


def _tabulate(numbers: Numbers) -> list[Table]:
    columns = {"effect": "with_effect", "beyond ink": "beyond_ink", "ink": "with_ink"}
    columns |= {"deletion": "deletion", "insertion": "insertion", "difference": "score"}
    return [
        Table.from_columns(
            "Rank correlation of each map with the effect of covering a patch, with the effect\n"
            "beyond ink, and with ink. Mean probability of the right class while the patches that\n"
            "the map ranks first are covered (deletion: low is good), or shown (insertion).",
            ("map", MAPS),
            *((title, map(_format, numbers[name])) for title, name in columns.items()),
        )
    ]


def _describe(numbers: Numbers) -> str:
    found = dict(zip(MAPS, numbers["with_effect"], strict=True))
    score = dict(zip(MAPS, numbers["score"], strict=True))
    by_effect = max(LEARNED.values(), key=lambda name: found[name])
    by_score = max(LEARNED.values(), key=lambda name: score[name])
    i = MAPS.index(by_effect)
    better, doubt = numbers["better_than_ink"][i], numbers["uncertainty"][i]
    verdict = "better" if better > doubt else "not clearly better"
    return (
        f"By correlation with the effect the best map is {by_effect} ({_format(found[by_effect])}),"
        f" {verdict} than ink ({_format(found[INK])}): the difference is {_format(better)} ± "
        f"{_format(doubt)}. Plain attention has {_format(found[LEARNED['mean']])}.\n"
        f"By deletion and insertion the best is {by_score} ({_format(score[by_score])}); ink has "
        f"{_format(score[INK])}, the effect itself {_format(score[EFFECT])}."
    )


def _draw(
    pictures: Tensor,
    maps: Mapping[str, Tensor],
    curves: Mapping[str, Faithfulness],
    shown: list[int],
) -> Picture:
    """Digits beside their maps, and the curves of some maps."""
    with style():
        figure = new_figure(12.6, 1.55 * len(shown) + 0.5)
        halves: Any = figure.subfigures(1, 2, width_ratios=(1.35, 1))
        left, right = halves
        grid = left.subplots(len(shown), 1 + len(DRAWN), squeeze=False)
        for row, number in zip(grid, shown, strict=True):
            pixels = draw_pixels(row[0], array(pictures[number]))
            for axes, name in zip(row[1:], DRAWN, strict=True):
                draw_map(axes, array(maps[name][number]), pixels)
        for axes, name in zip(grid[0], ("picture", *DRAWN), strict=True):
            axes.set_title(name.replace(", ", ",\n"), size=8)
        for axes, kind in zip(right.subplots(1, 2, sharey=True), KINDS, strict=True):
            _draw_curves(axes, kind, curves)
    return Picture(figure, f"{len(shown)} digits, their maps, and deletion and insertion curves")


def _draw_curves(axes: Axes, kind: str, curves: Mapping[str, Faithfulness]) -> None:
    open_axes(axes)
    for name, (colour, dashes) in zip(CURVES, LINES, strict=True):
        axes.plot(
            array(getattr(curves[name], kind).mean(dim=0)),
            color=colour, linestyle=dashes, label=name,
        )  # fmt: skip
    axes.set(title=kind.capitalize(), xlabel=f"patches {KINDS[kind]}, the highest first")
    axes.set_ylim(0, 1)
    if kind == "deletion":
        axes.set_ylabel("probability of the right class")
        add_legend_above(axes)

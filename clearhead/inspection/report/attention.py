"""Where a trained model looks, drawn in the way that suits its kind.

    text models      every head of every layer over one text
    translators      which parts of the source were read for each part that was written
    picture models   the patches that the class token – or, without one, the mean of all – reads
    the smallest     its matrices and all that it computes with them

One forward pass over an input is recorded from outside; the model is not changed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.inspection.figures import alignment, attention_grid
from clearhead.inspection.measures import alignment_weights, class_token_map, rollout
from clearhead.inspection.picture import Array, Picture, array, new_figure, style
from clearhead.inspection.record import record
from clearhead.inspection.smallest_figure import smallest_panels
from clearhead.models import VisionTransformer
from clearhead.models.model import evaluation_mode
from clearhead.models.seq2seq import Seq2Seq
from clearhead.models.smallest import TorchTransformer
from clearhead.runs import Run

MOST_TOKENS = 32  # of a text: more cannot be read in a grid of heads
LETTERS = ("A", "B", "C", "CLS")  # of the smallest transformer
ROWS = {"mean": "attention\nmean of heads\nand layers", "rollout": "rollout\nthrough\nthe layers"}


class Look(NamedTuple):
    """A picture and its caption."""

    picture: Picture
    caption: str


def look_at_examples(run: Run, sample: str | None) -> list[Look]:
    """What a run's model attends to in its own examples; sample: the last text that it wrote."""
    return [look_at(run, text, words) for text, words in run.task.pictures(sample)]


def look_at(run: Run, text: str, words: str | None = None) -> Look:
    """What a run's model attends to in one input.

    For pictures, text is the path of one, or numbers of validation pictures such as 3,17,42.
    words: what the caption calls a text, by default the text itself.
    """
    if not text:
        raise ValueError("the input is empty; give a text to look at")
    model: Any = run.model
    predictor: Any = run.predictor
    if isinstance(model, VisionTransformer):
        if re.fullmatch(r"\d+(,\d+)*", text):
            return _over_validation(run, [int(number) for number in text.split(",")])
        return _over_images(model, predictor, predictor.read(model, text)[None])
    if isinstance(model, Seq2Seq):
        return _over_sentence(model, predictor, text)
    if isinstance(model, TorchTransformer):
        return _inside_smallest(model, predictor.read(text))
    return _over_text(model, run.tokenizer, text, words or f"“{text}”")


def _over_text(model: Any, tokenizer: Any, text: str, words: str) -> Look:
    whole = tokenizer.encode(text)
    ids = whole[: min(MOST_TOKENS, model.config.max_len)]
    if len(ids) < len(whole):
        words = f"the first {len(ids)} of the {len(whole)} tokens of {words}"
    with evaluation_mode(model), record(model) as trace:
        model(torch.tensor([ids], device=model.device))
    return Look(
        attention_grid(trace, tokens=tokenizer.spell(ids, specials=True)),
        f"Every head (column) of every layer (row), reading {words}. In a square each row is a "
        f"token that looks, each column one that is looked at: the darker, the more.",
    )


def _inside_smallest(model: TorchTransformer, example: Any) -> Look:
    """The matrices, and what they do to this example."""
    rows = example.inputs[0].cpu()
    names = [LETTERS[letter] for letter in rows.argmax(-1).tolist()]
    caption = f"Its matrices, and all that it computes with them when it reads {' '.join(names)}."
    return Look(smallest_panels(model.to_numpy(), rows, tokens=names), caption)


# Translators


def _over_sentence(model: Seq2Seq, predictor: Any, text: str) -> Look:
    """Which parts of the source were read for each part written, by greedy decoding."""
    ids, end = predictor.source.encode(text), model.config.end_id
    source = torch.tensor([ids], device=model.device)
    written = model.generate(source, min(2 * len(ids) + 10, model.max_len or 100))[0].tolist()
    written = written[: written.index(end) + 1] if end in written else written
    inputs = torch.tensor([[model.config.start_id, *written[:-1]]], device=model.device)
    with evaluation_mode(model), record(model) as trace:
        model(source, inputs)
    weights = alignment_weights(trace, model.alignment_name)[0]
    return Look(
        alignment(
            weights,
            predictor.source.spell(ids, specials=True),
            predictor.target.spell(written, specials=True),
        ),
        f"What was read of “{text}” for each part that was written: a row for each part, a column "
        f"for each part of the source; the darker, the more.",
    )


# Pictures


def _over_validation(run: Run, numbers: Sequence[int]) -> Look:
    """The validation pictures of these numbers, counted from 0."""
    task: Any = run.task
    model: Any = run.model
    pictures, rows = task.validation, list(numbers)
    if max(rows) >= len(pictures):
        raise ValueError(
            f"there is no validation picture {max(rows)}: they go from 0 to {len(pictures) - 1}"
        )
    labels = pictures.labels[rows].tolist()
    return _over_images(model, run.predictor, pictures.images[rows], labels)


def _over_images(
    model: VisionTransformer, predictor: Any, images: Tensor, labels: Sequence[int] | None = None
) -> Look:
    """images: bytes (B, channels, height, width); labels: their classes, if they are known."""
    x = predictor.normalise(images).to(model.device)
    with evaluation_mode(model), record(model) as trace:
        answers = model(x).argmax(-1).tolist()
    maps = {method: _map_attention(model, trace, x, method) for method in ROWS}
    names = predictor.class_names
    titles = [
        names[label] if label == answer else f"{names[label]}\ntaken for {names[answer]}"
        for label, answer in zip(answers if labels is None else labels, answers, strict=True)
    ]
    who = "the class token looks" if model.config.class_token else "the patches look, on average,"
    where = "a picture, named as it is taken" if labels is None else "pictures it is measured on"
    return Look(
        _draw_images(images / 255, maps, titles),
        f"Where {who} in {where}: the lighter, the more. "
        f"Each map is stretched from its least to its most.",
    )


def _map_attention(model: VisionTransformer, trace: Any, images: Tensor, method: str) -> Tensor:
    """(B, rows, columns): from the class token, or from all patches where they are averaged."""
    grid = model.grid_of(images)
    if model.config.class_token:
        return class_token_map(trace, grid, method)
    if method == "rollout":
        weights = rollout(trace)
    else:
        weights = torch.stack([layer.mean(dim=1) for layer in trace.weights()]).mean(dim=0)
    return weights.mean(dim=1).unflatten(-1, grid)


def _draw_images(images: Any, maps: Mapping[str, Any], titles: Sequence[str]) -> Picture:
    """A column for each image: the image, and below it where the model looks, by each method."""
    shown = [np.repeat(x.transpose(1, 2, 0), 3 // x.shape[0], axis=2) for x in array(images)]
    with style():
        figure = new_figure(1.05 * len(shown) + 0.9, 1.15 * (1 + len(maps)) + 0.5)
        grid = figure.subplots(1 + len(maps), len(shown), squeeze=False)
        for axes, image, title in zip(grid[0], shown, titles, strict=True):
            axes.imshow(image)
            axes.set_title(title, fontsize=7, parse_math=False)
        for row, (method, heats) in zip(grid[1:], maps.items(), strict=True):
            for axes, image, heat in zip(row, shown, array(heats), strict=True):
                _dim(axes, image, heat)
            row[0].set_ylabel(ROWS[method], size=7.5)
        grid[0][0].set_ylabel("image", size=7.5)
        for axes in grid.flat:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
    return Picture(figure, f"Where the model looks in {len(shown)} images")


def _dim(axes: Any, image: Array, heat: Array) -> None:
    """The image under a black layer that is darkest where the model looks least."""
    low, high = float(heat.min()), float(heat.max())
    share = (heat - low) / (high - low) if high > low else np.ones_like(heat)
    box = (-0.5, image.shape[1] - 0.5, image.shape[0] - 0.5, -0.5)
    axes.imshow(image)
    darkness = 0.85 * (1 - share)
    axes.imshow(
        np.zeros_like(heat), alpha=darkness, cmap="gray", extent=box, interpolation="bilinear"
    )

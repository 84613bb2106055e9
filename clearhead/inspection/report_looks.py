"""Where a trained model looks, in the way that suits its kind.

    text models      every head of every layer over one text
    translators      which letters or words of the source each written one was made from
    picture models   the patches that the class token – or, without one, the mean of all – looks at
    the smallest     its matrices and all that it computes with them

One pass over a few validation examples, or over an input of yours, is recorded; the model knows
nothing of it.
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
from clearhead.models import GPT, SequenceClassifier, VisionTransformer
from clearhead.models.model import at_rest
from clearhead.models.seq2seq import Seq2Seq
from clearhead.models.smallest import TorchTransformer
from clearhead.runs import Run

MOST_TOKENS = 32  # of a text: more cannot be read in a grid of heads
N_SENTENCES = 2
N_IMAGES = 10
LETTERS = ("A", "B", "C", "CLS")  # of the smallest transformer
ROWS = {"mean": "attention\nmean of heads\nand layers", "rollout": "rollout\nthrough\nthe layers"}


class Look(NamedTuple):
    """A picture and the words under it."""

    picture: Picture
    caption: str


def looks(run: Run, sample: str | None) -> list[Look]:
    """Pictures of what the model of a run attends to; sample: a text that it wrote."""
    model: Any = run.model
    if isinstance(model, VisionTransformer) and hasattr(run.task, "examples"):
        shown = run.task.examples(N_IMAGES)
        return [_over_images(model, run.answerer, shown.images, shown.labels.tolist())]
    if isinstance(model, Seq2Seq) and hasattr(run.task, "validation_pairs"):
        pairs = run.task.validation_pairs[:N_SENTENCES]
        return [_of_sentence(model, run.answerer, source) for source, _ in pairs]
    if isinstance(model, GPT) and sample and run.tokenizer is not None:
        return [_over_text(model, run.tokenizer, sample, "what it wrote last")]
    if isinstance(model, SequenceClassifier) and hasattr(run.task, "validation"):
        text, _ = run.task.validation[1]
        return [_over_text(model, run.tokenizer, text, f"the validation example {text}")]
    if isinstance(model, TorchTransformer) and hasattr(run.task, "validation"):
        return [_of_smallest(model, run.task.validation)]
    return []


def look_at(run: Run, text: str) -> Look:
    """What the model of a run attends to in one input.

    For pictures, text is the path of one, or numbers of validation pictures such as 3,17,42.
    """
    if not text:
        raise ValueError("the input is empty; give a text to look at")
    model: Any = run.model
    answerer: Any = run.answerer
    if isinstance(model, VisionTransformer):
        if re.fullmatch(r"\d+(,\d+)*", text):
            return _over_validation(run, [int(number) for number in text.split(",")])
        return _over_images(model, answerer, answerer.read(model, text)[None])
    if isinstance(model, Seq2Seq):
        return _of_sentence(model, answerer, text)
    if isinstance(model, TorchTransformer):
        return _of_smallest(model, answerer.read(text))
    return _over_text(model, run.tokenizer, text, f"“{text}”")


def _over_text(model: Any, tokenizer: Any, text: str, what: str) -> Look:
    whole = tokenizer.encode(text)
    ids = whole[: min(MOST_TOKENS, model.config.max_len)]
    if len(ids) < len(whole):
        what = f"the first {len(ids)} of the {len(whole)} tokens of {what}"
    device = model.device
    with at_rest(model), record(model) as trace:
        model(torch.tensor([ids], device=device))
    picture = attention_grid(trace, tokens=tokenizer.spell(ids, specials=True))
    return Look(
        picture,
        f"Every head (column) of every layer (row), reading {what}. In a square each row is a "
        f"token that looks, each column one that is looked at: the darker, the more.",
    )


def _of_smallest(model: TorchTransformer, examples: Any) -> Look:
    """The matrices, and what they do to the last example."""
    rows = examples.inputs[-1][examples.token_mask[-1]].cpu()
    names = [LETTERS[letter] for letter in rows.argmax(-1).tolist()]
    caption = f"Its matrices, and all that it computes with them when it reads {' '.join(names)}."
    return Look(smallest_panels(model.to_numpy(), rows, tokens=names), caption)


# Translators


def _of_sentence(model: Seq2Seq, answerer: Any, text: str) -> Look:
    """Which parts of the source were read for each one written, by greedy decoding."""
    device = model.device
    ids, end = answerer.source.encode(text), model.config.end_id
    source = torch.tensor([ids], device=device)
    written = model.generate(source, min(2 * len(ids) + 10, model.max_len or 100))[0].tolist()
    written = written[: written.index(end) + 1] if end in written else written
    with at_rest(model), record(model) as trace:
        model(source, torch.tensor([[model.config.start_id, *written[:-1]]], device=device))
    weights = alignment_weights(trace, model.alignment_name)[0]
    read, wrote = (
        tokenizer.spell(row, specials=True)
        for tokenizer, row in ((answerer.source, ids), (answerer.target, written))
    )
    caption = (
        f"What was read of “{text}” for each part that was written: a row for each part, a column "
        f"for each part of the source; the darker, the more."
    )
    return Look(alignment(weights, read, wrote), caption)


# Pictures


def _over_validation(run: Run, numbers: Sequence[int]) -> Look:
    """The validation pictures of these numbers, counted from 0."""
    model: Any = run.model
    pictures: Any = getattr(run.task, "validation", ())
    if max(numbers) >= len(pictures):
        raise ValueError(
            f"there is no validation picture {max(numbers)}: they go from 0 to {len(pictures) - 1}"
        )
    right = pictures.labels[list(numbers)].tolist()
    return _over_images(model, run.answerer, pictures.images[list(numbers)], right)


def _over_images(
    model: VisionTransformer, answerer: Any, images: Tensor, right: Sequence[int] | None = None
) -> Look:
    """images: bytes (B, channels, height, width); right: their classes, if they are known."""
    read = answerer.normalised(images).to(model.device)
    with at_rest(model), record(model) as trace:
        answers = model(read).argmax(-1).tolist()
    heats = {method: _looked_at(model, trace, read, method) for method in ROWS}
    names = answerer.class_names
    titles = [
        names[is_] if is_ == said else f"{names[is_]}\ntaken for {names[said]}"
        for is_, said in zip(answers if right is None else right, answers, strict=True)
    ]
    who = "the class token looks" if model.config.class_token else "the patches look, on average,"
    where = "a picture, named as it is taken" if right is None else "pictures it is measured on"
    return Look(
        _image_grid(images / 255, heats, titles),
        f"Where {who} in {where}: the lighter, the more. "
        f"Each map is stretched from its least to its most.",
    )


def _looked_at(model: VisionTransformer, trace: Any, images: Tensor, method: str) -> Tensor:
    """(B, rows, columns): from the class token, or from all patches where they are averaged."""
    grid = model.grid_of(images)
    if model.config.class_token:
        return class_token_map(trace, grid, method)
    if method == "rollout":
        seen = rollout(trace)
    else:
        seen = torch.stack([weights.mean(dim=1) for weights in trace.weights()]).mean(dim=0)
    return seen.mean(dim=1).unflatten(-1, grid)


def _image_grid(images: Any, heats: Mapping[str, Any], titles: Sequence[str]) -> Picture:
    """A column for each image: itself, and under it where the model looks, by each measure."""
    shown = [np.repeat(x.transpose(1, 2, 0), 3 // x.shape[0], axis=2) for x in array(images)]
    with style():
        figure = new_figure(1.05 * len(shown) + 0.9, 1.15 * (1 + len(heats)) + 0.5)
        grid = figure.subplots(1 + len(heats), len(shown), squeeze=False)
        for axes, image, title in zip(grid[0], shown, titles, strict=True):
            axes.imshow(image)
            axes.set_title(title, fontsize=7, parse_math=False)
        for row, (method, maps) in zip(grid[1:], heats.items(), strict=True):
            for axes, image, heat in zip(row, shown, array(maps), strict=True):
                _dim(axes, image, heat)
            row[0].set_ylabel(ROWS[method], size=7.5)
        grid[0][0].set_ylabel("image", size=7.5)
        for axes in grid.flat:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
    return Picture(figure, f"Where the model looks in {len(shown)} images")


def _dim(axes: Any, image: Array, heat: Array) -> None:
    """The image under a veil that is darkest where it is looked at least."""
    low, high = float(heat.min()), float(heat.max())
    seen = (heat - low) / (high - low) if high > low else np.ones_like(heat)
    box = (-0.5, image.shape[1] - 0.5, image.shape[0] - 0.5, -0.5)
    axes.imshow(image)
    veil = 0.85 * (1 - seen)
    axes.imshow(np.zeros_like(heat), alpha=veil, cmap="gray", extent=box, interpolation="bilinear")

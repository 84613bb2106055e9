"""What a trained model attends to, drawn in the way that suits its kind.

    text models      every head of every layer over one text
    language models  also the kind of each head, and the next token guessed after each layer
    translators      how much each target token attends to each source token
    picture models   maps of what the class token attends to; without one, the mean of all patches
    the smallest     its matrices and everything computed with them

One forward pass over the input is recorded from outside; the model is not changed.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearhead.inspection.cause_figures import head_scores_picture, lens_picture, map_picture
from clearhead.inspection.comparison import sign_picture
from clearhead.inspection.figures import alignment, attention_grid
from clearhead.inspection.head_scores import head_scores
from clearhead.inspection.logit_lens import logit_lens
from clearhead.inspection.measures import alignment_weights
from clearhead.inspection.picture import Picture
from clearhead.inspection.picture_maps import build_untrained, picture_map
from clearhead.inspection.record import record
from clearhead.inspection.smallest_figure import smallest_panels
from clearhead.inspection.viewer import AttentionView, attention_view
from clearhead.models import GPT, VisionTransformer
from clearhead.models.model import evaluation_mode
from clearhead.models.seq2seq import Seq2Seq
from clearhead.models.smallest import TorchTransformer, designs
from clearhead.runs import Run

MAX_TOKENS = 32  # of a text or a translation: more cannot be read
LENS_TOKENS = 16  # that are read through the layers, each guess with its name
MIN_CONTEXT = 4  # tokens; in fewer, nothing can be repeated
N_MISTAKES = 8  # pictures
LETTERS = ("A", "B", "C", "CLS")  # of the smallest transformer
UNTRAINED = "mean, before\ntraining"
METHODS = {
    "mean": "mean of heads\nand layers",
    "rollout": "rollout through\nthe layers",
    "gradient": "attention ×\ngradient",
}


class Look(NamedTuple):
    """A picture and its caption; for a text also the page on which heads can be chosen."""

    picture: Picture
    caption: str
    view: AttentionView | None = None


def look_at_examples(run: Run, sample: str | None) -> list[Look]:
    """What a run's model attends to in its own examples; sample: the last text it wrote."""
    texts = run.task.pictures(sample)
    looks = [look_at(run, text, words) for text, words in texts]
    if isinstance(run.model, VisionTransformer):
        looks = _look_at_mistakes(run) + looks
    if isinstance(run.model, GPT) and run.model.config.max_len >= MIN_CONTEXT:
        looks += [_look_at_kinds(run.model)]
        looks += [_look_through_layers(run.model, run.tokenizer, *example) for example in texts]
    if isinstance(run.model, TorchTransformer) and run.model.config.d_v == 1:
        looks += [_look_at_signs(run, text) for text, _ in texts]
    return looks


def look_at(run: Run, text: str, words: str | None = None) -> Look:
    """What a run's model attends to in one input.

    For a picture model, text is the path of a picture, or numbers of validation pictures such as
    3,17,42. words: what the caption calls the text, by default the quoted text.
    """
    if not text:
        raise ValueError("the input is empty; give a text to look at")
    model: Any = run.model
    predictor: Any = run.predictor
    if isinstance(model, VisionTransformer):
        if re.fullmatch(r"\d+(,\d+)*", text):
            return _look_at_validation(run, [int(number) for number in text.split(",")])
        return _look_at_images(model, predictor, predictor.read(model, text)[None])
    if isinstance(model, Seq2Seq):
        return _look_at_translation(model, predictor, text)
    if isinstance(model, TorchTransformer):
        return _look_at_matrices(model, predictor.read(text))
    return _look_at_text(model, run.tokenizer, text, words or f"“{text}”")


def _look_at_text(model: Any, tokenizer: Any, text: str, words: str) -> Look:
    whole = tokenizer.encode(text)
    ids = whole[: min(MAX_TOKENS, model.config.max_len)]
    if len(ids) < len(whole):
        words = f"the first {len(ids)} of the {len(whole)} tokens of {words}"
    with evaluation_mode(model), record(model) as trace:
        model(torch.tensor([ids], device=model.device))
    tokens, names = tokenizer.spell(ids, specials=True), name_by_number(list(trace.attention))
    return Look(
        attention_grid(trace, tokens=tokens, names=names),
        f"Every head (column) of every layer (row), reading {words}. In each map a row is a query, "
        f"a column a key; darker = more weight.",
        attention_view(trace, tokens, names=names, title="Attention"),
    )


def _look_at_kinds(model: GPT) -> Look:
    """How far each head looks at the token before, at the same token, at what followed it."""
    return Look(
        head_scores_picture(head_scores(model)),
        "What kind each head is, measured on random tokens that occur twice: its mean weight on "
        "the token before, on the earlier copy of the same token, and on what followed that copy. "
        "An induction head, the last kind, continues a text as it went on before.",
    )


def _look_through_layers(model: GPT, tokenizer: Any, text: str, words: str) -> Look:
    """The logit lens on the first tokens of a text."""
    ids = tokenizer.encode(text)[: min(LENS_TOKENS, model.config.max_len)]
    lens = logit_lens(model, torch.tensor([ids], device=model.device))
    names = tokenizer.spell(range(lens.size(-1)), specials=True)
    return Look(
        lens_picture(lens, names, tokenizer.spell(ids, specials=True)),
        f"What it would guess as the next token if it ended after each layer, reading the start of "
        f"{words}; darker = more certain. The last row is its answer.",
    )


def name_by_number(names: Sequence[str]) -> list[str]:
    """Short names: stack.blocks.0.attention → layer 0. Kept whole if two would be equal."""
    numbers = [re.findall(r"\d+", name) for name in names]
    short = [f"layer {found[0]}" for found in numbers if len(found) == 1]
    return short if len(set(short)) == len(names) else list(names)


def _look_at_matrices(model: TorchTransformer, example: Any) -> Look:
    rows = example.inputs[0].cpu()
    names = [LETTERS[letter] for letter in rows.argmax(-1).tolist()]
    caption = f"Its matrices, and everything it computes with them on {' '.join(names)}."
    return Look(smallest_panels(model.to_numpy(), rows, tokens=names), caption)


def _look_at_signs(run: Run, text: str) -> Look:
    """The signs for `unique`: of the design set by hand, of the model, and the right ones."""
    model: Any = run.model
    predictor: Any = run.predictor
    example = predictor.read(text)
    rows = example.inputs[0].numpy()
    outputs = {
        "by hand": designs.unique(predictor.max_len).forward(rows),
        "trained": model.to_numpy().forward(rows),
        "expected": example.targets[0].numpy(),
    }
    names = [LETTERS[letter] for letter in rows.argmax(-1).tolist()]
    return Look(
        sign_picture({name: values[:, 0] for name, values in outputs.items()}, names),
        f"+1 for a token that occurs once, −1 for a repeated one, on {' '.join(names)}: the "
        f"weights set by hand, the trained ones, and what is right.",
    )


def _look_at_translation(model: Seq2Seq, predictor: Any, text: str) -> Look:
    """What each token of the greedy translation attends to in the source."""
    ids, end = predictor.source.encode(text), model.config.end_id
    source = torch.tensor([ids], device=model.device)
    n_tokens = min(2 * len(ids) + 10, model.max_len or 100)
    written = model.generate(source, n_tokens, forbid=predictor.forbid)[0].tolist()
    written = written[: written.index(end) + 1] if end in written else written
    inputs = torch.tensor([[model.config.start_id, *written[:-1]]], device=model.device)
    with evaluation_mode(model), record(model) as trace:
        model(source, inputs)
    weights = alignment_weights(trace, model.alignment_name)[0][:MAX_TOKENS]
    which = "each token" if len(written) <= MAX_TOKENS else f"each of the first {MAX_TOKENS} tokens"
    return Look(
        alignment(
            weights,
            predictor.source.spell(ids, specials=True),
            predictor.target.spell(written[:MAX_TOKENS], specials=True),
        ),
        f"What {which} of the translation (row) attends to in “{text}” (columns); "
        f"darker = more weight.",
    )


# Pictures


def _look_at_validation(run: Run, numbers: Sequence[int]) -> Look:
    """Look at the validation pictures with these numbers, counted from 0."""
    task: Any = run.task
    model: Any = run.model
    pictures, rows = task.validation, list(numbers)
    if max(rows) >= len(pictures):
        raise ValueError(
            f"there is no validation picture {max(rows)}: they go from 0 to {len(pictures) - 1}"
        )
    labels = pictures.labels[rows].tolist()
    return _look_at_images(model, run.predictor, pictures.images[rows], labels)


def _look_at_mistakes(run: Run) -> list[Look]:
    """The wrong answers with the highest probability; empty if there is no mistake."""
    task: Any = run.task
    numbers = task.find_mistakes(run.model, N_MISTAKES)
    if not numbers:
        return []
    look = _look_at_validation(run, numbers)
    return [look._replace(caption=f"Its worst mistakes, the most confident first. {look.caption}")]


def _look_at_images(
    model: VisionTransformer, predictor: Any, images: Tensor, labels: Sequence[int] | None = None
) -> Look:
    """images: bytes (B, channels, height, width); labels: their classes, if known."""
    x = predictor.normalise(images).to(model.device)
    with evaluation_mode(model):
        answers = model(x).argmax(-1).tolist()
    maps = {name: picture_map(model, x, method) for method, name in METHODS.items()}
    maps[UNTRAINED] = picture_map(build_untrained(model), x)
    names = predictor.class_names
    labels_below = [
        names[label] if label == answer else f"{names[label]}\ntaken for {names[answer]}"
        for label, answer in zip(answers if labels is None else labels, answers, strict=True)
    ]
    what = "the class token" if model.config.pool == "class" else "the mean of all patches"
    where = "a picture, with the answer below" if labels is None else "validation pictures"
    return Look(
        map_picture(images / 255, maps, labels=labels_below),
        f"What {what} attends to in {where}: lighter = more. Each map has its own scale, from its "
        f"smallest to its largest number. Attention × gradient counts only attention that raises "
        f"the logit of the answer. The last map is that of the same model before training, for "
        f"comparison. How far such maps can be trusted: clearhead lab faithful.",
    )

"""Induction: how two heads in two layers copy the token that followed an earlier occurrence.

    … k a r l m k a → r         the text repeats after n tokens; n differs from text to text

A previous-token head in the first layer writes into each token which token comes before it. An
induction head in the second layer (Olsson et al. 2022) then looks for a token whose previous token
is a: it finds the r after the earlier a, and copies it. The induction head depends on the
previous-token head. In training, most answers become right before a previous-token head exists, by
a less exact method; then this head forms, and most of the remaining answers become right.

The model is an attention-only GPT of two layers: its feed-forward layers are 0 and not trained. It
is scored on the repeated part of random texts, which only the repetition makes predictable. With
two heads in each layer, two induction heads form that do the same work. A second model, with one
head in each layer, has no spare: without either head it cannot copy.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from clearhead.inspection import HeadScores, ablate, head_scores, record
from clearhead.inspection.matrices import array, colour_bar, draw_weights
from clearhead.inspection.picture import LINES, Axes, Picture, add_legend_above, open_axes, panels
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.finding import Finding, Table
from clearhead.models import GPT, GPTConfig
from clearhead.models.model import evaluation_mode

VOCAB, LENGTH = 20, 32
LAYERS, HEADS, WIDTH = 2, 2, 64
STEPS, BATCH, LR, WARMUP = 450, 64, 3e-3, 50
STEPS_OF_ONE = 600  # of the model with one head in each layer, which learns more slowly
N_TEXTS, EVERY = 256, 25  # texts to score; training steps between two points of the curves
IS_HEAD = 0.4  # the score above which a head counts as an induction head

Numbers = dict[str, Any]


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """An induction head needs a previous-token head in an earlier layer."""
    model = build(seed).to(device)
    curves = train(model, seed, 2 * STEPS if full else STEPS)
    texts, period = draw_texts(N_TEXTS, torch.Generator().manual_seed(seed + 1), device)
    scores = head_scores(model, n_tokens=LENGTH // 2)
    numbers = {**curves, **measure_heads(model, scores, texts, period)}
    single = build(seed, n_heads=1).to(device)
    train(single, seed, 2 * STEPS_OF_ONE if full else STEPS_OF_ONE)
    numbers["one_head_each"] = [
        accuracy(single, texts, period),
        *(measure_without(single, [(layer, 0)], texts, period) for layer in range(LAYERS)),
    ]
    return Finding(
        claim=EXPERIMENTS["induction"],
        tables=_tabulate(numbers),
        seen=_describe(numbers),
        numbers=numbers,
        picture=_draw(numbers, model, device),
    )


def build(seed: int, n_heads: int = HEADS) -> GPT:
    """An attention-only GPT: its feed-forward layers are 0 and not trained."""
    torch.manual_seed(seed)
    config = GPTConfig(
        vocab_size=VOCAB, max_len=LENGTH, d_model=WIDTH, n_layers=LAYERS, n_heads=n_heads, d_ff=1,
        tied=False,
    )  # fmt: skip
    model = GPT(config)
    for name, parameter in model.named_parameters():
        if ".feed_forward." in name:
            parameter.data.zero_()
            parameter.requires_grad_(False)
    return model


def draw_texts(
    n: int, generator: torch.Generator, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """Random texts (n, LENGTH) that repeat after a period, and the period of each, (n, 1)."""
    period = torch.randint(LENGTH // 4, LENGTH // 2 + 1, (n, 1), generator=generator)
    tokens = torch.randint(VOCAB, (n, LENGTH), generator=generator)
    texts = tokens.gather(1, torch.arange(LENGTH) % period)
    return texts.to(device), period.to(device)


def find_repeated(period: Tensor) -> Tensor:
    """True for the predictable targets, (n, LENGTH − 1): those after a repeated token."""
    return torch.arange(1, LENGTH, device=period.device) > period


def train(model: GPT, seed: int, steps: int) -> Numbers:
    """Train the model to predict the repeated part.

    Returns the accuracy and the highest head scores, every EVERY steps.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, betas=(0.9, 0.98), weight_decay=0.01)
    points: list[list[float]] = []
    for step in range(steps + 1):
        if step % EVERY == 0:
            texts, period = draw_texts(
                N_TEXTS, torch.Generator().manual_seed(seed + 2), model.device
            )
            scores = head_scores(model, n_tokens=LENGTH // 2)
            best = float(scores.induction.max()), float(scores.previous.max())
            points.append([step, accuracy(model, texts, period), *best])
        if step == steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = LR * min(1, (step + 1) / WARMUP)
        texts, period = draw_texts(BATCH, generator, model.device)
        losses = cross_entropy(model(texts[:, :-1]).mT, texts[:, 1:], reduction="none")
        optimizer.zero_grad()
        losses[find_repeated(period)].mean().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    names = ("steps", "accuracy_by_step", "induction_by_step", "previous_by_step")
    return dict(zip(names, (list(column) for column in zip(*points, strict=True)), strict=True))


def accuracy(model: GPT, texts: Tensor, period: Tensor) -> float:
    """The share of the repeated tokens that are predicted right."""
    with evaluation_mode(model):
        right = model(texts[:, :-1]).argmax(-1) == texts[:, 1:]
    return float(right[find_repeated(period)].float().mean())


def measure_without(
    model: GPT, heads: Sequence[tuple[int, int]], texts: Tensor, period: Tensor
) -> float:
    """The accuracy with these heads (layer, number) ablated."""
    with ExitStack() as ablations:
        for layer, head in heads:
            ablations.enter_context(ablate(model, layer, head))
        return accuracy(model, texts, period)


def measure_heads(model: GPT, scores: HeadScores, texts: Tensor, period: Tensor) -> Numbers:
    """The scores of every head, and the accuracy without each head and without each kind."""
    every = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    previous = [scores.best("previous")]
    induction = [cell for cell in every if scores.induction[cell] > IS_HEAD]
    return {
        "accuracy": accuracy(model, texts, period),
        "chance": 1 / VOCAB,
        "previous_score": scores.previous.flatten().tolist(),
        "induction_score": scores.induction.flatten().tolist(),
        "without_head": [measure_without(model, [cell], texts, period) for cell in every],
        "previous_head": [float(x) for x in previous[0]],
        "induction_heads": [float(x) for cell in induction for x in cell],
        "without_previous": measure_without(model, previous, texts, period),
        "without_induction": measure_without(model, induction, texts, period),
    }


# Tables, summary and picture


def _name_heads(numbers: Numbers) -> list[str]:
    """Layer and number of each induction head, such as "1.0"."""
    cells = numbers["induction_heads"]
    return [f"{cells[i]:.0f}.{cells[i + 1]:.0f}" for i in range(0, len(cells), 2)]


def _tabulate(numbers: Numbers) -> list[Table]:
    every = [f"layer {layer}, head {head}" for layer in range(LAYERS) for head in range(HEADS)]
    kinds = (
        ["the previous-token head", numbers["without_previous"]],
        [f"all induction heads ({', '.join(_name_heads(numbers))})", numbers["without_induction"]],
        ["no head", numbers["accuracy"]],
        ["chance", numbers["chance"]],
    )
    return [
        Table.from_columns(
            "The weight of each head on the previous token, and on the token after the earlier\n"
            "copy; the percent of repeated tokens that are predicted right without the head.",
            ("", every),
            ("previous", numbers["previous_score"]),
            ("induction", numbers["induction_score"]),
            ("right without", [f"{100 * x:.1f}" for x in numbers["without_head"]]),
        ),
        Table.from_columns(
            "Percent right without all heads of a kind.",
            ("without", [name for name, _ in kinds]),
            ("right", [f"{100 * x:.1f}" for _, x in kinds]),
        ),
        Table.from_columns(
            "Percent right in a model with one head in each layer.",
            ("without", ["no head", *(f"the head of layer {layer}" for layer in range(LAYERS))]),
            ("right", [f"{100 * x:.1f}" for x in numbers["one_head_each"]]),
        ),
    ]


def _describe(numbers: Numbers) -> str:
    layer, head = (int(x) for x in numbers["previous_head"])
    heads = _name_heads(numbers)
    whole, first, second = numbers["one_head_each"]
    both = "the induction head" if len(heads) == 1 else f"its {len(heads)} induction heads"
    return (
        f"With all heads {numbers['accuracy']:.1%} of the repeated tokens are right; without head "
        f"{head} of layer {layer}, which looks one token back, {numbers['without_previous']:.1%}.\n"
        f"Without {both} ({', '.join(heads)}) {numbers['without_induction']:.1%} are right; by "
        f"chance {numbers['chance']:.0%} would be.\n"
        f"With one head in each layer {whole:.1%} are right, without the first head "
        f"{first:.1%}, without the second {second:.1%}."
    )


def _draw(numbers: Numbers, model: GPT, device: torch.device | str) -> Picture:
    once = torch.randint(VOCAB, (1, 10), generator=torch.Generator().manual_seed(3)).to(device)
    with evaluation_mode(model), record(model) as trace:
        model(once.repeat(1, 2))
    maps = torch.stack(trace.weights())[:, 0]  # (L, H, T, T)
    first = tuple(int(x) for x in numbers["previous_head"])
    second = tuple(int(x) for x in numbers["induction_heads"][:2]) or (LAYERS - 1, 0)
    with panels(12.4, 3.3, 3, width_ratios=(1.5, 1, 1)) as (figure, (curve, *grid)):
        _draw_curves(curve, numbers)
        for axes, (layer, head), kind in zip(
            grid, (first, second), ("one token back", "what followed last time"), strict=True
        ):
            image = draw_weights(axes, array(maps[layer, head]))
            axes.set(xlabel="key (attended to)", ylabel="query (attends)")
            axes.set_title(f"Layer {layer}, head {head}: {kind}")
        colour_bar(figure, image, grid, "attention weight")
    return Picture(figure, "How induction is learned, and two heads on a text of 10 tokens, twice")


def _draw_curves(axes: Axes, numbers: Numbers) -> None:
    curves = {
        "accuracy": "accuracy_by_step",
        "best induction score": "induction_by_step",
        "best previous-token score": "previous_by_step",
    }
    open_axes(axes)
    for (label, name), (colour, dashes) in zip(curves.items(), LINES, strict=False):
        axes.plot(numbers["steps"], numbers[name], color=colour, linestyle=dashes, label=label)
    axes.set(xlabel="step", ylim=(0, 1.02), title="Two kinds of heads are learned")
    add_legend_above(axes)

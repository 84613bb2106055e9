"""What the heads of a trained model attend to, and how much the model loses without them.

    output = Σ_h head_h W_O[h] + bias        W_O[h]: the rows of W_O that belong to head h

Attention is a sum over heads, so a head is removed by setting its term to 0, from outside; the rest
of the model stays as trained. The model has learned to find a needle in a haystack (the recipe
`substring` with Toeplitz positions) and answers at [CLS], the first token:

    [CLS] a b c c a b | c c a → yes

The model is not trained again without the head: the experiment shows what this model needs, not
what a model with fewer heads could learn.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.data.batch import Batch
from clearhead.inspection import ablate, record
from clearhead.inspection.matrices import (
    array,
    colour_bar,
    draw_weights,
    label_tokens,
    write_cells,
)
from clearhead.inspection.picture import Axes, Picture, panels
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.finding import Finding, Table
from clearhead.lab.tools.training import train_substring_model
from clearhead.models import SequenceClassifier
from clearhead.models.model import evaluation_mode
from clearhead.training.metrics import is_right

N_TEXTS = 2000  # texts that are answered
N_DRAWN, COSTLY = 3, 0.01  # heads that are drawn; accuracy that a head must cost to count
# Kinds of keys: five relative to a query that is a letter, two relative to [CLS].
OF_LETTERS = ("previous", "itself", "next", "same_letter", "separator")
KINDS = (*OF_LETTERS, "haystack", "needle")

Numbers = dict[str, Any]  # floats and lists of floats


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """The heads of a trained model do different jobs, and it needs some of them."""
    model, task = train_substring_model(seed, full, device)
    texts = task.validation.batch(range(N_TEXTS)).to(device)
    with evaluation_mode(model), record(model) as trace:
        model(texts.inputs, token_mask=texts.token_mask)
    maps, tokenizer = trace.weights(), task.train.tokenizer  # (B, H, T, T) of each layer
    separator = tokenizer.encode("|")[-1]
    numbers = {**lost_accuracy(model, texts), **weights_by_kind(maps, texts, separator)}
    shown = int(((texts.inputs[:, -1] > 0) & (texts.targets == 1)).int().argmax())  # a long text
    tokens = tokenizer.spell(texts.inputs[shown].tolist(), specials=True)
    return Finding(
        claim=EXPERIMENTS["heads"],
        tables=_tabulate(numbers, maps[0].size(1)),
        seen=_describe(numbers),
        numbers=numbers,
        picture=_draw(numbers, torch.stack(maps)[:, shown].cpu(), tokens),
    )


# The accuracy without heads


def accuracy(model: SequenceClassifier, texts: Batch) -> float:
    """The share of texts that are answered right."""
    with evaluation_mode(model):
        logits = model(texts.inputs, token_mask=texts.token_mask)
    return is_right(logits, texts.targets).float().mean().item()


def lost_accuracy(model: SequenceClassifier, texts: Batch) -> Numbers:
    """The accuracy, and how much is lost without a head, without a layer, with one head only."""
    whole = accuracy(model, texts)
    layers, heads = range(model.config.n_layers), range(model.config.n_heads)

    def lost(layer: int, heads: Sequence[int]) -> float:
        with ablate(model, layer, heads):
            return whole - accuracy(model, texts)

    by_layer = [lost(layer, heads) for layer in layers]
    most = by_layer.index(max(by_layer))
    others = [[other for other in heads if other != head] for head in heads]
    return {
        "accuracy": whole,
        **{f"lost_layer_{n}": [lost(n, [h]) for h in heads] for n in layers},
        "lost_with_all": by_layer,
        "most_missed_layer": float(most),
        "one_head_left": [whole - lost(most, rest) for rest in others],
    }


# What the heads attend to


def kinds_of_keys(texts: Batch, separator: int) -> dict[str, Tensor]:
    """For each kind of key, True in (B, T, T) where a key is of that kind for a query."""
    tokens, real = texts.inputs, texts.token_mask
    assert real is not None  # the texts differ in length
    position = torch.arange(tokens.size(1), device=tokens.device)
    distance = (position - position[:, None])[None]  # (1, T, T), from the query to the key
    bar = (tokens == separator).int().argmax(dim=1)[:, None, None]  # its position in each text
    kinds = {
        "previous": distance == -1,
        "itself": distance == 0,
        "next": distance == 1,
        "same_letter": (tokens[:, None] == tokens[:, :, None]) & (distance != 0),
        "haystack": (position > 0) & (position < bar),
        "separator": position == bar,
        "needle": position > bar,
    }
    pairs = real[:, None] & real[:, :, None]  # padding is neither key nor query
    return {name: kind & pairs for name, kind in kinds.items()}


def mean_weights(weights: Tensor, texts: Batch, separator: int) -> dict[str, list[float]]:
    """The mean weight that each head (B, H, T, T) gives to keys of each kind.

    For the kinds OF_LETTERS, the mean over all letters of all texts; for the others, over [CLS].
    """
    kinds = kinds_of_keys(texts, separator)
    letters = (kinds["haystack"] | kinds["needle"])[:, 0]  # (B, T): all letters are keys of [CLS]
    means = {}
    for name, kind in kinds.items():
        given = (weights * kind[:, None]).sum(dim=-1).transpose(1, 2)  # (B, T, H)
        queries = given[letters] if name in OF_LETTERS else given[:, 0]
        means[name] = queries.mean(dim=0).tolist()
    return means


def weights_by_kind(maps: Sequence[Tensor], texts: Batch, separator: int) -> Numbers:
    """The mean weights of every head, layer by layer; last, of a head with equal weights."""
    assert texts.token_mask is not None
    real = texts.token_mask[:, None, None].to(maps[0])
    equal = (real / real.sum(dim=-1, keepdim=True)).expand_as(maps[0][:, :1])
    each = [mean_weights(weights, texts, separator) for weights in (*maps, equal)]
    return {f"weight_{kind}": [x for means in each for x in means[kind]] for kind in KINDS}


# Tables, sentences and picture


def _lost_table(numbers: Numbers) -> Tensor:
    """The accuracy lost without each head, and in a last column without all: (layers, H + 1)."""
    rows = [[*numbers[f"lost_layer_{n}"], x] for n, x in enumerate(numbers["lost_with_all"])]
    return torch.tensor(rows, dtype=torch.float64)


def _tabulate(numbers: Numbers, n_heads: int) -> list[Table]:
    def table(caption: str, columns: Sequence[str], names: Sequence[str], shares: Tensor) -> Table:
        rows = zip(names, (100 * shares).tolist(), strict=True)
        return Table(caption, ["", *columns], [[n, *(f"{x:.1f}" for x in row)] for n, row in rows])

    most, whole = int(numbers["most_missed_layer"]), numbers["accuracy"]
    lost, heads = _lost_table(numbers), [f"head {h}" for h in range(n_heads)]
    layers = [f"layer {n}" for n in range(len(lost))]
    each = [*(f"{layer}, {head}" for layer in layers for head in heads), "all tokens alike"]
    left = torch.tensor([[*numbers["one_head_left"], whole - lost[most, -1]]])
    weights = torch.tensor([numbers[f"weight_{kind}"] for kind in KINDS]).mT
    captions = (
        f"Points of accuracy lost without a head; with all heads {whole:.2%} are right.",
        "Percent right if a layer has only one head, or none.",
        "Percent of the weight that a letter gives to its neighbours, to itself, to the same letter"
        "\nelsewhere, to the separator; and that [CLS] gives to haystack and needle.",
    )
    return [
        table(captions[0], [*heads, "all heads"], layers, lost),
        table(captions[1], [*heads, "none"], [layers[most]], left),
        table(captions[2], [kind.replace("_", " ") for kind in KINDS], each, weights),
    ]


def _describe(numbers: Numbers) -> str:
    whole, most = numbers["accuracy"], int(numbers["most_missed_layer"])
    lost = _lost_table(numbers)
    single = lost[:, :-1]
    layer, head = divmod(int(single.argmax()), single.size(1))
    return (
        f"With all heads {whole:.2%} are right, without head {head} of layer {layer} "
        f"{whole - single.max():.1%}; {int((single > COSTLY).sum())} of the {single.numel()} heads "
        f"cost more than {100 * COSTLY:g} point.\nWith one head left in layer {most} at most "
        f"{max(numbers['one_head_left']):.1%} are right, with none {whole - lost[most, -1]:.1%}."
    )


def _draw(numbers: Numbers, maps: Tensor, tokens: Sequence[str]) -> Picture:
    """maps (layers, H, T, T): the weights on one text."""
    lost = _lost_table(numbers)
    single = lost[:, :-1].flatten()
    most = single.argsort(descending=True)[:N_DRAWN].tolist()
    with panels(12.6, 3.5, 1 + N_DRAWN, width_ratios=(1.15, 1, 1, 1)) as (figure, (table, *grid)):
        _draw_lost(table, 100 * lost)
        for axes, number in zip(grid, most, strict=True):
            layer, head = divmod(number, maps.size(1))
            image = draw_weights(axes, array(maps[layer, head]))
            label_tokens(axes, tokens, tokens, (2.4, 2.4))
            axes.tick_params(axis="x", labelrotation=0)  # all but [CLS] are one letter
            axes.get_xticklabels()[0].set_rotation(90)
            axes.set_title(f"Layer {layer}, head {head}: {100 * single[number]:.1f} points lost")
            axes.set(xlabel="key (attended to)", ylabel="query (attends)")
        colour_bar(figure, image, grid, "attention weight")
    what = f"the attention of the {N_DRAWN} most needed heads on {''.join(tokens[1:])}"
    return Picture(figure, f"Accuracy lost without each of {len(single)} heads, and {what}")


def _draw_lost(axes: Axes, points: Tensor) -> None:
    """Points lost without each head, and in the last column without all: (layers, H + 1)."""
    top, matrix = max(float(points.max()), 1.0), array(points)
    draw_weights(axes, matrix, top)
    write_cells(axes, matrix, "{:.1f}".format, is_dark=matrix > 0.55 * top, size=9)
    axes.axvline(points.size(1) - 1.5, color="#333333", linewidth=0.8)
    axes.set_xticks(range(points.size(1)), [*map(str, range(points.size(1) - 1)), "all"])
    axes.set(xlabel="head removed", ylabel="layer", yticks=range(len(points)))
    axes.set_title("Accuracy lost (points of 100)")

"""From a plan to weights: an ordinary SequenceClassifier without norms and biases.

embedding    for each token: its direction "tokens = x", "token", and the defaults of variables
positions    for each index: its direction "indices = i"; zeros for the start token
blocks       heads: asks → W_q, offers → W_k, says → W_v and W_O; units → W₁ and W₂
head         one logit for each value of a categorical program, or the number of a numeric one
"""

import math
from typing import Any

import torch
from torch import Tensor

from clearhead.models.classifier import ClassifierConfig, SequenceClassifier
from clearhead.programs.parts import START, TOKEN, Head
from clearhead.programs.plan import Plan
from clearhead.programs.sequences import Indices, Tokens

Weights = dict[str, Tensor]


def build_model(plan: Plan, dtype: torch.dtype | None = None) -> SequenceClassifier:
    """The model that computes the program of a plan; token 0 is the start token."""
    config = ClassifierConfig(
        d_input=1 + len(plan.vocabulary),
        d_output=len(plan.answers),
        d_model=len(plan.directions),
        n_layers=plan.n_layers,
        n_heads=plan.n_heads,
        d_head=plan.d_head,
        d_ff=plan.d_ff,
        max_len=1 + plan.max_len,
        positions="learned",
        norm="none",
        activation="relu",
        bias=False,
    )
    with torch.random.fork_rng(devices=[]):  # the random initial weights are not used
        model = SequenceClassifier(config).to(dtype or torch.float64)
    weights = {name: torch.zeros_like(weight) for name, weight in model.state_dict().items()}
    row = {name: number for number, name in enumerate(plan.directions)}
    _set_embedding(weights, plan, row)
    for layer in range(plan.n_layers):
        for number, head in enumerate(plan.list_heads(layer)):
            _set_head(weights, head, number * plan.d_head, row, math.sqrt(plan.d_head))
        _set_units(weights, plan, layer, row)
    for answer, parts in enumerate(plan.answers):
        for direction, amount in parts:
            weights["head.weight"][answer, row[direction]] = amount
    model.load_state_dict(weights)
    return model.eval()


def _set_embedding(weights: Weights, plan: Plan, row: dict[str, int]) -> None:
    """Set embedding and positions; row: direction → its index in the stream."""
    embedding, positions = weights["embedding.weight"], weights["positions.weight"]
    embedding[row[START], 0] = 1
    for name, amount in {TOKEN: 1.0, **plan.defaults}.items():
        embedding[row[name], 1:] = amount
    for variable in plan.variables:
        for value, direction in zip(variable.values, variable.directions, strict=False):
            if isinstance(variable.sequence, Tokens):
                embedding[row[direction], 1 + plan.vocabulary.index(value)] = 1
            if isinstance(variable.sequence, Indices):
                positions[1 + value, row[direction]] = 1


def _set_head(weights: Weights, head: Head, start: int, row: dict[str, int], root: float) -> None:
    """Set one head; its columns begin at `start`. root = √Dh undoes the division of the scores."""
    topics = _number_columns(topic for _, topic, _ in head.asks)
    written = _number_columns(direction for _, direction, _ in head.says)
    for name, columns, entries, factor in (
        ("proj_q", topics, head.asks, root),
        ("proj_k", topics, head.offers, 1.0),
        ("proj_v", written, head.says, 1.0),
    ):
        weight = weights[f"stack.blocks.{head.layer}.attention.{name}.weight"]
        for direction, target, amount in entries:
            weight[start + columns[target], row[direction]] += factor * amount
    out = weights[f"stack.blocks.{head.layer}.attention.proj_out.weight"]
    for direction, column in written.items():
        out[row[direction], start + column] = 1


def _set_units(weights: Weights, plan: Plan, layer: int, row: dict[str, int]) -> None:
    """Set the feed-forward layer of a block; row: direction → its index in the stream."""
    proj_in = weights[f"stack.blocks.{layer}.feed_forward.proj_in.weight"]
    proj_out = weights[f"stack.blocks.{layer}.feed_forward.proj_out.weight"]
    for number, unit in enumerate(plan.list_units(layer)):
        for direction, amount in unit.reads.items():
            proj_in[number, row[direction]] = amount
        for direction, amount in unit.writes.items():
            proj_out[row[direction], number] = amount


def _number_columns(names: Any) -> dict[str, int]:
    """Each distinct name → its column, by first appearance."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}

"""The weights of a decoder with attention, found in a student's module: embedding, attention, GRU
and the linear layer for the logits. The attention has one of three forms:

    additive    w_v · tanh(W_q q + W_k k)
    joined      the same with W_q and W_k side by side in one layer for [q, k] or [k, q]
    dot         q · k / √D, without weights
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.gru_weights import assign_with_gru
from clearhead.exercises.weights import Linear, Role

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Scores:
    """The scores of a query (B, D) and the source (B, S, D): (B, S). Without W_q: dot products."""

    W_q: Linear | None = None
    W_k: Linear | None = None
    w_v: Linear | None = None

    def __call__(self, q: Tensor, keys: Tensor, activation: Activation = torch.tanh) -> Tensor:
        if self.W_q is None or self.W_k is None or self.w_v is None:
            return (keys @ q.unsqueeze(-1)).squeeze(-1) / math.sqrt(q.size(-1))
        return self.w_v(activation(self.W_q(q).unsqueeze(1) + self.W_k(keys))).squeeze(-1)


@dataclass(frozen=True)
class ScoresReading:
    """One way to read parameters as the weights of the attention; joined: as [q, k] or [k, q]."""

    pieces: Mapping[str, Any]
    is_key_first: bool = False

    def take(self, values: Mapping[str, Tensor]) -> Scores:
        """The attention with these values of the parameters."""
        parts = {name: piece.take(values) for name, piece in self.pieces.items()}
        if "W_qk" not in parts:
            return Scores(**parts)
        both = parts["W_qk"]
        W_q, W_k = both.weight.chunk(2, dim=1)[:: -1 if self.is_key_first else 1]
        return Scores(Linear(W_q, both.bias), Linear(W_k), parts["w_v"])


def assign_decoder(parameters: Sequence[Any], sizes: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every reading of the parameters as embedding, scores, gru and head; empty if none fits."""
    V, E, D = sizes["vocab_size"], sizes["d_embedding"], sizes["d_hidden"]
    w_v = Role("linear", (1, D), "w_v wv v score va")
    attentions: tuple[dict[str, Role], ...] = (
        {
            "W_q": Role("linear", (D, D), "w_q wq query q proj_q wa"),
            "W_k": Role("linear", (D, D), "w_k wk key k proj_k ua"),
            "w_v": w_v,
        },
        {"W_qk": Role("linear", (D, 2 * D), "attn attention energy w"), "w_v": w_v},
        {},
    )
    for attention in attentions:
        roles = {
            "embedding": Role("table", (V, E), "embedding embed emb"),
            **attention,
            "head": Role("linear", (V, D), "dense head out fc linear"),
        }
        for d_input in (D + E, D, E):  # D or E: it reads context and embedding as two words
            found = assign_with_gru(parameters, roles, d_input, D, sizes["n_layers"])
            if found:
                return [each for reading in found for each in _read_scores(reading, attention)]
    return []


def _read_scores(reading: Mapping[str, Any], attention: Mapping[str, Role]) -> list[dict[str, Any]]:
    """The reading with the pieces of the attention as one, `scores`, in each order of q and k."""
    others = {name: piece for name, piece in reading.items() if name not in attention}
    pieces = {name: reading[name] for name in attention}
    orders = (False, True) if "W_qk" in attention else (False,)
    return [{**others, "scores": ScoresReading(pieces, order)} for order in orders]

"""Scaled dot-product attention in terms, as all exercises on attention share it.

    weights = softmax(q kᵀ / √d_k), only over the keys that are allowed
    output  = weights v

An exercise adds what comes before and after: projections, heads, a last layer. Which keys are
allowed is given by a mask, True or 1 = may attend, or by the number of valid keys of each row.
"""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.exercises import constructors
from clearhead.exercises.contracts.shared.conventions import (
    ADDITIVE,
    LENGTHS,
    MASKS,
    list_mask_forms,
    to_additive,
)
from clearhead.exercises.exercise import Case, Exercise
from clearhead.exercises.readings import keep_named
from clearhead.exercises.weights import Assignment


class DotProductFormula(Exercise):
    """softmax(q kᵀ / √d_k) v, over the allowed keys."""

    page = "attention.md#mechanisms-a-fast-forward-pass-and-weights-on-request"
    optional: tuple[str, ...] = ("mask", "valid_lens", "dropout")
    forbidden = ("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention")
    helpers = constructors.HELPERS
    terms = {
        "order": "which input is the queries, which the keys and which the values",
        "weights": "the order of scaling, mask and softmax",
        "score": "the scores q kᵀ",
        "scale": "the division of the scores by √d_k",
        "allow": "which keys the valid lengths allow",
        "past": "which keys a query sees without a mask: all of them, or in causal attention only "
        "earlier ones",
        "hide": "the mask: scores of hidden keys become −∞ before the softmax",
        "weigh": "the softmax over the keys",
        "mix": "the mixture of the values: weights @ v",
    }
    parameters = {"mask": MASKS, "valid_lens": LENGTHS}
    hidden = -math.inf  # the score of a hidden key
    undefined = math.nan  # the weight where the softmax is 0 / 0

    # The formula: q (..., T, d_k), k (..., S, d_k), v (..., S, d_v) → (..., T, d_v).
    # x is what the queries are computed from, d_model wide.

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Any,
        mask: Tensor | None = None,
        valid_lens: Tensor | None = None,
        is_causal: bool = False,
    ) -> dict[str, Tensor]:
        q, k, v = self.order(q, k, v)
        if valid_lens is not None:
            mask = self.allow(valid_lens, k.size(-2))
        past = self.past(q.size(-2), k.size(-2), is_causal)
        if past is not None:
            mask = past if mask is None else mask & past
        weights = self.weights(q, k, v, x, mask)
        weights = weights.masked_fill(weights.isnan(), self.undefined)
        return {"output": self.mix(weights, v, k), "weights": weights}

    def order(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, v

    def weights(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.scale(self.score(q, k), q, v, x)
        return self.weigh(scores if mask is None else self.hide(scores, mask))

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT  # (..., T, S)

    def scale(self, scores: Tensor, q: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return scores / math.sqrt(q.size(-1))

    def allow(self, lengths: Tensor, n_keys: int) -> Tensor:
        """Lengths (B,) or (B, T) → (B, 1, S) or (B, T, S)."""
        lengths = lengths.view(lengths.size(0), -1, 1)
        return torch.arange(n_keys) < lengths

    def past(self, n_queries: int, n_keys: int, is_causal: bool) -> Tensor | None:
        """A mask (T, S), or None if every key may be attended to."""
        return torch.ones(n_queries, n_keys).tril().bool() if is_causal else None

    def hide(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, self.hidden)

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def mix(self, weights: Tensor, v: Tensor, k: Tensor) -> Tensor:
        return weights @ v

    # Conventions

    def dialects(self) -> Iterable[Self]:
        """Hidden scores may be −∞ or very low numbers; NaN may become 0 after the softmax."""
        for hidden, undefined in ((-math.inf, math.nan), (-1e9, math.nan), (-1e6, math.nan),
                                  (-math.inf, 0.0)):  # fmt: skip
            dialect = copy.copy(self)
            dialect.hidden, dialect.undefined = hidden, undefined
            yield dialect

    def forms(self, case: Case) -> Any:
        yield from list_mask_forms(case)

    def convert(self, name: str, parameter: str, value: Any) -> Any:
        if name == "mask" and parameter.lower() in ADDITIVE:
            return to_additive(value)
        return value

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        """If the names of the layers leave no doubt, read them by name only."""
        return keep_named(super().assign(parameters, sizes), self.roles(**sizes))

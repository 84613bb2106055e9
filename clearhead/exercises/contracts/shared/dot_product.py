"""The mistakes in scaled dot-product attention that its exercises share: scores, mask, softmax."""

import math

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.dot_product_formula import DotProductFormula
from clearhead.exercises.contracts.shared.names import HIDE, PAST, PRODUCT, ROOT
from clearhead.exercises.exercise import mistake


class DotProduct(DotProductFormula):
    """The formula with its named mistakes, term by term."""

    unnamed = {"powers_of_two": "weigh"}

    def powers_of_two(self, scores: Tensor) -> Tensor:
        return (scores * math.log(2)).softmax(-1)

    # Mistakes in the scores

    @mistake(
        "order",
        "keys and values are swapped: the queries are compared with the values, and the keys are "
        "mixed",
        line=PRODUCT,
    )
    def swapped_keys_and_values(
        self, q: Tensor, k: Tensor, v: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return q, v, k

    @mistake("score", "queries and keys are swapped: k qᵀ has a row for each key", line=PRODUCT)
    def swapped_queries_and_keys(self, q: Tensor, k: Tensor) -> Tensor:
        return k @ q.mT

    @mistake(
        "scale",
        "the scores are not divided by √d_k, so the softmax gets sharper with the width",
        line=PRODUCT,
    )
    def no_scaling(self, scores: Tensor, q: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return scores

    @mistake(
        "scale",
        "the scores are divided by d_k instead of √d_k: the square root is missing",
        line=("/", "shape", "size"),
    )
    def scaled_by_d(self, scores: Tensor, q: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return scores / q.size(-1)

    @mistake("scale", "the scores are multiplied by √d_k instead of divided", line=ROOT)
    def scaled_up(self, scores: Tensor, q: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return scores * math.sqrt(q.size(-1))

    @mistake(
        "scale",
        "the scores are divided by √d_v, the width of the values, instead of √d_k",
        line=ROOT,
    )
    def scaled_by_values(self, scores: Tensor, q: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return scores / math.sqrt(v.size(-1))

    @mistake(
        "scale",
        "the scores are divided by the square root of the number of queries instead of √d_k: "
        "q.shape[-2] instead of q.shape[-1]",
        line=ROOT,
    )
    def scaled_by_length(self, scores: Tensor, q: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return scores / math.sqrt(q.size(-2))

    @mistake(
        "scale",
        "the scores are divided by the square root of the model's width instead of √d_k, the "
        "width of the queries",
        line=ROOT,
    )
    def scaled_by_model(self, scores: Tensor, q: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return scores / math.sqrt(x.size(-1))

    @mistake(
        "weights",
        "the weights are divided by √d_k after the softmax, so the rows do not sum to 1; the "
        "scores must be divided before it",
        line=ROOT,
    )
    def scaled_after_softmax(
        self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, mask: Tensor | None
    ) -> Tensor:
        scores = self.score(q, k)
        scores = scores if mask is None else self.hide(scores, mask)
        return self.weigh(scores) / math.sqrt(q.size(-1))

    # Mistakes in the mask

    @mistake(
        "hide",
        "the mask is inverted: the keys that may be attended to are hidden, and the hidden ones "
        "are used",
        line=HIDE,
    )
    def mask_inverted(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(mask, self.hidden)

    @mistake("hide", "the mask is accepted but never used, so hidden keys get weight", line=HIDE)
    def mask_ignored(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores

    @mistake(
        "hide",
        "hidden scores are set to 0 (or to 1e-9, or multiplied by the mask) instead of −∞: "
        "e⁰ = 1 is a full share of the softmax",
        line=HIDE,
    )
    def mask_value_zero(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, 0.0)

    @mistake(
        "hide", "hidden scores are set to −1 instead of −∞, so hidden keys get weight", line=HIDE
    )
    def mask_value_minus_one(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -1.0)

    @mistake(
        "hide",
        "hidden scores are set to a number such as −1e4, and a real score can be lower, so a "
        "hidden key can win; use −∞ or −1e9",
        line=("e4", "e3", "100", *HIDE),
        variants=("mask_value_thousand", "mask_value_hundred"),
    )
    def mask_value_too_small(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -1e4)

    def mask_value_thousand(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -1e3)

    def mask_value_hundred(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -100.0)

    @mistake(
        "hide",
        "the 0/1 mask is added to the scores, which makes a hidden key only 1 lower; hidden "
        "scores must become −∞",
        line=("+", "mask"),
    )
    def mask_added(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores + mask.to(scores.dtype)

    @mistake(
        "hide",
        "the mask is multiplied by −∞: 0 · ∞ is NaN, so every allowed score is lost; use "
        "masked_fill or torch.where",
        line=("inf", "mask"),
    )
    def mask_times_infinity(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores + (~mask).to(scores.dtype) * -math.inf

    @mistake(
        "weights",
        "the mask is applied after the softmax, so the rows do not sum to 1: hidden keys have "
        "already taken their share",
        line=("mask", "valid_len"),
    )
    def mask_after_softmax(
        self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, mask: Tensor | None
    ) -> Tensor:
        weights = self.weigh(self.scale(self.score(q, k), q, v, x))
        return weights if mask is None else weights * mask

    @mistake(
        "allow",
        "one key too many is allowed: position j counts if j < length, since positions start at 0",
        line=("<=", "arange", "valid_len"),
    )
    def lengths_too_long(self, lengths: Tensor, n_keys: int) -> Tensor:
        return torch.arange(n_keys) <= lengths.view(lengths.size(0), -1, 1)

    @mistake(
        "allow",
        "the last valid key is hidden: a length of n means the keys 0 … n−1",
        line=("<", "arange", "valid_len"),
    )
    def lengths_too_short(self, lengths: Tensor, n_keys: int) -> Tensor:
        return torch.arange(n_keys) < lengths.view(lengths.size(0), -1, 1) - 1

    @mistake(
        "past",
        "the attention is always causal: no token attends to a later one, even without a mask",
        line=PAST,
    )
    def always_causal(self, n_queries: int, n_keys: int, is_causal: bool) -> Tensor | None:
        return torch.ones(n_queries, n_keys).tril().bool()

    # Mistakes in the softmax and the mixture

    @mistake(
        "weigh",
        "the softmax runs over the queries (dim=-2) instead of the keys (dim=-1), so the weights "
        "of a query do not sum to 1",
        line=("softmax", "sum("),
    )
    def softmax_over_queries(self, scores: Tensor) -> Tensor:
        return scores.softmax(-2)

    @mistake(
        "weigh",
        "the softmax runs over the batch (dim=0) instead of the keys (dim=-1)",
        line=("softmax", "sum("),
    )
    def softmax_over_batch(self, scores: Tensor) -> Tensor:
        return scores.softmax(0)

    @mistake(
        "weigh",
        "the softmax overflows: exp of a large score is infinite, and inf / inf is NaN; subtract "
        "the greatest score of each row first",
        line=("exp(", ".exp"),
        variants=("no_max_subtraction_double",),
    )
    def no_max_subtraction(self, scores: Tensor) -> Tensor:
        return scores.exp() / scores.exp().sum(-1, keepdim=True)

    def no_max_subtraction_double(self, scores: Tensor) -> Tensor:
        """NumPy computes in float64, which overflows later."""
        weights = scores.double().exp()
        return (weights / weights.sum(-1, keepdim=True)).to(scores.dtype)

    @mistake("weigh", "there is no softmax: the scores themselves weigh the values", line=PRODUCT)
    def no_softmax(self, scores: Tensor) -> Tensor:
        return scores

    @mistake(
        "weigh",
        "the weights are sigmoids of the scores instead of a softmax: they do not sum to 1",
        line=("sigmoid",),
    )
    def sigmoid_weights(self, scores: Tensor) -> Tensor:
        return scores.sigmoid()

    @mistake(
        "weigh",
        "the weights are log_softmax instead of softmax: they are negative",
        line=("log_softmax", "LogSoftmax", ".log("),
    )
    def log_softmax_weights(self, scores: Tensor) -> Tensor:
        return scores.log_softmax(-1)

    @mistake(
        "weigh",
        "the softmax is applied twice, which makes the weights nearly equal",
        line=("softmax",),
    )
    def softmax_twice(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1).softmax(-1)

    @mistake(
        "weigh",
        "the weights are detached, so nothing is learned through them: queries and keys get no "
        "gradient",
        line=("detach", "no_grad", ".data", "item"),
    )
    def detached_weights(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1).detach()

    @mistake(
        "mix",
        "the values are mixed over the wrong axis: the weights are transposed",
        line=("return", *PRODUCT),
    )
    def transposed_weights(self, weights: Tensor, v: Tensor, k: Tensor) -> Tensor:
        return weights.mT @ v

    @mistake("mix", "the weights mix the keys instead of the values", line=("return", *PRODUCT))
    def mixes_keys(self, weights: Tensor, v: Tensor, k: Tensor) -> Tensor:
        return weights @ k

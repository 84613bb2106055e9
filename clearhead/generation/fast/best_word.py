"""The most likely word without reading the whole table: exact, and a quarter of the bytes.

Greedy decoding needs only the index of the largest logit x·w[v]. With ŵ and x̂ rounded to 8 bits,

    x·w[v] = x̂·ŵ[v] + (x − x̂)·ŵ[v] + x·(w[v] − ŵ[v])
    |x·w[v] − x̂·ŵ[v]| ≤ ‖x − x̂‖ ‖ŵ[v]‖ + ‖x‖ ‖w[v] − ŵ[v]‖ = slack[v]          (Cauchy–Schwarz)

so a word whose rounded logit plus slack is below the best rounded logit minus its slack cannot
win. The few words that remain are computed exactly.
"""

import torch
from torch import Tensor

from clearhead.generation.fast.layouts import find_levels, matmul_int8, round_to_int8
from clearhead.models.forbidden import rule_out

# Norms and sums are rounded as well. A thousandth is far more than float32 loses, except where
# numbers are so small that they lose digits; SMALL covers those.
ROUNDING, SMALL = 1.001, 1e-30


class BestWord:
    """argmax over v of x·w[v], for a table w (V, D)."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.whole, scale = round_to_int8(weight, find_levels())
        rounded = scale * self.whole
        self.scale = scale.mT  # (1, V)
        self.rounded_norm = _bound_norm(rounded)  # ‖ŵ[v]‖
        self.error_norm = _bound_norm(weight - rounded)  # ‖w[v] − ŵ[v]‖

    def __call__(self, x: Tensor, forbidden: Tensor | None = None) -> Tensor:
        """x (B, D) → the index of the largest logit of each row, (B,); the first of equal ones.

        forbidden (n,): words that do not count.
        """
        logits, slack = self._round_logits(x)
        logits = rule_out(logits, forbidden)
        bar = (logits - slack).amax(-1, keepdim=True) - SMALL
        row, word = (slack.add_(logits) >= bar).nonzero(as_tuple=True)
        if len(row) > logits.numel() // 16 or not bool(bar.isfinite().all()):
            return rule_out(x @ self.weight.mT, forbidden).argmax(-1)  # too many candidates, or NaN
        x_of_row = x if x.size(0) == 1 else x[row]
        products = x_of_row.double() * self.weight[word]  # in float64: equal rows stay equal
        exact = products.sum(-1).to(x.dtype)
        if x.size(0) == 1:
            return word[exact.argmax(-1, keepdim=True)]
        return torch.full_like(logits, -torch.inf).index_put_((row, word), exact).argmax(-1)

    def _round_logits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of the rounded numbers, and how far each may be from the exact one."""
        whole, scale = round_to_int8(x)
        logits = matmul_int8(whole, self.whole) * (scale * self.scale)
        error_norm, norm = _bound_norm(torch.stack((x - scale * whole, x))).unsqueeze(-1)  # (B, 1)
        return logits, torch.addcmul(norm * self.error_norm, error_norm, self.rounded_norm)


def _bound_norm(x: Tensor) -> Tensor:
    """An upper bound of the norm of each row, close to it, and above 0."""
    return (ROUNDING * x.double().norm(dim=-1)).to(x.dtype) + torch.finfo(x.dtype).tiny

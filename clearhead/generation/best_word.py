"""The most likely word without reading the whole table: exact, and a quarter of the bytes.

Greedy decoding asks only which logit x·w[v] is the largest. With ŵ and x̂ rounded to 8 bits,

    x·w[v] = x̂·ŵ[v] + (x − x̂)·ŵ[v] + x·(w[v] − ŵ[v])
    |x·w[v] − x̂·ŵ[v]| ≤ ‖x − x̂‖ ‖ŵ[v]‖ + ‖x‖ ‖w[v] − ŵ[v]‖ = slack[v]          (Cauchy–Schwarz)

so a word whose rounded logit plus slack stays below the best rounded logit minus its slack cannot
win. The few that are left are computed exactly.
"""

import torch
from torch import Tensor

from clearhead.generation.products import safe_levels, to_int8, whole_product

# Norms and sums are rounded too; float32 keeps far more digits than this, as long as numbers are
# not so small that digits are cut off at their end.
ROUNDING, SMALL = 1.001, 1e-30


class BestWord:
    """argmax over v of x·w[v], for a table w (V, D)."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.whole, scale = to_int8(weight, safe_levels())
        rounded = scale * self.whole
        self.scale = scale.mT  # (1, V)
        self.length = _length(rounded)  # ‖ŵ[v]‖
        self.lost = _length(weight - rounded)  # ‖w[v] − ŵ[v]‖

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, D) → the index of the largest logit of each row, (B,); the first if several are."""
        logits, slack = self._rounded(x)
        bar = (logits - slack).amax(-1, keepdim=True) - SMALL
        row, word = (slack.add_(logits) >= bar).nonzero(as_tuple=True)
        if len(row) > logits.numel() // 16 or not bool(bar.isfinite().all()):
            return (x @ self.weight.mT).argmax(-1)  # too many to look at each, or NaN
        given = x if x.size(0) == 1 else x[row]
        products = given.double() * self.weight[word]  # in float64: equal rows stay equal
        exact = products.sum(-1).to(x.dtype)
        if x.size(0) == 1:
            return word[exact.argmax(-1, keepdim=True)]
        return torch.full_like(logits, -torch.inf).index_put_((row, word), exact).argmax(-1)

    def _rounded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of the rounded numbers, and how far each may be from the true one."""
        whole, scale = to_int8(x)
        logits = whole_product(whole, self.whole) * (scale * self.scale)
        lost, length = _length(torch.stack((x - scale * whole, x))).unsqueeze(-1)  # (B, 1) each
        return logits, torch.addcmul(length * self.lost, lost, self.length)


def _length(x: Tensor) -> Tensor:
    """The length of each row, rather too long than too short; tiny numbers have one, too."""
    return (ROUNDING * x.double().norm(dim=-1)).to(x.dtype) + torch.finfo(x.dtype).tiny

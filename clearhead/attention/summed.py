"""Summed-score attention: one score for each token, and one output for the whole sequence.

    α_t = 1/√T Σ_j (Q x_t)·(K x_j)                  how well token t matches all tokens together
    y   = Σ_j e^{α_j} V x_j / Σ_j e^{α_j}           one mixture for the whole sequence

It shows what softmax over *pairs* is for. Here the sum over j stands before the exponential, so it
moves inside the product, Σ_j (Q x_t)·(K x_j) = (Q x_t)·(K Σ_j x_j), and T² scores become T. Softmax
attention takes the exponential of each pair before the sum, so nothing can be moved; with a
similarity that is a product of features (features.py) it can.
"""

import math

from torch import Tensor

from clearhead.runtime import widen
from clearhead.shapes import check_choice, check_float_tensor, format_shape


def summed_attention(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, method: str = "rearranged"
) -> Tensor:
    """x (T, D) or (B, T, D), w_q and w_k (Dk, D), w_v (Dv, D) → y (Dv,) or (B, Dv).

    method "pairwise" writes out the T² products, "rearranged" sums first and needs O(T). An empty
    sequence gives zeros.
    """
    check_choice("method", method, ("pairwise", "rearranged"))
    _check(x, w_q, w_k, w_v)
    dtype = x.dtype
    x, w_q, w_k, w_v = (widen(matrix) for matrix in (x, w_q, w_k, w_v))
    queries = x @ w_q.mT  # (..., T, Dk)
    if method == "pairwise":
        totals = (queries @ (x @ w_k.mT).mT).sum(dim=-1)  # (..., T, T) → (..., T)
    else:
        total_key = x.sum(dim=-2) @ w_k.mT  # (..., Dk)
        totals = (queries @ total_key.unsqueeze(-1)).squeeze(-1)  # (..., T)
    weights = (totals / math.sqrt(max(x.size(-2), 1))).softmax(dim=-1)
    return (weights.unsqueeze(-2) @ (x @ w_v.mT)).squeeze(-2).to(dtype)  # (..., Dv)


def _check(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> None:
    check_float_tensor("x", x, min_axes=2)
    if x.ndim > 3:
        raise ValueError(f"x must have shape (T, D) or (B, T, D), got {format_shape(x)}")
    for name, w in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)):
        check_float_tensor(name, w)
        if w.ndim != 2 or w.size(1) != x.size(-1):
            raise ValueError(
                f"{name} must be a matrix with {x.size(-1)} columns, the width of x "
                f"{format_shape(x)}, got {format_shape(w)}; its rows are the outputs, as in "
                f"nn.Linear.weight"
            )
        if w.dtype != x.dtype:
            raise TypeError(f"{name} must have the dtype of x, {x.dtype}, got {w.dtype}")
    if w_q.size(0) != w_k.size(0):
        raise ValueError(
            f"w_q and w_k must map to one width, got {w_q.size(0)} and {w_k.size(0)} rows; "
            f"queries and keys are multiplied with each other"
        )

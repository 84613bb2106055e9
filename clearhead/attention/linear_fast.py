"""Kernel attention in time and memory linear in the length: the sums of linear.py in another order.

    not causal    output_t = φ(q_t)·Σ_s φ(k_s) v_sᵀ       / φ(q_t)·Σ_s φ(k_s)
    causal        output_t = φ(q_t)·Σ_{s≤t} φ(k_s) v_sᵀ   / φ(q_t)·Σ_{s≤t} φ(k_s)

A column of ones beside v makes the denominator one more column of the numerator. The sum over the keys
so far, (C, Dv + 1), is the state. The causal form goes by chunks of positions: a query takes what stands
in its own chunk pair by pair, and what stands before it from the state:

    sums = tril(φ(q) φ(k)ᵀ) v  +  φ(q) state        state ← state + φ(k)ᵀ v

Packed documents are first brought together by a stable sort; a state then crosses a chunk's border only
into its own document. No tensor here has T·S elements.
"""

import functools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from clearhead.attention.linear import (
    FeatureMap,
    QuadraticFeatures,
    quotient,
    refuse_bias,
    summable,
)
from clearhead.attention.masks import (
    Causal,
    Mask,
    MaskLike,
    Padding,
    Segments,
    Tokens,
    as_mask,
    dense_mask,
)
from clearhead.shapes import check_positive, check_qkv

__all__ = ["attend"]

BLOCK = 512  # positions whose features are made at once: few enough to stay in the cache
SLICE = 8  # rows of the triangle of products x_i x_j that make one slice of quadratic features

State = list[Tensor] | None  # for each slice of features (N, 1, C·W); None while no key has entered


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    feature_map: FeatureMap,
    *,
    mask: MaskLike = None,
    bias: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Mix the values by the similarity of query and key. Shapes as in linear.attend.

    Serves causal, padding (B,), token and segment masks and what they make together. `chunk` is the
    number of positions taken pair by pair; left out, it suits the number of features.
    """
    check_qkv(q, k, v)
    refuse_bias(bias)
    chunk = _suiting_chunk(feature_map, q) if chunk is None else chunk
    check_positive(chunk=chunk)
    causal, real, ids = _structure(mask, q, k.size(-2))
    dtype, (*leading, T, _) = q.dtype, q.shape
    q, k, v = (summable(x).reshape(math.prod(leading), *x.shape[-2:]) for x in (q, k, v))
    ones = v.new_ones(*v.shape[:-1], 1)

    def count(flags: Tensor) -> Tensor:
        """Of the flagged keys (N, S, W), how many each query may see: (N, T, W)."""
        return _sums(_Features(_Ones(), k), q, k, flags.to(v.dtype), causal, ids, chunk)

    if real is not None:
        k, v, ones = (x.masked_fill(~real, 0.0) for x in (k, v, ones))
        q = q.masked_fill(count(real) == 0, 0.0)  # its features, were they NaN, would outlive · 0
    broken = _broken(k, v) if causal or ids is not None else None
    if broken is not None:
        k, v = (x.masked_fill(~x.isfinite(), 0.0) for x in (k, v))
    features = _Features(feature_map, k)
    sums = _sums(features, q, k, torch.cat([v, ones], dim=-1), causal, ids, chunk)
    if broken is not None:
        sums = sums.masked_fill(count(broken) > 0, torch.nan)
    output = quotient(sums[..., :-1], sums[..., -1:])
    return output.reshape(*leading, T, v.size(-1)).to(dtype)


# What the mask says


def _structure(mask: MaskLike, q: Tensor, S: int) -> tuple[bool, Tensor | None, Tensor | None]:
    """Whether it is causal; which keys are real, (N, S, 1); which document each is of, (N, S)."""
    *leading, T, _ = q.shape
    parts = () if mask is None else as_mask(mask).parts
    real: list[Padding | Tokens] = []
    ids: list[Tensor] = []
    for part in parts:
        if isinstance(part, Segments):
            part.dense(0, S, q.device)  # refuses a wrong length
            ids.append(part.ids.to(q.device))
            real.append(Tokens(ids[-1] >= 0))
        elif isinstance(part, Tokens) or (isinstance(part, Padding) and part.valid_lens.ndim == 1):
            real.append(part)
        elif not isinstance(part, Causal):
            raise ValueError(
                f"{part} cannot be served by running sums, which cannot leave out single pairs of query "
                f"and key; use linear.attend, the O(T·S) form, or DotProductAttention"
            )
    causal = any(isinstance(part, Causal) for part in parts)
    if not real:
        return causal, None, None
    allowed = dense_mask(Mask(real), (*leading, T, S), q.device)  # (B, 1, ..., 1, S)
    assert allowed is not None
    N = math.prod(leading)
    return causal, allowed.expand(*leading, 1, S).reshape(N, S, 1), _documents(ids, leading, S)


def _documents(ids: list[Tensor], leading: list[int], S: int) -> Tensor | None:
    """The ids (B, S) of all segment masks as one number for each key, (N, S)."""
    if not ids:
        return None
    joined = ids[0]
    for other in ids[1:]:
        pairs = torch.stack(torch.broadcast_tensors(joined, other), dim=-1)
        numbers = pairs.flatten(0, 1).unique(dim=0, return_inverse=True)[1]
        joined = numbers.reshape(pairs.shape[:-1])
    joined = joined.reshape(joined.size(0), *[1] * (len(leading) - 1), S)
    return joined.expand(*leading, S).reshape(math.prod(leading), S)


class _Ones(FeatureMap):
    """Every key is worth 1 to every query: sums become counts."""

    def forward(self, x: Tensor) -> Tensor:
        return x.new_ones(*x.shape[:-1], 1)


def _broken(k: Tensor, v: Tensor) -> Tensor | None:
    """Which entries of [v, 1] (N, S, Dv + 1) are not finite, or have such a key; None if none.

    Inside a chunk a broken number would also reach queries that may not see it, by 0 · NaN.
    """
    # One look at a sum is cheap; where it would have to wait for the device, the worst is assumed.
    if k.device.type == "cpu" and bool((k.detach().sum() + v.detach().sum()).isfinite()):
        return None
    broken_keys = ~k.isfinite().all(dim=-1, keepdim=True)
    return torch.cat([~v.isfinite() | broken_keys, broken_keys], dim=-1)


# The features, in slices


class _Features:
    """The features of the queries and keys (N, L, D) of one sequence, slice by slice: (N, L, C) each.

    Most maps have one slice. Quadratic features are many more than q and k have numbers, so their
    products x_i x_j are made a few rows i at a time, from the diagonal on, and made again for the
    gradient instead of kept. The products of such a row block with itself appear twice, as they do in
    (q·k)²; the others once, and the keys' are doubled for it.
    """

    def __init__(self, feature_map: FeatureMap, k: Tensor) -> None:
        self.map, self.shift = feature_map, feature_map.shift(k)
        self.many = type(feature_map) is QuadraticFeatures

    def queries(self, q: Tensor) -> Iterator[Tensor]:
        return self._quadratic(q, 1.0) if self.many else iter([self.map.queries(q)])

    def keys(self, k: Tensor) -> Iterator[Tensor]:
        return self._quadratic(k, 2.0) if self.many else iter([self.map.keys(k, self.shift)])

    def pass_through(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(self, *args), whose many features are not kept for the gradient."""
        if self.many and torch.is_grad_enabled():
            return checkpoint(function, self, *args, use_reentrant=False, preserve_rng_state=False)
        return function(self, *args)

    @staticmethod
    def _quadratic(x: Tensor, factor: float) -> Iterator[Tensor]:
        scaled = x * factor if factor != 1.0 else x
        yield torch.cat([torch.ones_like(x[..., :1]), scaled], dim=-1)
        for i in range(0, x.size(-1), SLICE):
            rows = x[..., i : i + SLICE]
            columns = torch.cat([rows, scaled[..., i + SLICE :]], dim=-1)
            yield (rows.unsqueeze(-1) * columns.unsqueeze(-2)).flatten(-2)


# The sums: q (N, T, D), k (N, S, D), v (N, S, W) → Σ_{s allowed} sim(q_t, k_s) v_s, (N, T, W)


def _sums(
    features: _Features,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    ids: Tensor | None,
    chunk: int,
) -> Tensor:
    T, S = q.size(1), k.size(1)
    if ids is not None:
        return _last(_document_sums(features, _last(q, S), k, v, causal, ids, chunk), T)
    if not causal:
        state = _collected(features, k, v)
        return torch.cat([_received(features, x, state, v) for x in q.split(BLOCK, dim=1)], dim=1)
    n = min(T, S)  # of more queries than keys, the first stand before every key
    state = _collected(features, k[:, : S - n], v[:, : S - n])
    sums = _running_sums(features, _last(q, n), _last(k, n), _last(v, n), chunk, state=state)
    return _last(sums, T)


def _document_sums(
    features: _Features, q: Tensor, k: Tensor, v: Tensor, causal: bool, ids: Tensor, chunk: int
) -> Tensor:
    """The sums over keys of the query's own document, for as many queries as keys; ids (N, S)."""
    order = ids.argsort(dim=-1, stable=True)
    ids, *qkv = (x.take_along_dim(_like(order, x), dim=1) for x in (ids, q, k, v))
    sums = _running_sums(features, *qkv, chunk, ids)
    if not causal:  # and over the later ones, by going backward
        backward = (x.flip(1) for x in (*qkv, ids))
        ...
    return sums.take_along_dim(_like(order.argsort(dim=-1), sums), dim=1)

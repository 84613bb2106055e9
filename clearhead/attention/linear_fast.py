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

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
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

    Serves causal, padding (B,), token and segment masks and all their conjunctions. chunk is the number
    of positions taken pair by pair; left out, it suits the number of features.
    """
    check_qkv(q, k, v)
    refuse_bias(bias)
    T, S, Dv = q.size(-2), k.size(-2), v.size(-1)
    seen = _read(mask, q, S)
    dtype, leading = q.dtype, q.shape[:-2]
    q, k, v = (summable(x) for x in (q, k, v))
    ones = torch.ones_like(v[..., :1])
    if seen.real is not None:
        dead = ~seen.real
        k, v, ones = k.masked_fill(dead, 0.0), v.masked_fill(dead, 0.0), ones.masked_fill(dead, 0.0)
        q = q.masked_fill(_sees_nothing(seen, q), 0.0)
    q, k, v, ones = (x.reshape(math.prod(leading), *x.shape[-2:]) for x in (q, k, v, ones))
    run = _Run(feature_map, seen, chunk or _suiting(feature_map, q))
    v = torch.cat([v, ones], dim=-1)
    sums = run.sums(q, k, v)
    output = quotient(sums[..., :Dv], sums[..., Dv:])
    return output.reshape(*leading, T, Dv).to(dtype)

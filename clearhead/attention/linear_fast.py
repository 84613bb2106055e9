"""Kernel attention in time and memory linear in the length: the sums of linear.py in another order.

    not causal    output_t = φ(q_t)·Σ_s φ(k_s) v_sᵀ       / φ(q_t)·Σ_s φ(k_s)
    causal        output_t = φ(q_t)·Σ_{s≤t} φ(k_s) v_sᵀ   / φ(q_t)·Σ_{s≤t} φ(k_s)

A column of ones beside v makes the denominator one more column of the numerator. The sum over the keys
so far, (C, Dv + 1), is the state. The causal form goes by chunks of positions: a query takes what stands
in its own chunk pair by pair, and what stands before the chunk from the state:

    sums = tril(φ(q) φ(k)ᵀ) v  +  φ(q) state        state ← state + φ(k)ᵀ v

Packed documents are first brought together by a stable sort; a state then crosses the border of a chunk
only into its own document. No tensor here has T·S elements.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

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
from clearhead.attention.mask_parts import Causal, Padding, Segments, Tokens
from clearhead.attention.masks import Mask, MaskLike, as_mask, dense_mask
from clearhead.shapes import check_positive, check_qkv

__all__ = ["attend"]

BLOCK = 512  # positions whose features are made at once: few enough to stay in the cache
SLICE = 8  # rows of the triangle of products x_i x_j that make one slice of quadratic features

State = list[Tensor]  # (N, C, W) for each slice of features


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
        flags = flags.to(v.dtype)
        sums = _sums(_Features(_Ones(), k), q, k, flags[..., :-1], flags[..., -1:], causal, ids, chunk)
        return torch.cat(list(sums), dim=1)

    if real is not None:
        k, v, ones = (x.masked_fill(~real, 0.0) for x in (k, v, ones))
        q = q.masked_fill(count(real) == 0, 0.0)  # or a NaN in it would turn the empty sum into NaN
    broken = _broken(k, v) if causal or ids is not None else None
    if broken is not None:
        k, v = (x.masked_fill(~x.isfinite(), 0.0) for x in (k, v))
    features = _Features(feature_map, k)
    sums = _sums(features, q, k, v, ones, causal, ids, chunk)
    if broken is not None:
        sums = [torch.cat(list(sums), dim=1).masked_fill(count(broken) > 0, torch.nan)]
    output = torch.cat([quotient(block[..., :-1], block[..., -1:]) for block in sums], dim=1)
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
    allowed = dense_mask(Mask(real), (*leading, T, S), q.device) if real else None
    if allowed is None:
        return causal, None, None
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


# The features


class _Features:
    """The features of one sequence's queries and keys, in slices (N, L, C) that stay in the cache.

    Most maps have one slice. Of the quadratic features a slice holds the products x_i x_j of a few
    rows i with every j from the first of them on; a product i ≠ j inside those rows comes twice, as in
    (q·k)², every other once, so its key is doubled. They are made again for the gradient, not kept.
    """

    def __init__(self, feature_map: FeatureMap, k: Tensor) -> None:
        self.map, self.shift = feature_map, feature_map.shift(k)
        self.many = type(feature_map) is QuadraticFeatures

    def queries(self, q: Tensor) -> Iterator[Tensor]:
        return _quadratic_slices(q, q) if self.many else iter([self.map.queries(q)])

    def keys(self, k: Tensor) -> Iterator[Tensor]:
        return _quadratic_slices(k, 2.0 * k) if self.many else iter([self.map.keys(k, self.shift)])

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(self, *args), without keeping many features for the gradient."""
        if self.many and torch.is_grad_enabled():
            return checkpoint(function, self, *args, use_reentrant=False, preserve_rng_state=False)
        return function(self, *args)


def _quadratic_slices(x: Tensor, doubled: Tensor) -> Iterator[Tensor]:
    yield torch.cat([torch.ones_like(x[..., :1]), doubled], dim=-1)
    for i in range(0, x.size(-1), SLICE):
        rows = x[..., i : i + SLICE]
        columns = torch.cat([rows, doubled[..., i + SLICE :]], dim=-1)
        yield (rows.unsqueeze(-1) * columns.unsqueeze(-2)).flatten(-2)


def _suiting_chunk(feature_map: FeatureMap, q: Tensor) -> int:
    """Measured: the more features, the dearer the state, the longer the chunks that avoid it."""
    n_features = feature_map(q.new_empty(0, q.size(-1))).size(-1)
    return 64 if n_features <= 128 else 128 if n_features <= 1024 else 512


# The sums: q (N, T, D), k (N, S, D) and [v, ones] (N, S, W) → Σ_{s allowed} sim(q_t, k_s) [v_s, 1],
# (N, T, W) in blocks of positions; v and ones are joined where a block of them is needed


def _sums(
    features: _Features,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ones: Tensor,
    causal: bool,
    ids: Tensor | None,
    chunk: int,
) -> Iterable[Tensor]:
    T, S = q.size(1), k.size(1)
    if ids is not None and S > 0:
        sums = _document_sums(features, _last(q, S), k, v, ones, causal, ids, chunk)
        yield _last(sums, T)
        return
    if not causal:
        state = _collected(features, k, v, ones)
        for block in q.split(BLOCK, dim=1):
            yield features.run(_received, block, state)
        return
    n = min(T, S)
    state = _collected(features, *(x[:, : S - n] for x in (k, v, ones)))
    if T > n or n == 0:  # of more queries than keys, the first stand before every key
        yield features.run(_received, q[:, : T - n], state)
    yield from _running_sums(features, state, *(_last(x, n) for x in (q, k, v, ones)), chunk)


def _collected(features: _Features, k: Tensor, v: Tensor, ones: Tensor) -> State:
    """The state after these keys, of which there may be none."""
    blocks = list(zip(*(x.split(BLOCK, dim=1) for x in (k, v, ones)), strict=True))
    state: State = features.run(_collect, *blocks[0])
    for block in blocks[1:]:
        added = features.run(_collect, *block)
        state = [a + b for a, b in zip(state, added, strict=True)]
    return state


def _collect(features: _Features, k: Tensor, v: Tensor, ones: Tensor) -> State:
    values = torch.cat([v, ones], dim=-1)
    return [keys.mT @ values for keys in features.keys(k)]


def _received(features: _Features, q: Tensor, state: State) -> Tensor:
    """What queries take from a state: (N, L, D) → (N, L, W)."""
    sums = state[0].new_zeros(())
    for queries, old in zip(features.queries(q), state, strict=True):
        sums = sums + queries @ old
    return sums


def _document_sums(
    features: _Features,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ones: Tensor,
    causal: bool,
    ids: Tensor,
    chunk: int,
) -> Tensor:
    """The sums over the keys of a query's own document, for T = S; ids (N, S)."""
    order = ids.argsort(dim=-1, stable=True)
    ids, *tensors = (_taken(x, order) for x in (ids, q, k, v, ones))
    empty = _collected(features, *(x[:, :0] for x in (k, v, ones)))
    sums = torch.cat(list(_running_sums(features, empty, *tensors, chunk, ids)), dim=1)
    if not causal:  # the keys behind a query are those before it on the way back
        ids, *tensors = (x.flip(1) for x in (ids, *tensors))
        later = _running_sums(features, empty, *tensors, chunk, ids, diagonal=-1)
        sums = sums + torch.cat(list(later), dim=1).flip(1)
    return _taken(sums, order.argsort(dim=-1))


def _running_sums(
    features: _Features,
    state: State,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ones: Tensor,
    chunk: int,
    ids: Tensor | None = None,
    diagonal: int = 0,
) -> Iterator[Tensor]:
    """The causal sums for T = S, after the keys of `state`; diagonal −1 leaves out a query's own key."""
    for start, stop, n in _blocks(q.size(1), chunk):
        block = (x[:, start:stop] for x in (q, k, v, ones))
        borders = None if ids is None else _borders(ids, start, stop, n)
        sums, state = features.run(_step, state, *block, n, borders, diagonal)
        yield sums


def _blocks(T: int, chunk: int) -> Iterator[tuple[int, int, int]]:
    """T positions cut into blocks of whole chunks, and a rest: start, stop, number of chunks."""
    start = 0
    while start < T:
        n = max(1, min(BLOCK, T - start) // chunk)
        stop = min(start + n * chunk, T)
        yield start, stop, n
        start = stop


@dataclass(frozen=True)
class _Borders:
    """Where documents begin and end in a block of n chunks, L positions in all."""

    same: Tensor  # (N·n, chunk, chunk): query and key are of one document
    reads: Tensor  # (N, L, 1): the query is of the document its chunk begins with
    keeps: Tensor  # (N, L, 1): the key is of the document its chunk ends with
    links: Tensor  # (N, n, n): a later chunk begins with the document that this one ends with
    carries: Tensor  # (N, n, 1): … that the block before ends with
    through: Tensor  # (N, 1, 1): the last chunk ends with the document it begins with


def _borders(ids: Tensor, start: int, stop: int, n: int) -> _Borders:
    by_chunk = ids[:, start:stop].unflatten(1, (n, -1))  # (N, n, chunk)
    first, last = by_chunk[:, :, :1], by_chunk[:, :, -1:]  # (N, n, 1)
    before = ids[:, max(start - 1, 0), None, None]
    tokens = by_chunk.flatten(0, 1)  # (N·n, chunk)
    return _Borders(
        same=tokens[:, :, None] == tokens[:, None, :],
        reads=(by_chunk == first).reshape(-1, stop - start, 1),
        keeps=(by_chunk == last).reshape(-1, stop - start, 1),
        links=(first == last.mT).tril(-1),
        carries=first == before,
        through=(first == last)[:, -1:],
    )


def _step(
    features: _Features,
    state: State,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ones: Tensor,
    n: int,
    borders: _Borders | None,
    diagonal: int,
) -> tuple[Tensor, State]:
    """The sums (N, L, W) of a block of n chunks, L positions in all, and the state after it."""
    values = kept = torch.cat([v, ones], dim=-1)
    if borders is not None:
        kept = values.masked_fill(~borders.keeps, 0.0)
    N, L, W = values.shape

    def chunks(x: Tensor) -> Tensor:
        return x.reshape(N * n, L // n, x.size(-1))

    slices: Iterable[tuple[Tensor, Tensor]]
    if features.many:
        slices = zip(features.queries(q), features.keys(k), strict=True)
        pairs = features.map.similarity(chunks(q), chunks(k))
    else:
        slices = [(*features.queries(q), *features.keys(k))]
        pairs = chunks(slices[0][0]) @ chunks(slices[0][1]).mT
    pairs = pairs.tril_(diagonal)  # (N·n, chunk, chunk)
    if borders is not None:
        pairs = pairs.masked_fill(~borders.same, 0.0)
    sums = pairs @ chunks(values)  # (N·n, chunk, W)

    after = []
    for old, (queries, keys) in zip(state, slices, strict=True):
        if borders is not None:
            queries = queries.masked_fill(~borders.reads, 0.0)
        new = (chunks(keys).mT @ chunks(kept)).reshape(N, n, -1)
        before, last = _passed_on(old.reshape(N, 1, -1), new, borders)
        sums = sums.baddbmm_(chunks(queries), before.reshape(N * n, -1, W))
        after.append(last.reshape(old.shape))
    return sums.reshape(N, L, W), after


def _passed_on(old: Tensor, new: Tensor, borders: _Borders | None) -> tuple[Tensor, Tensor]:
    """The state before each of n chunks (N, n, C·W) and after the last (N, 1, C·W).

    old (N, 1, C·W) is the state before the block, new (N, n, C·W) what each chunk adds to it.
    """
    N, n, _ = new.shape
    if borders is None:
        links = new.new_ones(n, n).tril_(-1).expand(N, n, n)
    else:
        links, old = borders.links.to(new.dtype), old * borders.carries
    before = torch.baddbmm(old, links, new) if n > 1 else old
    last = before[:, -1:] if borders is None else before[:, -1:] * borders.through
    return before, last + new[:, -1:]


def _last(x: Tensor, n: int) -> Tensor:
    """The last n rows of (N, S, D), after rows of zeros if there are fewer."""
    S = x.size(1)
    return x[:, S - n :] if n <= S else pad(x, (0, 0, n - S, 0))


def _taken(x: Tensor, order: Tensor) -> Tensor:
    """The rows of (N, S, ...) in this order (N, S)."""
    return x.take_along_dim(order.reshape(*order.shape, *[1] * (x.ndim - 2)), dim=1)

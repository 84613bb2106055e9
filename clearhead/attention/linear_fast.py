"""Kernel attention in time and memory linear in the length: the sums of linear.py in another order.

    not causal    output_t = φ(q_t)·Σ_s φ(k_s) v_sᵀ       / φ(q_t)·Σ_s φ(k_s)
    causal        output_t = φ(q_t)·Σ_{s≤t} φ(k_s) v_sᵀ   / φ(q_t)·Σ_{s≤t} φ(k_s)

A column of ones beside v makes the denominator one more column of the numerator. The sum over the
keys so far, C × (Dv + 1) numbers, is the state. The causal form goes by chunks of positions: a
query takes what stands in its own chunk pair by pair, and what stands before it from the state:

    sums = tril(φ(q) φ(k)ᵀ) v  +  φ(q) state        state ← state + φ(k)ᵀ v

Packed documents are first brought together by a stable sort; a state then crosses the border of a
chunk only into its own document. No tensor here has T·S elements.
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
)
from clearhead.attention.mask_parts import Causal, Padding, Segments, Tokens
from clearhead.attention.masks import Mask, MaskLike, as_mask, dense_mask
from clearhead.attention.softmax import widened
from clearhead.shapes import check_positive, check_qkv

__all__ = ["attend"]

BLOCK = 512  # positions whose features are made at once: few enough to stay in the cache
SLICE = 8  # rows of the triangle of products x_i x_j that make one slice of quadratic features

State = list[Tensor]  # (N, W, C) for each slice of features; this way round the products are faster


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
    q, k, v = (widened(x).reshape(math.prod(leading), *x.shape[-2:]) for x in (q, k, v))
    ones = v.new_ones(*v.shape[:-1], 1)

    def count(flags: Tensor) -> Tensor:
        """Of the flagged keys (N, S, W), how many each query may see: (N, T, W)."""
        flags = flags.to(v.dtype)
        sums = _sums(
            _Features(_Ones(), k), q, k, flags[..., :-1], flags[..., -1:], causal, ids, chunk
        )
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
    if mask is None:
        return False, None, None
    mask = as_mask(mask)
    for part in mask.parts:
        served = isinstance(part, Causal | Tokens | Segments)
        if not served and not (isinstance(part, Padding) and part.for_all_queries):
            raise ValueError(
                f"{part} cannot be served by running sums, which cannot leave out single pairs of "
                f"query and key; use linear.attend, the O(T·S) form, or DotProductAttention"
            )
    *leading, T, _ = q.shape
    real, ids = mask.real_keys(S), mask.documents(S)
    if real is None:
        return mask.is_causal, None, None
    dense_mask(Mask.tokens(real), (*leading, T, S), q.device)  # refuses a batch that is not q's

    def for_all_heads(x: Tensor) -> Tensor:
        x = x.to(q.device).reshape(x.size(0), *[1] * (len(leading) - 1), S)
        return x.expand(*leading, S).reshape(math.prod(leading), S)

    documents = None if ids is None else for_all_heads(ids)
    return mask.is_causal, for_all_heads(real).unsqueeze(-1), documents


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
    rows i with every j from the first of them on. With both i and j in those rows a product comes
    as often as in (q·k)²; every other comes once instead of twice, so the keys' is doubled. They
    are made again for the gradient, not kept.
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


def _quadratic_slices(x: Tensor, others: Tensor) -> Iterator[Tensor]:
    """1 and x_i, then x_i x_j; `others` is x for queries and 2x for keys."""
    yield torch.cat([torch.ones_like(x[..., :1]), others], dim=-1)
    for i in range(0, x.size(-1), SLICE):
        rows = x[..., i : i + SLICE]
        columns = torch.cat([rows, others[..., i + SLICE :]], dim=-1)
        yield (rows.unsqueeze(-1) * columns.unsqueeze(-2)).flatten(-2)


def _suiting_chunk(feature_map: FeatureMap, q: Tensor) -> int:
    """Measured: the more features, the dearer the state, the longer the chunks that avoid it."""
    n_features = feature_map(q.new_empty(0, q.size(-1))).size(-1)
    return 64 if n_features <= 1024 else 512


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
    if n < T or n == 0:  # of more queries than keys, the first stand before every key
        yield features.run(_received, q[:, : T - n], state)
    yield from _running_sums(features, state, [_last(x, n) for x in (q, k, v, ones)], chunk)


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
    return [values.mT @ keys for keys in features.keys(k)]


def _received(features: _Features, q: Tensor, state: State) -> Tensor:
    """What queries take from a state: (N, L, D) → (N, L, W)."""
    sums = state[0].new_zeros(())
    for queries, old in zip(features.queries(q), state, strict=True):
        sums = sums + queries @ old.mT
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
    sums = torch.cat(list(_running_sums(features, empty, tensors, chunk, ids)), dim=1)
    if not causal:  # the keys behind a query are those before it on the way back
        ids, *tensors = (x.flip(1) for x in (ids, *tensors))
        later = _running_sums(features, empty, tensors, chunk, ids, diagonal=-1)
        sums = sums + torch.cat(list(later), dim=1).flip(1)
    return _taken(sums, order.argsort(dim=-1))


def _running_sums(
    features: _Features,
    state: State,
    tensors: list[Tensor],
    chunk: int,
    ids: Tensor | None = None,
    diagonal: int = 0,
) -> Iterator[Tensor]:
    """The causal sums for tensors q, k, v, ones with T = S, after the keys of `state`.

    With diagonal −1 a query's own key is left out.
    """
    for start, stop, n in _blocks(tensors[0].size(1), chunk):
        block = (x[:, start:stop] for x in tensors)
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
    by_chunk = ids[:, start:stop].unflatten(1, (n, (stop - start) // n))  # (N, n, chunk)
    first, last = by_chunk[:, :, :1], by_chunk[:, :, -1:]  # (N, n, 1)
    before = ids[:, max(start - 1, 0), None, None]
    tokens = by_chunk.flatten(0, 1)  # (N·n, chunk)
    return _Borders(
        same=tokens[:, :, None] == tokens[:, None, :],
        reads=(by_chunk == first).flatten(1).unsqueeze(-1),
        keeps=(by_chunk == last).flatten(1).unsqueeze(-1),
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
        only_queries, only_keys = next(features.queries(q)), next(features.keys(k))
        slices = [(only_queries, only_keys)]
        pairs = chunks(only_queries) @ chunks(only_keys).mT
    pairs = pairs.tril_(diagonal)  # (N·n, chunk, chunk)
    if borders is not None:
        pairs = pairs.masked_fill(~borders.same, 0.0)
    sums = pairs @ chunks(values)  # (N·n, chunk, W)

    after = []
    for old, (queries, keys) in zip(state, slices, strict=True):
        if borders is not None:
            queries = queries.masked_fill(~borders.reads, 0.0)
        C = keys.size(-1)
        new = (chunks(kept).mT @ chunks(keys)).reshape(N, n, W * C)
        before, last = _passed_on(old.reshape(N, 1, W * C), new, borders)
        sums = sums.baddbmm_(chunks(queries), before.reshape(N * n, W, C).mT)
        after.append(last.reshape(N, W, C))
    return sums.reshape(N, L, W), after


def _passed_on(old: Tensor, new: Tensor, borders: _Borders | None) -> tuple[Tensor, Tensor]:
    """The state before each of n chunks (N, n, W·C) and after the last (N, 1, W·C).

    old (N, 1, W·C) is the state before the block, new (N, n, W·C) what each chunk adds to it.
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

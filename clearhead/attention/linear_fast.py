"""Kernel attention in time and memory linear in the length: the sums of linear.py rearranged.

    not causal    output_t = φ(q_t)·Σ_s φ(k_s) v_sᵀ       / φ(q_t)·Σ_s φ(k_s)
    causal        output_t = φ(q_t)·Σ_{s≤t} φ(k_s) v_sᵀ   / φ(q_t)·Σ_{s≤t} φ(k_s)

A column of ones beside v makes the denominator one more column of the numerator. The sum over the
keys so far, (C, W), is the state. The causal form goes by chunks of positions: a query takes what
stands in its own chunk pair by pair, and what stands before the chunk from the state:

    sums = tril(φ(q) φ(k)ᵀ) v  +  φ(q) state        state ← state + φ(k)ᵀ v

Packed documents are first brought together by a stable sort; a state then crosses the border of a
chunk only into its own document. No tensor here has T·S elements.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from clearhead.attention.features import FeatureMap
from clearhead.attention.inputs import widen
from clearhead.attention.linear import divide, refuse_bias
from clearhead.attention.mask_parts import Causal, Padding, Segments, Tokens
from clearhead.attention.masks import Mask, MaskLike, as_mask, dense_mask
from clearhead.shapes import check_positive, check_qkv

BLOCK = 1024  # positions, of one head or of several, worked on at once: few enough for the cache

State = list[Tensor]  # for each slice of features, the sum φ(k)ᵀ [v, 1] so far, (N, C, W)


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
    q, k, v = (widen(x).reshape(math.prod(leading), *x.shape[-2:]) for x in (q, k, v))
    ones = v.new_ones(*v.shape[:-1], 1)

    def count(flags: Tensor) -> Tensor:
        """Of the flagged keys (N, S, W), how many each query may see: (N, T, W)."""
        features = _Features(_Ones(), None, chunk)
        blocks = _sums(features, q, k, flags.to(v.dtype), ones[..., :0], causal, ids)
        return _joined(blocks, *q.shape[:2])

    if real is not None:
        k, v, ones = (x.masked_fill(~real, 0.0) for x in (k, v, ones))
        # A NaN in a query that sees nothing would turn its empty sum into NaN.
        q = q.masked_fill(count(real) == 0, 0.0)

    def mixed(k: Tensor, v: Tensor) -> Tensor:
        """The output (N, T, Dv)."""
        Dv, features = v.size(-1), _Features(feature_map, feature_map.shift(k), chunk)
        blocks = _sums(features, q, k, v, ones, causal, ids)
        return _joined((divide(x[..., :Dv], x[..., Dv : Dv + 1]) for x in blocks), *q.shape[:2])

    output = mixed(k, v)
    if (causal or ids is not None) and not _trusted(k, v, output, by_last_row=ids is None):
        # Inside a chunk, 0 · NaN reaches queries that may not see it: sum without, then show it.
        broken = ~v.isfinite() | ~k.isfinite().all(dim=-1, keepdim=True)
        output = mixed(*(x.masked_fill(~x.isfinite(), 0.0) for x in (k, v)))
        output = output.masked_fill(count(broken) > 0, torch.nan)
    return output.reshape(*leading, T, v.size(-1)).to(dtype)


def _trusted(k: Tensor, v: Tensor, output: Tensor, by_last_row: bool) -> bool:
    """Whether no key and no value is broken, by a look at as few numbers as will do."""
    if k.device.type != "cpu" or torch.compiler.is_compiling():
        return False  # to look would wait for the device: the worst is assumed
    if by_last_row and output.size(1):  # the last query of a causal mask sees every key
        return bool(output[:, -1].detach().sum().isfinite())
    return bool((k.detach().sum() + v.detach().sum()).isfinite())


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


# The features


@dataclass(frozen=True)
class _Features:
    """The features of some sequences, and how many of their positions are taken at once."""

    map: FeatureMap
    shift: Tensor | None  # (N, 1, 1)
    chunk: int

    @property
    def block(self) -> int:
        """Few features leave room for more positions."""
        return BLOCK if self.map.is_wide else 2 * BLOCK

    @property
    def many(self) -> bool:
        """Whether they come in many slices: then they are made again for the gradient, not kept."""
        return self.map.is_sliced

    def of_heads(self, heads: slice) -> "_Features":
        return replace(self, shift=None if self.shift is None else self.shift[heads])

    def groups(self, N: int, T: int) -> Iterator[slice]:
        """Heads that fill a block together; only of many features is a block one chunk long."""
        span = max(1, min(T, self.chunk) if self.many else T)
        size = max(1, self.block // span)
        return (slice(start, start + size) for start in range(0, max(N, 1), size))

    def blocks(self, T: int) -> Iterator[tuple[int, int, int]]:
        """T positions in blocks of whole chunks, and a rest: start, stop, number of chunks."""
        most, start = max(1, 1 if self.many else self.block // self.chunk), 0
        while start < T:
            n = max(1, min(most, (T - start) // self.chunk))
            stop = min(start + n * self.chunk, T)
            yield start, stop, n
            start = stop

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(self, *args), without keeping many features for the gradient."""
        if self.many and torch.is_grad_enabled():
            return checkpoint(function, self, *args, use_reentrant=False, preserve_rng_state=False)
        return function(self, *args)


def _suiting_chunk(feature_map: FeatureMap, q: Tensor) -> int:
    """Measured: the more features, the dearer the state, the longer the chunks that avoid it."""
    n_features = feature_map(q.new_empty(0, q.size(-1))).size(-1)
    return 64 if n_features <= 1024 else 512


# The sums: q (N, T, D), k (N, S, D), v (N, S, Dv) → Σ_{s allowed} sim(q_t, k_s) [v_s, 1], in blocks
# (·, ·, W) whose rows follow each other as those of (N, T, W) do


def _sums(
    features: _Features,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ones: Tensor,
    causal: bool,
    ids: Tensor | None,
) -> Iterator[Tensor]:
    (N, T, _), S = q.shape, k.size(1)
    if ids is None and features.chunk >= S and (T == S or not causal):  # few: pair by pair
        pairs = features.map.similarity(q, k)
        yield (pairs.tril() if causal else pairs) @ _with_ones(v, ones)
    elif ids is not None and S > 0:
        yield _last(_document_sums(features, _last(q, S), k, v, ones, causal, ids), T)
    elif not causal:
        yield from _whole_sums(features, q, k, v, ones)
    else:
        n = min(T, S)
        state = _collected(features, *(x[:, : S - n] for x in (k, v, ones)))
        blocks = _running_sums(features, state, *(_last(x, n) for x in (q, k, v, ones)))
        if n == T and n > 0:
            yield from blocks
        else:  # of more queries than keys, the first stand before every key
            early = q[:, : T - n].masked_fill(torch.ones_like(q[:, : T - n]).bool(), 0.0)
            sums = [features.run(_received, early, state)]
            yield torch.cat([*sums, _joined(blocks, N, n)] if n else sums, dim=1)


def _joined(blocks: Iterable[Tensor], N: int, T: int) -> Tensor:
    """The rows of all blocks, as (N, T, W)."""
    rows = [block.flatten(0, 1) for block in blocks]
    return torch.cat(rows).reshape(N, T, rows[0].size(-1))


def _whole_sums(
    features: _Features, q: Tensor, k: Tensor, v: Tensor, ones: Tensor
) -> Iterator[Tensor]:
    """Every query sees every key: one state serves them all."""
    state = _collected(features, k, v, ones)
    for block in q.split(BLOCK, dim=1) if q.size(0) == 1 else [q]:
        yield features.run(_received, block, state)


def _collected(features: _Features, k: Tensor, v: Tensor, ones: Tensor) -> State:
    """The state after these keys, of which there may be none."""
    blocks = list(zip(*(x.split(BLOCK, dim=1) for x in (k, v, ones)), strict=True))
    state: State = features.run(_collect, *blocks[0])
    for block in blocks[1:]:
        added = features.run(_collect, *block)
        state = [a + b for a, b in zip(state, added, strict=True)]
    return state


def _collect(features: _Features, k: Tensor, v: Tensor, ones: Tensor) -> State:
    values = _with_ones(v, ones)
    return [keys.mT @ values for keys in features.map.key_slices(k, features.shift)]


def _with_ones(v: Tensor, ones: Tensor) -> Tensor:
    """[v, 1], the ones repeated up to a width that the processor's vectors divide: (N, L, W)."""
    if ones.size(-1) == 0:
        return v
    return torch.cat([v, ones.expand(-1, -1, 16 - v.size(-1) % 16)], dim=-1)


def _received(features: _Features, q: Tensor, state: State) -> Tensor:
    """What queries take from a state: (N, L, D) → (N, L, W)."""
    sums = state[0].new_zeros(())
    for queries, old in zip(features.map.query_slices(q), state, strict=True):
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
) -> Tensor:
    """The sums over the keys of a query's own document, for T = S; ids (N, S)."""
    order = ids.argsort(dim=-1, stable=True)
    empty = _collected(features, *(x[:, :0] for x in (k, v, ones)))
    ids, *tensors = (_taken(x, order) for x in (ids, q, k, v, ones))
    sums = _joined(_running_sums(features, empty, *tensors, ids=ids), *ids.shape)
    if not causal:  # the keys behind a query are those before it on the way back
        ids, *tensors = (x.flip(1) for x in (ids, *tensors))
        back = _running_sums(features, empty, *tensors, ids=ids, diagonal=-1)
        sums = sums + _joined(back, *ids.shape).flip(1)
    return _taken(sums, order.argsort(dim=-1))


def _running_sums(
    features: _Features,
    state: State,
    *tensors: Tensor,
    ids: Tensor | None = None,
    diagonal: int = 0,
) -> Iterator[Tensor]:
    """The causal sums for tensors q, k, v, ones with T = S, after the keys of `state`.

    With diagonal −1 a query's own key is left out.
    """
    N, T, _ = tensors[0].shape
    for heads in features.groups(N, T):
        own, of_heads, sums = [x[heads] for x in state], features.of_heads(heads), []
        for start, stop, n in features.blocks(T):
            block = (x[heads, start:stop] for x in tensors)
            borders = None if ids is None else _borders(ids[heads], start, stop, n)
            block_sums, own = of_heads.run(_step, own, *block, n, borders, diagonal)
            sums.append(block_sums)
        if len(sums) > 1 and sums[0].size(0) > 1:
            sums = [torch.cat(sums, dim=1)]
        yield from sums


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
    N, L, _ = q.shape

    def chunks(x: Tensor) -> Tensor:
        return x.reshape(N * n, L // n, x.size(-1))

    shift = features.shift if n == 1 or features.shift is None else _repeated(features.shift, n)
    q, k, values = chunks(q), chunks(k), chunks(_with_ones(v, ones))
    # A transposed copy of the keys pays: both products with them then run at full speed.
    keys_by_slice = (keys.mT.contiguous() for keys in features.map.key_slices(k, shift))
    slices: Iterable[tuple[Tensor, Tensor]]
    slices = zip(features.map.query_slices(q), keys_by_slice, strict=True)
    if features.many:
        pairs = features.map.similarity(q, k)
    else:
        slices = list(slices)
        pairs = slices[0][0] @ slices[0][1]
        for queries, keys in slices[1:]:
            pairs = pairs.baddbmm_(queries, keys)
    pairs, kept = pairs.tril_(diagonal), values  # (N·n, chunk, chunk)
    if borders is not None:
        pairs = pairs.masked_fill(~borders.same, 0.0)
        kept = values.masked_fill(~chunks(borders.keeps), 0.0)
    sums = pairs @ values  # (N·n, chunk, W)

    after = []
    for old, (queries, keys) in zip(state, slices, strict=True):
        if borders is not None:
            queries = queries.masked_fill(~chunks(borders.reads), 0.0)
        before, last = _passed_on(old, keys @ kept, n, borders)
        sums = sums.baddbmm_(queries, before)
        after.append(last)
    return sums.reshape(N, L, sums.size(-1)), after


def _passed_on(old: Tensor, new: Tensor, n: int, borders: _Borders | None) -> tuple[Tensor, Tensor]:
    """The state before each of n chunks (N·n, C, W) and after the last (N, C, W).

    old (N, C, W) is the state before the block, new (N·n, C, W) what each chunk adds to it.
    """
    N, C, W = old.shape
    old, new = old.reshape(N, 1, C * W), new.reshape(N, n, C * W)
    if borders is None:
        links = new.new_ones(n, n).tril_(-1).expand(N, n, n)
    else:
        links, old = borders.links.to(new.dtype), old * borders.carries
    before = torch.baddbmm(old, links, new) if n > 1 else old
    last = before[:, -1:] if borders is None else before[:, -1:] * borders.through
    return before.reshape(N * n, C, W), (last + new[:, -1:]).reshape(N, C, W)


def _repeated(shift: Tensor, n: int) -> Tensor:
    """(N, 1, 1) → (N·n, 1, 1), once for each chunk."""
    return shift.expand(-1, n, 1).reshape(-1, 1, 1)


def _last(x: Tensor, n: int) -> Tensor:
    """The last n rows of (N, S, D), after rows of zeros if there are fewer."""
    S = x.size(1)
    return x[:, S - n :] if n <= S else pad(x, (0, 0, n - S, 0))


def _taken(x: Tensor, order: Tensor) -> Tensor:
    """The rows of (N, S, ...) in this order (N, S)."""
    return x.take_along_dim(order.reshape(*order.shape, *[1] * (x.ndim - 2)), dim=1)

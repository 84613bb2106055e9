"""Kernel attention in time and memory linear in the length: the sum of linear.py rearranged.

    output_t = φ(q_t)·Σ_s φ(k_s) v_sᵀ / φ(q_t)·Σ_s φ(k_s)         over the keys s that query t sees

running_sums.py computes these sums for all keys and for the keys so far, packed_sums.py for packed
documents. If all keys fit into one chunk, the similarity of each pair is written out, which is
faster; otherwise no tensor grows with T·S.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from clearhead.attention.features import FeatureMap
from clearhead.attention.inputs import dense_mask
from clearhead.attention.linear import divide, refuse_bias
from clearhead.attention.mask_parts import Causal, Padding, Segments, Tokens
from clearhead.attention.masks import Mask, MaskLike
from clearhead.attention.packed_sums import sum_documents
from clearhead.attention.running_sums import FeatureSums, Keys, join
from clearhead.runtime import widen
from clearhead.shapes import can_read_values, check_positive, check_qkv


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

    Serves causal, padding (B,), token and segment masks, and any of them joined. chunk: how
    many neighbouring positions are compared pair by pair; None chooses by the number of features.
    """
    check_qkv(q, k, v)
    refuse_bias(bias)
    chunk = _choose_chunk(feature_map, q) if chunk is None else chunk
    check_positive(chunk=chunk)
    seen = _read_mask(mask, q, k.size(-2))
    dtype, (*leading, T, _) = q.dtype, q.shape
    q, k, v = (widen(x).reshape(math.prod(leading), *x.shape[-2:]) for x in (q, k, v))
    keys = Keys(k, v, v.new_ones(*v.shape[:-1], 1))
    if seen.real is not None:
        keys = Keys(*(x.masked_fill(~seen.real, 0.0) for x in keys))
        # A NaN in a query that sees nothing would turn its empty sum into NaN.
        q = q.masked_fill(_count(seen.real, q, keys, seen, chunk) == 0, 0.0)

    def compute(keys: Keys) -> Tensor:
        """The output (N, T, Dv)."""
        sums, Dv = FeatureSums(feature_map, feature_map.shift(keys.k), chunk), keys.v.size(-1)
        blocks = _sum_seen(sums, q, keys, seen)
        return join((divide(x[..., :Dv], x[..., Dv : Dv + 1]) for x in blocks), *q.shape[:2])

    output = compute(keys)
    if (seen.causal or seen.documents is not None) and not _are_finite(keys, output, seen):
        # Within a chunk, 0 · NaN reaches queries that may not see the NaN. So sum without broken
        # numbers, then write NaN where a query sees one.
        broken = ~keys.v.isfinite() | ~keys.k.isfinite().all(dim=-1, keepdim=True)
        output = compute(Keys(*(x.masked_fill(~x.isfinite(), 0.0) for x in keys)))
        output = output.masked_fill(_count(broken, q, keys, seen, chunk) > 0, torch.nan)
    return output.reshape(*leading, T, v.size(-1)).to(dtype)


def _choose_chunk(feature_map: FeatureMap, q: Tensor) -> int:
    """With many features the state is large; longer chunks are faster, as they read it less."""
    n_features = feature_map(q.new_empty(0, q.size(-1))).size(-1)
    return 64 if n_features <= 1024 else 512


class _Seen(NamedTuple):
    """Which keys each query sees, as rules instead of a matrix; batch and heads are one axis, N."""

    causal: bool = False
    real: Tensor | None = None  # which keys are real tokens, (N, S, 1); None = all
    documents: Tensor | None = None  # the document of each key, (N, S); None = not packed


def _read_mask(mask: MaskLike, q: Tensor, S: int) -> _Seen:
    """The structure of a mask that running sums can serve; any other is refused."""
    if mask is None:
        return _Seen()
    mask = Mask.of(mask)
    for part in mask.parts:
        served = isinstance(part, Causal | Tokens | Segments)
        if not served and not (isinstance(part, Padding) and part.for_all_queries):
            raise ValueError(
                f"{part} cannot be served by running sums, which cannot leave out single pairs of "
                f"query and key; use linear.attend, the O(T·S) form, or DotProductAttention"
            )
    *leading, T, _ = q.shape
    real, documents = mask.real_keys(S), mask.documents(S)
    if real is None:
        return _Seen(mask.is_causal)
    dense_mask(Mask.tokens(real), (*leading, T, S), q.device)  # refuses a wrong batch size

    def repeat_for_heads(x: Tensor) -> Tensor:
        """(B, S) → (N, S)."""
        x = x.to(q.device).reshape(x.size(0), *[1] * (len(leading) - 1), S)
        return x.expand(*leading, S).reshape(math.prod(leading), S)

    documents = None if documents is None else repeat_for_heads(documents)
    return _Seen(mask.is_causal, repeat_for_heads(real).unsqueeze(-1), documents)


def _sum_seen(sums: FeatureSums, q: Tensor, keys: Keys, seen: _Seen) -> Iterator[Tensor]:
    """Σ sim(q_t, k_s) [v_s, 1] over the keys each query sees, in blocks: q (N, T, D)."""
    T, S = q.size(1), keys.k.size(1)
    if seen.documents is None and sums.chunk >= S and (T == S or not seen.causal):
        pairs = sums.feature_map.similarity(q, keys.k)  # (N, T, S), small: few keys
        yield (pairs.tril() if seen.causal else pairs) @ keys.values()
    elif seen.documents is not None and S > 0:
        last = _take_last(q, S)
        yield _take_last(sum_documents(sums, last, keys, seen.documents, seen.causal), T)
    elif seen.causal:
        yield from sums.causal(q, keys)
    else:
        yield from sums.total(q, keys)


def _take_last(x: Tensor, n: int) -> Tensor:
    """The last n rows of (N, S, D), after rows of zeros if there are fewer."""
    S = x.size(1)
    return x[:, S - n :] if n <= S else pad(x, (0, 0, n - S, 0))


class _Ones(FeatureMap):
    """A similarity of 1 for every pair: sums become counts."""

    def forward(self, x: Tensor) -> Tensor:
        return x.new_ones(*x.shape[:-1], 1)


def _count(flags: Tensor, q: Tensor, keys: Keys, seen: _Seen, chunk: int) -> Tensor:
    """How many of the flagged keys (N, S, W) each query sees: (N, T, W)."""
    flagged = keys._replace(v=flags.to(keys.v.dtype), ones=keys.ones[..., :0])
    return join(_sum_seen(FeatureSums(_Ones(), None, chunk), q, flagged, seen), *q.shape[:2])


def _are_finite(keys: Keys, output: Tensor, seen: _Seen) -> bool:
    """Whether all keys and values are finite, checked cheaply."""
    if not can_read_values(keys.k):
        return False  # reading them would wait for the device: assume the worst
    if seen.documents is None and output.size(1):  # the last query of a causal mask sees every key
        return bool(output[:, -1].detach().sum().isfinite())
    return bool((keys.k.detach().sum() + keys.v.detach().sum()).isfinite())

"""Multi-head attention (Vaswani et al. 2017, section 3.2.2): all heads in one product.

    head_h = attention(x W_q[h], x W_k[h], x W_v[h])        each head in its own Dh columns
    output = [head_1 … head_H] W_O                          W_O is (H·Dh × D)

Dh is D / H unless given.

`loop_over_heads` computes this as it is written. The module computes all heads at once: one
projection, reshaped to (B, H, T, Dh), any mechanism, reshaped back. With fewer key/value heads,
G < H (Ainslie et al. 2023), each serves H / G query heads.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm

from clearhead.attention.cache import KVCache
from clearhead.attention.inputs import check_bias, dense_mask
from clearhead.attention.masks import MaskLike
from clearhead.attention.mechanisms import DotProductAttention, Mechanism
from clearhead.attention.softmax import mix
from clearhead.positions import PositionScheme
from clearhead.shapes import check_divides, check_positive, check_sequence, format_shape


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, D) → (B, H, T, Dh), a view."""
    check_divides("n_heads", n_heads, "width of x", x.size(-1))
    split = x.unflatten(-1, (n_heads, x.size(-1) // n_heads))  # (B, T, H, Dh)
    return split.transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, Dh) → (B, T, D): the exact inverse of split_heads."""
    return x.transpose(-3, -2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """H heads of any mechanism, with any position scheme that acts inside attention."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        mechanism: Mechanism | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        positions: PositionScheme | None = None,
        qk_norm: bool = False,
    ) -> None:
        """n_kv_heads: key/value heads, n_heads unless given; d_head: the width of a head, d_model /
        n_heads unless given; dropout: on the weights of the default mechanism; positions: a scheme
        that acts inside attention; qk_norm: each head's queries and keys are brought to one length
        (RMS norm with a learned gain) before they are compared."""
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        d_head = find_head_width(d_model, n_heads, d_head)
        check_divides("n_kv_heads", n_kv_heads, "n_heads", n_heads)
        if mechanism is not None and not isinstance(mechanism, Mechanism):
            raise TypeError(
                f"mechanism must be a Mechanism such as DotProductAttention(), "
                f"got {type(mechanism).__name__}"
            )
        _check_scheme(positions, n_heads, d_head)
        if mechanism is not None and dropout:
            raise ValueError(
                f"dropout={dropout} is for the default mechanism; "
                f"give it to {type(mechanism).__name__}"
            )
        self.d_model, self.n_heads, self.n_kv_heads = d_model, n_heads, n_kv_heads
        self.d_head = d_head
        self.proj_q = nn.Linear(d_model, n_heads * d_head, bias=bias)
        self.proj_k = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.proj_v = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.proj_out = nn.Linear(n_heads * d_head, d_model, bias=bias)
        self.norm_q = _HeadNorm(d_head, eps=1e-6) if qk_norm else None
        self.norm_k = _HeadNorm(d_head, eps=1e-6) if qk_norm else None
        self.mechanism = DotProductAttention(dropout) if mechanism is None else mechanism
        self.positions = positions

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        values: Tensor | None = None,
        mask: MaskLike = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """x (B, T, D) attends to source (B, S, D), or to itself and the cache → (B, T, D).

        values (B, S, D): what the values are computed from, source unless given.
        mask and bias broadcast to (B, H, T, S), S counting cached keys. positions (T,) or (B, T)
        of x are used by a rotary scheme only; by default x follows the cached tokens. With a cache
        no gradient reaches keys and values, not even those of x. With a source the cache holds the
        keys and values of the source: the first call fills it, later calls only read it.
        """
        self._check_call(x, source, cache)
        if values is not None:
            self._check_values(values, source)
        T, S = x.size(1), (x if source is None else source).size(1)
        if source is None and cache is not None:
            S += len(cache)
        if self.positions is not None and cache is not None and positions is None:
            positions = torch.arange(S - T, S, device=x.device)
        q = self._queries(x, positions)
        if bias is not None:
            check_bias(bias, (*q.shape[:-1], S), q)
        bias = self.add_position_bias(bias, T, S)
        if cache is not None:  # check the mask now: a refused call must not change the cache
            dense_mask(mask, (*q.shape[:-1], S), x.device)
        if source is not None and cache:  # filled by the first call
            k, v = cache.read()
        else:
            k, v = self._keys_values(x if source is None else source, values, positions)
            if cache is not None:
                k, v = cache.append(k, v)
        return self._attend(q, k, v, mask, bias)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: MaskLike, bias: Tensor | None
    ) -> Tensor:
        """q (B, H, T, Dh), k and v (B, G, S, Dh) → (B, T, D)."""
        shared = self.n_heads // self.n_kv_heads
        if shared > 1:  # (B, G, S, Dh) → (B, H, S, Dh)
            k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
        return self.proj_out(merge_heads(self.mechanism(q, k, v, mask=mask, bias=bias)))

    def _check_call(self, x: Tensor, source: Tensor | None, cache: KVCache | None) -> None:
        """One batch size; with a source no rotary scheme, and a cache that is empty or its own."""
        check_sequence("x", x, self.d_model, self.proj_q.weight)
        if source is None:
            return
        check_sequence("source", source, self.d_model, self.proj_q.weight)
        if source.size(0) != x.size(0):
            raise ValueError(
                f"source must have the batch of x, {x.size(0)}, got {source.size(0)} "
                f"(x {format_shape(x)}, source {format_shape(source)})"
            )
        if self.positions is not None and self.positions.acts_on == "q and k":
            raise ValueError(
                "rotary positions compare positions in one sequence, but source is another; "
                "build the cross-attention without positions"
            )
        if cache is not None and len(cache) not in (0, source.size(1)):
            raise ValueError(
                f"cache holds {len(cache)} keys but source has length {source.size(1)}; "
                f"give each source a cache of its own, or clear() it"
            )

    def _check_values(self, values: Tensor, source: Tensor | None) -> None:
        """values (B, S, D), a row for each row of the source."""
        if source is None:
            raise ValueError(
                "values need a source, from which the keys come; for keys from x itself give "
                "source=x"
            )
        check_sequence("values", values, self.d_model, self.proj_v.weight)
        if values.shape != source.shape:
            raise ValueError(
                f"values must have the shape of source, {format_shape(source)}, "
                f"got {format_shape(values)}"
            )

    def _queries(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """x (B, T, D) → (B, H, T, Dh)."""
        q = split_heads(self.proj_q(x), self.n_heads)
        q = q if self.norm_q is None else self.norm_q(q)
        return q if self.positions is None else self.positions.rotate(q, positions)

    def _keys_values(
        self, source: Tensor, values: Tensor | None, positions: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """source and values (B, S, D) → keys and values (B, G, S, Dh)."""
        k = split_heads(self.proj_k(source), self.n_kv_heads)
        v = split_heads(self.proj_v(source if values is None else values), self.n_kv_heads)
        k = k if self.norm_k is None else self.norm_k(k)
        return k if self.positions is None else self.positions.rotate(k, positions), v

    def add_position_bias(self, bias: Tensor | None, T: int, S: int) -> Tensor | None:
        """bias plus that of the position scheme, if it has one: broadcasts to (B, H, T, S)."""
        scheme = self.positions
        if scheme is None or (by_distance := scheme.bias(T, S)) is None:  # (H, T, S)
            return bias
        if scheme.has_unscaled_bias and self.mechanism.is_scaled:
            by_distance = by_distance * math.sqrt(self.d_head)
        return by_distance if bias is None else bias + by_distance


class _HeadNorm(nn.RMSNorm):
    """RMS norm whose float32 gain does not widen activations in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        assert self.weight is not None
        return rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def find_head_width(d_model: int, n_heads: int, d_head: int | None = None) -> int:
    """The width of a head: d_head if given, else d_model / n_heads, which must be whole."""
    if d_head is None:
        check_divides("n_heads", n_heads, "d_model", d_model)
        return d_model // n_heads
    check_positive(d_model=d_model, n_heads=n_heads, d_head=d_head)
    return d_head


def _check_scheme(positions: PositionScheme | None, n_heads: int, d_head: int) -> None:
    """A position scheme that acts inside attention, built for these heads."""
    if positions is None:
        return
    if not isinstance(positions, PositionScheme) or positions.acts_on == "x":
        raise TypeError(
            f"positions must be a scheme that acts inside attention, such as RotaryPositions, "
            f"ToeplitzBias or AlibiBias, got {type(positions).__name__}; "
            f"what is added to x is added before the first block"
        )
    for name, needed in (("n_heads", n_heads), ("d_head", d_head)):
        if (given := getattr(positions, name)) not in (None, needed):
            raise ValueError(
                f"positions was built for other heads, its {name} is {given}; "
                f"build it with {name}={needed}"
            )


def loop_over_heads(
    attention: MultiHeadAttention,
    x: Tensor,
    source: Tensor | None = None,
    *,
    values: Tensor | None = None,
    mask: MaskLike = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The same numbers as attention(x, source, …), one head at a time."""
    source = x if source is None else source
    values = source if values is None else values
    Dh, shared = attention.d_head, attention.n_heads // attention.n_kv_heads
    T, S = x.size(1), source.size(1)
    allowed = dense_mask(mask, (x.size(0), attention.n_heads, T, S), x.device)
    bias = attention.add_position_bias(bias, T, S)

    def project(layer: nn.Linear, head: int, y: Tensor) -> Tensor:
        rows = slice(head * Dh, (head + 1) * Dh)
        return linear(y, layer.weight[rows], None if layer.bias is None else layer.bias[rows])

    def select_head(matrix: Tensor | None, head: int) -> Tensor | None:
        if matrix is None or matrix.ndim < 3:
            return matrix
        return matrix.select(-3, head if matrix.size(-3) > 1 else 0)

    heads = []
    for h in range(attention.n_heads):
        q = project(attention.proj_q, h, x)  # (B, T, Dh)
        k = project(attention.proj_k, h // shared, source)
        v = project(attention.proj_v, h // shared, values)
        if attention.norm_q is not None and attention.norm_k is not None:
            q, k = attention.norm_q(q), attention.norm_k(k)
        if attention.positions is not None:
            q, k = attention.positions.rotate(q), attention.positions.rotate(k)
        seen = select_head(allowed, h)
        weights = attention.mechanism.weights(q, k, mask=seen, bias=select_head(bias, h))
        heads.append(mix(weights, v, seen))
    return attention.proj_out(torch.cat(heads, dim=-1))

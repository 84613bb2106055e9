"""One attention head as a module, and several of them joined.

    SelfAttention    q, k, v = three linear layers of x;  output = attention(q, k, v)
    CrossAttention   q from x;  k and v from another sequence y
    JoinedHeads      the heads' outputs side by side, then one linear layer:  [head_1 … head_H] W_O

Joined this way, heads may differ in kind and width, also inside a Block(d_model, attention=heads).
Equal heads are faster in one product: multi_head.py.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from clearhead.attention.cache import KVCache
from clearhead.attention.masks import MaskLike
from clearhead.attention.mechanisms import DotProductAttention
from clearhead.shapes import check_last_axis, check_positive


class _Head(nn.Module):
    """q from x; k and v from y; three linear layers, created in this order."""

    def __init__(self, d_x: int, d_y: int, d_key: int, d_output: int, bias: bool) -> None:
        super().__init__()
        check_positive(d_key=d_key, d_output=d_output)
        self.d_x, self.d_y, self.d_output = d_x, d_y, d_output
        self.proj_q = nn.Linear(d_x, d_key, bias=bias)
        self.proj_k = nn.Linear(d_y, d_key, bias=bias)
        self.proj_v = nn.Linear(d_y, d_output, bias=bias)
        self.mechanism = DotProductAttention()

    def _attend(self, x: Tensor, y: Tensor, mask: MaskLike) -> Tensor:
        return self.mechanism(self.proj_q(x), self.proj_k(y), self.proj_v(y), mask=mask)


class SelfAttention(_Head):
    """x (B, T, d_input) attends to itself → (B, T, d_output)."""

    def __init__(self, d_input: int, d_key: int, d_output: int, *, bias: bool = True) -> None:
        """bias=False: q = x W_q, k = x W_k, v = x W_v and nothing else."""
        check_positive(d_input=d_input)
        super().__init__(d_input, d_input, d_key, d_output, bias)

    def forward(self, x: Tensor, *, mask: MaskLike = None) -> Tensor:
        check_last_axis("x", x, "d_input", self.d_x, 2, self.proj_q.weight)
        return self._attend(x, x, mask)


class CrossAttention(_Head):
    """x (B, T, d_x) attends to y (B, S, d_y) → (B, T, d_output)."""

    def __init__(self, d_x: int, d_y: int, d_key: int, d_output: int, *, bias: bool = True) -> None:
        """bias=False: q = x W_q, k = y W_k, v = y W_v and nothing else."""
        check_positive(d_x=d_x, d_y=d_y)
        super().__init__(d_x, d_y, d_key, d_output, bias)

    def forward(self, x: Tensor, y: Tensor, *, mask: MaskLike = None) -> Tensor:
        check_last_axis("x", x, "d_x", self.d_x, 2, self.proj_q.weight)
        check_last_axis("y", y, "d_y", self.d_y, 2, self.proj_k.weight)
        return self._attend(x, y, mask)


class JoinedHeads(nn.Module):
    """Heads from a list: their outputs side by side, then a linear layer over all of them."""

    def __init__(
        self,
        heads: Iterable[SelfAttention | CrossAttention],
        d_output: int,
        *,
        bias: bool = True,
    ) -> None:
        """bias: of the last layer; each head has its own switch."""
        super().__init__()
        heads = list(heads)
        check_positive(d_output=d_output)
        if not heads:
            raise ValueError("heads must hold at least one attention module, got none")
        for head in heads:
            if not isinstance(head, _Head):
                raise TypeError(
                    f"heads must be SelfAttention or CrossAttention, got {type(head).__name__}"
                )
        self.heads = nn.ModuleList(heads)
        self.d_output = d_output
        self.proj_out = nn.Linear(sum(head.d_output for head in heads), d_output, bias=bias)

    def forward(
        self,
        x: Tensor,
        y: Tensor | None = None,
        *,
        mask: MaskLike = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """x (B, T, ·), and y (B, S, ·) for cross-attention heads → (B, T, d_output).

        A Block calls it as it calls MultiHeadAttention. These heads have no position scheme, so
        positions change nothing; a bias or a cache is refused.
        """
        for name, given in (("bias", bias), ("cache", cache)):
            if given is not None:
                raise ValueError(
                    f"{name} cannot be served by JoinedHeads, whose heads are separate modules; "
                    f"leave it out or use MultiHeadAttention(d_model, n_heads, d_head=...)"
                )
        if y is not None and all(isinstance(head, SelfAttention) for head in self.heads):
            raise ValueError("y is for cross-attention heads, but all heads are self-attention")
        outputs = [
            head(x, mask=mask) if isinstance(head, SelfAttention) else head(x, y, mask=mask)
            for head in self.heads
        ]
        return self.proj_out(torch.cat(outputs, dim=-1))

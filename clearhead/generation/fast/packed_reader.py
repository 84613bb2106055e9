"""The Reader of a packed GPT: the same logits as reader.py, in about ten operations per block.

A decoding step reads all weights once and computes little, so the memory limits its speed, if
nothing else takes time. Here the weights are packed (packed_gpt.py), keys and values are written
into buffers made once, and a greedy step reads the vocabulary table in 8 bits.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import embedding, scaled_dot_product_attention

from clearhead.attention import DotProductAttention, Mask, merge_heads
from clearhead.generation.fast.packed_gpt import PackedBlock, PackedGPT
from clearhead.models.checks import check_finite

ATTENTION = DotProductAttention().eval()  # the mechanism of every GPT, without dropout


class PackedReader:
    """A Reader of up to `capacity` tokens by a PackedGPT, in the precision it was packed in."""

    def __init__(
        self, packed: PackedGPT, batch_size: int, capacity: int, token_mask: Tensor | None = None
    ) -> None:
        """token_mask (B, T): True = real, for the prompt; all later tokens are real."""
        c, dtype = packed.config, packed.embedding.dtype
        self.packed, self.length = packed, 0
        self.n_heads, self.n_groups = c.n_heads, c.n_kv_heads or c.n_heads
        self.d_head = c.head_width
        # Keys and values of every block, (n_layers, 2, B, G, capacity, Dh).
        shape = (c.n_layers, 2, batch_size, self.n_groups, capacity, self.d_head)
        self.keys_values = torch.empty(shape, dtype=dtype)
        self.is_real: Tensor | None = None  # (B, capacity), if there is padding
        self.positions = torch.arange(capacity)  # or (B, capacity)
        if token_mask is not None and not bool(token_mask.all()):
            self.is_real = torch.ones(batch_size, capacity, dtype=torch.bool)
            self.is_real[:, : token_mask.size(1)] = token_mask
            self.positions = Mask.tokens(self.is_real).positions(capacity)
        # The factors that rotate q and k at every position, (capacity, 2, 1, Dh).
        table = packed.blocks[0].scheme.rotation_table(capacity, dtype, torch.device("cpu"))
        self.rotations = None if table is None else table.unsqueeze(-2)

    @torch.autocast("cpu", enabled=False)
    def read(self, tokens: Tensor) -> Tensor:
        return check_finite(self.packed.logits(check_finite(self.hidden(tokens)[:, -1])))

    @torch.autocast("cpu", enabled=False)
    def best(self, tokens: Tensor, forbidden: Tensor | None = None) -> Tensor:
        return self.packed.best(check_finite(self.hidden(tokens)[:, -1]), forbidden)

    @torch.autocast("cpu", enabled=False)
    def hidden(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → (B, T, D), what the head reads."""
        (B, T), past, n_qkv = tokens.shape, self.length, self.n_heads + 2 * self.n_groups
        self.length = past + T
        positions = self.positions[..., past : self.length]
        x = embedding(tokens.long(), self.packed.embedding)
        if self.packed.positions is not None:
            x = self.packed.positions.forward(x, positions=positions)  # without hooks
        rotation = None if self.rotations is None else self.rotations[positions]
        x = x.flatten(0, 1)  # (B·T, D)
        for block, keys_values in zip(self.packed.blocks, self.keys_values, strict=True):
            qkv = block.qkv(block.norm_attention(x)).view(B, T, n_qkv, self.d_head)
            x = x + block.out(self._attend(block, keys_values, qkv, rotation))
            x = x + block.feed_forward(x)
        return self.packed.norm(x).unflatten(0, (B, T))

    def _attend(
        self, block: PackedBlock, keys_values: Tensor, qkv: Tensor, rotation: Tensor | None
    ) -> Tensor:
        """q, k and v side by side, (B, T, H + 2G, Dh) → the mixture of values, (B·T, H·Dh)."""
        (B, T), S = qkv.shape[:2], self.length
        q, kv = qkv[:, :, : self.n_heads], qkv[:, :, self.n_heads :]
        if rotation is not None or block.norm_q is not None:
            q, kv = self._norm_and_rotate(block, q, kv, rotation)
        if self.is_real is not None:  # keys and values of padding may be NaN
            kv = kv.masked_fill(~self.is_real[:, S - T : S, None, None], 0.0)
        new = kv.view(B, T, 2, self.n_groups, self.d_head).permute(2, 0, 3, 1, 4)
        keys_values[:, :, :, S - T : S].copy_(new)
        k, v = keys_values[:, :, :, :S].unbind()  # (B, G, S, Dh)
        bias = self._distance_bias(block, T, S)
        return (self._attend_many if T > 1 else self._attend_one)(q, k, v, bias)

    def _norm_and_rotate(
        self, block: PackedBlock, q: Tensor, kv: Tensor, rotation: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys after QK-norm and rotation; values as they are."""
        k, v = kv.chunk(2, dim=2)
        if block.norm_q is not None and block.norm_k is not None:
            q, k = block.norm_q(q), block.norm_k(k)
        if rotation is not None:
            qk, (cos, sin) = torch.cat((q, k), dim=2), rotation.unbind(-3)
            qk = torch.addcmul(qk * cos, qk.roll(self.d_head // 2, -1), sin)
            q, k = qk[:, :, : self.n_heads], qk[:, :, self.n_heads :]
        return q, torch.cat((k, v), dim=2)

    def _attend_one(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, 1, H, Dh), k and v (B, G, S, Dh) → (B, H·Dh).

        The queries of the heads that share a key head form a sequence, so that no key is copied.
        """
        (B, G, S, _), shared = k.shape, self.n_heads // self.n_groups
        q = q.reshape(B, G, shared, self.d_head)
        mask = None if self.is_real is None else self.is_real[:, None, None, :S]
        if bias is not None:
            bias = bias.view(1, G, shared, S) / math.sqrt(self.d_head)
            mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask).flatten(1)

    def _attend_many(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, T, H, Dh), k and v (B, G, S, Dh) → (B·T, H·Dh)."""
        mask = Mask.causal()
        if self.is_real is not None:
            mask = mask & Mask.tokens(self.is_real[:, : self.length])
        shared = self.n_heads // self.n_groups
        if shared > 1:
            k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
        return merge_heads(ATTENTION(q.transpose(1, 2), k, v, mask=mask, bias=bias)).flatten(0, 1)

    def _distance_bias(self, block: PackedBlock, T: int, S: int) -> Tensor | None:
        """The bias by distance (H, T, S), to be added before the division by √Dh."""
        if block.scheme.acts_on != "scores":
            return None
        bias: Tensor = block.scheme.forward(T, S)  # without hooks
        return bias * math.sqrt(self.d_head) if block.scheme.has_unscaled_bias else bias

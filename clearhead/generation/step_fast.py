"""The same as step.py in few, large operations: some ten for each block.

A decoding step reads all weights once and computes little, so it is as fast as memory, if nothing
else takes time. Here the weights lie ready (packed_gpt.py), keys and values go into buffers made
once, and a greedy step reads the vocabulary table in 8 bits, without changing the answer.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import embedding, scaled_dot_product_attention

from clearhead.attention import DotProductAttention, Mask, merge_heads
from clearhead.generation.packed_gpt import Layer, PackedGPT
from clearhead.layers.feed_forward import ACTIVATIONS
from clearhead.models.checks import numbers
from clearhead.positions import AlibiBias, RotaryPositions, ToeplitzBias
from clearhead.positions.rotary import turns

ATTENTION = DotProductAttention().eval()  # that of every GPT, without its dropout


class Reader:
    """As Reader in step.py, by a PackedGPT; room for `capacity` tokens in all."""

    def __init__(
        self, packed: PackedGPT, batch_size: int, capacity: int, token_mask: Tensor | None = None
    ) -> None:
        """token_mask (B, T): True = real, of the prompt; what comes after it is real."""
        c, table = packed.config, packed.embedding
        self.packed, self.capacity, self.length = packed, capacity, 0
        self.n_heads, self.n_groups = c.n_heads, c.n_kv_heads or c.n_heads
        self.d_head = c.d_model // c.n_heads
        shape = (c.n_layers, 2, batch_size, self.n_groups, capacity, self.d_head)
        self.kept = torch.empty(shape, dtype=table.dtype)  # keys and values of every block
        self.real: Tensor | None = None
        self.positions = torch.arange(capacity)  # or (B, capacity)
        if token_mask is not None and not bool(token_mask.all()):
            self.real = torch.ones(batch_size, capacity, dtype=torch.bool)
            self.real[:, : token_mask.size(1)] = token_mask
            self.positions = Mask.tokens(self.real).positions(capacity)
        self.turns = self._all_turns()

    def read(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → logits (B, V) of the one that follows."""
        return numbers(self.packed.logits(numbers(self.hidden(tokens)[:, -1])))

    def best(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → the most likely one that follows, (B,)."""
        return self.packed.best(numbers(self.hidden(tokens)[:, -1]))

    def hidden(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → (B, T, D), what the head reads."""
        (B, T), past = tokens.shape, self.length
        S = self.length = past + T
        positions = self.positions[..., past:S]
        x = embedding(tokens.long(), self.packed.embedding)
        if self.packed.positions is not None:
            x = self.packed.positions(x, positions=positions)
        turned = None if self.turns is None else self.turns[positions]  # (T, 2, 1, Dh), with B
        x = x.flatten(0, 1)  # (B·T, D)
        for layer, kept in zip(self.packed.layers, self.kept, strict=True):
            heard = self._listen(layer, kept, layer.qkv(layer.norm_attention(x)), B, T, turned)
            x = x + layer.out(heard)
            x = x + layer.outer(self._activate(layer.inner(layer.norm_feed_forward(x))))
        return self.packed.norm(x).unflatten(0, (B, T))

    def _listen(
        self, layer: Layer, kept: Tensor, qkv: Tensor, B: int, T: int, turned: Tensor | None
    ) -> Tensor:
        """q, k and v side by side, (B·T, (H + 2G)·Dh) → (B·T, D), what the tokens hear."""
        S, H = self.length, self.n_heads
        heads = qkv.view(B, T, -1, self.d_head)  # (B, T, H + 2G, Dh)
        q, kv = heads[:, :, :H], heads[:, :, H:]
        if turned is not None or layer.norm_q is not None:
            q, kv = self._placed(layer, q, kv, turned)
        if self.real is not None:  # what padding holds, be it NaN, shall reach nobody
            kv = kv.masked_fill(~self.real[:, S - T : S, None, None], 0.0)
        room = kept[:, :, :, S - T : S]
        room.copy_(kv.view(B, T, 2, -1, self.d_head).permute(2, 0, 3, 1, 4))
        k, v = kept[:, :, :, :S].unbind()  # (B, G, S, Dh)
        bias = self._bias(layer, T, S)
        if T > 1:
            return self._listen_many(q.transpose(1, 2), k, v, bias)
        # One query: those that share a key head stand in for a sequence, so no key is copied.
        q = q.reshape(B, self.n_groups, -1, self.d_head)
        allowed = None if self.real is None else self.real[:, None, None, :S]
        if bias is not None:
            bias = bias.view(1, self.n_groups, -1, S) / math.sqrt(self.d_head)
            allowed = bias if allowed is None else bias.masked_fill(~allowed, -math.inf)
        return scaled_dot_product_attention(q, k, v, attn_mask=allowed).view(B, -1)

    def _placed(
        self, layer: Layer, q: Tensor, kv: Tensor, turned: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys after QK-norm and rotation; values as they are."""
        k, v = kv.chunk(2, dim=2)
        if layer.norm_q is not None and layer.norm_k is not None:
            q, k = layer.norm_q(q), layer.norm_k(k)
        if turned is not None:
            qk, (cos, sin) = torch.cat((q, k), dim=2), turned.unbind(-3)
            qk = torch.addcmul(qk * cos, qk.roll(self.d_head // 2, -1), sin)
            q, k = qk[:, :, : self.n_heads], qk[:, :, self.n_heads :]
        return q, torch.cat((k, v), dim=2)

    def _bias(self, layer: Layer, T: int, S: int) -> Tensor | None:
        """A bias by distance (H, T, S), to be added before the division by √Dh."""
        if not isinstance(layer.scheme, AlibiBias | ToeplitzBias):
            return None
        bias: Tensor = layer.scheme(T, S)
        return bias * math.sqrt(self.d_head) if layer.scheme.after_scaling else bias

    def _listen_many(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, T, Dh), k and v (B, G, S, Dh) → (B·T, D)."""
        mask = Mask.causal()
        if self.real is not None:
            mask = mask & Mask.tokens(self.real[:, : self.length])
        shared = q.size(1) // k.size(1)
        if shared > 1:
            k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
        return merge_heads(ATTENTION(q, k, v, mask=mask, bias=bias)).flatten(0, 1)

    def _activate(self, inner: Tensor) -> Tensor:
        activate = ACTIVATIONS[self.packed.config.activation]
        if self.packed.config.activation != "swiglu":
            return activate(inner)
        gate, value = inner.chunk(2, dim=-1)
        return activate(gate) * value

    def _all_turns(self) -> Tensor | None:
        """The rotations of all positions, (capacity, 2, 1, Dh)."""
        scheme = self.packed.layers[0].scheme
        if not isinstance(scheme, RotaryPositions):
            return None
        table = turns(torch.arange(self.capacity), self.d_head, scheme.base)
        return table.to(self.kept.dtype).unsqueeze(-2)

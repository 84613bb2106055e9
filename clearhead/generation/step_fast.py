"""The same as step.py in few, large operations: some ten for each block.

A decoding step reads all weights once and computes little, so it is as fast as memory, if nothing
else takes time. Here q, k and v are one product, a gate and its partner another; weights lie the
way that this machine reads fastest (products.py); keys and values go into buffers made once; and a
greedy step reads the vocabulary table in 8 bits, without changing the answer (best_word.py).
"""

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from clearhead.attention import DotProductAttention, Mask, MultiHeadAttention, merge_heads
from clearhead.generation.best_word import BestWord
from clearhead.generation.products import SMALLEST, Int8Product, Product, lay_out
from clearhead.generation.step import numbers
from clearhead.layers import Block, LayerNorm, RMSNorm
from clearhead.layers.feed_forward import ACTIVATIONS
from clearhead.models import GPT, GPTConfig
from clearhead.models.model import empty_model
from clearhead.positions import RotaryPositions
from clearhead.positions.rotary import turns
from clearhead.shapes import check_choice

__all__ = ["PackedGPT", "Reader", "can_pack", "packed"]

ATTENTION = DotProductAttention().eval()  # that of every GPT, without its dropout

Norm = Callable[[Tensor], Tensor]
Structure = tuple[tuple[str, type, tuple[tuple[str, object], ...]], ...]


@dataclass(frozen=True)
class _Layer:
    """One block, ready to run."""

    norm_attention: Norm
    qkv: Product
    out: Product
    norm_feed_forward: Norm
    inner: Product
    outer: Product


def _norm(module: nn.Module | None) -> Norm:
    """A norm without its checks."""
    if module is None or isinstance(module, nn.Identity):
        return lambda x: x
    if isinstance(module, RMSNorm):
        width, gain, eps = (module.d_model,), module.gain.detach(), module.eps
        return lambda x: torch.rms_norm(x, width, gain, eps)
    if isinstance(module, LayerNorm):
        width, gain, eps = (module.d_model,), module.gain.detach(), module.eps
        shift = None if module.shift is None else module.shift.detach()
        return lambda x: torch.layer_norm(x, width, gain, shift, eps)
    raise TypeError(f"a norm must be a LayerNorm or RMSNorm, got {type(module).__name__}")


def _join(layers: tuple[nn.Linear, ...]) -> tuple[Tensor, Tensor | None]:
    """One weight and bias for layers that read the same input."""
    if len(layers) == 1:
        bias = layers[0].bias
        return layers[0].weight.detach(), None if bias is None else bias.detach()
    weight = torch.cat([layer.weight.detach() for layer in layers])
    has_bias = layers[0].bias is not None
    return weight, torch.cat([layer.bias.detach() for layer in layers]) if has_bias else None


def _inner_layers(block: Block) -> tuple[nn.Linear, ...]:
    gate, value = block.feed_forward.proj_gate, block.feed_forward.proj_in
    return (value,) if gate is None else (gate, value)


def can_pack(model: nn.Module) -> bool:
    """A GPT as its config says, on the CPU, in one precision, that nobody watches."""
    return (
        type(model) is GPT
        and model.embedding.weight.device.type == "cpu"
        and model.embedding.weight.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and _structure(model) == _built(model.config)
        and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    )


@cache
def _built(config: GPTConfig) -> Structure:
    """The structure of a model fresh from its config."""
    return _structure(empty_model(GPT, config))


def _structure(model: nn.Module) -> Structure:
    """The kind, the settings and the shapes of every part, by its name."""
    parts = model.named_modules(remove_duplicate=False)
    return tuple((name, type(part), _settings(part)) for name, part in parts)


def _settings(part: nn.Module) -> tuple[tuple[str, object], ...]:
    """A part's plain values, a forward of its own, and the shapes of its tensors."""
    values = [(key, value) for key, value in vars(part).items() if _is_setting(key, value)]
    tensors = [*part._parameters.items(), *part._buffers.items()]
    shapes = [(key, None if tensor is None else tensor.shape) for key, tensor in tensors]
    return *values, *shapes


def _is_setting(key: str, value: object) -> bool:
    plain = isinstance(value, int | float | str | tuple | None)
    return key == "forward" or (plain and not key.startswith("_") and key != "training")


class PackedGPT:
    """A GPT's weights laid out for decoding. It does not follow later changes of the model."""

    def __init__(self, model: GPT, weights: str = "float", n_rows: int = 1) -> None:
        """weights: "float", as the model has them, or "int8"; n_rows: the batch to be fast for."""
        check_choice("weights", weights, ("float", "int8"))
        self.config, self.weights = model.config, weights
        # Parts, not the model: who holds its packed form shall not keep it alive.
        self.embedding, self.positions = model.embedding, model.positions
        blocks: Sequence[Block] = list(model.stack.blocks)  # type: ignore[arg-type]
        self.attentions = [block.attention for block in blocks]

        def laid_out(of: Callable[[Block], tuple[nn.Linear, ...]]) -> Sequence[Product]:
            joined = [_join(of(block)) for block in blocks]
            if weights == "int8":
                return [Int8Product(*pair) for pair in joined]
            return lay_out(joined, n_rows)

        self.layers = [
            _Layer(*parts)
            for parts in zip(
                (_norm(block.norm_attention) for block in blocks),
                laid_out(lambda b: (b.attention.proj_q, b.attention.proj_k, b.attention.proj_v)),
                laid_out(lambda b: (b.attention.proj_out,)),
                (_norm(block.norm_feed_forward) for block in blocks),
                laid_out(_inner_layers),
                laid_out(lambda b: (b.feed_forward.proj_out,)),
                strict=True,
            )
        ]
        self.norm = _norm(model.stack.norm)
        table = model.head.weight.detach()
        self.best_word = BestWord(table) if self._can_search(table) else None
        self.head = self._head(table, n_rows)

    def _head(self, table: Tensor, n_rows: int) -> Product:
        if self.weights == "int8":
            return Int8Product(table, None)
        return lay_out([(table, None)], n_rows)[0]

    def _can_search(self, table: Tensor) -> bool:
        """Whether the largest product is the answer; a cap can make several logits equal."""
        return (
            self.weights == "float"
            and self.config.soft_cap is None
            and table.dtype == torch.float32
            and min(table.shape) >= SMALLEST
            and bool(table.isfinite().all())
        )

    def logits(self, x: Tensor) -> Tensor:
        """x (B, D) → (B, V)."""
        logits, cap = self.head(x), self.config.soft_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def best(self, x: Tensor) -> Tensor:
        """x (B, D) → the index of the largest logit, (B,)."""
        return numbers(self.logits(x)).argmax(-1) if self.best_word is None else self.best_word(x)


class Reader:
    """As Reader in step.py, by a PackedGPT; room for `capacity` tokens in all."""

    def __init__(
        self, packed: PackedGPT, batch_size: int, capacity: int, token_mask: Tensor | None = None
    ) -> None:
        """token_mask (B, T): True = real, of the prompt; what comes after it is real."""
        c, table = packed.config, packed.embedding.weight
        self.packed, self.capacity, self.length = packed, capacity, 0
        self.n_groups = c.n_kv_heads or c.n_heads
        self.d_head = c.d_model // c.n_heads
        shape = (c.n_layers, 2, batch_size, self.n_groups, capacity, self.d_head)
        self.kept = torch.empty(shape, dtype=table.dtype)  # keys and values of every block
        self.real: Tensor | None = None
        if token_mask is not None and not bool(token_mask.all()):
            self.real = torch.ones(batch_size, capacity, dtype=torch.bool)
            self.real[:, : token_mask.size(1)] = token_mask
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
        positions = self._positions(T, S)
        x = self.packed.embedding(tokens.long())
        if self.packed.positions is not None:
            x = self.packed.positions(x, positions=positions)
        turned = None if self.turns is None else self.turns[positions]  # (T, 2, 1, Dh), with B
        x = x.flatten(0, 1)  # (B·T, D)
        for index, layer in enumerate(self.packed.layers):
            heard = self._listen(index, layer.qkv(layer.norm_attention(x)), B, T, turned)
            x = x + layer.out(heard)
            x = x + layer.outer(self._activate(layer.inner(layer.norm_feed_forward(x))))
        return self.packed.norm(x).unflatten(0, (B, T))

    def _listen(self, index: int, qkv: Tensor, B: int, T: int, turned: Tensor | None) -> Tensor:
        """q, k and v side by side, (B·T, (H + 2G)·Dh) → (B·T, D), what the tokens hear."""
        attention, S = self.packed.attentions[index], self.length
        heads = qkv.view(B, T, -1, self.d_head)  # (B, T, H + 2G, Dh)
        q, kv = heads[:, :, : attention.n_heads], heads[:, :, attention.n_heads :]
        if turned is not None or attention.norm_q is not None:
            q, kv = self._placed(attention, q, kv, turned)
        if self.real is not None:  # what padding holds, be it NaN, shall reach nobody
            kv = kv.masked_fill(~self.real[:, S - T : S, None, None], 0.0)
        room = self.kept[index, :, :, :, S - T : S]
        room.copy_(kv.view(B, T, 2, -1, self.d_head).permute(2, 0, 3, 1, 4))
        k, v = self.kept[index, :, :, :, :S].unbind()  # (B, G, S, Dh)
        bias = attention.with_position_bias(None, T, S)
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
        self, attention: MultiHeadAttention, q: Tensor, kv: Tensor, turned: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys after QK-norm and rotation; values as they are."""
        k, v = kv.chunk(2, dim=2)
        if attention.norm_q is not None and attention.norm_k is not None:
            q, k = attention.norm_q(q), attention.norm_k(k)
        if turned is not None:
            qk, (cos, sin) = torch.cat((q, k), dim=2), turned.unbind(-3)
            qk = torch.addcmul(qk * cos, qk.roll(self.d_head // 2, -1), sin)
            q, k = qk[:, :, : attention.n_heads], qk[:, :, attention.n_heads :]
        return q, torch.cat((k, v), dim=2)

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

    def _positions(self, T: int, S: int) -> Tensor:
        """Where the last T of S tokens stand, (T,) or (B, T)."""
        if self.real is None:
            return torch.arange(S - T, S)
        return Mask.tokens(self.real[:, :S]).positions(T, S)

    def _all_turns(self) -> Tensor | None:
        """The rotations of all positions, (capacity, 2, 1, Dh)."""
        scheme = self.packed.attentions[0].positions
        if not isinstance(scheme, RotaryPositions):
            return None
        table = turns(torch.arange(self.capacity), self.d_head, scheme.base)
        return table.to(self.kept.dtype).unsqueeze(-2)


Fingerprint = list[tuple[int, Tensor]]

# Models and their packed forms: made once, made again when a number of the model has changed.
Forms = dict[tuple[str, bool, GPTConfig], tuple[Fingerprint, PackedGPT]]
_PACKED: weakref.WeakKeyDictionary[GPT, Forms] = weakref.WeakKeyDictionary()


def packed(model: GPT, weights: str = "float", n_rows: int = 1) -> PackedGPT:
    """The packed form of a model, remembered until one of its parameters changes."""
    forms, now = _PACKED.setdefault(model, {}), _fingerprint(model)
    key = (weights, n_rows > 1, model.config)
    if key not in forms or not _same(forms[key][0], now):
        forms[key] = (now, PackedGPT(model, weights, n_rows))
    return forms[key][1]


def _fingerprint(model: GPT) -> Fingerprint:
    """Where each parameter lies, and a number for each of its rows that depends on all values."""
    with torch.inference_mode():
        return [(p.data_ptr(), _row_sums(p)) for p in model.parameters()]


def _row_sums(x: Tensor) -> Tensor:
    """Each row times a fixed random vector: any change shows that a product would notice."""
    rows = x.reshape(x.size(0), -1)
    generator = torch.Generator().manual_seed(0)
    return rows @ torch.randn(rows.size(1), generator=generator).to(x.dtype)


def _same(one: Fingerprint, other: Fingerprint) -> bool:
    return len(one) == len(other) and all(
        place == other_place and torch.equal(sums, other_sums)
        for (place, sums), (other_place, other_sums) in zip(one, other, strict=True)
    )

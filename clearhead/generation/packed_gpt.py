"""A GPT's weights laid out for decoding: copied once, read at every step (step_fast.py).

    q, k and v side by side     one product for each block, and one for a gate and its partner
    each weight                 as this machine reads it fastest, or in 8 bits (products.py)
    the vocabulary table        also in 8 bits, to find the best word in (best_word.py)

`packed` remembers the form of a model and makes it again when a number of the model has changed.
"""

import copy
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from clearhead.generation.best_word import BestWord
from clearhead.generation.products import SMALLEST, Int8Product, Product, lay_out
from clearhead.layers import Block, LayerNorm, RMSNorm, capped
from clearhead.models import GPT, GPTConfig
from clearhead.models.checks import numbers
from clearhead.models.model import empty_model
from clearhead.shapes import all_finite, check_choice

PRECISIONS = ({("cpu", torch.float32)}, {("cpu", torch.float64)})

Norm = Callable[[Tensor], Tensor]
Structure = tuple[tuple[str, type, tuple[tuple[str, object], ...]], ...]


@dataclass(frozen=True)
class Layer:
    """One block, ready to run; nothing of it is the model's own."""

    norm_attention: Norm
    qkv: Product
    scheme: nn.Module | None  # the positions inside attention
    norm_q: nn.Module | None  # QK-norm
    norm_k: nn.Module | None
    out: Product
    norm_feed_forward: Norm
    inner: Product
    outer: Product


def _copy(part: Any) -> Any:
    """A module or a parameter of its own memory, that learns nothing."""
    return None if part is None else copy.deepcopy(part).requires_grad_(False)


def _norm(module: nn.Module | None) -> Norm:
    """A norm without its checks."""
    if module is None or isinstance(module, nn.Identity):
        return lambda x: x
    if isinstance(module, RMSNorm):
        width, gain, eps = (module.d_model,), _copy(module.gain), module.eps
        return lambda x: torch.rms_norm(x, width, gain, eps)
    if isinstance(module, LayerNorm):
        width, gain, shift = (module.d_model,), _copy(module.gain), _copy(module.shift)
        eps = module.eps
        return lambda x: torch.layer_norm(x, width, gain, shift, eps)
    raise TypeError(f"a norm must be a LayerNorm or RMSNorm, got {type(module).__name__}")


def _join(layers: tuple[nn.Linear, ...]) -> tuple[Tensor, Tensor | None]:
    """One weight and bias, copied, for layers that read the same input."""
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
        and {(p.device.type, p.dtype) for p in model.parameters()} in PRECISIONS
        and not torch.is_autocast_enabled("cpu")
        and _structure(model) == _built(model.config)
        and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        and not _has_any_global_hook()
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
    """A GPT's weights laid out for decoding, all copied: it never follows a change of the model."""

    def __init__(self, model: GPT, weights: str = "float", n_rows: int = 1) -> None:
        """weights: "float", as the model has them, or "int8"; n_rows: the batch to be fast for."""
        check_choice("weights", weights, ("float", "int8"))
        self.config, self.weights = model.config, weights
        table: Tensor = _copy(model.head.weight)
        tied = model.head.weight is model.embedding.weight
        self.embedding: Tensor = table if tied else _copy(model.embedding.weight)
        self.positions = _copy(model.positions)
        blocks: Sequence[Block] = list(model.stack.blocks)  # type: ignore[arg-type]

        def laid_out(of: Callable[[Block], tuple[nn.Linear, ...]]) -> Sequence[Product]:
            joined = [_join(of(block)) for block in blocks]
            if weights == "int8":
                return [Int8Product(*pair) for pair in joined]
            return lay_out(joined, n_rows)

        self.layers = [
            Layer(*parts)
            for parts in zip(
                (_norm(block.norm_attention) for block in blocks),
                laid_out(lambda b: (b.attention.proj_q, b.attention.proj_k, b.attention.proj_v)),
                (_copy(block.attention.positions) for block in blocks),
                (_copy(block.attention.norm_q) for block in blocks),
                (_copy(block.attention.norm_k) for block in blocks),
                laid_out(lambda b: (b.attention.proj_out,)),
                (_norm(block.norm_feed_forward) for block in blocks),
                laid_out(_inner_layers),
                laid_out(lambda b: (b.feed_forward.proj_out,)),
                strict=True,
            )
        ]
        self.norm = _norm(model.stack.norm)
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
            and all_finite(table)
        )

    def logits(self, x: Tensor) -> Tensor:
        """x (B, D) → (B, V)."""
        return capped(self.head(x), self.config.soft_cap)

    def best(self, x: Tensor) -> Tensor:
        """x (B, D) → the index of the largest logit, (B,)."""
        if self.best_word is None:
            return numbers(self.logits(x)).argmax(-1)
        words = self.best_word(x)
        # A product too large for a number would have won.
        numbers((x * self.best_word.weight[words]).sum(-1))
        return words


Fingerprint = list[tuple[int, int, Tensor]]

# Models and their packed forms: made once, made again when a number of the model has changed.
Forms = dict[tuple[str, bool, GPTConfig], tuple[Fingerprint, PackedGPT]]
_PACKED: weakref.WeakKeyDictionary[GPT, Forms] = weakref.WeakKeyDictionary()


def packed(model: GPT, weights: str = "float", n_rows: int = 1) -> PackedGPT:
    """The packed form of a model, remembered until one of its numbers changes."""
    forms, now = _PACKED.setdefault(model, {}), _fingerprint(model)
    key = (weights, weights == "float" and n_rows > 1, model.config)  # 8 bits lie one way only
    if key not in forms or not _same(forms[key][0], now):
        forms[key] = (now, PackedGPT(model, weights, n_rows))
    return forms[key][1]


def _fingerprint(model: GPT) -> Fingerprint:
    """Where each tensor lies, how often it was written to, and a number for each of its rows.

    PyTorch does not count what is written through `.data`; the numbers depend on all values.
    """
    with torch.inference_mode():
        tensors = [*model.parameters(), *model.buffers()]
        return [
            (x.data_ptr(), 0 if x.is_inference() else x._version, _row_sums(x)) for x in tensors
        ]


def _row_sums(x: Tensor) -> Tensor:
    """Each row times a fixed random vector: any change shows that a product would notice."""
    rows = x.reshape(x.size(0), -1)
    generator = torch.Generator().manual_seed(0)
    return rows @ torch.randn(rows.size(1), generator=generator).to(x.dtype)


def _same(one: Fingerprint, other: Fingerprint) -> bool:
    return len(one) == len(other) and all(
        a[:2] == b[:2] and torch.equal(a[2], b[2]) for a, b in zip(one, other, strict=True)
    )

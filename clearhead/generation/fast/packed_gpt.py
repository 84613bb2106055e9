"""pack: a snapshot of a GPT's weights, laid out for decoding token by token on a CPU.

    packed = pack(model)                     copies the weights once; packed.n_bytes says how many
    generate(packed, tokens, n_tokens)       the tokens of generate(model, tokens, n_tokens), faster

    q, k and v side by side     one product per block, and one for a gate and its partner
    each matrix                 in the layout this machine reads fastest, or in 8 bits (layouts.py)
    the vocabulary table        also in 8 bits, to find the best word in (best_word.py)

Only weights are packed: a later change of the model does not change the snapshot, and hooks of the
model, such as those of `record`, do not run in it.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.generation.fast.best_word import BestWord
from clearhead.generation.fast.layouts import SMALLEST, Int8Product, Product, choose_layout
from clearhead.layers import Block, LayerNorm, RMSNorm, apply_soft_cap
from clearhead.layers.feed_forward import ACTIVATIONS
from clearhead.models import GPT, GPTConfig
from clearhead.models.checks import check_finite
from clearhead.models.forbidden import rule_out
from clearhead.models.registry import build_on_meta
from clearhead.positions import PositionScheme
from clearhead.shapes import all_finite, check_choice, check_positive

# From this many tokens on packing saves more time than it takes. Measured: about 25 for a tiny
# model, 35 for 6 blocks of width 384, 80 for GPT-2 small.
WORTH_PACKING = 40

Norm = Callable[[Tensor], Tensor]


def pack(model: nn.Module, *, weights: str = "float", n_rows: int = 1) -> "PackedGPT":
    """Copy a model's weights into a form for fast decoding on a CPU.

    weights: "float", as the model has them, or "int8": a quarter of the bytes in every matrix, so
    faster, and slightly less exact. n_rows: the batch size to choose the fastest layouts for; any
    batch can be generated. The copy takes memory beside the model (n_bytes): in "float" the size of
    the model and up to 1.3 vocabulary tables. A model that cannot be packed is an error that says
    why.
    """
    check_choice("weights", weights, ("float", "int8"))
    check_positive(n_rows=n_rows)
    if not isinstance(model, GPT):
        raise TypeError(f"model must be a GPT to be packed, got {type(model).__name__}")
    if obstacle := find_obstacle(model):
        raise ValueError(f"model cannot be packed: {obstacle}, or generate with the model itself")
    return PackedGPT(model, weights, n_rows)


def can_pack(model: nn.Module) -> bool:
    """Whether pack takes this model: a GPT as its config builds it, on the CPU, of one dtype."""
    return find_obstacle(model) is None


def pack_if_it_pays(model: GPT, n_tokens: int, n_rows: int = 1) -> "GPT | PackedGPT":
    """The model, packed if it can be and if generating n_tokens makes up for the time it takes."""
    if n_tokens < WORTH_PACKING or not can_pack(model):
        return model
    return PackedGPT(model, n_rows=n_rows)


def find_obstacle(model: nn.Module) -> str | None:
    """Why a model cannot be packed and what to do about it; None if it can."""
    if type(model) is not GPT:
        return f"it is a {type(model).__name__}; build a GPT with its weights"
    if type(model.config) is not GPTConfig:  # which may build another attention
        return f"its config is a {type(model.config).__name__}; give it a GPTConfig"
    devices = {parameter.device.type for parameter in model.parameters()}
    if devices != {"cpu"}:
        return f"it is on {' and '.join(sorted(devices))}; move it to the CPU with model.cpu()"
    dtypes = {parameter.dtype for parameter in model.parameters()}
    if dtypes not in ({torch.float32}, {torch.float64}):
        found = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        return f"its weights are {found}; convert all of them with model.float()"
    if (name := _find_changed_part(model)) is not None:
        return f"its part {name!r} is not the one its config builds; put that back"
    if any(_is_changed(part) for part in model.modules()):
        return "an intervention on it is open, which a copy would not have; generate with the model"
    return None


def _is_changed(module: nn.Module) -> bool:
    """Whether an intervention (inspection/edits.py) changes what the module computes."""
    owners = (getattr(hook, "__self__", None) for hook in module._forward_hooks.values())
    return any(getattr(owner, "changes_values", False) for owner in owners)


def _find_changed_part(model: GPT) -> str | None:
    """The name of a part of another kind or with other settings than the config says."""
    parts = dict(model.named_modules(remove_duplicate=False))
    expected = dict(build_on_meta(GPT, model.config).named_modules(remove_duplicate=False))
    for name, part in parts.items():
        other = expected.get(name)
        if other is None or type(part) is not type(other):
            return name
        if part.extra_repr() != other.extra_repr() or "forward" in vars(part):
            return name
        if isinstance(part, Block) and not part.pre_norm:  # extra_repr does not show it
            return name
    return next((name for name in expected if name not in parts), None)


class PackedGPT:
    """A GPT's weights laid out for decoding; all of them are copies."""

    def __init__(self, model: GPT, weights: str = "float", n_rows: int = 1) -> None:
        """Arguments as in pack, which checks them."""
        self.config, self.weights = model.config, weights

        def lay_out(pairs: list[tuple[Tensor, Tensor | None]]) -> Sequence[Product]:
            """The same layer of every block."""
            if weights == "int8":
                return [Int8Product(*pair) for pair in pairs]
            return choose_layout(pairs, n_rows)

        table: Tensor = _copy(model.head.weight)
        is_tied = model.head.weight is model.embedding.weight
        self.embedding: Tensor = table if is_tied else _copy(model.embedding.weight)
        self.positions = _copy(model.positions)
        blocks: list[Block] = list(model.stack.blocks)  # type: ignore[arg-type]
        attentions, feed_forwards = [b.attention for b in blocks], [b.feed_forward for b in blocks]
        products = zip(
            lay_out([_join(a.proj_q, a.proj_k, a.proj_v) for a in attentions]),
            lay_out([_join(a.proj_out) for a in attentions]),
            lay_out([_join(f.proj_gate, f.proj_in) for f in feed_forwards]),
            lay_out([_join(f.proj_out) for f in feed_forwards]),
            strict=True,
        )
        pairs = zip(blocks, products, strict=True)
        self.blocks = [PackedBlock(block, *matrices) for block, matrices in pairs]
        self.norm = _pack_norm(model.stack.norm)
        self.head = lay_out([(table, _copy(model.head.bias))])[0]
        self.best_word = BestWord(table) if self._can_search(table) else None

    @property
    def n_bytes(self) -> int:
        """The memory its tensors take; each stream adds its own keys and values."""
        storages = [tensor.untyped_storage() for tensor in _find_tensors(self)]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def logits(self, x: Tensor) -> Tensor:
        """x (B, D) → (B, V)."""
        return apply_soft_cap(self.head(x), self.config.soft_cap)

    def best(self, x: Tensor, forbidden: Tensor | None = None) -> Tensor:
        """x (B, D) → the index of the largest logit, (B,); forbidden (n,): words left out."""
        if self.best_word is None:
            return rule_out(check_finite(self.logits(x)), forbidden).argmax(-1)
        words = self.best_word(x, forbidden)
        # If any product were infinite, it would be the largest, so checking the best is enough.
        check_finite((x * self.best_word.weight[words]).sum(-1))
        return words

    def _can_search(self, table: Tensor) -> bool:
        """Whether the largest product is the answer; a soft cap can make several logits equal, and
        a bias is no part of the product."""
        return (
            self.weights == "float"
            and self.config.soft_cap is None
            and not self.config.head_bias
            and table.dtype == torch.float32
            and min(table.shape) >= SMALLEST
            and all_finite(table)
        )


class PackedBlock:
    """The weights of one pre-norm block; packed_reader.py computes its attention."""

    def __init__(
        self, block: Block, qkv: Product, out: Product, inner: Product, outer: Product
    ) -> None:
        """block, and its matrices laid out already."""
        attention = block.attention
        self.qkv, self.out, self.inner, self.outer = qkv, out, inner, outer
        self.norm_attention = _pack_norm(block.norm_attention)
        self.norm_feed_forward = _pack_norm(block.norm_feed_forward)
        self.norm_q, self.norm_k = _pack_qk_norm(attention.norm_q), _pack_qk_norm(attention.norm_k)
        # The positions inside attention; a bare PositionScheme does nothing.
        self.scheme: PositionScheme = _copy(attention.positions or PositionScheme())
        self.activation = block.feed_forward.activation

    def feed_forward(self, x: Tensor) -> Tensor:
        """x (N, D) → (N, D): norm, inner layer, activation, outer layer."""
        inner, activate = self.inner(self.norm_feed_forward(x)), ACTIVATIONS[self.activation]
        if self.activation == "swiglu":
            gate, inner = inner.chunk(2, dim=-1)
            return self.outer(activate(gate) * inner)
        return self.outer(activate(inner))


def _pack_norm(module: nn.Module | None) -> Norm:
    """A norm without its checks."""
    if not isinstance(module, LayerNorm | RMSNorm):
        return nn.Identity()
    width, gain, eps = (module.d_model,), _copy(module.gain), module.eps
    if isinstance(module, RMSNorm):
        return partial(torch.rms_norm, normalized_shape=width, weight=gain, eps=eps)
    shift = _copy(module.shift)
    return partial(torch.layer_norm, normalized_shape=width, weight=gain, bias=shift, eps=eps)


def _pack_qk_norm(module: nn.RMSNorm | None) -> Norm | None:
    if module is None:
        return None
    width, gain = module.normalized_shape, _copy(module.weight)
    return partial(torch.rms_norm, normalized_shape=width, weight=gain, eps=module.eps)


def _join(*layers: nn.Linear | None) -> tuple[Tensor, Tensor | None]:
    """One weight and bias, copied, for layers that read the same input; None is left out."""
    present = [layer for layer in layers if layer is not None]
    weight = torch.cat([layer.weight.detach() for layer in present])
    biases = [layer.bias.detach() for layer in present if layer.bias is not None]
    return weight, torch.cat(biases) if biases else None


def _copy(part: Any) -> Any:
    """A module or parameter in memory of its own, without gradients; None stays None."""
    return None if part is None else copy.deepcopy(part).requires_grad_(False)


def _find_tensors(part: object) -> Iterator[Tensor]:
    """Every tensor that a packed part holds, at any depth."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, nn.Module):
        yield from (*part.parameters(), *part.buffers())
    elif isinstance(part, list):
        for each in part:
            yield from _find_tensors(each)
    elif hasattr(part, "__dict__"):
        held = part.keywords if isinstance(part, partial) else vars(part)
        yield from _find_tensors(list(held.values()))

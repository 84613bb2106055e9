"""Numbers that say what attention does: tensors in, tensors out.

    entropy(w)[t]   = −Σ_s w[t, s] ln w[t, s]           0 for one key, ln S for all keys alike
    distance(w)[t]  = Σ_s w[t, s] |position of t − s|   how far away a query looks, in tokens
    rollout         = Ā_L ··· Ā_1 with Ā = (mean over heads + I) / 2, rows summing to 1

Rollout (Abnar & Zuidema 2020) multiplies the layers: in each, half of a token comes from its own
residual path and half from the tokens it attends to. Queries are the last T of S positions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.inspection.record import Trace
from clearhead.positions.tables import offsets
from clearhead.runtime import widen
from clearhead.shapes import check_choice, check_float_tensor, check_positive, format_shape

Layers = Trace | Mapping[str, Any] | Sequence[Any]


def entropy(weights: Tensor) -> Tensor:
    """How spread out each query's attention is, in nats: (..., T, S) → (..., T); 0 if empty."""
    check_float_tensor("weights", weights, min_axes=2)
    return torch.special.entr(widen(weights)).sum(dim=-1)


def distance(weights: Tensor) -> Tensor:
    """The mean distance from each query to its keys, in tokens: (..., T, S) → (..., T)."""
    check_float_tensor("weights", weights, min_axes=2)
    T, S = weights.shape[-2:]
    return (widen(weights) * offsets(T, S, weights.device).abs()).sum(dim=-1)


def rollout(layers: Layers) -> Tensor:
    """How much of each input token is in each output token: L × (B, H, T, T) → (B, T, T).

    layers: the first layer first; a Trace, a list of tensors, or a mapping from names to tensors.
    """
    named = name_layers(layers)
    check_one_size(named, square=True)
    first = next(iter(named.values()))
    identity = torch.eye(first.size(-1), dtype=widen(first).dtype, device=first.device)
    product = identity.expand(first.size(0), -1, -1)
    for weights in named.values():
        layer = (widen(weights).mean(dim=1) + identity) / 2  # (B, T, T)
        product = layer / layer.sum(dim=-1, keepdim=True) @ product
    return product


def mean_attention(layers: Layers) -> Tensor:
    """The mean over all heads and layers: L × (B, H, T, S) → (B, T, S)."""
    every = name_layers(layers).values()
    return torch.stack([widen(weights).mean(dim=1) for weights in every]).mean(dim=0)


def class_token_map(layers: Layers, grid: tuple[int, int], method: str = "mean") -> Tensor:
    """Which patches the class token attends to: L × (B, H, 1 + P, 1 + P) → (B, rows, columns).

    The class token is token 0; the P = rows · columns patches follow row by row. "mean" averages
    the attention over heads and layers, "rollout" multiplies the layers.
    """
    check_choice("method", method, ("mean", "rollout"))
    rows, columns = grid
    check_positive(rows=rows, columns=columns)
    named = name_layers(layers)
    S = check_one_size(named, square=True)[1]
    if 1 + rows * columns != S:
        raise ValueError(
            f"grid is {rows} × {columns} = {rows * columns} patches but layers have {S} tokens; "
            f"with the class token they must have {1 + rows * columns}"
        )
    weights = rollout(named) if method == "rollout" else mean_attention(named)
    return weights[:, 0, 1:].unflatten(-1, (rows, columns))


def name_layers(layers: Layers, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """Give the weights of each layer a name: name → (B, H, T, S).

    layers: a Trace, a mapping, or a list of tensors or arrays such as other libraries return.
    """
    if isinstance(layers, Trace):
        found = layers.layers
    elif isinstance(layers, Mapping):
        found = {str(name): _as_tensor(str(name), x) for name, x in layers.items()}
    elif isinstance(layers, list | tuple):
        found = {f"layer {i}": _as_tensor(f"layers[{i}]", x) for i, x in enumerate(layers)}
    else:
        raise TypeError(
            f"layers must be a Trace or a list of (B, H, T, S) weights, got "
            f"{type(layers).__name__}; put a single layer into a list: [weights]"
        )
    if not found:
        raise ValueError("layers is empty; give the weights of at least one layer")
    if names is not None:
        if len(names) != len(found):
            raise ValueError(f"names has {len(names)} entries but there are {len(found)} layers")
        if len(set(names)) < len(names):
            raise ValueError(f"names must differ from each other, got {list(names)}")
        found = dict(zip(names, found.values(), strict=True))
    return found


def check_one_size(named: dict[str, Tensor], square: bool = False) -> tuple[int, int]:
    """Check that all layers have one batch size and one T × S; returns (T, S)."""
    batches = {weights.size(0) for weights in named.values()}
    if len(batches) > 1:
        raise ValueError(f"layers must have one batch size, got {sorted(batches)}")
    sizes = {name: tuple(weights.shape[-2:]) for name, weights in named.items()}
    T, S = next(iter(sizes.values()))
    other = next((name for name, size in sizes.items() if size != (T, S)), None)
    if other is not None:
        raise ValueError(
            f"layers must have one size, got {T} × {S} in {next(iter(sizes))!r} and "
            f"{sizes[other][0]} × {sizes[other][1]} in {other!r}; give those of one kind, such as "
            f"{{name: call.weights for name, call in trace.attention.items() if 'cross' in name}}"
        )
    if square and T != S:
        raise ValueError(f"layers must be self-attention, T × T, got {T} queries and {S} keys")
    return T, S


def _as_tensor(name: str, x: Any) -> Tensor:
    if isinstance(x, np.ndarray):
        x = torch.from_numpy(np.ascontiguousarray(x))
    check_float_tensor(name, x)
    if x.ndim != 4:
        raise ValueError(f"{name} must have shape (B, H, T, S), got {format_shape(x)}")
    return x


def alignment_weights(trace: Trace, name: str) -> Tensor:
    """How much each target token attends to each source token: (B, T, S), the mean over heads.

        with record(model) as trace:
            model(source, target_inputs)
        alignment_weights(trace, model.alignment_name)

    All calls are joined in order, so one forward pass and decoding token by token give the same.
    For a sentence found by beam search, record a forward pass over its tokens.
    """
    calls = trace.calls(name)
    if not calls:
        raise ValueError(
            f"{name!r} was not called while recording: run the model inside the `with`"
        )
    weights = torch.cat([call.weights for call in calls], dim=-2)  # (B, T, S) or (B, H, T, S)
    return weights.mean(dim=1) if weights.ndim == 4 else weights

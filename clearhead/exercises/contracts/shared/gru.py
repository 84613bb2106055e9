"""A gated recurrent unit, as PyTorch's nn.GRU computes it (Cho et al. 2014).

    r = σ(W_ir x + b_ir + W_hr h + b_hr)              how much of the old state the proposal sees
    z = σ(W_iz x + b_iz + W_hz h + b_hz)              how much of the old state stays
    n = tanh(W_in x + b_in + r (W_hn h + b_hn))       the proposal
    h = (1 − z) n + z h

Each parameter holds the rows of r, z and n, in this order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.weights import Assignment, Piece, Role, assign

Weights = Mapping[str, Tensor]


def gru_shapes(d_input: int, d_hidden: int, n_layers: int) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter, by nn.GRU's names."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(n_layers):
        width = d_input if layer == 0 else d_hidden
        shapes[f"weight_ih_l{layer}"] = (3 * d_hidden, width)
        shapes[f"weight_hh_l{layer}"] = (3 * d_hidden, d_hidden)
        shapes[f"bias_ih_l{layer}"] = shapes[f"bias_hh_l{layer}"] = (3 * d_hidden,)
    return shapes


def assign_with_gru(
    parameters: Sequence[Any], roles: Mapping[str, Role], shapes: Mapping[str, tuple[int, ...]]
) -> list[Assignment]:
    """Every reading of the parameters as roles, beside those of an nn.GRU or of an nn.GRUCell for
    each layer, whose names are PyTorch's; empty if none fits."""
    own = [each for each in parameters if each[2] in ("GRU", "GRUCell")]
    modules = list(dict.fromkeys(name.rpartition(".")[0] for name, _, _ in own))
    gru = {}
    for name, shape, owner in own:
        module, _, last = name.rpartition(".")
        role = f"{last}_l{modules.index(module)}" if owner == "GRUCell" else last
        gru[role] = Piece(module, "vector", tuple(shape), (name,))
    if {role: piece.shape for role, piece in gru.items()} != dict(shapes):
        return []
    others = [each for each in parameters if each not in own]
    return [{**reading, **gru} for reading in assign(others, roles)]


def step(x: Tensor, hidden: Tensor, weights: Weights) -> Tensor:
    """One token x (B, d) and the states of all layers (L, B, D) → the new states (L, B, D)."""
    states = []
    for layer, h in enumerate(hidden):
        ri, zi, ni = _apply(x, weights, "ih", layer)
        rh, zh, nh = _apply(h, weights, "hh", layer)
        r, z = (ri + rh).sigmoid(), (zi + zh).sigmoid()
        x = (1 - z) * (ni + r * nh).tanh() + z * h
        states.append(x)
    return torch.stack(states)


def _apply(x: Tensor, weights: Weights, kind: str, layer: int) -> tuple[Tensor, ...]:
    y = x @ weights[f"weight_{kind}_l{layer}"].mT + weights[f"bias_{kind}_l{layer}"]
    return y.chunk(3, dim=-1)

"""A gated recurrent unit, as PyTorch's nn.GRU computes it (Cho et al. 2014).

    r = σ(W_ir x + b_ir + W_hr h + b_hr)              how much of the old state the proposal sees
    z = σ(W_iz x + b_iz + W_hz h + b_hz)              how much of the old state stays
    n = tanh(W_in x + b_in + r (W_hn h + b_hn))       the proposal
    h = (1 − z) n + z h

Each parameter holds the rows of r, z and n, in this order.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from clearhead.exercises.weights import Role

Weights = Mapping[str, Tensor]


def gru_roles(d_input: int, d_hidden: int, n_layers: int) -> dict[str, Role]:
    """The parameters of a GRU: nn.GRU's, or those of an nn.GRUCell for each layer."""
    roles = {}
    for layer in range(n_layers):
        width = d_input if layer == 0 else d_hidden
        shapes = {
            "weight_ih": (3 * d_hidden, width),
            "weight_hh": (3 * d_hidden, d_hidden),
            "bias_ih": (3 * d_hidden,),
            "bias_hh": (3 * d_hidden,),
        }
        for name, shape in shapes.items():
            hints = f"{name}_l{layer} {layer}{name} {name}" if layer == 0 else ""
            hints = hints or f"{name}_l{layer} {layer}{name}"
            roles[f"{name}_l{layer}"] = Role("vector", shape, hints)
    return roles


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

"""A gated recurrent unit (Cho et al. 2014), as nn.GRU computes it.

    r = σ(W_xr x + b_xr + W_hr h + b_hr)              how much of the old state the candidate uses
    z = σ(W_xz x + b_xz + W_hz h + b_hz)              how much of the old state stays
    n = tanh(W_xn x + b_xn + r (W_hn h + b_hn))       the candidate
    h = (1 − z) n + z h

Textbooks also write W_hn (r h) for r (W_hn h), and h = z n + (1 − z) h. A cell written by hand may
do either: see Form.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Form:
    """Which of the two textbook forms a cell has. is_reset_inside: W_hn (r h) + b_hn instead of
    r (W_hn h + b_hn). is_new_kept: z is the share of the candidate, not of the old state."""

    is_reset_inside: bool = False
    is_new_kept: bool = False


@dataclass(frozen=True)
class Cell:
    """The weights of one layer, rows of r, z and n below each other: weight_x (3D, d), weight_h
    (3D, D), both biases (3D,)."""

    weight_x: Tensor
    weight_h: Tensor
    bias_x: Tensor
    bias_h: Tensor
    form: Form = Form()
    r: int | None = None  # the value of a gate that does not depend on x and h
    z: int | None = None

    def __call__(self, x: Tensor, h: Tensor) -> Tensor:
        """x (B, d), h (B, D) → the new state (B, D)."""
        W_hr, W_hz, W_hn = self.weight_h.chunk(3)
        b_hr, b_hz, b_hn = self.bias_h.chunk(3)
        xr, xz, xn = (x @ self.weight_x.mT + self.bias_x).chunk(3, dim=-1)
        r = (xr + h @ W_hr.mT + b_hr).sigmoid()
        z = (xz + h @ W_hz.mT + b_hz).sigmoid()
        z = 1 - z if self.form.is_new_kept else z
        r = r if self.r is None else torch.full_like(r, self.r)
        z = z if self.z is None else torch.full_like(z, self.z)
        inside = (r * h) @ W_hn.mT + b_hn
        n = (xn + (inside if self.form.is_reset_inside else r * (h @ W_hn.mT + b_hn))).tanh()
        return (1 - z) * n + z * h


@dataclass(frozen=True)
class GRU:
    """Layers of cells, each of which reads the new state of the one below."""

    cells: tuple[Cell, ...]

    def __call__(self, x: Tensor, hidden: Tensor) -> Tensor:
        """One token x (B, d) and the states of all layers (L, B, D) → the new states (L, B, D)."""
        states = []
        for cell, h in zip(self.cells, hidden, strict=True):
            x = cell(x, h)
            states.append(x)
        return torch.stack(states)

    @property
    def d_input(self) -> int:
        return self.cells[0].weight_x.size(1)

    def set_gates(self, *, r: int | None = None, z: int | None = None) -> "GRU":
        """The same with gates that are 0 or 1 for every x and h: z = 0 is the whole candidate."""
        return GRU(tuple(replace(cell, r=r, z=z) for cell in self.cells))

    def start(self, x: Tensor) -> Tensor:
        """The states before the first token, all 0: (L, B, D) for x (B, …)."""
        return x.new_zeros(len(self.cells), x.size(0), self.cells[0].weight_h.size(1))

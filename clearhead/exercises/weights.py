"""The parts of a formula that have weights, and the pieces of a module's parameters they come from.

A module is compared with the reference under the same weights, drawn anew for each case. pieces.py
finds the pieces, and readings.py decides which role each one plays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw


@dataclass(frozen=True)
class Role:
    """A part with weights. kind: linear (out, in), table (n, d), norm (d,) or vector (any shape);
    flat conv: a convolution whose weights are read as (out, in · height · width).

    names: pieces of names that hint at it, the surest first.
    """

    kind: str
    shape: tuple[int, ...]
    names: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Linear:
    """x ↦ x Wᵀ + b, with weight (out, in) and a bias (out,) or none."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        y = x @ self.weight.mT.to(x.dtype)
        return y if self.bias is None else y + self.bias.to(x.dtype)


@dataclass(frozen=True)
class Norm:
    """Layer norm: to mean 0 and variance 1 along the last axis, times gain, plus shift."""

    gain: Tensor
    shift: Tensor | None = None
    eps: float = 1e-5
    axes: tuple[int, ...] = (-1,)  # a mistake takes mean and variance over the tokens, too

    def __call__(self, x: Tensor) -> Tensor:
        centred = x - x.mean(self.axes, keepdim=True)
        variance = centred.square().mean(self.axes, keepdim=True)
        y = centred / (variance + self.eps).sqrt() * self.gain
        return y if self.shift is None else y + self.shift


@dataclass(frozen=True)
class Piece:
    """Rows of one or more parameters (and their biases) that can play a role."""

    name: str
    kind: str
    shape: tuple[int, ...]
    weights: tuple[str, ...]  # names of parameters, joined along the rows
    biases: tuple[str, ...] = ()
    rows: tuple[int, ...] | None = None  # which ones; None: all
    is_transposed: bool = False
    axes: tuple[int, ...] = ()  # of a parameter (H, d, d_head): in this order they are (out, in)

    def take(self, values: Mapping[str, Tensor]) -> Any:
        """Build the part from these parameter values."""
        rows = list(self.rows) if self.rows else slice(None)
        weight = torch.cat([self._turn(values[name]) for name in self.weights])[rows]
        bias = torch.cat([values[name] for name in self.biases])[rows] if self.biases else None
        if self.kind in ("linear", "flat conv"):
            return Linear(weight.reshape(self.shape), bias)
        return Norm(weight, bias) if self.kind == "norm" else weight.reshape(self.shape)

    def _turn(self, x: Tensor) -> Tensor:
        """Arrange a parameter as (out, in), like the weight of nn.Linear."""
        if self.axes:
            return x.permute(self.axes).reshape(-1, self.shape[1])
        return x.mT if self.is_transposed else x


Assignment = Mapping[str, Piece]


def draw_weights(parameters: Sequence[Any], draw: Draw) -> dict[str, Tensor]:
    """Draw new values for every parameter, so that initial zeros or ones hide no mistake."""
    return {name: _draw(name, shape, owner, draw) for name, shape, owner in parameters}


def _draw(name: str, shape: Sequence[int], owner: str, draw: Draw) -> Tensor:
    x = draw.normal(*shape)
    if "Norm" in owner:
        return 0.3 * x if is_shift(name) else 1 + 0.3 * x
    if owner.endswith("Linear") or owner.startswith("Conv"):
        return x / math.sqrt(math.prod(shape[1:])) if len(shape) > 1 else 0.5 * x
    return x / math.sqrt(shape[0]) if len(shape) == 2 and owner != "Embedding" else x


def is_shift(name: str) -> bool:
    """Whether a parameter of a norm is its shift, by the names that students use."""
    return name.rpartition(".")[2] in ("bias", "beta", "shift", "b", "b_2", "offset")

"""Normalisation: every token's vector is brought to one scale, independently of the others.

    layer norm   (x − mean(x)) / √(var(x) + eps) · gain + shift       Ba et al. 2016
    RMS norm     x / √(mean(x²) + eps) · gain                         Zhang & Sennrich 2019

The functions are the equations; the modules compute the same by PyTorch's kernels.
"""

import torch
from torch import Tensor, nn

from clearhead.shapes import check_choice, check_last_axis, check_positive

NORMS = ("layer", "rms", "none")


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """x (..., D), gain (D,), shift (D,) → (..., D), of mean 0 and variance 1 before gain."""
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    y = centred / torch.sqrt(variance + eps) * gain
    return y if shift is None else y + shift


def rms_norm(x: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
    """x (..., D), gain (D,) → (..., D), of mean square 1 before gain."""
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * gain


class LayerNorm(nn.Module):
    """layer_norm with a learned gain, at first 1, and unless bias=False a shift, at first 0."""

    def __init__(self, d_model: int, *, bias: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        check_positive(d_model=d_model)
        self.d_model, self.eps = d_model, eps
        self.gain = nn.Parameter(torch.ones(d_model))
        self.shift = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        check_last_axis("x", x, "d_model", self.d_model, like=self.gain)
        return nn.functional.layer_norm(x, (self.d_model,), self.gain, self.shift, self.eps)

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, bias={self.shift is not None}, eps={self.eps:g}"


class RMSNorm(nn.Module):
    """rms_norm with a learned gain, at first 1. It has no shift."""

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        check_positive(d_model=d_model)
        self.d_model, self.eps = d_model, eps
        self.gain = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        check_last_axis("x", x, "d_model", self.d_model, like=self.gain)
        return nn.functional.rms_norm(x, (self.d_model,), self.gain.to(x.dtype), self.eps)

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, eps={self.eps:g}"


def check_norm_bias(kind: str, norm_bias: bool | None) -> None:
    """Only layer norm has a shift that can be asked for."""
    if norm_bias and kind != "layer":
        raise ValueError(
            f"norm_bias=True asks for norms with a shift, but norm={kind!r} has none; "
            f"take norm='layer' or leave norm_bias out"
        )


def make_norm(
    kind: str, d_model: int, *, bias: bool = True, eps: float = 1e-5
) -> LayerNorm | RMSNorm | nn.Identity:
    """Build a norm by its name, "layer", "rms" or "none"; bias=False leaves out the shift."""
    check_choice("norm", kind, NORMS)
    if kind == "none":
        return nn.Identity()
    if kind == "rms":
        return RMSNorm(d_model, eps=eps)
    return LayerNorm(d_model, bias=bias, eps=eps)

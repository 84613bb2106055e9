"""The smallest transformer, in PyTorch: as numpy_form.py, for batches, and trainable.

    output = softmax(Q Kᵀ / √d_qk) V        with Q, K, V = three linear layers of [seq, pos]

A linear layer holds its matrix transposed, a row for each output: Km.weight is the transpose of Km
in numpy_form.py. The attention is that of this library, so `record` sees its weights.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from clearhead.attention import Mask
from clearhead.attention.mechanisms import DotProductAttention
from clearhead.config import Config
from clearhead.models.model import Model
from clearhead.models.smallest.numpy_form import NumpyTransformer
from clearhead.shapes import check_length, check_positive, format_shape, read_token_mask


@dataclass(frozen=True)
class TorchTransformerConfig(Config):
    """d_pos: the width of a position, None for no positions; max_len: their number."""

    d_input: int
    d_qk: int
    d_v: int
    d_pos: int | None = None
    max_len: int = 10

    def check(self) -> None:
        if self.d_pos is not None:
            check_positive(d_pos=self.d_pos, max_len=self.max_len)
        check_positive(d_qk=self.d_qk, d_v=self.d_v, d_input=self.d_input)


class TorchTransformer(Model):
    """One layer, one head; parameters Km.weight, Qm.weight, Vm.weight and, if d_pos, pos.weight.

    TorchTransformer(d_input, d_qk, d_v, d_pos, max_len), or TorchTransformer(config).
    """

    config_type = TorchTransformerConfig
    config: TorchTransformerConfig

    def __init__(
        self,
        d_input: int | TorchTransformerConfig,
        d_qk: int = 0,
        d_v: int = 0,
        d_pos: int | None = None,
        max_len: int = 10,
    ) -> None:
        c = d_input
        if not isinstance(c, TorchTransformerConfig):
            c = TorchTransformerConfig(c, d_qk, d_v, d_pos, max_len)
        super().__init__(c)
        self.d_input = c.d_input
        self.pos = None if c.d_pos is None else nn.Embedding(c.max_len, c.d_pos)
        width = c.d_input + (c.d_pos or 0)
        # The start is drawn as published: positions, Qm, Km, Vm, all by PyTorch's own rules.
        Qm, Km, Vm = (nn.Linear(width, d, bias=False) for d in (c.d_qk, c.d_qk, c.d_v))
        self.Km, self.Qm, self.Vm = Km, Qm, Vm
        self.attention = DotProductAttention()

    @classmethod
    def from_numpy(cls, design: NumpyTransformer) -> Self:
        """The same transformer with the same weights, in float64."""
        if not isinstance(design, NumpyTransformer):
            raise TypeError(f"design must be a NumpyTransformer, got {type(design).__name__}")
        d_qk, d_v = design.Km.shape[1], design.Vm.shape[1]
        max_len, d_pos = (1, None) if design.pos is None else design.pos.shape
        model = cls(design.d_input, d_qk, d_v, d_pos, max_len).double()
        weights = {"Km.weight": design.Km.T, "Qm.weight": design.Qm.T, "Vm.weight": design.Vm.T}
        if design.pos is not None:
            weights["pos.weight"] = design.pos
        model.load_state_dict({name: torch.tensor(weight) for name, weight in weights.items()})
        return model

    def to_numpy(self) -> NumpyTransformer:
        """The same transformer in NumPy, which can show and narrate its steps."""
        Km, Qm, Vm = (
            layer.weight.detach().cpu().numpy().T for layer in (self.Km, self.Qm, self.Vm)
        )
        pos = None if self.pos is None else self.pos.weight.detach().cpu().numpy()
        return NumpyTransformer(Km, Qm, Vm, pos)

    def forward(self, seq: Tensor, token_mask: Tensor | None = None) -> Tensor:
        """seq (n, d_input) → (n, d_v), or a batch (B, n, d_input) → (B, n, d_v).

        seq may hold any numbers, such as integers of a one-hot table; the output has the dtype of
        the parameters. token_mask (B, n) of a batch: True = real; the rest is not attended to.
        """
        self._check(seq)
        mask = None
        if token_mask is not None:
            mask = Mask.tokens(read_token_mask(token_mask, seq.shape[:-1]))
        x = self._add_positions(seq.to(self.Km.weight.dtype))
        batch = x if x.ndim == 3 else x.unsqueeze(0)
        output: Tensor = self.attention(self.Qm(batch), self.Km(batch), self.Vm(batch), mask=mask)
        return output if x.ndim == 3 else output.squeeze(0)

    def _check(self, seq: Tensor) -> None:
        if not isinstance(seq, Tensor):
            raise TypeError(
                f"seq must be a torch.Tensor, got {type(seq).__name__}; use torch.tensor(seq)"
            )
        if seq.is_complex():
            raise TypeError(f"seq must hold real numbers, got {seq.dtype}")
        if seq.ndim not in (2, 3) or seq.size(-1) != self.d_input:
            raise ValueError(
                f"seq must have shape (n, {self.d_input}) or (B, n, {self.d_input}), "
                f"got {format_shape(seq)}"
            )
        if self.pos is not None:
            check_length("seq", seq.size(-2), self.pos.num_embeddings)

    def _add_positions(self, seq: Tensor) -> Tensor:
        """(..., n, d_input) → (..., n, d_input + d_pos)."""
        if self.pos is None:
            return seq
        positions = self.pos.weight[: seq.size(-2)]
        return torch.cat([seq, positions.expand(*seq.shape[:-1], -1)], dim=-1)

"""What a smallest transformer computes on all sequences of a rule, and how two of them differ.

values_differ    mean |value − value'|                    the values of all tokens
values_heard     mean Σ_s weights · |value − value'|      the same, weighted by attention
moved            mean ½ Σ_s |weights − weights'|          the share of attention that goes elsewhere
outputs_differ   mean |output − output'|
"""

from dataclasses import dataclass
from itertools import product
from typing import Self

import torch
from torch import Tensor

from clearhead.data.batch import Batch
from clearhead.inspection.measures import entropy
from clearhead.inspection.record import record
from clearhead.models.smallest import NumpyTransformer, TorchTransformer
from clearhead.training.tasks.sequences import LETTERS, SequencePredictor


def all_sequences(rule: str, max_len: int) -> Batch:
    """All sequences of up to max_len letters as one-hot rows, with the right answers."""
    lengths = range(1, max_len + 1)
    rows = [row for n in lengths for row in product(range(len(LETTERS)), repeat=n)]
    return SequencePredictor(rule, max_len).encode(rows)


@dataclass(frozen=True)
class Pass:
    """One forward pass, with a row for every token of every sequence, in float64."""

    weights: Tensor  # (tokens, S)
    values: Tensor  # (tokens, S, d_v): of all tokens of the sequence
    own_value: Tensor  # (tokens, d_v)
    outputs: Tensor  # (tokens, d_v)
    errors: Tensor  # (tokens, d_v)

    @classmethod
    def of(cls, model: NumpyTransformer, examples: Batch) -> Self:
        """Run the PyTorch form of the model."""
        form, real = TorchTransformer.from_numpy(model), examples.token_mask
        assert real is not None
        with torch.no_grad(), record(form) as trace:
            outputs = form(examples.inputs, real)
        call = trace["attention"]
        values = call.v.unsqueeze(1).expand(-1, real.size(1), -1, -1)  # (B, T, S, d_v)
        errors = (outputs - examples.targets).abs()
        return cls(call.weights[real], values[real], call.v[real], outputs[real], errors[real])

    def sharpness_and_error(self) -> dict[str, float]:
        """Means over all tokens."""
        return {
            "entropy": float(entropy(self.weights).mean()),
            "largest": float(self.weights.amax(dim=-1).mean()),
            "error": float(self.errors.mean()),
        }


def compare_passes(one: Pass, other: Pass) -> dict[str, float]:
    """How two passes differ, by the equations above: means over all tokens."""
    values = (one.values - other.values).abs().mean(dim=-1)  # (tokens, S)
    return {
        "values_differ": float((one.own_value - other.own_value).abs().mean()),
        "values_heard": float((one.weights * values).sum(dim=-1).mean()),
        "moved": float((one.weights - other.weights).abs().sum(dim=-1).mean() / 2),
        "outputs_differ": float((one.outputs - other.outputs).abs().mean()),
    }

"""compile(program, vocabulary, max_len): a program as the weights of a transformer.

    compiled = compile(reverse, "abc", max_len=5)
    compiled("abca")          ['a', 'c', 'b', 'a'], computed by compiled.model
    compiled.model            a SequenceClassifier of ordinary blocks, in float64
    compiled.circuit          what each head and feed-forward layer computes

The model reads a start token, then the input: ids (B, 1 + T). Its logits are (B, 1 + T, C), with
one class for each value of the program, in the order of compiled.values; the largest logit is the
answer. A numeric program has one output, the number itself. The outputs at the start token are not
used.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from clearhead.programs import sequences
from clearhead.programs.parts import SHARPNESS
from clearhead.programs.plan import Part, Plan, make_plan
from clearhead.programs.variables import Variable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from clearhead.models import SequenceClassifier


UNREAD = "·"  # shown for a value whose direction was removed
# Tolerance by bytes of a number: far above the rounding errors of these models.
ROUNDING = {8: 1e-9, 4: 1e-4}


@dataclass(frozen=True)
class CompiledProgram:
    """A model whose weights compute a program, and the names of its parts."""

    plan: Plan
    model: "SequenceClassifier"

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"CompiledProgram({plan.program.label!r}: {plan.n_layers} layers, {plan.n_heads} heads,"
            f" {len(plan.directions)} directions)"
        )

    @property
    def directions(self) -> list[str]:
        """The name of each of the d_model directions of the residual stream."""
        return self.plan.directions

    @property
    def values(self) -> tuple[Any, ...] | None:
        """The value that each logit stands for; None for a numeric program."""
        return self.plan.values

    @property
    def circuit(self) -> tuple[Part, ...]:
        """For each head and feed-forward layer: whether the program uses it, and for what."""
        return self.plan.circuit

    @property
    def error_bound(self) -> float:
        """A bound on the error of every logit, which is 0 or 1 if exact, or of every number.

        It follows from the sharpness and assumes exact arithmetic; rounding errors come on top.
        """
        return self.plan.error_bound

    def __call__(self, sequence: Iterable[Any]) -> list[Any]:
        """The answer at each token of one input."""
        return self.run([sequence])[0]

    def run(self, inputs: Iterable[Iterable[Any]]) -> list[list[Any]]:
        """The answers for many inputs, of any lengths, in one forward pass."""
        import torch

        rows = [list(each) for each in inputs]
        if not rows:
            return []
        tokens, token_mask = self.encode(rows)
        is_padded = not bool(token_mask.all())
        with torch.no_grad():
            logits = self.model(tokens, token_mask=token_mask if is_padded else None)
        answers = self.decode(logits[:, 1:])
        return [out[: len(row)] for out, row in zip(answers, rows, strict=True)]

    def steps(self, sequence: Iterable[Any]) -> dict[str, list[Any]]:
        """The variables in the residual stream after the last layer: label → value at each token.

        A value is UNREAD if its direction was removed because nothing reads it.
        """
        import torch

        from clearhead.inspection import record

        tokens, _ = self.encode([sequence])
        with torch.no_grad(), record(self.model) as trace:
            self.model(tokens)
        last = trace[f"stack.blocks.{self.plan.n_layers - 1}"].output[0, 1:]  # (T, D)
        stream = dict(zip(self.directions, last.mT.tolist(), strict=True))
        return {v.label: _read_values(v, stream) for v in self.plan.variables}

    def encode(self, inputs: Iterable[Iterable[Any]]) -> "tuple[Tensor, Tensor]":
        """ids and token_mask (B, 1 + T): the start token, the tokens, and padding."""
        import torch

        rows = [self._read_ids(list(each)) for each in inputs]
        if not rows:
            raise ValueError("inputs is empty; give at least one sequence")
        length = max(map(len, rows))
        device = self.model.head.weight.device
        ids = torch.tensor([row + [0] * (length - len(row)) for row in rows], device=device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        return ids, torch.arange(length, device=device) < lengths[:, None]

    def decode(self, logits: "Tensor") -> list[list[Any]]:
        """Logits (B, T, C) → the answer at each token of each input."""
        if self.values is None:
            numbers: list[list[Any]] = logits[..., 0].tolist()
            return numbers
        return [[self.values[best] for best in row] for row in logits.argmax(-1).tolist()]

    def agrees(self, exact: Any, computed: Any) -> bool:
        """Whether the model's answer is the interpreter's; numbers may differ by error_bound."""
        if self.values is not None:
            return bool(exact == computed)
        rounding = ROUNDING[self.model.head.weight.itemsize] * max(1.0, abs(float(exact)))
        return abs(float(exact) - computed) <= self.error_bound + rounding

    def _read_ids(self, tokens: Sequence[Any]) -> list[int]:
        """The ids of the start token and of these tokens."""
        check_input(self.plan, tokens)
        return [0, *(self._ids[token] for token in tokens)]

    @cached_property
    def _ids(self) -> dict[Any, int]:
        return {token: number for number, token in enumerate(self.plan.vocabulary, 1)}


def _read_values(variable: Variable, stream: dict[str, list[float]]) -> list[Any]:
    """The number at each token, or the value whose direction is 1."""
    columns = [stream[direction] for direction in variable.directions]
    if variable.is_numeric:
        return columns[0]
    hot = [[x > 0.5 for x in amounts] for amounts in zip(*columns, strict=True)]
    return [variable.values[row.index(True)] if any(row) else UNREAD for row in hot]


def check_input(plan: Plan, tokens: Sequence[Any]) -> None:
    """Refuse an input that is empty, too long, or has a token that is not in the vocabulary."""
    if not tokens:
        raise ValueError("the sequence is empty, so there is no position to answer at")
    if len(tokens) > plan.max_len:
        raise ValueError(
            f"the sequence has {len(tokens)} tokens but max_len is {plan.max_len}; shorten it or "
            f"compile the program with max_len={len(tokens)}"
        )
    for token in tokens:
        if token not in plan.vocabulary:
            known = ", ".join(map(repr, plan.vocabulary))
            raise ValueError(f"{token!r} is not in the vocabulary, which is {known}")


def compile(
    program: sequences.Sequence,
    vocabulary: Iterable[Any],
    max_len: int,
    *,
    sharpness: float = SHARPNESS,
    dtype: "torch.dtype | None" = None,
) -> CompiledProgram:
    """Set the weights of a transformer so that it computes a program.

    vocabulary: the possible tokens; max_len: the maximum length of an input. sharpness s: a
    selected key scores 2s more than an unselected one, so its weight is e^2s times as large.
    dtype: float64 by default, or float32, with larger rounding errors.
    """
    plan = make_plan(program, vocabulary, max_len, sharpness=sharpness)
    import torch

    from clearhead.programs.weights import build_model

    if dtype not in (None, torch.float64, torch.float32):
        raise ValueError(f"dtype must be torch.float64 or torch.float32, got {dtype}")

    return CompiledProgram(plan, build_model(plan, dtype))

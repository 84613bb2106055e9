"""Weights set by hand for the smallest transformer: identity, first, unique.

A file defines the arrays Km, Qm, Vm and, if it needs positions, pos. They are run in the smallest
transformer on every sequence up to their length. A mistake is named if its repair makes the arrays
right on all of them, or if the outputs are exactly those of another task.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, Mistake, mistake
from clearhead.exercises.forms import to_tensor
from clearhead.exercises.sandbox.supervisor import StudentError
from clearhead.exercises.student import Student

MAX_LETTERS = 6
SHARPER = 1e3


@dataclass(frozen=True, eq=False)
class Design:
    """Km, Qm (d_input + d_pos, d_qk), Vm (d_input + d_pos, d_v), pos (max_len, d_pos) or None."""

    Km: Tensor
    Qm: Tensor
    Vm: Tensor
    pos: Tensor | None = None

    def run(self, seq: Tensor) -> Tensor:
        """seq (N, n, d_input) → (N, n, d_v)."""
        if self.pos is not None:
            n = seq.size(1)
            if n > len(self.pos):
                raise ValueError(f"pos has {len(self.pos)} rows, too few for {n} tokens")
            seq = torch.cat((seq, self.pos[:n].expand(len(seq), -1, -1)), dim=-1)
        scores = (seq @ self.Qm) @ (seq @ self.Km).mT / math.sqrt(self.Km.size(1))
        return scores.softmax(-1) @ (seq @ self.Vm)

    def turn(self) -> "Design":
        """The same with transposed matrices."""
        return replace(self, Km=self.Km.mT, Qm=self.Qm.mT, Vm=self.Vm.mT)


class HandDesign(Exercise):
    """The base of the three exercises: `encode` makes their inputs, `task` the right outputs."""

    page = "models.md#the-smallest-transformer"
    tolerance = 0.01  # a softmax is never quite certain
    parameters = {}
    start = ""  # a token before the letters
    Vm: list[list[float]]  # of the tokens, right for this task

    def answer(self, texts: list[str], design: Design) -> Tensor | str:
        repaired = self.layout(self.scores(self.sharpness(self.values(self.positions(design)))))
        if repaired is design or not self.is_right(repaired):
            return self.find_target(texts)
        return run_or_describe(design, self.encode(texts))  # the repair explains these outputs

    def find_target(self, texts: list[str]) -> Tensor:
        return torch.tensor([self.task(self.start + text) for text in texts]).double()

    def encode(self, texts: list[str]) -> Tensor:
        """One-hot rows A, B, C, and CLS: (N, n, 3 or 4)."""
        alphabet = "ABC" + self.start
        ids = [[alphabet.index(letter) for letter in self.start + text] for text in texts]
        return torch.eye(len(alphabet)).double()[torch.tensor(ids)]

    def is_right(self, design: Design) -> bool:
        """Whether a design is right on every sequence up to its length."""
        try:
            return all(self._is_right_on(design, texts) for texts in self.find_texts(design))
        except (RuntimeError, ValueError, IndexError):
            return False

    def _is_right_on(self, design: Design, texts: list[str]) -> bool:
        got = design.run(self.encode(texts))
        target = torch.tensor([type(self).task(self, self.start + text) for text in texts]).double()
        return got.shape == target.shape and bool((got - target).abs().max() <= self.tolerance)

    def find_texts(self, design: Design | None = None) -> Iterable[list[str]]:
        """All texts of 1 letter, of 2 letters, …"""
        longest = MAX_LETTERS - len(self.start)
        if design is not None and design.pos is not None:
            longest = min(longest, len(design.pos) - len(self.start))
        for n in range(1, longest + 1):
            yield ["".join(letters) for letters in product("ABC", repeat=n)]

    # The terms: `task`, the right outputs, and repairs, which change nothing if nothing is wrong

    def task(self, text: str) -> list[list[float]]:
        raise NotImplementedError

    def positions(self, design: Design) -> Design:
        return design

    def values(self, design: Design) -> Design:
        return design

    def sharpness(self, design: Design) -> Design:
        return design

    def scores(self, design: Design) -> Design:
        return design

    def layout(self, design: Design) -> Design:
        return design

    @cached_property
    def mistakes(self) -> Mapping[str, Mistake]:
        """In the order of trial: outputs of another task, repairs, and last equal
        weights for all tokens, which many wrong designs have for some sequence."""
        tasks = {n: m for n, m in super().mistakes.items() if m.term == "task"}
        even = {"even_attention": tasks.pop("even_attention")}
        repairs = {n: m for n, m in super().mistakes.items() if m.term != "task"}
        return {**tasks, **repairs, **even}

    # Mistakes of all three

    @mistake(
        "sharpness",
        "the right token gets the most weight, but not nearly all: scores that differ by little "
        "leave the softmax soft; multiply Qm or Km by a large number",
        line=("Qm", "Km"),
    )
    def too_soft(self, design: Design) -> Design:
        return replace(design, Qm=SHARPER * design.Qm)

    @mistake(
        "scores",
        "the scores have the wrong sign: a token attends to every token except the right ones",
        line=("Qm", "Km"),
    )
    def scores_negated(self, design: Design) -> Design:
        return replace(design, Qm=-design.Qm)

    @mistake(
        "scores",
        "Km and Qm are swapped: the keys are built with the matrix of the queries",
        line=("Km", "Qm"),
    )
    def keys_and_queries_swapped(self, design: Design) -> Design:
        return replace(design, Km=design.Qm, Qm=design.Km)

    @mistake(
        "layout",
        "the matrices are transposed: x @ Km needs one row for each entry of [token, "
        "position]; nn.Linear stores the transpose",
        line=("Km", "Qm"),
    )
    def transposed_matrices(self, design: Design) -> Design:
        return design.turn()

    @mistake("values", "the attention is right, but Vm has the wrong sign", line=("Vm",))
    def values_negated(self, design: Design) -> Design:
        return replace(design, Vm=-design.Vm)

    @mistake(
        "values",
        "the attention is right, but Vm does not give the token that is attended to",
        line=("Vm",),
    )
    def wrong_values(self, design: Design) -> Design:
        right = torch.tensor(self.Vm).double()
        rest = torch.zeros(max(0, len(design.Km) - len(right)), right.size(1)).double()
        return replace(design, Vm=torch.cat((right, rest)))

    @mistake(
        "task",
        "the output is the mean of all tokens: the scores are all equal, so no token is preferred",
        line=("Qm", "Km"),
    )
    def even_attention(self, text: str) -> list[list[float]]:
        order = "ABC" + self.start
        rows = torch.tensor([self.Vm[order.index(letter)] for letter in text]).double()
        return [rows.mean(0).tolist()] * len(text)

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        try:
            design = self.read_design(student)
        except StudentError as error:
            return Answer([dict(case.inputs)], error=error)
        choices = [{**case.inputs, "design": design}]
        seq = self.encode(case.inputs["texts"])
        if design.pos is not None and seq.size(1) > max(len(design.pos), self.shortest):
            return None  # longer than its positions reach
        return Answer(choices, {"output": run_or_describe(design, seq)})

    shortest = 4  # tokens that every design must take

    def read_design(self, student: Student) -> Design:
        """The arrays of the file, or what a function returns: Km, Qm, Vm and perhaps pos."""
        found = student.session.request("get", name=student.name)
        if _to_matrix(found) is None:
            reply = student.session.request("call", target=student.name, args=[], kwargs={})
            values = reply.get("output") if isinstance(reply, dict) else None
            parts = list(values.values()) if isinstance(values, dict) else values
            named = dict(zip(("Km", "Qm", "Vm", "pos"), parts or (), strict=False))
        else:
            named = {part: _get(student, part) for part in ("Km", "Qm", "Vm", "pos")}
        matrices = {name: _to_matrix(value) for name, value in named.items()}
        for name in ("Km", "Qm", "Vm"):
            if matrices.get(name) is None:
                raise StudentError("NameError", f"{name} is not a matrix of the file", None)
        return Design(**matrices)  # type: ignore[arg-type]

    def cases(self, draw: Draw) -> Iterable[Case]:
        for texts in self.find_texts():
            n = len(texts[0])
            says = f"every sequence of {n} letter{'s' * (n > 1)} is right"
            yield Case(says, "values" if n == 1 else "scores", {"texts": texts})

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for texts in self.find_texts():
            for text in texts[:81]:
                yield Case("a small example", "scores", {"texts": [text]})


def _get(student: Student, part: str) -> Any:
    try:
        return student.session.request("get", name=student.name.replace("Km", part))
    except StudentError:
        if part == "pos":
            return None
        raise


def _to_matrix(value: Any) -> Tensor | None:
    """Convert to a matrix in double precision; None if the value is not a matrix."""
    try:
        found = to_tensor(value)
        found = found if isinstance(found, Tensor) else torch.tensor(value)
        return found.double() if found.dim() == 2 else None
    except (TypeError, ValueError, RuntimeError):
        return None


def run_or_describe(design: Design, seq: Tensor) -> Tensor | str:
    """Run the design; return its outputs, or a sentence that says why there are none."""
    try:
        return design.run(seq)
    except ValueError as fault:
        return str(fault)
    except RuntimeError:
        parts = {"Km": design.Km, "Qm": design.Qm, "Vm": design.Vm, "pos": design.pos}
        shapes = ", ".join(f"{n} {tuple(x.shape)}" for n, x in parts.items() if x is not None)
        return f"the shapes do not fit: {shapes}"

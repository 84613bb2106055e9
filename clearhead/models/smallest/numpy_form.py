"""The smallest transformer, in NumPy: one layer, one head, every step a loop to be read aloud.

    x[t]      = [seq[t], pos[t]]                        the place stands beside the token
    K[t], Q[t], V[t] = x[t] Km, x[t] Qm, x[t] Vm        what it offers, what it asks, what it says
    scores[t, s]     = Q[t] · K[s] / √d_qk
    attention[t]     = softmax(scores[t])
    output[t]        = Σ_s attention[t, s] V[s]

There is no mask, no residual sum, no norm, no feed-forward layer and no bias: with so little in the
way, weights can be set by hand (designs.py). Places could be added to tokens as well, in columns of
their own; side by side, each can be seen. The exercise is from Berkeley's CS 182, and the matrices
lie as there, a row for each input: torch_form.py holds them transposed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Steps:
    """Everything one pass computes, a row for each of n tokens."""

    x: Array  # (n, d_input + d_pos)
    K: Array  # (n, d_qk)
    Q: Array  # (n, d_qk)
    V: Array  # (n, d_v)
    scores: Array  # (n, n), queries down, keys across
    attention: Array  # (n, n), rows sum to 1
    output: Array  # (n, d_v)


@dataclass(frozen=True, eq=False)
class NumpyTransformer:
    """Km, Qm (d_input + d_pos, d_qk), Vm (d_input + d_pos, d_v), pos (max_len, d_pos) or None.

    The arrays are copied as float64 and cannot be changed.
    """

    Km: Array
    Qm: Array
    Vm: Array
    pos: Array | None = None

    def __post_init__(self) -> None:
        for name in ("Km", "Qm", "Vm") if self.pos is None else ("Km", "Qm", "Vm", "pos"):
            object.__setattr__(self, name, _matrix(name, getattr(self, name)))
        rows = len(self.Km)
        if self.Qm.shape != self.Km.shape:
            raise ValueError(
                f"Qm must have the shape of Km, {self.Km.shape}, got {self.Qm.shape}: "
                f"queries and keys are compared number by number"
            )
        if len(self.Vm) != rows:
            raise ValueError(
                f"Vm must have a row for each input, {rows} as Km has, got shape {self.Vm.shape}"
            )
        if self.pos is not None and self.d_pos >= rows:
            raise ValueError(
                f"pos is {self.d_pos} wide but Km has {rows} rows, one for each number of the "
                f"token and of its place; give Km, Qm and Vm more than {self.d_pos} rows"
            )

    @property
    def d_pos(self) -> int:
        """The width of a place; 0 without positions."""
        return 0 if self.pos is None else self.pos.shape[1]

    @property
    def d_input(self) -> int:
        """The width of a token."""
        return len(self.Km) - self.d_pos

    def forward(self, seq: Any, verbose: bool = False) -> Array:
        """seq (n, d_input) → (n, d_v); verbose prints what happens, in words and numbers."""
        steps = self.steps(seq)
        if verbose:
            print("\n".join(_narration(steps, self.d_input)))
        return steps.output

    def steps(self, seq: Any) -> Steps:
        """The same pass with everything that it computes on the way."""
        x = self._with_places(seq)
        n, d_qk = len(x), self.Km.shape[1]
        K, Q, V = np.zeros((n, d_qk)), np.zeros((n, d_qk)), np.zeros((n, self.Vm.shape[1]))
        for t in range(n):
            K[t], Q[t], V[t] = x[t] @ self.Km, x[t] @ self.Qm, x[t] @ self.Vm
        scores, attention, output = np.zeros((n, n)), np.zeros((n, n)), np.zeros_like(V)
        for t in range(n):
            for s in range(n):
                scores[t, s] = Q[t] @ K[s] / math.sqrt(d_qk)
            attention[t] = _softmax(scores[t])
            for s in range(n):
                output[t] += attention[t, s] * V[s]
        return Steps(x, K, Q, V, scores, attention, output)

    def _with_places(self, seq: Any) -> Array:
        """seq (n, d_input) → (n, d_input + d_pos)."""
        seq = _matrix("seq", seq, least=0)
        n, width = seq.shape
        if width != self.d_input:
            raise ValueError(
                f"seq has {width} columns but d_input is {self.d_input}, the rows of Km, "
                f"{len(self.Km)}, less the width of pos, {self.d_pos}; "
                f"give each token {self.d_input} numbers"
            )
        if self.pos is None:
            return seq
        if n > len(self.pos):
            raise ValueError(
                f"seq has length {n} but pos has {len(self.pos)} places; "
                f"shorten it or give pos {n} rows"
            )
        return np.concatenate([seq, self.pos[:n]], axis=1)

    def __repr__(self) -> str:
        places = "no positions" if self.pos is None else f"pos {self.pos.shape}"
        return f"NumpyTransformer(Km {self.Km.shape}, Qm, Vm {self.Vm.shape}, {places})"


def _softmax(scores: Array) -> Array:
    """exp(score) / Σ exp(score); the largest is taken away first, so that nothing overflows."""
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def _matrix(name: str, values: Any, least: int = 1) -> Array:
    """Any table of finite numbers as float64, own memory, read only."""
    try:
        table = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be a table with equal rows; {error}") from None
    if table.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got an array of {table.dtype}")
    if table.ndim != 2 or len(table) < least or table.shape[1] < 1:
        raise ValueError(f"{name} must have rows and columns, got shape {table.shape}")
    table = table.astype(np.float64)
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        raise ValueError(
            f"{name} must be finite, but {name}[{row}, {column}] is {table[row, column]}"
        )
    table.flags.writeable = False
    return table


# The pass, told


def _narration(steps: Steps, d_input: int) -> Iterator[str]:
    """The pass in words, line by line."""
    n, d_qk = steps.Q.shape
    yield f"{n} token{'s' * (n != 1)}."
    for t, x in enumerate(steps.x):
        place = f" at place {_text(x[d_input:])}" if d_input < len(x) else ""
        yield f"Token {t} is {_text(x[:d_input])}{place}:"
        yield f"  it offers the key {_text(steps.K[t])}"
        yield f"  and has to say    {_text(steps.V[t])}."
    for t in range(n):
        yield f"Token {t} asks {_text(steps.Q[t])}:"
        for s in range(n):
            yield (
                f"  key {s} answers {_number(steps.Q[t] @ steps.K[s])}, divided by √{d_qk} "
                f"that is {_number(steps.scores[t, s])}: weight {_number(steps.attention[t, s])}"
            )
        yield f"  so it hears {_text(steps.output[t])}."


def _text(row: Array) -> str:
    return f"[{' '.join(map(_number, row))}]"


def _number(value: float) -> str:
    """Four digits; what is too small for them is 0, and −0 is 0."""
    return f"{0.0 if abs(value) < 5e-5 else value:.4g}"

"""The smallest transformer, in NumPy: one layer, one head, every step a loop.

    x[t]             = [seq[t], pos[t]]                 token and position side by side
    K[t], Q[t], V[t] = x[t] Km, x[t] Qm, x[t] Vm        key, query, value
    scores[t, s]     = Q[t] · K[s] / √d_qk
    attention[t]     = softmax(scores[t])
    output[t]        = Σ_s attention[t, s] V[s]

There is no mask, no residual sum, no norm, no feed-forward layer and no bias: weights can be set by
hand (designs.py). Positions stand beside the tokens instead of being added to them, so that both
can be seen. The exercise is from Berkeley's CS 182, and so is the layout of the matrices, a row for
each input; torch_form.py holds them transposed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.models.smallest.panels import plot_panels

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Steps:
    """Everything one forward pass computes, a row for each of n tokens."""

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

    The arrays are copied as float64 and are read-only.
    """

    Km: Array
    Qm: Array
    Vm: Array
    pos: Array | None = None

    def __post_init__(self) -> None:
        for name in ("Km", "Qm", "Vm") if self.pos is None else ("Km", "Qm", "Vm", "pos"):
            object.__setattr__(self, name, _read_matrix(name, getattr(self, name)))
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
                f"token and of its position; give Km, Qm and Vm more than {self.d_pos} rows"
            )

    @property
    def d_pos(self) -> int:
        """The width of a position; 0 without positions."""
        return 0 if self.pos is None else self.pos.shape[1]

    @property
    def d_input(self) -> int:
        """The width of a token."""
        return len(self.Km) - self.d_pos

    def forward(self, seq: Any, verbose: bool = False, plot: bool = False) -> Array:
        """seq (n, d_input) → (n, d_v).

        verbose prints every step in words and numbers. plot draws Km Qm Vm K Q V Attn Out in a new
        figure of pyplot, each rescaled to 0–1; in a program, plt.show() or plt.savefig() follows.
        """
        steps = self.steps(seq)
        if verbose:
            print("\n".join(_narrate(steps, self.d_input)))
        if plot:
            plot_panels(self.name_matrices(steps))
        return steps.output

    def name_matrices(self, steps: Steps) -> dict[str, Array]:
        """The parameters and what a pass computed with them, by the names of their panels."""
        parameters = {"Km": self.Km, "Qm": self.Qm, "Vm": self.Vm}
        computed = {"K": steps.K, "Q": steps.Q, "V": steps.V}
        return {**parameters, **computed, "Attn": steps.attention, "Out": steps.output}

    def steps(self, seq: Any) -> Steps:
        """The same pass, with everything it computes."""
        x = self._add_positions(seq)
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

    def _add_positions(self, seq: Any) -> Array:
        """seq (n, d_input) → (n, d_input + d_pos)."""
        seq = _read_matrix("seq", seq, least=0)
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
                f"seq has length {n} but pos has {len(self.pos)} rows; "
                f"shorten it or give pos {n} rows"
            )
        return np.concatenate([seq, self.pos[:n]], axis=1)

    def __repr__(self) -> str:
        places = "no positions" if self.pos is None else f"pos {self.pos.shape}"
        return f"NumpyTransformer(Km {self.Km.shape}, Qm, Vm {self.Vm.shape}, {places})"


def _softmax(scores: Array) -> Array:
    """exp(score) / Σ exp(score); the largest score is subtracted first, against overflow."""
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def _read_matrix(name: str, values: Any, least: int = 1) -> Array:
    """A table of finite numbers as a read-only copy in float64."""
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


# The narration


def _narrate(steps: Steps, d_input: int) -> Iterator[str]:
    """The forward pass in words, line by line."""
    n, d_qk = steps.Q.shape
    yield f"{n} token{'s' * (n != 1)}."
    for t, x in enumerate(steps.x):
        position = f" with position {_format_row(x[d_input:])}" if d_input < len(x) else ""
        yield f"Token {t} is {_format_row(x[:d_input])}{position}:"
        yield f"  key   {_format_row(steps.K[t])}"
        yield f"  value {_format_row(steps.V[t])}"
    for t in range(n):
        yield f"Token {t} has the query {_format_row(steps.Q[t])}:"
        for s in range(n):
            yield (
                f"  query · key {s} = {_format(steps.Q[t] @ steps.K[s])}, divided by √{d_qk}: "
                f"{_format(steps.scores[t, s])}, weight {_format(steps.attention[t, s])}"
            )
        yield f"  output, the weighted sum of the values: {_format_row(steps.output[t])}"


def _format_row(row: Array) -> str:
    return f"[{' '.join(map(_format, row))}]"


def _format(value: float) -> str:
    """Four digits; smaller numbers are 0, and so is −0."""
    return f"{0.0 if abs(value) < 5e-5 else value:.4g}"

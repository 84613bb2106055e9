"""Sinusoidal positions: a sine and a cosine for each pair of columns, slower from pair to pair."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.dropout import SAYS, TERM, WithDropout
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, mistake


class SinusoidalPositions(WithDropout):
    """A function (n, d) → table, a function of x, or a module of x (B, T, d).

    `PositionalEncoder` multiplies its input by √d; for modules of other names this is free.
    """

    name = "sinusoidal_positions"
    title = "Sinusoidal positions"
    formula = "PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d))"
    signature = "PositionalEncoding(d, dropout, max_len)(x), or positional_encoding(n, d)"
    page = "positions.md"
    names = (
        "PositionalEncoder",
        "PositionalEncoding",
        "SinusoidalPositionalEncoding",
        "SinusoidalPositions",
        "SinusoidalPositionalEmbedding",
        "SinusoidalEmbedding",
        "PositionalEmbedding",
        "sinusoidal_positions",
        "sinusoidal_encoding",
        "sinusoidal_positional_encoding",
        "positional_encoding",
        "get_positional_encoding",
        "get_sinusoid_table",
        "get_sinusoid_encoding_table",
        "create_positional_encoding",
        "positional_encoder",
        "sinusoids",
    )
    terms = {
        "positions": "the positions, counted from 0",
        "angles": "the angle pos / 10000^(2i/d), the same for both columns of a pair",
        "waves": "the sines in even columns and the cosines in odd ones",
        "scale": "the factor √d of the input",
        "combine": "the sum of input and positions",
        **TERM,
    }
    parameters = {
        "x": "x X input inputs embeddings tokens",
        "n": "n n_positions max_len seq_len length num_positions T L max_length seq_length"
        " positions sequence_length context_length num_steps",
        "d": "d d_model dim num_hiddens hidden_dim embed_dim emb_dim width n_embd d_emb",
    }
    constructor = {
        "d": parameters["d"] + " input_dim embedding_dim hidden_size model_dim",
        "max_len": parameters["n"] + " max_seq_len max_position",
        "dropout": "dropout p dropout_p dropout_rate p_drop drop",
    }
    optional = ("max_len", "dropout")

    # The formula: x (B, T, d) → (B, T, d); without x the table (n, d)

    def answer(self, n: int, d: int, x: Tensor | None = None, is_scaled: bool = False) -> Tensor:
        rows = n if x is None else max(x.shape[:2])
        table = self.waves(self.angles(self.positions(rows), torch.arange(d), d))  # (rows, d)
        return table if x is None else self.combine(x, table, is_scaled)

    def positions(self, n: int) -> Tensor:
        return torch.arange(n).double()

    def angles(self, positions: Tensor, column: Tensor, d: int) -> Tensor:
        even = 2 * (column // 2)  # columns 2i and 2i + 1 share their angle
        return positions[:, None] / 10000 ** (even / d).double()

    def waves(self, angles: Tensor) -> Tensor:
        is_even = torch.arange(angles.size(1)) % 2 == 0
        return torch.where(is_even, angles.sin(), angles.cos()).float()

    def combine(self, x: Tensor, table: Tensor, is_scaled: bool) -> Tensor:
        return self.scale(x, is_scaled) + table[: x.size(1)]

    def scale(self, x: Tensor, is_scaled: bool) -> Tensor:
        return x * math.sqrt(x.size(-1)) if is_scaled else x

    # Mistakes

    @mistake(
        "angles",
        "the exponent is doubled: the loop over range(0, d, 2) already gives 2i, and 2 · 2i / d "
        "makes the waves slow down twice as fast",
        line=("10000", "1e4", "exp(", "pow("),
    )
    def doubled_exponent(self, positions: Tensor, column: Tensor, d: int) -> Tensor:
        return positions[:, None] / 10000 ** (4 * (column // 2) / d).double()

    @mistake(
        "angles",
        "the exponent is 2 · column / d with each column's own index: it is doubled, and the "
        "cosine does not share the angle of its sine",
        line=("10000", "1e4", "exp(", "pow("),
    )
    def doubled_own_index(self, positions: Tensor, column: Tensor, d: int) -> Tensor:
        return positions[:, None] / 10000 ** (2 * column / d).double()

    @mistake(
        "angles",
        "the cosine uses its own index 2i + 1 in the exponent; it must have the angle of the sine "
        "before it, with 2i",
        line=("cos", "10000", "1e4", "exp("),
    )
    def cosine_own_index(self, positions: Tensor, column: Tensor, d: int) -> Tensor:
        return positions[:, None] / 10000 ** (column / d).double()

    @mistake(
        "angles",
        "the exponent is i / d instead of 2i / d: the factor 2 is missing, so the waves slow down "
        "half as fast",
        line=("10000", "1e4", "exp(", "pow("),
    )
    def halved_exponent(self, positions: Tensor, column: Tensor, d: int) -> Tensor:
        return positions[:, None] / 10000 ** ((column // 2) / d).double()

    @mistake(
        "angles",
        "the base is missing: the angle is pos · exp(−2i/d), without the factor log(10000)",
        line=("exp(", "arange"),
    )
    def no_base(self, positions: Tensor, column: Tensor, d: int) -> Tensor:
        return positions[:, None] * (-2 * (column // 2) / d).double().exp()

    @mistake(
        "waves",
        "all sines are in the first half of the columns and all cosines in the second; each "
        "cosine must come right after its sine",
        line=("cat", "concat", "hstack", "cos"),
    )
    def halves(self, angles: Tensor) -> Tensor:
        return torch.cat([angles[:, ::2].sin(), angles[:, 1::2].cos()], -1).float()

    @mistake(
        "waves",
        "sine and cosine are swapped: even columns must hold the sine, odd columns the cosine",
        line=("cos", "sin"),
    )
    def swapped_waves(self, angles: Tensor) -> Tensor:
        is_even = torch.arange(angles.size(1)) % 2 == 0
        return torch.where(is_even, angles.cos(), angles.sin()).float()

    @mistake(
        "waves",
        "every column is a sine: odd columns must be the cosine",
        line=("sin",),
    )
    def no_cosine(self, angles: Tensor) -> Tensor:
        return angles.sin().float()

    @mistake(
        "positions",
        "the positions count from 1; the first one must be 0, where sines are 0 and cosines 1",
        line=("arange(1", "range(1", "+ 1", "arange", "range"),
    )
    def positions_from_one(self, n: int) -> Tensor:
        return 1 + torch.arange(n).double()

    @mistake(
        "scale",
        "the input is not multiplied by √d before the positions are added",
        line=("+ self", "+= self", "+ p", "return"),
    )
    def no_input_scale(self, x: Tensor, is_scaled: bool) -> Tensor:
        if not is_scaled:
            raise ValueError("without the scale this is no mistake")
        return x

    @mistake(
        "scale",
        "the input is multiplied by d instead of √d: the square root is missing",
        line=("*",),
    )
    def scaled_by_d(self, x: Tensor, is_scaled: bool) -> Tensor:
        return x * x.size(-1)

    @mistake("scale", "the input is divided by √d instead of multiplied", line=("/", "sqrt"))
    def scaled_down(self, x: Tensor, is_scaled: bool) -> Tensor:
        return x / math.sqrt(x.size(-1))

    @mistake(
        "combine",
        "the positions are multiplied by √d, too: scale the input alone, then add",
        line=("sqrt", "**0.5", "** 0.5"),
    )
    def scaled_positions(self, x: Tensor, table: Tensor, is_scaled: bool) -> Tensor:
        return (x + table[: x.size(1)]) * math.sqrt(x.size(-1))

    @mistake(
        "combine",
        "the positions are concatenated to the input instead of added, so the width doubles",
        line=("cat(", "concat", "hstack"),
    )
    def positions_beside_input(self, x: Tensor, table: Tensor, is_scaled: bool) -> Tensor:
        return torch.cat([self.scale(x, is_scaled), table[: x.size(1)].expand_as(x)], -1)

    @mistake(
        "combine",
        "the input is forgotten: the module returns the positions alone",
        line=("return",),
    )
    def input_forgotten(self, x: Tensor, table: Tensor, is_scaled: bool) -> Tensor:
        return table[: x.size(1)].expand_as(x)

    @mistake(
        "combine",
        "the positions are counted along the batch; the input is (batch, time, width), so "
        "time is the second axis",
        line=("size(0)", "shape[0]", "len(", "unsqueeze", ":"),
    )
    def positions_along_batch(self, x: Tensor, table: Tensor, is_scaled: bool) -> Tensor:
        return self.scale(x, is_scaled) + table[: len(x), None]

    @mistake(
        "combine",
        "every token gets the position of the first one",
        line=("[0]", "[:1]", "[:, 0]"),
    )
    def first_position_for_all(self, x: Tensor, table: Tensor, is_scaled: bool) -> Tensor:
        return self.scale(x, is_scaled) + table[0]

    # Cases

    def ask(self, student: Any, case: Case) -> Answer | None:
        """Ask for the table or for the sum, as the student's code is written."""
        required = [p for p, has_default in student.signature(student.name) if not has_default]
        takes_input = student.is_class or len(required) == 1
        shape = {"n": case.inputs["n"], "d": case.inputs["d"]}
        inputs = {"x": case.inputs["x"]} if takes_input else shape
        answer = super().ask(student, replace(case, inputs=inputs))
        if answer is not None and answer.error is not None and case.sizes["d"] % 2:
            student.notes.append("odd widths are not accepted: there is one more sine than cosine")
            return None
        if answer is None or not takes_input:
            return answer
        scales = (True,) if "Encoder" in student.name else (False, True)
        answer.choices = [{**shape, **inputs, "is_scaled": each} for each in scales]
        return answer

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        found = super().read(output, inputs)["output"]
        if "x" not in inputs and getattr(found, "ndim", 0) == 3 and len(found) == 1:
            found = found[0]  # (1, n, d), ready to be added to a batch
        return {"output": found}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, x: Tensor, **more: Any) -> Case:
            n, d = x.shape[1:]
            sizes = {"d": d, "max_len": 50, "dropout": 0.5}
            return Case(says, term, {"x": x, "n": n, "d": d}, sizes, **more)

        one = "at position 0 the sines are 0 and the cosines 1"
        yield case(one, "waves", torch.zeros(1, 1, 4))
        yield case("the input is added", "combine", draw.normal(3, 1, 6))
        yield case("the first pair of columns is sin(pos) and cos(pos)", "waves", _zeros(3, 5, 2))
        yield case("later pairs have the angle pos / 10000^(2i/d)", "angles", _zeros(2, 7, 10))
        yield case("the factor of the input follows its width", "scale", draw.normal(3, 5, 8))
        yield case("the gradient reaches the input", "scale", draw.normal(2, 6, 4), gradient=True)
        yield case("an odd width ends with a sine", "waves", draw.normal(2, 4, 7))
        yield case(SAYS, "drop", draw.normal(3, 5, 6))

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, d in ((1, 2), (2, 2), (2, 4), (3, 4)):
            inputs = {"x": draw.small(1, T, d), "n": T, "d": d}
            sizes = {"d": d, "max_len": 50, "dropout": 0.0}
            yield Case("a small example", "waves", inputs, sizes)
        yield from self.cases(draw)


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)

"""Learned positions: a table with a row for each position, added to the input."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.dropout import SAYS, TERM, WithDropout
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, mistake
from clearhead.exercises.weights import Role


class LearnedPositions(WithDropout):
    """A module with one table (max_len, d), as nn.Embedding or nn.Parameter, also (1, max_len, d).

    Input longer than max_len must raise an error.
    """

    name = "learned_positions"
    title = "Learned positions"
    formula = "x[b, t] + table[t]"
    signature = "LearnedPositions(max_len, d)(x)"
    page = "positions.md"
    names = (
        "LearnedPositions",
        "LearnedPositionalEncoding",
        "LearnedPositionalEmbedding",
        "LearnablePositionalEncoding",
        "LearnablePositionalEmbedding",
        "LearnablePositions",
        "AbsolutePositions",
        "AbsolutePositionalEncoding",
        "AbsolutePositionalEmbedding",
        "PositionEmbedding",
        "LearnedPositionEncoding",
        "PosEmbedding",
    )
    terms = {
        "rows": "the rows of the table: row t for position t",
        "combine": "the sum of input and rows",
        "check": "the length of the input, which must not exceed the table",
        **TERM,
    }
    parameters = {"x": "x X input inputs embeddings tokens"}
    constructor = {
        "max_len": "max_len n n_positions seq_len max_length block_size context_length max_seq_len"
        " num_positions n_ctx length max_position_embeddings num_embeddings T",
        "d": "d d_model dim num_hiddens hidden_dim embed_dim emb_dim n_embd embedding_dim width"
        " hidden_size",
        "dropout": "dropout p dropout_p dropout_rate drop",
    }
    optional = ("dropout",)

    def roles(self, max_len: int, d: int, dropout: float = 0.0) -> dict[str, Role]:
        return {"table": Role("table", (max_len, d), "pos position positions pe table")}

    # The formula: x (B, T, d), table (max_len, d) → (B, T, d)

    def answer(self, x: Tensor, table: Tensor) -> Tensor:
        table = self.check(table, x.size(1))
        return self.combine(x, self.rows(table, x.size(1)), table)

    def check(self, table: Tensor, T: int) -> Tensor:
        if len(table) < T:
            raise ValueError("the input is longer than the table")
        return table

    def rows(self, table: Tensor, T: int) -> Tensor:
        return table[:T]

    def combine(self, x: Tensor, rows: Tensor, table: Tensor) -> Tensor:
        return x + rows

    # Mistakes

    @mistake(
        "rows",
        "the positions count from 1: the first row of the table is never used",
        line=("arange(1", "+ 1", "1:"),
    )
    def positions_from_one(self, table: Tensor, T: int) -> Tensor:
        return table[1 : T + 1]

    @mistake(
        "rows",
        "the last rows of the table are used: position t must have row t, however long the input",
        line=("-T", "-x", "[-", ", -"),
    )
    def last_rows(self, table: Tensor, T: int) -> Tensor:
        return table[-T:]

    @mistake("rows", "every token gets the first row", line=("[0]", "[:1]", "zeros"))
    def first_row_for_all(self, table: Tensor, T: int) -> Tensor:
        return table[:1]

    @mistake(
        "rows",
        "all tokens get the same vector, the mean of the rows",
        line=("mean",),
    )
    def mean_of_rows(self, table: Tensor, T: int) -> Tensor:
        return table[:T].mean(0)

    @mistake("rows", "the rows are in reverse order", line=("flip", "[::-1]", "- 1"))
    def reversed_rows(self, table: Tensor, T: int) -> Tensor:
        return table[:T].flip(0)

    @mistake(
        "combine",
        "the positions are counted along the batch; the input is (batch, time, width), so "
        "time is the second axis",
        line=("size(0)", "shape[0]", "len("),
    )
    def positions_along_batch(self, x: Tensor, rows: Tensor, table: Tensor) -> Tensor:
        return x + table[: len(x), None]

    @mistake(
        "combine",
        "the positions are concatenated to the input instead of added",
        line=("cat(", "concat"),
    )
    def positions_beside_input(self, x: Tensor, rows: Tensor, table: Tensor) -> Tensor:
        return torch.cat([x, rows.expand_as(x)], -1)

    @mistake(
        "combine", "the positions are multiplied with the input instead of added to it", line=("*",)
    )
    def input_times_positions(self, x: Tensor, rows: Tensor, table: Tensor) -> Tensor:
        return x * rows

    @mistake(
        "combine", "the input is forgotten: the positions alone are returned", line=("return",)
    )
    def input_forgotten(self, x: Tensor, rows: Tensor, table: Tensor) -> Tensor:
        return rows.expand_as(x)

    @mistake("combine", "the positions are not added: the input is returned", line=("return",))
    def positions_forgotten(self, x: Tensor, rows: Tensor, table: Tensor) -> Tensor:
        return x

    @mistake(
        "combine",
        "the input is multiplied by √d: that belongs to sinusoidal positions",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def input_scaled(self, x: Tensor, rows: Tensor, table: Tensor) -> Tensor:
        return x * math.sqrt(x.size(-1)) + rows

    @mistake(
        "check",
        "input longer than the table silently repeats the last row; it must raise an error",
        line=("clamp", "min("),
    )
    def repeats_last_row(self, table: Tensor, T: int) -> Tensor:
        return torch.cat([table, table[-1:].expand(T, -1)])[: max(T, len(table))]

    @mistake(
        "check",
        "input longer than the table silently starts again at the first row; it must raise an "
        "error",
        line=("%", "remainder"),
    )
    def wraps_around(self, table: Tensor, T: int) -> Tensor:
        return torch.cat([table] * (1 + T // len(table)))[: max(T, len(table))]

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, d: int, max_len: int, **more: Any) -> Case:
            sizes = {"max_len": max_len, "d": d, "dropout": 0.5}
            return Case(says, term, {"x": draw.normal(B, T, d)}, sizes, **more)

        yield case("the first token gets row 0", "combine", 1, 1, 3, 7)
        yield case("all rows of a batch get the same positions", "combine", 4, 1, 5, 8)
        yield case("token t gets row t", "rows", 3, 5, 4, 9)
        yield case("the whole table can be used", "rows", 3, 6, 5, 6)
        yield case("the gradient reaches the input", "combine", 2, 4, 3, 7, gradient=True)
        yield case("an input longer than the table raises an error", "check", 8, 9, 4, 6)
        yield case(SAYS, "drop", 3, 5, 4, 8)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for B, T, d, max_len in ((1, 1, 2, 3), (1, 2, 2, 3), (2, 2, 3, 4), (1, 4, 2, 3)):
            sizes = {"max_len": max_len, "d": d, "dropout": 0.0}
            yield Case("a small example", "rows", {"x": draw.small(B, T, d)}, sizes)
        yield from self.cases(draw)

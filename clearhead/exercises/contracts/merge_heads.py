"""Putting the heads side by side again: (B, H, T, Dh) → (B, T, H·Dh)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.conventions import to_array_form
from clearhead.exercises.contracts.shared.names import HEADS, RESHAPE
from clearhead.exercises.contracts.split_heads import CONSTRUCTOR
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, Exercise, mistake


class MergeHeads(Exercise):
    name = "merge_heads"
    title = "Merging heads"
    formula = "output[b, t, h·Dh + j] = x[b, h, t, j]"
    signature = "merge_heads(x) with x (B, H, T, Dh), or transpose_output(X, num_heads) with X (B·H, T, Dh)"  # fmt: skip  # noqa: E501
    page = "attention.md#heads"
    names = (
        "merge_heads",
        "transpose_output",
        "combine_heads",
        "join_heads",
        "concat_heads",
        "MultiHeadAttention.merge_heads",
        "MultiHeadAttention.combine_heads",
        "MultiHeadAttention.transpose_output",
    )
    terms = {
        "turn": "the order of the axes: tokens before heads",
        "join": "heads side by side in the width",
    }
    parameters = {"x": "x tensor inputs input t", "n_heads": HEADS}
    constructor = CONSTRUCTOR
    optional = ("dropout",)

    # The formula

    def answer(self, x: Tensor, n_heads: int) -> Tensor:
        return self.join(self.turn(x))

    def turn(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)  # (B, T, H, Dh)

    def join(self, x: Tensor) -> Tensor:
        return x.flatten(2)  # (B, T, H·Dh)

    def forms(self, case: Case) -> Iterable[Case]:
        """(B, H, T, Dh) or (B·H, T, Dh); the number of heads given or not."""
        x = case.inputs["x"]
        flat = {**case.inputs, "x": x.flatten(0, 1)}
        every = [
            replace(case, given={"x": x}),
            case,
            replace(case, given=flat, gradient=False),
            replace(case, given={"x": flat["x"]}, gradient=False),
        ]
        yield from every
        yield from (to_array_form(each) for each in every)

    # Mistakes

    @mistake(
        "turn",
        "the heads are merged without transposing back: (B, H, T, Dh) is reshaped to (B, T, D), "
        "which mixes tokens and heads; transpose to (B, T, H, Dh) first",
        line=RESHAPE,
    )
    def merge_without_transpose(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(2), x.size(1), x.size(3))

    @mistake(
        "join",
        "the features of the heads are interleaved; the features of each head must stay together",
        line=("permute", "stack", "transpose", *RESHAPE),
    )
    def interleaved_features(self, x: Tensor) -> Tensor:
        return x.mT.flatten(2)

    @mistake(
        "join",
        "the heads are added (or averaged) instead of put side by side",
        line=("sum", "mean"),
        variants=("heads_averaged",),
    )
    def heads_summed(self, x: Tensor) -> Tensor:
        return x.sum(2)

    def heads_averaged(self, x: Tensor) -> Tensor:
        return x.mean(2)

    @mistake("join", "the heads are not joined: the result has four axes", line=("transpose",))
    def not_joined(self, x: Tensor) -> Tensor:
        return x

    @mistake(
        "join",
        "the heads follow each other in time, (B, H·T, Dh), instead of standing side by side",
        line=("cat", "flatten", *RESHAPE),
    )
    def joined_in_time(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(1, 2)

    @mistake(
        "turn",
        "tokens and features are swapped before the reshape: permute(0, 3, 1, 2) instead of "
        "(0, 2, 1, 3)",
        line=("permute", "transpose"),
    )
    def wrong_axes(self, x: Tensor) -> Tensor:
        B, H, T, d = x.shape
        return x.permute(0, 3, 1, 2).reshape(B, T, H, d)

    @mistake(
        "turn",
        "the joined axis is read as (H, B) instead of (B, H), which mixes heads of different "
        "examples",
        line=RESHAPE,
    )
    def heads_before_batch(self, x: Tensor) -> Tensor:
        B, H, T, d = x.shape
        return x.reshape(H, B, T, d).permute(1, 2, 0, 3)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, H: int, T: int, d_head: int, **more: Any) -> Case:
            inputs = {"x": draw.normal(B, H, T, d_head), "n_heads": H}
            sizes = {"d_model": H * d_head, "n_heads": H, "dropout": 0.5}
            return Case(says, term, inputs, sizes, **more)

        yield case("a single token gets its heads side by side", "join", 2, 3, 1, 5)
        yield case("tokens come before heads", "turn", 2, 3, 5, 7)
        yield case("more heads than tokens", "turn", 3, 5, 2, 4)
        yield case("the gradient reaches the input", "turn", 2, 5, 3, 4, gradient=True)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for B, H, T, d in ((1, 2, 1, 2), (1, 2, 2, 1), (1, 2, 3, 2), (2, 3, 2, 2), (2, 3, 4, 1)):
            x = torch.arange(1.0, B * T * H * d + 1).view(B, H, T, d)
            sizes = {"d_model": H * d, "n_heads": H, "dropout": 0.5}
            yield Case("a small example", "turn", {"x": x, "n_heads": H}, sizes)
        yield from self.cases(draw)

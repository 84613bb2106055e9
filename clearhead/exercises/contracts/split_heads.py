"""Splitting a width into heads: (B, T, D) → (B, H, T, Dh)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.conventions import to_array_form
from clearhead.exercises.contracts.shared.names import DROPOUT, HEADS, MODEL, RESHAPE
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, Exercise, mistake

CONSTRUCTOR = {"d_model": MODEL, "n_heads": HEADS, "dropout": DROPOUT}


class SplitHeads(Exercise):
    name = "split_heads"
    title = "Splitting into heads"
    formula = "output[b, h, t, j] = x[b, t, h·Dh + j]"
    signature = "split_heads(x, n_heads) → (B, H, T, Dh), or transpose_qkv(X, num_heads) → (B·H, T, Dh)"  # fmt: skip  # noqa: E501
    page = "attention.md#heads"
    names = (
        "split_heads",
        "transpose_qkv",
        "split_into_heads",
        "MultiHeadAttention.split_heads",
        "MultiHeadAttention.transpose_qkv",
        "MultiHeadAttention._split_heads",
    )
    terms = {
        "cut": "which features belong to which head",
        "turn": "the order of the axes: heads before tokens",
    }
    parameters = {"x": "x tensor inputs input t", "n_heads": HEADS}
    constructor = CONSTRUCTOR
    optional = ("dropout",)

    # The formula

    def answer(self, x: Tensor, n_heads: int) -> Tensor:
        return self.turn(self.cut(x, n_heads))

    def cut(self, x: Tensor, n_heads: int) -> Tensor:
        return x.unflatten(-1, (n_heads, -1))  # (B, T, H, Dh)

    def turn(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)  # (B, H, T, Dh)

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """(B·H, T, Dh) with the heads of an example side by side is accepted, too."""
        B, H = inputs["x"].size(0), inputs["n_heads"]
        if getattr(output, "ndim", 0) == 3 and output.shape[0] == B * H:
            output = output.reshape(B, H, *output.shape[1:])
        return {"output": output}

    def forms(self, case: Case) -> Iterable[Case]:
        every = [case, replace(case, given={"x": case.inputs["x"]})]
        yield from every
        yield from (to_array_form(each) for each in every)

    # Mistakes

    @mistake(
        "turn",
        "the axes are not transposed: the result is (B, T, H, Dh), so attention would run over "
        "the heads of a token",
        line=("transpose", "permute", *RESHAPE),
    )
    def no_transpose(self, x: Tensor) -> Tensor:
        return x

    @mistake(
        "turn",
        "the width is reshaped to (B, H, T, Dh) without a transpose: tokens and heads get mixed; "
        "reshape to (B, T, H, Dh) first, then transpose",
        line=RESHAPE,
    )
    def view_without_transpose(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(2), x.size(1), x.size(3))

    @mistake(
        "cut",
        "each head takes every H-th feature: reshape to (…, H, Dh), not to (…, Dh, H)",
        line=RESHAPE,
    )
    def interleaved_features(self, x: Tensor, n_heads: int) -> Tensor:
        return x.unflatten(-1, (-1, n_heads)).mT

    @mistake(
        "turn",
        "heads come before the batch: row h·B + b instead of b·H + h, so lengths repeated for "
        "each head go to another example",
        line=("cat", "transpose", "permute", *RESHAPE),
    )
    def heads_before_batch(self, x: Tensor) -> Tensor:
        heads = x.permute(2, 0, 1, 3)  # (H, B, T, Dh)
        return heads.reshape(x.size(0), x.size(2), x.size(1), x.size(3))

    @mistake(
        "turn",
        "heads are the first axis, (H, B, T, Dh): the batch must stay first",
        line=("stack", "transpose", "permute"),
    )
    def heads_first(self, x: Tensor) -> Tensor:
        return x.permute(2, 0, 1, 3)

    @mistake(
        "turn",
        "features and tokens are swapped: the result is (B, H, Dh, T)",
        line=("permute", "transpose"),
    )
    def features_before_tokens(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, H: int, d_head: int, **more: Any) -> Case:
            inputs = {"x": draw.normal(B, T, H * d_head), "n_heads": H}
            sizes = {"d_model": H * d_head, "n_heads": H, "dropout": 0.5}
            return Case(says, term, inputs, sizes, **more)

        yield case("with one head the numbers stay where they are", "turn", 3, 5, 1, 4)
        yield case("with one token each head takes its own features", "cut", 2, 1, 3, 5)
        yield case("heads come before tokens", "turn", 2, 5, 3, 7)
        yield case("more heads than tokens", "turn", 3, 2, 5, 4)
        yield case("the gradient reaches the input", "turn", 2, 3, 4, 5, gradient=True)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for B, T, H, d in ((1, 1, 2, 2), (1, 2, 2, 1), (1, 2, 3, 2), (2, 2, 3, 2), (2, 3, 2, 2)):
            x = torch.arange(1.0, B * T * H * d + 1).view(B, T, H * d)
            sizes = {"d_model": H * d, "n_heads": H, "dropout": 0.5}
            yield Case("a small example", "turn", {"x": x, "n_heads": H}, sizes)
        yield from self.cases(draw)

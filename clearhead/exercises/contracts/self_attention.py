"""A self-attention module: queries, keys and values are three linear layers of one input."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.conventions import (
    draw_mask,
    list_layout_forms,
    list_mask_forms,
)
from clearhead.exercises.contracts.shared.dot_product import DotProduct
from clearhead.exercises.contracts.shared.names import (
    DROPOUT,
    HEADS,
    INPUT,
    KEY,
    OUTPUT,
    QUERY,
    VALUE,
    WIDTH,
)
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, mistake
from clearhead.exercises.student import Student
from clearhead.exercises.weights import Linear, Role

Three = tuple[Tensor, Tensor, Tensor]


class SelfAttention(DotProduct):
    name = "self_attention"
    title = "A self-attention module"
    formula = "softmax((x W_q) (x W_k)ᵀ / √d_key) (x W_v)"
    signature = "SelfAttention(input_dim, key_dim, output_dim)(x)"
    page = "attention.md#heads"
    names = (
        f"SelfAttention without {HEADS} config cfg",
        "SelfAttn",
        "SelfAttentionHead",
        "SingleHeadAttention",
        "SelfAttention_v1",
        "SelfAttention_v2",
    )
    terms = {
        "project": "the three linear layers for queries, keys and values",
        **DotProduct.terms,
    }
    parameters = {"x": "x inputs input hidden hidden_states", **DotProduct.parameters}
    constructor = {"d_input": INPUT, "d_key": WIDTH, "d_output": OUTPUT, "dropout": DROPOUT}
    optional = (*DotProduct.optional, "d_key")
    impossible = ("lengths_too_long", "lengths_too_short")  # there are no lengths

    def roles(self, d_input: int, d_key: int, d_output: int, **_: Any) -> dict[str, Role]:
        return {
            "query": Role("linear", (d_key, d_input), QUERY),
            "key": Role("linear", (d_key, d_input), KEY),
            "value": Role("linear", (d_output, d_input), VALUE),
        }

    def ask(self, student: Student, case: Case) -> Answer | None:
        """SelfAttention(d_in, d_out): queries and keys are as wide as values."""
        given = {name.lower() for name, _ in student.signature(student.owner or student.name)}
        if not given & set(self.constructor["d_key"].split()):
            case = replace(case, sizes={**case.sizes, "d_key": case.sizes["d_output"]})
        return student.ask(self, case)

    def forms(self, case: Case) -> Iterable[Case]:
        yield from (form for layout in list_layout_forms(case) for form in list_mask_forms(layout))

    # The formula: x (B, T, d_input) → (B, T, d_output)

    def answer(
        self, x: Tensor, query: Linear, key: Linear, value: Linear, **hidden: Any
    ) -> dict[str, Tensor]:
        q, k, v = self.project(x, query, key, value)
        return self.attend(q, k, v, x, **hidden)

    def project(self, x: Tensor, query: Linear, key: Linear, value: Linear) -> Three:
        return query(x), key(x), value(x)

    # Mistakes

    @mistake(
        "project",
        "queries and keys come from the same layer, so a token tends to attend most to itself",
        line=("k =", "keys =", "key ="),
    )
    def keys_from_queries(self, x: Tensor, query: Linear, key: Linear, value: Linear) -> Three:
        return query(x), query(x), value(x)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, *sizes: int, **more: Any) -> Case:
            names = ("d_input", "d_key", "d_output")
            inputs = {"x": draw.normal(B, T, sizes[0], scale=more.pop("scale", 1.0))}
            inputs |= more.pop("hidden", {})
            widths = {**dict(zip(names, sizes, strict=True)), "dropout": 0.5}
            return Case(says, term, inputs, widths, **more)

        same = case("a sequence of equal tokens gives their value", "project", 3, 4, 5, 6, 7)
        tokens = same.inputs["x"][:, :1].expand(3, 4, 5).contiguous()
        yield replace(same, inputs={"x": tokens})
        yield case("with key_dim = 1 the scores need no scaling", "weigh", 3, 4, 6, 1, 1)
        yield case("the scores are divided by √key_dim", "scale", 2, 5, 7, 9, 4)
        yield case("the gradient reaches the input", "weigh", 3, 4, 6, 8, 5, gradient=True)
        yield case("values as wide as keys", "order", 2, 4, 5, 6, 6)
        yield case("scores as large as 1000 stay finite", "weigh", 2, 5, 6, 3, 4, scale=60.0)
        mask = {"mask": draw_mask(draw, 2, 5, 5)}
        yield case("hidden keys get no weight", "hide", 2, 5, 6, 3, 4, hidden=mask)
        low = case("low scores leave hidden keys hidden", "hide", 8, 5, 6, 3, 4)
        token = draw.normal(8, 1, 6, scale=200.0)
        x = torch.cat([token, token, token, -token, -token], 1)  # scores of ±1e4: some rows are low
        real = torch.tensor([True, True, True, False, False]).expand(8, 5, 5)
        yield replace(low, inputs={"x": x, "mask": real})

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, *widths in ((1, 1, 2, 3), (2, 1, 2, 3), (2, 2, 3, 1), (3, 2, 4, 1), (3, 2, 2, 2)):
            for n in range(4):
                sizes = dict(zip(("d_input", "d_key", "d_output"), widths, strict=True))
                inputs = {"x": draw.small(1, T, widths[0])}
                if n % 2:
                    inputs["mask"] = draw.mask(1, T, T)
                yield Case("a small example", "project", inputs, {**sizes, "dropout": 0.5})
        yield from self.cases(draw)

"""Scaled dot-product attention: softmax(q kᵀ / √d_k) v."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.conventions import (
    draw_mask,
    list_layout_forms,
    list_mask_forms,
    to_array_form,
)
from clearhead.exercises.contracts.shared.dot_product import DotProduct
from clearhead.exercises.contracts.shared.dropout import SAYS, TERM, WithDropout
from clearhead.exercises.contracts.shared.names import DROPOUT
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case


class Attention(WithDropout, DotProduct):
    name = "attention"
    title = "Scaled dot-product attention"
    formula = "softmax(q kᵀ / √d_k) v"
    signature = "attention(q, k, v, mask=None) with mask True = may attend"
    names = (
        "attention",
        "scaled_dot_product_attention",
        "scaled_dot_product",
        "run_scaled_dot_product_attention",
        "dot_product_attention",
        "attend",
        "DotProductAttention",
        "ScaledDotProductAttention",
    )
    terms = {**DotProduct.terms, **TERM}
    parameters = {
        "q": "q query queries qs",
        "k": "k key keys ks",
        "v": "v value values vs",
        **DotProduct.parameters,
    }
    constructor = {"dropout": DROPOUT}
    impossible = ("scaled_by_model",)  # the queries are given: there is no model

    def answer(self, q: Tensor, k: Tensor, v: Tensor, **hidden: Any) -> dict[str, Tensor]:
        return self.attend(q, k, v, q, **hidden)

    def forms(self, case: Case) -> Iterable[Case]:
        every = [form for layout in list_layout_forms(case) for form in list_mask_forms(layout)]
        yield from every
        yield from (to_array_form(each) for each in every)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(
            says: str, term: str, B: int, T: int, S: int, d: int, d_v: int, **more: Any
        ) -> Case:
            scale, hidden = more.pop("scale", 1.0), more.pop("hidden", {})
            inputs = {
                "q": draw.normal(B, T, d, scale=scale),
                "k": draw.normal(B, S, d),
                "v": draw.normal(B, S, d_v),
                **hidden,
            }
            return Case(says, term, inputs, {"dropout": 0.5}, **more)

        none = case("values of zero give zero", "mix", 2, 3, 4, 5, 6)
        yield replace(none, inputs={**none.inputs, "v": torch.zeros(2, 4, 6)})
        same = case(
            "if all values are equal, so is the output, as weights sum to 1", "weigh", 2, 3, 4, 5, 6
        )
        values = same.inputs["v"][:1, :1].expand(2, 4, -1).contiguous()
        yield replace(same, inputs={**same.inputs, "v": values})
        even = case("equal keys give the mean of the values", "mix", 3, 4, 5, 7, 2)
        key = even.inputs["k"][:, :1].expand(3, 5, 7).contiguous()
        yield replace(even, inputs={**even.inputs, "k": key})
        signs = case("with d_k = 1 the scores need no scaling", "weigh", 3, 4, 6, 1, 1)
        unit = {name: torch.sign(signs.inputs[name]) for name in "qk"}
        yield replace(signs, inputs={**signs.inputs, **unit})
        yield case("with d_k = 1 the scores are products", "score", 3, 4, 6, 1, 1)
        yield case("the scores are divided by √d_k", "scale", 3, 5, 7, 9, 4)
        yield case("the gradient reaches q, k and v", "weigh", 2, 3, 4, 6, 5, gradient=True)
        yield case("scores as large as 1000 stay finite", "weigh", 2, 3, 5, 4, 6, scale=600.0)
        yield case("as many queries as keys", "score", 4, 6, 6, 5, 3)
        yield case("values as wide as keys", "order", 3, 4, 5, 6, 6)
        mask = {"mask": draw_mask(draw, 3, 4, 6)}
        yield case("hidden keys get no weight", "hide", 3, 4, 6, 5, 7, hidden=mask)
        low = case("low scores leave hidden keys hidden", "hide", 3, 4, 6, 16, 64, hidden=mask)
        # About −36864. √16, ⁴√16 and √d_v = 8 are powers of 2: no order of dividing rounds.
        q, k = 96.0 + draw.whole(-1, 1, 3, 4, 16), -96.0 + draw.whole(-1, 1, 3, 6, 16)
        yield replace(low, inputs={**low.inputs, "q": q, "k": k})
        full = {"valid_lens": torch.tensor([6, 6, 6])}
        yield case(
            "a length equal to the number of keys hides none", "allow", 3, 4, 6, 5, 7, hidden=full
        )
        lengths = {"valid_lens": torch.tensor([2, 5, 3])}
        yield case("keys past the length get no weight", "hide", 3, 4, 6, 5, 7, hidden=lengths)
        each = {"valid_lens": draw.whole(2, 6, 3, 4)}
        yield case("each query may have its own length", "allow", 3, 4, 6, 5, 7, hidden=each)
        yield case(SAYS, "drop", 3, 4, 6, 5, 7)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        sizes = ((1, 1, 1, 1), (1, 2, 1, 1), (1, 2, 2, 1), (2, 3, 2, 1), (2, 3, 2, 2), (2, 3, 4, 2))
        for T, S, d, d_v in sizes:
            for n in range(9):
                inputs = {
                    "q": draw.small(1, T, d),
                    "k": draw.small(1, S, d),
                    "v": draw.small(1, S, d_v),
                }
                if n % 3 == 1:
                    inputs["mask"] = draw.mask(1, T, S)
                if n % 3 == 2:
                    inputs["valid_lens"] = draw.whole(1, S, 1)
                yield Case("a small example", "score", inputs, {"dropout": 0.5})
        yield from self.cases(draw)

"""A cross-attention module: queries from x, keys and values from another sequence y."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.self_attention import Three
from clearhead.exercises.contracts.shared.conventions import draw_mask
from clearhead.exercises.contracts.shared.dot_product import DotProduct
from clearhead.exercises.contracts.shared.names import DROPOUT, KEY, OUTPUT, QUERY, VALUE, WIDTH
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, mistake
from clearhead.exercises.readings import assign
from clearhead.exercises.weights import Assignment, Linear, Role


class CrossAttention(DotProduct):
    name = "cross_attention"
    title = "A cross-attention module"
    formula = "softmax((x W_q) (y W_k)ᵀ / √d_key) (y W_v)"
    signature = "CrossAttention(x_dim, y_dim, key_dim, output_dim)(x, y)"
    page = "attention.md#heads"
    names = ("CrossAttention", "CrossAttn", "EncoderDecoderAttention")
    terms = {
        "project": "which sequence gives queries, and which keys and values",
        **DotProduct.terms,
    }
    parameters = {
        "x": "x target tgt decoder_hidden decoder_input queries query x_q",
        "y": "y source src context memory encoder_output encoder_outputs enc kv keys x_kv",
        **DotProduct.parameters,
    }
    constructor = {
        "d_x": "x_dim d_x dim_x query_dim d_query d_q input_dim_x dx",
        "d_y": "y_dim d_y dim_y context_dim d_context source_dim kv_dim input_dim_y dy",
        "d_key": WIDTH,
        "d_output": OUTPUT,
        "dropout": DROPOUT,
    }
    impossible = (
        "swapped_queries_and_keys",  # it is what swapped_sources does
        "lengths_too_long",
        "lengths_too_short",
        "always_causal",
    )

    def roles(self, d_x: int, d_y: int, d_key: int, d_output: int, **_: Any) -> dict[str, Role]:
        return {
            "query": Role("linear", (d_key, d_x), QUERY),
            "key": Role("linear", (d_key, d_y), KEY),
            "value": Role("linear", (d_output, d_y), VALUE),
        }

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        """Also find layers with the width of the wrong sequence, to name this mistake."""
        found = super().assign(parameters, sizes)
        for source in ({"key": "d_x", "value": "d_x", "query": "d_y"}, {"value": "d_x"}):
            if not found:
                roles = self.roles(**sizes)
                for name, width in source.items():
                    shape = (roles[name].shape[0], sizes[width])
                    roles[name] = Role("linear", shape, roles[name].names)
                found = assign(parameters, roles)
        return found

    # The formula: x (B, T, d_x), y (B, S, d_y) → (B, T, d_output)

    def answer(
        self, x: Tensor, y: Tensor, query: Linear, key: Linear, value: Linear, **hidden: Any
    ) -> dict[str, Tensor]:
        q, k, v = self.project(x, y, query, key, value)
        return self.attend(q, k, v, x, **hidden)

    def project(self, x: Tensor, y: Tensor, query: Linear, key: Linear, value: Linear) -> Three:
        return query(x), key(y), value(y)

    # Mistakes

    @mistake(
        "project",
        "the two sequences are swapped: queries come from y, keys and values from x; the output "
        "must have a row for each token of x",
        line=("q =", "queries =", "query", "W_q"),
    )
    def swapped_sources(
        self, x: Tensor, y: Tensor, query: Linear, key: Linear, value: Linear
    ) -> Three:
        return query(y), key(x), value(x)

    @mistake(
        "project",
        "the values come from x instead of y: keys and values must come from the same sequence",
        line=("v =", "values =", "value", "W_v"),
    )
    def values_from_queries(
        self, x: Tensor, y: Tensor, query: Linear, key: Linear, value: Linear
    ) -> Three:
        return query(x), key(y), value(x)

    @mistake(
        "project",
        "y is not used: queries, keys and values all come from x, which is self-attention",
        line=("k =", "keys =", "key", "W_k"),
    )
    def source_ignored(
        self, x: Tensor, y: Tensor, query: Linear, key: Linear, value: Linear
    ) -> Three:
        return query(x), key(x), value(x)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, S: int, *sizes: int, **more: Any) -> Case:
            names = ("d_x", "d_y", "d_key", "d_output")
            scale = more.pop("scale", 1.0)
            inputs = {
                "x": draw.normal(B, T, sizes[0], scale=scale),
                "y": draw.normal(B, S, sizes[1]),
                **more.pop("hidden", {}),
            }
            widths = {**dict(zip(names, sizes, strict=True)), "dropout": 0.5}
            return Case(says, term, inputs, widths, **more)

        same = case("a source of equal tokens gives their value", "project", 3, 2, 4, 5, 5, 6, 7)
        tokens = same.inputs["y"][:, :1].expand(3, 4, 5).contiguous()
        yield replace(same, inputs={**same.inputs, "y": tokens})
        yield case("queries come from x, keys and values from y", "weigh", 2, 4, 4, 5, 5, 1, 1)
        yield case("the sequences may differ in width and length", "weigh", 2, 3, 5, 7, 4, 1, 1)
        yield case("the scores are divided by √key_dim", "scale", 3, 4, 6, 5, 7, 9, 2)
        yield case("the gradient reaches both", "weigh", 2, 4, 5, 6, 3, 8, 7, gradient=True)
        yield case("values as wide as keys", "order", 2, 3, 4, 5, 7, 6, 6)
        yield case("scores as large as 1000 stay finite", "weigh", 2, 5, 4, 6, 7, 3, 8, scale=90.0)
        mask = {"mask": draw_mask(draw, 2, 5, 4)}
        yield case("hidden keys get no weight", "hide", 2, 5, 4, 6, 7, 3, 8, hidden=mask)
        low = case("low scores leave hidden keys hidden", "hide", 8, 2, 4, 6, 7, 3, 8)
        x, y = draw.normal(8, 1, 6, scale=200.0), draw.normal(8, 1, 7, scale=200.0)
        both = {"x": torch.cat([x, -x], 1), "y": torch.cat([y, y, -y, -y], 1)}  # scores of ±1e4
        real = torch.tensor([True, True, False, False]).expand(8, 2, 4)
        yield replace(low, inputs={**both, "mask": real})

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        names = ("d_x", "d_y", "d_key", "d_output")
        for T, S, *widths in (
            (1, 1, 1, 1, 2, 1),
            (2, 3, 1, 1, 2, 1),
            (2, 3, 1, 2, 3, 1),
            (2, 2, 1, 1, 2, 2),
        ):
            for n in range(4):
                inputs = {"x": draw.small(1, T, widths[0]), "y": draw.small(1, S, widths[1])}
                if n % 2:
                    inputs["mask"] = draw.mask(1, T, S)
                sizes = {**dict(zip(names, widths, strict=True)), "dropout": 0.5}
                yield Case("a small example", "project", inputs, sizes)
        yield from self.cases(draw)

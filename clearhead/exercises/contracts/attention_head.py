"""An attention head with a 0/1 mask, as a class with weights or as a function."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.causal import MaybeCausal
from clearhead.exercises.contracts.shared.conventions import draw_mask, list_mask_forms
from clearhead.exercises.contracts.shared.names import (
    DROPOUT,
    HIDE,
    INPUT,
    KEY,
    LENGTH,
    OUTPUT,
    QUERY,
    VALUE,
    WIDTH,
)
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, mistake
from clearhead.exercises.student import Student
from clearhead.exercises.weights import Linear, Role

MATRICES = ("query", "key", "value")


class AttentionHead(MaybeCausal):
    name = "attention_head"
    title = "An attention head with a mask"
    formula = "softmax((x W_q) (x W_k)ᵀ / √d_head where mask = 1, else −∞) (x W_v)"
    signature = "AttentionHead(dim, n_hidden)(x, attn_mask), or attention_head(q, k, v, mask)"
    page = "attention.md#masks-one-algebra-true--may-attend"
    names = (
        "AttentionHead",
        "attention_head",
        "SingleHead",
        "MaskedAttentionHead",
        "Head",
        "CausalAttention",
        "CausalAttentionHead",
        "CausalHead",
    )
    parameters = {
        "x": "x inputs input hidden hidden_states",
        "q": "q query queries",
        "k": "k key keys",
        "v": "v value values",
        "query": "w_q wq w_query q_weight",
        "key": "w_k wk w_key k_weight",
        "value": "w_v wv w_value v_weight",
        **MaybeCausal.parameters,
    }
    constructor = {
        "d_input": INPUT,
        "d_head": f"{WIDTH} d_head hidden_size d_hidden",
        "d_value": OUTPUT,
        "max_len": LENGTH,
        "dropout": DROPOUT,
    }
    terms = {
        **MaybeCausal.terms,
        "project": "the three linear layers for queries, keys and values",
        "clear": "queries that may attend to nothing",
    }
    impossible = (
        "scaled_by_values",
        "lengths_too_long",
        "lengths_too_short",
        "mask_value_too_small",
    )
    optional = ("dropout", "d_value", "max_len", "mask", "valid_lens")

    def roles(self, d_input: int, d_value: int, **_: Any) -> dict[str, Role]:
        shape = (d_value, d_input)
        return {
            "query": Role("linear", shape, QUERY),
            "key": Role("linear", shape, KEY),
            "value": Role("linear", shape, VALUE),
        }

    def ask(self, student: Student, case: Case) -> Answer | None:
        """CausalAttention(d_in, d_out): the width of a head is that of its values."""
        given = {name.lower() for name, _ in student.signature(student.owner or student.name)}
        if not given & set(self.constructor["d_head"].split()) and given & set(OUTPUT.split()):
            case = replace(case, sizes={n: v for n, v in case.sizes.items() if n != "d_head"})
        return super().ask(student, case)

    # The formula: x (B, T, d), mask (T, T) or (B, T, T) → (B, T, d_head)

    def answer(self, mask: Tensor, is_causal: bool = False, **inputs: Any) -> dict[str, Tensor]:
        q, k, v, x = self.project(**inputs)
        output = self.attend(q, k, v, x, mask, is_causal=is_causal)["output"]
        return {"output": self.clear(output, mask, v)}

    def project(self, **inputs: Any) -> tuple[Tensor, ...]:
        if "q" in inputs:  # a function that is given queries, keys and values
            return inputs["q"], inputs["k"], inputs["v"], inputs["q"]
        x, layers = inputs["x"], [inputs[name] for name in MATRICES]
        layers = [w if isinstance(w, Linear) else Linear(w.mT) for w in layers]
        q, k, v = (layer(x) for layer in layers)
        return q, k, v, x

    def clear(self, output: Tensor, mask: Tensor, v: Tensor) -> Tensor:
        """Replace NaN by zeros for queries that may attend to nothing."""
        return output.masked_fill(output.isnan() & ~mask.any(-1, keepdim=True), 0.0)

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the output; for a query that may attend to nothing, NaN is as good as zeros."""
        found = dict(super().read(output, inputs))
        got, mask = found["output"], inputs["mask"]
        if isinstance(got, Tensor) and got.dim() == 3 and got.size(1) == mask.size(-2):
            found["output"] = AttentionHead.clear(self, got, mask, got)
        return found

    def forms(self, case: Case) -> Iterable[Case]:
        """The weights are the module's own; a function gets matrices, or q, k and v."""
        for form in list_mask_forms(case):
            given = dict(form.inputs if form.given is None else form.given)
            own = {"x": given["x"], "mask": form.inputs["mask"]}
            yield replace(form, inputs=own, given={**own, "mask": given["mask"]})
            yield replace(form, given=given)
            x, *matrices = (given[name] for name in ("x", *MATRICES))
            three = dict(zip("qkv", (x @ w for w in matrices), strict=True))
            inputs = {**three, "mask": form.inputs["mask"]}
            yield replace(form, inputs=inputs, given={**three, "mask": given["mask"]})
        if case.inputs["mask"].all():  # a head that takes no mask
            own = {"x": case.inputs["x"], "mask": case.inputs["mask"]}
            yield replace(case, inputs=own, given={"x": own["x"]})

    # Mistakes

    @mistake(
        "clear",
        "a query that may attend to nothing gets the mean of all values: its hidden scores are "
        "all equal (−1e9), so the softmax spreads over the hidden keys",
        line=("1e9", "1e10", "1e20", "finfo", *HIDE),
    )
    def empty_row_leak(self, output: Tensor, mask: Tensor, v: Tensor) -> Tensor:
        return torch.where(output.isnan(), v.mean(-2, keepdim=True), output)

    @mistake(
        "hide",
        "the mask is transposed: mask[i, j] says whether query i may attend to key j",
        line=("transpose", ".T", ".mT", *HIDE),
    )
    def mask_transposed(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask.mT, self.hidden)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, d: int, d_head: int, **more: Any) -> Case:
            mask = more.pop("mask", None)
            inputs = {
                "x": draw.normal(B, T, d, scale=more.pop("scale", 1.0)),
                **{name: draw.normal(d, d_head) / d**0.5 for name in MATRICES},
                "mask": torch.ones(B, T, T, dtype=torch.bool) if mask is None else mask,
            }
            sizes = {
                "d_input": d,
                "d_head": d_head,
                "d_value": d_head,
                "max_len": 16,
                "dropout": 0.5,
            }
            return Case(says, term, inputs, sizes, **more)

        one = torch.eye(4, dtype=torch.bool).expand(3, 4, 4)
        same = case("a sequence of equal tokens gives their value", "mix", 3, 4, 5, 6)
        tokens = same.inputs["x"][:, :1].expand(3, 4, 5).contiguous()
        yield replace(same, inputs={**same.inputs, "x": tokens})
        yield case("with d_head = 1 the scores need no scaling", "weigh", 3, 4, 6, 1)
        yield case("the scores are divided by √d_head", "scale", 2, 5, 7, 9)
        yield case("the gradient reaches the input", "weigh", 3, 4, 6, 8, gradient=True)
        yield case("a mask of the diagonal keeps each token's value", "hide", 3, 4, 5, 6, mask=one)
        causal = torch.ones(5, 5).tril().bool().expand(2, 5, 5)
        yield case("no token attends to a later one", "hide", 2, 5, 6, 3, mask=causal)
        yield case("hidden keys get no weight", "hide", 2, 5, 6, 3, mask=draw_mask(draw, 2, 5, 5))
        yield case("scores as large as 1000 stay finite", "weigh", 2, 5, 6, 3, scale=60.0)
        empty = draw_mask(draw, 2, 5, 5)
        empty[:, 2] = False
        yield case("a query that may attend to nothing gets zeros", "clear", 2, 5, 6, 3, mask=empty)  # fmt: skip  # noqa: E501

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, d, d_head in ((1, 1, 1), (2, 1, 1), (2, 2, 2), (3, 2, 2), (3, 1, 4)):
            for n in range(6):
                mask = draw.mask(1, T, T)
                if n == 5:
                    mask[:, 0] = False
                inputs = {
                    "x": draw.small(1, T, d),
                    **{name: draw.small(d, d_head) for name in MATRICES},
                    "mask": mask,
                }
                sizes = {
                    "d_input": d,
                    "d_head": d_head,
                    "d_value": d_head,
                    "max_len": 16,
                    "dropout": 0.5,
                }
                yield Case("a small example", "mix", inputs, sizes)
        yield from self.cases(draw)


def _sizes(d_input: int, d_head: int) -> dict[str, Any]:
    widths = {"d_input": d_input, "d_head": d_head, "d_value": d_head}
    return {**widths, "max_len": 16, "dropout": 0.5}

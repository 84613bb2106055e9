"""Multi-head attention in one module: project, split, attend in each head, merge, project."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.self_attention import Three
from clearhead.exercises.contracts.shared.conventions import draw_mask, list_mask_forms
from clearhead.exercises.contracts.shared.dropout import SAYS, TERM, WithDropout
from clearhead.exercises.contracts.shared.heads import Heads
from clearhead.exercises.contracts.shared.names import (
    DROPOUT,
    HEADS,
    KEY,
    LENGTH,
    MODEL,
    OUT,
    QUERY,
    VALUE,
)
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, mistake
from clearhead.exercises.readings import read_fused_heads
from clearhead.exercises.weights import Assignment, Linear, Role

MATRICES = ("query", "key", "value", "out")


class MultiHeadAttention(WithDropout, Heads):
    """A module, or a function that is given the weights (out, in) of the four layers.

    Free: bias or none, one fused layer for queries, keys and values, a module for each head.
    """

    name = "multi_head_attention"
    title = "Multi-head attention"
    formula = "[head_1 … head_H] W_O with head_h = attention(q W_q[h], k W_k[h], v W_v[h])"
    signature = (
        "MultiHeadAttention(num_hiddens, num_heads, dropout)(queries, keys, values, valid_lens), "
        "or MultiHeadAttention(d_model, n_heads)(x, mask)"
    )
    page = "attention.md#heads"
    names = (
        "MultiHeadAttention without modules attentions output_dim",
        "MultiHeadSelfAttention",
        "MultiHeadedAttention without modules attentions output_dim",
        "MHA",
        "CausalSelfAttention",
        "CausalMultiHeadAttention",
        "CausalMultiHeadSelfAttention",
        "MultiHeadCausalAttention",
        "MultiHeadCausalSelfAttention",
        "MaskedMultiHeadAttention",
        "run_multihead_self_attention",
        f"SelfAttention with {HEADS} config cfg",
        f"Attention with {HEADS} config cfg",
    )
    terms = {"project": "the linear layers for queries, keys and values", **Heads.terms, **TERM}
    parameters = {
        "x": "x inputs input hidden hidden_states in_features",
        "q": "q query queries x_q",
        "k": "k key keys x_k",
        "v": "v value values x_v",
        "d_model": "d_model",
        "n_heads": HEADS,
        "query": "q_proj_weight",
        "key": "k_proj_weight",
        "value": "v_proj_weight",
        "out": "o_proj_weight",
        **Heads.parameters,
    }
    constructor = {
        "d_query": "query_size query_dim d_query input_dim d_in",
        "d_model": f"{MODEL} d_out k emb",
        "n_heads": HEADS,
        "d_head": "d_head head_dim head_size n_hidden d_k dim_head",
        "d_key": "key_size key_dim d_key kdim",
        "d_value": "value_size value_dim d_value vdim",
        "max_len": LENGTH,
        "dropout": DROPOUT,
    }
    optional = (*Heads.optional, "d_head", "d_query", "d_key", "d_value", "max_len")
    impossible = ("scaled_by_values", "mask_value_too_small")  # values are as wide as keys

    def roles(self, d_model: int, n_heads: int, **_: Any) -> dict[str, Role]:
        square = (d_model, d_model)
        return {
            "query": Role("linear", square, QUERY),
            "key": Role("linear", square, KEY),
            "value": Role("linear", square, VALUE),
            "out": Role("linear", square, OUT, optional=True),
        }

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        """A fused layer may hold query, key and value one after the other, or head by head."""
        found = super().assign(parameters, sizes)
        found = [each for each in found if "out" in each] or found
        return [*found, *read_fused_heads(found, sizes["n_heads"])[:1]]

    # The formula: q (B, T, D), k and v (B, S, D) → (B, T, D)

    def answer(
        self,
        n_heads: int,
        query: Any,
        key: Any,
        value: Any,
        out: Any = None,
        mask: Tensor | None = None,
        valid_lens: Tensor | None = None,
        is_causal: bool = False,
        **inputs: Tensor,
    ) -> Tensor:
        x = inputs["x"] if "x" in inputs else inputs["q"]
        q, k, v = (inputs.get(name, x) for name in "qkv")
        query, key, value, out = (_read_layer(each) for each in (query, key, value, out))
        q, k, v = self.project(q, k, v, query, key, value)
        mask = mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask
        return self.finish(self.heads(q, k, v, x, n_heads, mask, valid_lens, is_causal), out)

    def project(
        self, q: Tensor, k: Tensor, v: Tensor, query: Linear, key: Linear, value: Linear
    ) -> Three:
        return query(q), key(k), value(v)

    def forms(self, case: Case) -> Iterable[Case]:
        """Three inputs, or x for all three; for a function also the weights."""
        own = {n: x for n, x in case.inputs.items() if n not in ("q", "k", "v", *MATRICES)}
        three = {**{n: case.inputs[n] for n in "qkv"}, **own}
        for inputs in (three, {"x": case.inputs["q"], **own}):
            for each in list_mask_forms(replace(case, inputs=inputs)):
                given = dict(each.inputs if each.given is None else each.given)
                del given["n_heads"]  # the constructor has it
                yield replace(each, given=given)
        weights = {name: case.inputs[name] for name in MATRICES if name in case.inputs}
        inputs = {"n_heads": case.inputs["n_heads"], **weights, "x": case.inputs["q"]}
        given = {"d_model": case.sizes["d_model"], **inputs}
        yield replace(case, inputs=inputs, given=given)

    # Mistakes

    @mistake(
        "project",
        "keys and values are computed from the queries: this is self-attention, and the other "
        "sequence is not used",
        line=("W_k", "k =", "key"),
    )
    def source_ignored(
        self, q: Tensor, k: Tensor, v: Tensor, query: Linear, key: Linear, value: Linear
    ) -> Three:
        return query(q), key(q), value(q)

    @mistake(
        "project",
        "the values are computed from the keys' input instead of the values' input",
        line=("W_v", "v =", "value"),
    )
    def values_from_keys(
        self, q: Tensor, k: Tensor, v: Tensor, query: Linear, key: Linear, value: Linear
    ) -> Three:
        return query(q), key(k), value(k)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(
            says: str, term: str, B: int, H: int, T: int, S: int, d_head: int, **more: Any
        ) -> Case:
            D, scale = H * d_head, more.pop("scale", 1.0)
            q, k, v = draw.normal(B, T, D, scale=scale), draw.normal(B, S, D), draw.normal(B, S, D)
            if more.pop("same", False):
                q, k, v = (x[:, :1].expand_as(x).contiguous() for x in (q, k, v))
            inputs = {"q": q, "k": k, "v": v, "n_heads": H, **more.pop("hidden", {})}
            inputs |= {name: draw.normal(D, D) / D**0.5 for name in MATRICES}
            return Case(says, term, inputs, _sizes(D, H), **more)

        yield case("equal tokens and one head give their value", "project", 3, 1, 4, 5, 6, same=True)  # fmt: skip  # noqa: E501
        yield case("one head of width 1 needs no scaling", "weigh", 2, 1, 3, 4, 1)
        yield case("with one head the output is that of plain attention", "scale", 2, 1, 3, 4, 5)
        yield case(
            "with equal tokens the heads give their values, merged",
            "merge",
            2,
            3,
            4,
            5,
            7,
            same=True,
        )
        yield case("each head attends with its own features", "split", 2, 3, 5, 4, 7)
        yield case("as many queries as keys", "split", 2, 5, 4, 4, 3)
        yield case("the gradient reaches the inputs", "weigh", 2, 3, 4, 5, 6, gradient=True)
        yield case("scores as large as 1000 stay finite", "weigh", 2, 3, 5, 4, 2, scale=900.0)
        mask = {"mask": draw_mask(draw, 2, 5, 5)}
        yield case("hidden keys get no weight", "hide", 2, 3, 5, 5, 4, hidden=mask)
        full = {"valid_lens": torch.tensor([5, 5])}
        yield case(
            "a length equal to the number of keys hides none", "allow", 2, 3, 5, 5, 4, hidden=full
        )
        lengths = {"valid_lens": torch.tensor([2, 4])}
        yield case("keys past the length get no weight", "hide", 2, 3, 5, 5, 4, hidden=lengths)
        each = {"valid_lens": draw.whole(2, 5, 2, 5)}
        yield case("each query may have its own length", "repeat", 2, 3, 5, 5, 4, hidden=each)
        yield case(SAYS, "drop", 2, 3, 5, 4, 6)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, H, d_head in ((1, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2), (3, 2, 2)):
            for n in range(3):
                x = {name: draw.small(1, T, H * d_head) for name in "qkv"}
                x |= {name: draw.small(H * d_head, H * d_head) for name in MATRICES}
                more: dict[str, Any] = {"mask": draw.mask(1, T, T)} if n == 1 else {}
                if n == 2:
                    more = {"valid_lens": draw.whole(1, T, 1)}
                sizes = _sizes(H * d_head, H)
                yield Case("a small example", "split", {**x, "n_heads": H, **more}, sizes)
        yield from self.cases(draw)


def _sizes(d_model: int, n_heads: int) -> dict[str, Any]:
    widths = dict.fromkeys(("d_query", "d_key", "d_value"), d_model)
    head = {"d_head": d_model // n_heads, "max_len": 16, "dropout": 0.5}
    return {**widths, "d_model": d_model, "n_heads": n_heads, **head}


def _read_layer(layer: Any) -> Any:
    """The layer of a module, or the weight (out, in) that a function is given."""
    return Linear(layer) if isinstance(layer, Tensor) else layer

"""Multi-head attention in one module: project, split, attend in each head, merge, project."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.self_attention import KEY, QUERY, VALUE, Three
from clearhead.exercises.contracts.shared.conventions import draw_mask, mask_forms
from clearhead.exercises.contracts.shared.dot_product import DotProduct
from clearhead.exercises.contracts.split_heads import CONSTRUCTOR, RESHAPE
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, mistake
from clearhead.exercises.weights import Assignment, Linear, Role

OUT = "o out output w_o wo to_out o_proj out_proj proj_out proj c_proj fc fc_out linear_out dense"


class MultiHeadAttention(DotProduct):
    name = "multi_head_attention"
    title = "Multi-head attention"
    formula = "[head_1 … head_H] W_O with head_h = attention(q W_q[h], k W_k[h], v W_v[h])"
    signature = (
        "MultiHeadAttention(num_hiddens, num_heads, dropout)(queries, keys, values, valid_lens), "
        "or MultiHeadAttention(d_model, n_heads)(x, mask)"
    )
    page = "attention.md#heads"
    names = (
        "MultiHeadAttention",
        "MultiheadAttention",
        "MultiHeadSelfAttention",
        "MultiHeadedAttention",
        "MHA",
    )
    terms = {
        "project": "the linear layers for queries, keys and values",
        "split": "the split into heads: (B, T, D) → (B, H, T, Dh)",
        "heads": "attention in each head",
        "repeat": "the lengths, repeated for each head of an example",
        **DotProduct.terms,
        "merge": "heads side by side again: (B, H, T, Dh) → (B, T, D)",
        "finish": "the last layer W_O",
    }
    parameters = {
        "x": "x inputs input hidden hidden_states",
        "q": "q query queries x_q",
        "k": "k key keys x_k",
        "v": "v value values x_v",
        **DotProduct.parameters,
    }
    constructor = {
        **CONSTRUCTOR,
        "d_head": "d_head head_dim head_size n_hidden d_k",
        "d_query": "query_size query_dim d_query",
        "d_key": "key_size key_dim d_key kdim",
        "d_value": "value_size value_dim d_value vdim",
    }
    optional = (*DotProduct.optional, "d_head", "d_query", "d_key", "d_value")
    impossible = ("scaled_by_values",)  # values are as wide as keys

    def fits(self, parameters: Sequence[str], defined: Any) -> bool:
        """A class that is given its heads is another exercise."""
        return not parameters or parameters[0].lower() not in ("modules", "heads", "attentions")

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
        H, d = sizes["n_heads"], sizes["d_model"] // sizes["n_heads"]
        mixed = []
        for each in found:
            if len({p.weights for p in each.values()}) < len(each):
                rows = torch.arange(3 * H * d).view(H, 3, d)
                parts = zip(("query", "key", "value"), rows.unbind(1), strict=True)
                mixed.append(
                    {
                        **each,
                        **{n: replace(each[n], rows=tuple(r.flatten().tolist())) for n, r in parts},
                    }
                )
        return [*found, *mixed[:1]]

    # The formula: q (B, T, D), k and v (B, S, D) → (B, T, D)

    def answer(
        self,
        n_heads: int,
        query: Linear,
        key: Linear,
        value: Linear,
        out: Linear | None = None,
        mask: Tensor | None = None,
        valid_lens: Tensor | None = None,
        **inputs: Tensor,
    ) -> Tensor:
        x = inputs["x"] if "x" in inputs else inputs["q"]
        q, k, v = (inputs.get(name, x) for name in "qkv")
        q, k, v = self.project(q, k, v, query, key, value)
        mask = mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask
        return self.finish(self.heads(q, k, v, x, n_heads, mask, valid_lens), out)

    def project(
        self, q: Tensor, k: Tensor, v: Tensor, query: Linear, key: Linear, value: Linear
    ) -> Three:
        return query(q), key(k), value(v)

    def heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        n_heads: int,
        mask: Tensor | None,
        valid_lens: Tensor | None,
    ) -> Tensor:
        q, k, v = (self.split(each, n_heads) for each in (q, k, v))
        if valid_lens is not None:
            mask = self.repeat(self.allow(valid_lens, k.size(-2)), n_heads)
        return self.merge(self.attend(q, k, v, x, mask)["output"])

    def split(self, x: Tensor, n_heads: int) -> Tensor:
        return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)

    def repeat(self, mask: Tensor, n_heads: int) -> Tensor:
        """Each head of an example has the example's lengths: (B, ·, S) → (B, H, ·, S)."""
        return mask.unsqueeze(1).expand(-1, n_heads, -1, -1)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def finish(self, x: Tensor, out: Linear | None) -> Tensor:
        if out is None:
            raise ValueError("there is no last layer")
        return out(x)

    def forms(self, case: Case) -> Iterable[Case]:
        """Three inputs, or x for all three."""
        own = {name: x for name, x in case.inputs.items() if name not in ("q", "k", "v")}
        for form in (case, replace(case, inputs={"x": case.inputs["q"], **own})):
            for each in mask_forms(form):
                given = dict(each.inputs if each.given is None else each.given)
                del given["n_heads"]  # the constructor has it
                yield replace(each, given=given)

    # Mistakes

    @mistake(
        "split",
        "the width is reshaped to (B, H, T, Dh) without a transpose: tokens and heads get mixed; "
        "reshape to (B, T, H, Dh) first, then transpose",
        line=RESHAPE,
    )
    def view_without_transpose(self, x: Tensor, n_heads: int) -> Tensor:
        return x.reshape(x.size(0), n_heads, x.size(1), -1)

    @mistake(
        "split",
        "each head takes every H-th feature: reshape to (…, H, Dh), not to (…, Dh, H)",
        line=RESHAPE,
    )
    def interleaved_features(self, x: Tensor, n_heads: int) -> Tensor:
        return x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)

    @mistake(
        "split",
        "heads come before the batch: row h·B + b is read as b·H + h, so examples get mixed",
        line=("permute", "cat", *RESHAPE),
    )
    def heads_over_batch(self, x: Tensor, n_heads: int) -> Tensor:
        B, T, D = x.shape
        heads = x.unflatten(-1, (n_heads, -1)).permute(2, 0, 1, 3)  # (H, B, T, Dh)
        return heads.reshape(B, n_heads, T, D // n_heads)

    @mistake(
        "heads",
        "the heads of a token attend to each other, instead of tokens: transpose (B, T, H, Dh) to "
        "(B, H, T, Dh) before attention",
        line=("transpose", "permute", *RESHAPE),
    )
    def attends_over_heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        n_heads: int,
        mask: Tensor | None,
        valid_lens: Tensor | None,
    ) -> Tensor:
        q, k, v = (each.unflatten(-1, (n_heads, -1)) for each in (q, k, v))
        if valid_lens is not None:
            mask = self.repeat(self.allow(valid_lens, k.size(1)), n_heads)
        return self.attend(q, k, v, x, mask)["output"].flatten(2)

    @mistake(
        "merge",
        "the heads are merged without transposing back: (B, H, T, Dh) is reshaped to (B, T, D), "
        "which mixes tokens and heads",
        line=RESHAPE,
    )
    def merge_without_transpose(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(2), -1)

    @mistake(
        "finish",
        "the last layer W_O is forgotten: the heads are joined but not mixed",
        line=("return", "cat", "reshape", "view"),
    )
    def no_output_layer(self, x: Tensor, out: Linear | None) -> Tensor:
        return x

    @mistake(
        "repeat",
        "the lengths are repeated with repeat instead of repeat_interleave: heads get the length "
        "of another example",
        line=("repeat(", ".tile("),
    )
    def lengths_repeated_wrongly(self, mask: Tensor, n_heads: int) -> Tensor:
        rows = mask.repeat(n_heads, 1, 1)  # (H·B, ·, S)
        return rows.view(mask.size(0), n_heads, *mask.shape[1:])

    @mistake(
        "weigh",
        "the softmax runs over the heads (dim=1) instead of the keys (dim=-1)",
        line=("softmax", "sum("),
    )
    def softmax_over_heads(self, scores: Tensor) -> Tensor:
        return scores.softmax(1)

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
            return Case(says, term, inputs, _sizes(D, H), **more)

        yield case("equal tokens and one head give their value", "project", 3, 1, 4, 5, 6, same=True)  # fmt: skip  # noqa: E501
        yield case("with one head of width 1 nothing is to be scaled", "weigh", 2, 1, 3, 4, 1)
        yield case("with one head it is attention", "scale", 2, 1, 3, 4, 5)
        yield case("equal tokens leave only the merge", "merge", 2, 3, 4, 5, 7, same=True)
        yield case("each head attends with its own features", "split", 2, 3, 5, 4, 7)
        yield case("as many queries as keys", "split", 2, 5, 4, 4, 3)
        yield case("the gradient reaches the inputs", "weigh", 2, 3, 4, 5, 6, gradient=True)
        yield case("scores as large as 1000 stay finite", "weigh", 2, 3, 5, 4, 2, scale=900.0)
        mask = {"mask": draw_mask(draw, 2, 5, 5)}
        yield case("hidden keys get no weight", "hide", 2, 3, 5, 5, 4, hidden=mask)
        full = {"valid_lens": torch.tensor([5, 5])}
        yield case("a length of all keys hides none", "allow", 2, 3, 5, 5, 4, hidden=full)
        lengths = {"valid_lens": torch.tensor([2, 4])}
        yield case("keys past the length get no weight", "hide", 2, 3, 5, 5, 4, hidden=lengths)
        each = {"valid_lens": draw.whole(2, 5, 2, 5)}
        yield case("each query may have a length", "repeat", 2, 3, 5, 5, 4, hidden=each)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, H, d_head in ((1, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2), (3, 2, 2)):
            for n in range(3):
                x = {name: draw.small(1, T, H * d_head) for name in "qkv"}
                more: dict[str, Any] = {"mask": draw.allowed(1, T, T)} if n == 1 else {}
                if n == 2:
                    more = {"valid_lens": draw.whole(1, T, 1)}
                sizes = _sizes(H * d_head, H)
                yield Case("a small example", "split", {**x, "n_heads": H, **more}, sizes)
        yield from self.cases(draw)


def _sizes(d_model: int, n_heads: int) -> dict[str, Any]:
    widths = dict.fromkeys(("d_query", "d_key", "d_value"), d_model)
    head = {"d_head": d_model // n_heads, "dropout": 0.5}
    return {**widths, "d_model": d_model, "n_heads": n_heads, **head}

"""Additive attention: scores by a small network, wᵀ tanh(W_q q + W_k k)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.conventions import draw_mask, list_mask_forms
from clearhead.exercises.contracts.shared.dot_product import DotProduct
from clearhead.exercises.contracts.shared.names import DROPOUT
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, mistake
from clearhead.exercises.readings import assign
from clearhead.exercises.weights import Assignment, Linear, Role

MATRICES = ("query", "key", "w")
TANH = ("tanh", "Tanh")


class AdditiveAttention(DotProduct):
    name = "additive_attention"
    title = "Additive attention"
    formula = "softmax over the keys of wᵀ tanh(W_q q + W_k k), times v"
    signature = (
        "AdditiveAttention(num_hiddens, dropout)(queries, keys, values, valid_lens), or "
        "additive_attention(q, k, v, W_q, W_k, w)"
    )
    names = ("AdditiveAttention", "additive_attention", "BahdanauAttention", "bahdanau_attention")
    terms = {
        **{n: words for n, words in DotProduct.terms.items() if n not in ("scale", "order")},
        "project": "the two linear layers W_q and W_k",
        "score": "the sum W_q q + W_k k of each pair of query and key",
        "scale": "the order of tanh and the product with w",
        "squash": "the tanh of the sum",
        "reduce": "the product with w, one number for each pair",
    }
    parameters = {
        "q": "q query queries",
        "k": "k key keys",
        "v": "v value values",
        "query": "w_q wq w_query",
        "key": "w_k wk w_key",
        "w": "w w_v wv v_a va w_score vector",
        **DotProduct.parameters,
    }
    constructor = {
        "d_key": "key_size key_dim d_key d_k enc_dim",
        "d_query": "query_size query_dim d_query d_q dec_dim",
        "d_hidden": "num_hiddens hidden_size hidden_dim d_hidden n_hidden units attn_dim hidden",
        "dropout": DROPOUT,
    }
    optional = (*DotProduct.optional, "d_key", "d_query")
    impossible = (
        "swapped_keys_and_values", "swapped_queries_and_keys", "no_scaling", "scaled_by_d",
        "scaled_up", "scaled_by_values", "scaled_by_length", "scaled_by_model",
        "scaled_after_softmax", "mixes_keys", "always_causal",
        "no_max_subtraction", "mask_value_too_small",  # tanh bounds the scores
    )  # fmt: skip

    def roles(self, d_query: int, d_key: int, d_hidden: int, **_: Any) -> dict[str, Role]:
        return {
            "query": Role("linear", (d_hidden, d_query), "q query w_q wq w_query w1 wa linear_q"),
            "key": Role("linear", (d_hidden, d_key), "k key w_k wk w_key w2 ua linear_k"),
            "w": Role("linear", (1, d_hidden), "v w_v wv va v_a w score w_score", optional=True),
            "vector": Role("vector", (d_hidden,), "v w_v wv va v_a w score", optional=True),
        }

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        """Also accept one layer for query and key side by side."""
        found = super().assign(parameters, sizes)
        if found:
            return found
        roles = self.roles(**sizes)
        shape = (sizes["d_hidden"], sizes["d_query"] + sizes["d_key"])
        rest = {name: roles[name] for name in ("w", "vector")}
        both = assign(parameters, {"joined": Role("linear", shape), **rest})
        turned = assign(parameters, {"turned": Role("linear", shape), **rest})
        return [*both, *turned]

    # The formula: q (B, T, d_query), k (B, S, d_key), v (B, S, d_v) → (B, T, d_v)

    def answer(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        valid_lens: Tensor | None = None,
        **layers: Any,
    ) -> dict[str, Tensor]:
        query, key, w = _read_layers(layers, q.size(-1))
        q, k = self.project(q, k, query, key)
        return self.attend(q, k, v, w, mask, valid_lens)

    def project(self, q: Tensor, k: Tensor, query: Linear, key: Linear) -> tuple[Tensor, Tensor]:
        return query(q), key(k)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q.unsqueeze(2) + k.unsqueeze(1)  # (B, T, S, d_hidden)

    def scale(self, scores: Tensor, q: Tensor, v: Tensor, x: Any) -> Tensor:
        return self.reduce(self.squash(scores), x)

    def squash(self, features: Tensor) -> Tensor:
        return features.tanh()

    def reduce(self, features: Tensor, w: Linear) -> Tensor:
        return w(features).squeeze(-1)  # (B, T, S)

    def forms(self, case: Case) -> Iterable[Case]:
        """A class has its own weights, perhaps all of one width; a function gets matrices."""
        h = case.sizes["d_hidden"]
        for form in list_mask_forms(case):
            given = dict(form.inputs if form.given is None else form.given)
            own = {n: x for n, x in form.inputs.items() if n not in MATRICES}
            sent = {n: x for n, x in given.items() if n not in MATRICES}
            yield replace(form, inputs=own, given=sent)
            yield replace(form, given=given)
            yield replace(form, given={**given, "w": given["w"].unsqueeze(1)})
            turned = {n: form.inputs[n].mT for n in ("query", "key")}  # W q instead of q W
            yield replace(form, inputs={**form.inputs, **turned}, given={**given, **turned})
            narrow = {**own, "q": own["q"][..., :h], "k": own["k"][..., :h]}
            sizes = {**case.sizes, "d_query": h, "d_key": h}
            yield replace(form, inputs=narrow, given={**sent, **narrow}, sizes=sizes)
            two = {n: x for n, x in narrow.items() if n != "v"}
            both = {**two, "v": narrow["k"]}  # the keys are the values, too
            yield replace(form, inputs=both, given=two, sizes=sizes, gradient=False)

    # Mistakes

    @mistake(
        "squash",
        "there is no tanh: without it the query adds the same number to every score, and the "
        "softmax cancels it",
        line=("+",),
    )
    def no_tanh(self, features: Tensor) -> Tensor:
        return features

    @mistake("squash", "the activation is ReLU instead of tanh", line=("relu", "ReLU"))
    def relu_instead(self, features: Tensor) -> Tensor:
        return features.relu()

    @mistake("squash", "the activation is a sigmoid instead of tanh", line=("sigmoid", "Sigmoid"))
    def sigmoid_instead(self, features: Tensor) -> Tensor:
        return features.sigmoid()

    @mistake(
        "scale",
        "tanh is applied after the product with w instead of before it",
        line=TANH,
    )
    def tanh_outside(self, scores: Tensor, q: Tensor, v: Tensor, x: Any) -> Tensor:
        return self.reduce(scores, x).tanh()

    @mistake("score", "query and key are multiplied instead of added", line=("*",))
    def query_times_key(self, q: Tensor, k: Tensor) -> Tensor:
        return q.unsqueeze(2) * k.unsqueeze(1)

    @mistake("score", "the key is subtracted instead of added", line=("-",))
    def query_minus_key(self, q: Tensor, k: Tensor) -> Tensor:
        return q.unsqueeze(2) - k.unsqueeze(1)

    @mistake(
        "reduce",
        "the features are summed without the weights w",
        line=("sum(",),
    )
    def w_forgotten(self, features: Tensor, w: Linear) -> Tensor:
        return features.sum(-1)

    @mistake(
        "reduce",
        "the scores are divided by √num_hiddens; only dot products need that",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_scores(self, features: Tensor, w: Linear) -> Tensor:
        return w(features).squeeze(-1) / features.size(-1) ** 0.5

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, S: int, d_v: int, **more: Any) -> Case:
            d_q, d_k, h = 7, 6, 5
            inputs = {
                "q": draw.normal(B, T, d_q),
                "k": draw.normal(B, S, d_k),
                "v": draw.normal(B, S, d_v),
                "query": draw.normal(d_q, h) / 2,
                "key": draw.normal(d_k, h) / 2,
                "w": draw.normal(h),
                **more.pop("hidden", {}),
            }
            sizes = {"d_key": d_k, "d_query": d_q, "d_hidden": h, "dropout": 0.5}
            return Case(says, term, inputs, sizes, **more)

        same = case(
            "if all values are equal, so is the output, as weights sum to 1", "weigh", 2, 3, 4, 8
        )
        values = same.inputs["v"][:1, :1].expand(2, 4, -1).contiguous()
        yield replace(same, inputs={**same.inputs, "v": values})
        even = case("equal keys give the mean of the values", "mix", 2, 3, 4, 8)
        keys = even.inputs["k"][:, :1].expand(-1, 4, -1).contiguous()
        yield replace(even, inputs={**even.inputs, "k": keys})
        yield case("the scores are wᵀ tanh(W_q q + W_k k)", "squash", 3, 4, 2, 8)
        yield case("as many queries as keys", "score", 2, 4, 4, 3)
        yield case("the gradient reaches q, k and v", "weigh", 2, 3, 4, 8, gradient=True)
        mask = {"mask": draw_mask(draw, 3, 4, 6)}
        yield case("hidden keys get no weight", "hide", 3, 4, 6, 2, hidden=mask)
        full = {"valid_lens": torch.tensor([6, 6, 6])}
        yield case(
            "a length equal to the number of keys hides none", "allow", 3, 4, 6, 2, hidden=full
        )
        lengths = {"valid_lens": torch.tensor([2, 5, 3])}
        yield case("keys past the length get no weight", "hide", 3, 4, 6, 2, hidden=lengths)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, S, d_q, d_k, h in ((1, 2, 1, 1, 1), (1, 2, 2, 2, 2), (2, 3, 2, 3, 2)):
            for n in range(3):
                inputs = {
                    "q": draw.small(1, T, d_q),
                    "k": draw.small(1, S, d_k),
                    "v": draw.small(1, S, 1),
                    "query": draw.small(d_q, h),
                    "key": draw.small(d_k, h),
                    "w": draw.small(h),
                }
                if n == 1:
                    inputs["mask"] = draw.mask(1, T, S)
                if n == 2:
                    inputs["valid_lens"] = draw.whole(1, S, 1)
                sizes = {"d_key": d_k, "d_query": d_q, "d_hidden": h, "dropout": 0.5}
                yield Case("a small example", "score", inputs, sizes)
        yield from self.cases(draw)


def _read_layers(layers: Mapping[str, Any], d_query: int) -> tuple[Linear, Linear, Any]:
    """Three linear layers, from those of a module or from the matrices of a function.

    The last one is None if the module does not use any.
    """
    w = layers.get("w", layers.get("vector"))
    if isinstance(w, Tensor):
        w = Linear(w.reshape(1, -1))
    if "joined" in layers or "turned" in layers:
        both = layers.get("joined", layers.get("turned"))
        at = d_query if "joined" in layers else both.weight.size(1) - d_query
        first, second = both.weight[:, :at], both.weight[:, at:]
        first, second = (first, second) if "joined" in layers else (second, first)
        return Linear(first, both.bias), Linear(second), w
    query, key = layers["query"], layers["key"]
    if isinstance(query, Tensor):
        is_turned = query.size(0) != d_query  # (d_hidden, d_query), as a layer has it
        query, key = (Linear(each if is_turned else each.mT) for each in (query, key))
    return query, key, w

"""The transformer layer: attention, then the feed-forward layer, each with residual and norm."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises import constructors
from clearhead.exercises.contracts.feed_forward import ACTIVATIONS, FeedForward
from clearhead.exercises.contracts.multi_head_attention import MultiHeadAttention
from clearhead.exercises.contracts.shared.causal import NOTE, is_causal_by_design
from clearhead.exercises.contracts.shared.dropout import SAYS, TERM
from clearhead.exercises.contracts.shared.layer import (
    Branch,
    Layer,
    NormOrNone,
    hide_future,
    layer_sizes,
)
from clearhead.exercises.contracts.shared.names import DROPOUT, HEADS, LENGTH, MODEL, PAST
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, mistake
from clearhead.exercises.student import Student
from clearhead.exercises.weights import Linear

PARTS = {"attention": MultiHeadAttention.names, "feed_forward": FeedForward.names}


class TransformerLayer(Layer):
    """Free: bias or none, ReLU or GELU, pre- or post-norm (fixed by a switch such as pre_norm).

    Also accepted: a norm in the feed-forward branch only. d_ff is 4 d and a head d / n_heads wide.
    """

    name = "transformer_layer"
    title = "The transformer layer"
    formula = "x + f(norm(x)) (pre-norm) or norm(x + f(x)) (post-norm); f: attention, then FFN"
    signature = "TransformerLayer(d_model, n_heads, d_ff, pre_norm)(x)"
    page = "layers.md"
    names = (
        "TransformerLayer",
        "TransformerBlock",
        "TransformerEncoderLayer",
        "TransformerEncoderBlock",
        "EncoderLayer",
        "EncoderBlock",
        "AttentionResidual",
        "ResidualBlock",
        "ResidualAttentionBlock",
        "Block",
    )
    terms = {
        "scale": "the division of the scores by √d_head",
        "hide": "which tokens are hidden: none, or in a causal layer the later ones",
        "weigh": "the softmax over the keys",
        "split": "the heads: (B, T, d) → (B, heads, T, d_head)",
        "merge": "the heads side by side: (B, heads, T, d_head) → (B, T, d)",
        "project": "the output projection W_O of the attention",
        "feed": "the feed-forward layer",
        "norms": "the two norms, one for each branch",
        "place": "the switch between pre-norm and post-norm",
        "join": "residual and norm of the branches",
        "join_attention": "residual and norm of the attention",
        "join_feed_forward": "residual and norm of the feed-forward layer",
        **TERM,
    }
    parameters = {
        "x": "x X input inputs src hidden_states",
        "mask": "mask attn_mask attention_mask src_mask valid_lens padding_mask",
    }
    constructor = {
        "d": f"d {MODEL} model_dim input_dim size",
        "n_heads": HEADS,
        "d_ff": "d_ff ffn_num_hiddens mlp_dim d_hidden dim_feedforward ffn_dim ff_dim mlp_hidden"
        " d_mlp hidden",
        "d_head": "d_head head_dim attn_dim dim_head head_size",
        "max_len": LENGTH,
        "dropout": DROPOUT,
        "attention": "self_attn self_attention attn attention",
        "feed_forward": "feed_forward ffn ff mlp",
        "pre_norm": "pre_norm norm_first prenorm is_pre_norm pre_ln pre_layer_norm",
        "post_norm": "post_norm postnorm is_post_norm post_ln",
    }
    optional = ("d_ff", "d_head", "max_len", "dropout", "attention", "feed_forward", "pre_norm",
                "post_norm", "mask")  # fmt: skip
    forbidden = ("torch.nn.TransformerEncoderLayer",)

    # Mistakes

    @mistake("scale", "the scores are not divided by √d_head", line=("@", "matmul", "einsum"))
    def no_scaling(self, scores: Tensor, q: Tensor, x: Tensor) -> Tensor:
        return scores

    @mistake(
        "scale",
        "the scores are divided by √d_model instead of √d_head, the width of one head",
        line=("sqrt", "** 0.5", "**0.5", "** -0.5", "**-0.5"),
    )
    def scaled_by_model(self, scores: Tensor, q: Tensor, x: Tensor) -> Tensor:
        return scores / math.sqrt(x.size(-1))

    @mistake(
        "hide",
        "the layer is always causal: no token attends to a later one, even without a mask",
        line=PAST,
    )
    def always_causal(self, scores: Tensor, is_causal: bool) -> Tensor:
        return hide_future(scores)

    @mistake("weigh", "the softmax runs over the queries instead of the keys", line=("softmax",))
    def softmax_over_queries(self, scores: Tensor) -> Tensor:
        return scores.softmax(-2)

    @mistake(
        "split",
        "the heads are viewed as (B, heads, T, d_head) without a transpose, so a head mixes tokens",
        line=("view", "reshape"),
    )
    def split_without_transpose(self, x: Tensor, n_heads: int) -> Tensor:
        B, T, d = x.shape
        return x.reshape(B, n_heads, T, d // n_heads)

    @mistake(
        "merge",
        "the heads are merged by a view without a transpose, so tokens are mixed",
        line=("view", "reshape", "flatten"),
    )
    def merged_without_transpose(self, heads: Tensor) -> Tensor:
        B, H, T, d_head = heads.shape
        return heads.reshape(B, T, H * d_head)

    @mistake(
        "project",
        "the output projection W_O of the attention is missing",
        line=("attn", "attention", "return"),
    )
    def no_output_projection(self, x: Tensor, out: Linear | None) -> Tensor:
        return x

    @mistake(
        "feed",
        "there is no activation in the feed-forward layer",
        line=("ff", "mlp", "w2", "linear2"),
    )
    def no_activation(self, x: Tensor, first: Linear, second: Linear, phi: str) -> Tensor:
        return second(first(x))

    @mistake(
        "norms",
        "one norm is shared by both branches; each needs its own gain and shift",
        line=("norm", "ln"),
    )
    def shared_norm(self, norm1: NormOrNone, norm2: NormOrNone) -> tuple[NormOrNone, NormOrNone]:
        if norm1 is None and norm2 is None:
            raise ValueError("there is no norm to share")
        return norm1 or norm2, norm1 or norm2

    @mistake("norms", "the layer norms are missing", line=("+", "forward"))
    def no_norms(self, norm1: NormOrNone, norm2: NormOrNone) -> tuple[NormOrNone, NormOrNone]:
        return None, None

    @mistake("place", "the switch is ignored: it is always post-norm", line=("norm",))
    def always_post_norm(self, is_pre: bool) -> bool:
        return False

    @mistake("place", "the switch is ignored: it is always pre-norm", line=("norm",))
    def always_pre_norm(self, is_pre: bool) -> bool:
        return True

    @mistake(
        "join",
        "the residuals are missing: the input of a branch must be added to its output",
        line=("norm", "attn", "attention"),
    )
    def no_residual(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        if norm is None:
            return f(x)
        return f(norm(x)) if is_pre else norm(f(x))

    @mistake(
        "join",
        "the residual adds norm(x) instead of x itself",
        line=("norm", "ln"),
    )
    def residual_from_norm(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        if norm is None or not is_pre:
            return TransformerLayer.join(self, x, norm, f, is_pre)
        return norm(x) + f(norm(x))

    @mistake(
        "join",
        "the norm is in the wrong place, around the branch alone: x + norm(f(x))",
        line=("norm", "ln"),
    )
    def norm_of_the_branch(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        return x + (f(x) if norm is None else norm(f(x)))

    @mistake("join_attention", "the residual around the attention is missing", line=("att", "norm"))
    def no_attention_residual(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        return TransformerLayer.no_residual(self, x, norm, f, is_pre)

    @mistake(
        "join_feed_forward",
        "the residual around the feed-forward layer is missing",
        line=("ff", "mlp", "feed"),
    )
    def no_feed_forward_residual(
        self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool
    ) -> Tensor:
        return TransformerLayer.no_residual(self, x, norm, f, is_pre)

    @mistake(
        "join_feed_forward",
        "pre-norm and post-norm are mixed: attention uses one, the feed-forward layer the other",
        line=("norm2", "ln2", "norm"),
    )
    def mixed_norms(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        return self.join(x, norm, f, not is_pre)

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Try each activation, and pre-norm and post-norm unless there is a switch."""
        names = {name.lower() for name, _ in student.signature(student.name)}
        switch = f"{self.constructor['pre_norm']} {self.constructor['post_norm']}".split()
        places = (case.sizes["pre_norm"],) if names & set(switch) else (True, False)
        answer = super().ask(student, self._add_parts(case, names))
        if answer is not None:
            is_causal = is_causal_by_design(self, student, answer.form if answer.results else None)
            known = {"n_heads": case.sizes["n_heads"], "is_causal": is_causal}
            answer.choices = [
                {**choice, **known, "is_pre": place, "phi": phi}
                for choice in answer.choices
                for place in places
                for phi in ACTIVATIONS
            ]
        return answer

    def _add_parts(self, case: Case, names: set[str]) -> Case:
        """EncoderLayer(size, self_attn, feed_forward): build both from classes of the file."""
        if not all(names & set(self.constructor[part].split()) for part in PARTS):
            return case
        words = {name: self.constructor[name] for name in case.sizes}
        parts = {
            part: constructors.make_part(usual, words, case.sizes) for part, usual in PARTS.items()
        }
        sizes = {name: size for name, size in case.sizes.items() if name != "n_heads"}
        return replace(case, sizes={**sizes, **parts})

    def describe_reading(self, inputs: Mapping[str, Any]) -> Iterable[str]:
        return [NOTE] if inputs.get("is_causal") else []

    def forms(self, case: Case) -> Iterable[Case]:
        T = case.inputs["x"].size(1)
        yield case
        for mask in (None, torch.ones(T, T)):
            yield replace(case, given={**case.inputs, "mask": mask})

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, H: int, d: int, **more: Any) -> Case:
            sizes = layer_sizes(d, H, more.pop("is_pre", True))
            return Case(says, term, {"x": draw.normal(B, T, d)}, sizes, **more)

        yield case("a single token goes through both branches", "join", 1, 1, 1, 3)
        yield case("post-norm is norm(x + f(x))", "join", 3, 1, 2, 4, is_pre=False)
        yield case("one head attends to all tokens", "weigh", 2, 4, 1, 3)
        yield case("each head attends by itself", "split", 2, 5, 3, 6)
        yield case("the gradient reaches the input", "join", 3, 4, 2, 10, gradient=True)
        yield case(SAYS, "drop", 2, 5, 3, 6)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, H, d in ((1, 1, 2), (2, 1, 2), (2, 2, 4), (3, 2, 4)):
            for is_pre in (True, False):
                inputs = {"x": draw.small(1, T, d)}
                yield Case("a small example", "join", inputs, layer_sizes(d, H, is_pre))

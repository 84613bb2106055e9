"""The transformer layer: attention, then the feed-forward layer, each with residual and norm."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.feed_forward import ACTIVATIONS, activate
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.weights import Linear, Norm, Role

Branch = Callable[[Tensor], Tensor]
NormOrNone = Norm | None


def layer_roles(d: int, d_ff: int) -> dict[str, Role]:
    """The weights of a layer. Missing output projection and norms are mistakes with names."""
    return {
        "query": Role("linear", (d, d), "q query queries w_q wq to_q q_proj proj_q"),
        "key": Role("linear", (d, d), "k key keys w_k wk to_k k_proj proj_k"),
        "value": Role("linear", (d, d), "v value values w_v wv to_v v_proj proj_v"),
        "out": Role("linear", (d, d), "o out output w_o wo proj out_proj proj_out c_proj", True),
        "first": Role("linear", (d_ff, d), "w1 fc1 linear1 up dense1 c_fc first lin1 ff1"),
        "second": Role("linear", (d, d_ff), "w2 fc2 linear2 down dense2 c_proj second lin2 ff2"),
        "norm1": Role("norm", (d,), "norm1 ln1 layernorm1 attention_norm addnorm1 n1", True),
        "norm2": Role("norm", (d,), "norm2 ln2 layernorm2 ffn_norm ff_norm addnorm2 n2", True),
    }


class TransformerLayer(Exercise):
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
    }
    parameters = {
        "x": "x X input inputs src hidden_states",
        "mask": "mask attn_mask attention_mask src_mask valid_lens padding_mask",
    }
    constructor = {
        "d": "d d_model dim n_embd embed_dim emb_dim hidden_size num_hiddens model_dim hidden_dim",
        "n_heads": "n_heads num_heads heads h nhead n_head num_attention_heads",
        "d_ff": "d_ff ffn_num_hiddens mlp_dim d_hidden dim_feedforward ffn_dim ff_dim mlp_hidden"
        " d_mlp hidden",
        "d_head": "d_head head_dim attn_dim dim_head head_size",
        "dropout": "dropout p dropout_p dropout_rate drop",
        "pre_norm": "pre_norm norm_first prenorm is_pre_norm pre_ln pre_layer_norm",
        "post_norm": "post_norm postnorm is_post_norm post_ln",
    }
    optional = ("d_ff", "d_head", "dropout", "pre_norm", "post_norm", "mask")
    forbidden = ("torch.nn.TransformerEncoderLayer",)

    def roles(self, d: int, d_ff: int, **_: Any) -> dict[str, Role]:
        return layer_roles(d, d_ff)

    # The formula: x (B, T, d) → (B, T, d)

    def answer(
        self, x: Tensor, n_heads: int, is_pre: bool = True, phi: str = "relu", **parts: Any
    ) -> Tensor:
        first, second = self.norms(parts.get("norm1"), parts.get("norm2"))
        is_pre = self.place(is_pre)
        x = self.join_attention(x, first, lambda y: self._attend(y, n_heads, parts), is_pre)
        return self.join_feed_forward(
            x, second, lambda y: self.feed(y, parts["first"], parts["second"], phi), is_pre
        )

    def _attend(self, x: Tensor, n_heads: int, parts: dict[str, Any]) -> Tensor:
        q, k, v = (self.split(parts[name](x), n_heads) for name in ("query", "key", "value"))
        weights = self.weigh(self.scale(q @ k.mT, q, x))  # (B, heads, T, T)
        return self.project(self.merge(weights @ v), parts.get("out"))

    def split(self, x: Tensor, n_heads: int) -> Tensor:
        return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)

    def scale(self, scores: Tensor, q: Tensor, x: Tensor) -> Tensor:
        return scores / math.sqrt(q.size(-1))

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def merge(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)

    def project(self, x: Tensor, out: Linear | None) -> Tensor:
        if out is None:
            raise ValueError("the output projection is missing")
        return out(x)

    def feed(self, x: Tensor, first: Linear, second: Linear, phi: str) -> Tensor:
        return second(activate(first(x), phi))

    def norms(self, norm1: NormOrNone, norm2: NormOrNone) -> tuple[NormOrNone, NormOrNone]:
        if norm1 is None and norm2 is None:
            raise ValueError("there is no norm")
        return (None, norm1 or norm2) if norm1 is None or norm2 is None else (norm1, norm2)

    def place(self, is_pre: bool) -> bool:
        return is_pre

    def join_attention(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        return self.join(x, norm, f, is_pre)

    def join_feed_forward(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        return self.join(x, norm, f, is_pre)

    def join(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        if norm is None:
            return x + f(x)
        return x + f(norm(x)) if is_pre else norm(x + f(x))

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
        "one norm is shared by both branches: each needs gain and shift of its own",
        line=("norm", "ln"),
    )
    def shared_norm(self, norm1: NormOrNone, norm2: NormOrNone) -> tuple[NormOrNone, NormOrNone]:
        if norm1 is None and norm2 is None:
            raise ValueError("there is no norm to share")
        return norm1 or norm2, norm1 or norm2

    @mistake("norms", "there is no norm", line=("+", "forward"))
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
        "the residual starts from the normed input: x itself must be added, not norm(x)",
        line=("norm", "ln"),
    )
    def residual_from_norm(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        y = x if norm is None else norm(x)
        return y + f(y)

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
        "the norm of the feed-forward layer is in another place than that of the attention: one "
        "is pre-norm, the other post-norm",
        line=("norm2", "ln2", "norm"),
    )
    def mixed_norms(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        return self.join(x, norm, f, not is_pre)

    # Cases

    def ask(self, student: Any, case: Case) -> Answer | None:
        """With each activation, and with both places of the norm unless there is a switch."""
        names = {name.lower() for name, _ in student.signature(student.name)}
        switch = f"{self.constructor['pre_norm']} {self.constructor['post_norm']}".split()
        places = (case.sizes["pre_norm"],) if names & set(switch) else (True, False)
        answer: Answer | None = student.ask(self, case)
        if answer is not None:
            answer.choices = [
                {**choice, "n_heads": case.sizes["n_heads"], "is_pre": place, "phi": phi}
                for choice in answer.choices
                for place in places
                for phi in ACTIVATIONS
            ]
        return answer

    def forms(self, case: Case) -> Iterable[Case]:
        T = case.inputs["x"].size(1)
        yield case
        for mask in (None, torch.ones(T, T)):
            yield replace(case, given={**case.inputs, "mask": mask})

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, H: int, d: int, **more: Any) -> Case:
            sizes = layer_sizes(d, H, more.pop("is_pre", True))
            return Case(says, term, {"x": draw.normal(B, T, d)}, sizes, **more)

        yield case("a single token passes both branches", "join", 1, 1, 1, 3)
        yield case("post-norm is norm(x + f(x))", "join", 3, 1, 2, 4, is_pre=False)
        yield case("one head attends to all tokens", "weigh", 2, 4, 1, 3)
        yield case("each head attends by itself", "split", 2, 5, 3, 6)
        yield case("the gradient reaches the input", "join", 3, 4, 2, 10, gradient=True)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, H, d in ((1, 1, 2), (2, 1, 2), (2, 2, 4), (3, 2, 4)):
            for is_pre in (True, False):
                inputs = {"x": draw.small(1, T, d)}
                yield Case("a small example", "join", inputs, layer_sizes(d, H, is_pre))


def layer_sizes(d: int, n_heads: int, is_pre: bool = True) -> dict[str, Any]:
    """The arguments of a layer's constructor."""
    return {
        "d": d,
        "n_heads": n_heads,
        "d_ff": 4 * d,
        "d_head": d // n_heads,
        "dropout": 0.5,
        "pre_norm": is_pre,
        "post_norm": not is_pre,
    }

"""The Vision Transformer: patches, a class token in front, positions, layers, a head."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.patch_embedding import (
    ORDERS,
    PROJECTION,
    cut_patches,
    flatten_patch,
)
from clearhead.exercises.contracts.shared.encoder import (
    N_LAYERS,
    Encoder,
    Layers,
    list_conventions,
)
from clearhead.exercises.contracts.shared.layer import layer_roles
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, mistake
from clearhead.exercises.stacks import assign_model
from clearhead.exercises.weights import Linear, Norm, Role


class VisionTransformer(Encoder):
    """Free: pre- or post-norm, ReLU or GELU, a norm before the head, a convolution or a linear
    layer for the patches, positions for all tokens or for the patches only. d_ff is 4 d_model.
    """

    name = "vit"
    title = "The Vision Transformer"
    formula = "head(layers([class token, patches] + positions)[0])"
    signature = (
        "VisionTransformer(image_size, patch_size, channels, n_classes, d_model, n_layers, "
        "n_heads)(images)"
    )
    page = "models.md"
    names = ("VisionTransformer", "ViT", "VIT", "SimpleViT")
    terms = {
        "cut": "the patches, row by row",
        "begin": "the class token, which comes first",
        "locate": "the positions, added to the tokens",
        "layer": "one layer: attention and feed-forward layer",
        "stack": "the layers, one after the other",
        "choose": "the token that the head reads: the class token",
        "finish": "the logits of the head",
    }
    parameters = {"images": "images x X image img imgs pixel_values input inputs"}
    constructor = {
        "image_size": "image_size img_size size input_size resolution",
        "patch_size": "patch_size patch p",
        "channels": "channels in_channels in_chans n_channels num_channels nin c",
        "n_classes": "n_classes num_classes nout classes out_dim d_output n_class",
        "d": "d_model dim d embed_dim emb_dim num_hiddens hidden_dim hidden_size n_embd",
        "n_layers": "n_layers num_layers depth layers n_layer num_blks num_blocks",
        "n_heads": "n_heads num_heads heads h nhead n_head",
        "d_ff": "d_ff mlp_dim mlp_num_hiddens dim_feedforward ffn_dim d_hidden mlp_hidden",
        "d_head": "d_head attn_dim head_dim dim_head",
        "dropout": "dropout p_drop dropout_rate drop emb_dropout",
    }
    optional = ("channels", "d_ff", "d_head", "dropout")

    def roles(self, d: int, n_classes: int, **_: Any) -> dict[str, Role]:
        """The roles outside the layers, except patches and positions."""
        return {
            "token": Role("vector", (d,), "cls class token"),
            "final": Role("norm", (d,), "norm ln final", optional=True),
            "head": Role("linear", (n_classes, d), "head classifier fc out mlp_head"),
        }

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Any]:
        d, p = sizes["d"], sizes["patch_size"]
        n_patches = (sizes["image_size"] // p) ** 2
        words = "pos position positions"
        tables: list[tuple[str, tuple[int, ...]]]
        tables = [("table", (n_patches + 1, d)), ("table", (n_patches, d))]
        if n_patches == 1:
            tables.append(("vector", (d,)))  # a parameter (1, 1, d)
        outer = [
            {
                "project": Role(kind, (d, sizes["channels"] * p * p), PROJECTION),
                "positions": Role(*table, words, table == tables[-1]),
                **self.roles(**sizes),
            }
            for kind, table in product(("flat conv", "linear"), tables)
        ]
        return assign_model(parameters, N_LAYERS, layer_roles(d, sizes["d_ff"]), outer)

    # The formula: images (B, channels, height, width) → logits (B, n_classes)

    def answer(
        self,
        images: Tensor,
        project: Linear,
        token: Tensor,
        layers: Layers,
        head: Linear,
        how: dict[str, Any],
        order: str,
        patch_size: int,
        positions: Tensor | None = None,
        final: Norm | None = None,
    ) -> Tensor:
        patches = self.cut(images, patch_size).flatten(1, 2)  # (B, patches, channels, p, p)
        x = project(flatten_patch(patches, order))
        x = self.stack(self._begin_and_locate(x, token, positions), layers, how)
        x = x if final is None else final(x)
        return self.finish(head(self.choose(x)))

    def _begin_and_locate(self, x: Tensor, token: Tensor, positions: Tensor | None) -> Tensor:
        """Add the class token and the positions; positions of patches alone are added first."""
        positions = None if positions is None else positions.reshape(-1, x.size(2))
        if positions is not None and len(positions) == x.size(1):
            return self.begin(self.locate(x, positions), token)
        return self.locate(self.begin(x, token), positions)

    def cut(self, images: Tensor, patch_size: int) -> Tensor:
        return cut_patches(images, patch_size)

    def begin(self, x: Tensor, token: Tensor) -> Tensor:
        return torch.cat([token.expand(len(x), 1, -1), x], 1)

    def locate(self, x: Tensor, positions: Tensor | None) -> Tensor:
        if positions is None:
            raise ValueError("there are no positions")
        return x + positions

    def choose(self, x: Tensor) -> Tensor:
        return x[:, 0]

    # Mistakes

    @mistake(
        "cut",
        "the patches are numbered column by column instead of row by row",
        line=("permute", "transpose", "rearrange"),
    )
    def column_major(self, images: Tensor, patch_size: int) -> Tensor:
        return cut_patches(images, patch_size).transpose(1, 2)

    @mistake(
        "begin",
        "the class token is put at the end; it must come first",
        line=("cat",),
    )
    def class_token_last(self, x: Tensor, token: Tensor) -> Tensor:
        return torch.cat([x, token.expand(len(x), 1, -1)], 1)

    @mistake(
        "begin",
        "the class token is all zeros instead of a learned parameter",
        line=("zeros",),
    )
    def class_token_zero(self, x: Tensor, token: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(x[:, :1]), x], 1)

    @mistake(
        "locate",
        "there are no positions: the layers cannot tell where a patch was",
        line=("cat", "pos"),
    )
    def no_positions(self, x: Tensor, positions: Tensor | None) -> Tensor:
        return x

    @mistake("choose", "the last patch is read instead of the class token", line=("-1]", "-1,"))
    def last_token(self, x: Tensor) -> Tensor:
        return x[:, -1]

    @mistake("choose", "the mean of all tokens is read instead of the class token", line=("mean",))
    def mean_of_tokens(self, x: Tensor) -> Tensor:
        return x.mean(1)

    # Cases

    def ask(self, student: Any, case: Case) -> Answer | None:
        answer: Answer | None = student.ask(self, case)
        if answer is not None:
            answer.choices = [
                {**choice, "order": order, "how": how, "patch_size": case.sizes["patch_size"]}
                for choice in answer.choices
                for order, how in product(ORDERS, list_conventions(case.sizes["n_heads"]))
            ]
        return answer

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, rows: int, p: int, C: int, **more: Any) -> Case:
            inputs = {"images": draw.normal(B, C, rows * p, rows * p)}
            return Case(says, term, inputs, _sizes(rows * p, p, C, 6, 2), **more)

        yield case("one patch and the class token go through all layers", "stack", 1, 1, 3, 2)
        yield case("the patches have positions", "locate", 1, 2, 3, 2)
        yield case("the pictures of a batch do not affect each other", "choose", 3, 3, 2, 1)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for rows in (1, 2):
            inputs = {"images": draw.small(1, 1, rows, rows)}
            yield Case("a small example", "locate", inputs, _sizes(rows, 1, 1, 2, 1))
        yield from self.cases(draw)


def _sizes(side: int, p: int, channels: int, d: int, n_heads: int) -> dict[str, Any]:
    return {
        "image_size": side,
        "patch_size": p,
        "channels": channels,
        "n_classes": 5,
        "d": d,
        "n_layers": N_LAYERS,
        "n_heads": n_heads,
        "d_ff": 4 * d,
        "d_head": d // n_heads,
        "dropout": 0.5,
    }

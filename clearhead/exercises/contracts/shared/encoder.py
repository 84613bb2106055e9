"""What classifier and Vision Transformer share: layers one after the other, and logits."""

from typing import Any

from torch import Tensor

from clearhead.exercises.contracts.feed_forward import ACTIVATIONS
from clearhead.exercises.contracts.transformer_layer import TransformerLayer
from clearhead.exercises.exercise import Exercise, mistake

N_LAYERS = 2
Layers = list[dict[str, Any]]


LAYER = TransformerLayer()


class Encoder(Exercise):
    """The layers and what follows the head.

    The weights of the layers are found by the numbers in their names (blocks.0, blocks.1).
    """

    def layer(self, x: Tensor, parts: dict[str, Any], how: dict[str, Any]) -> Tensor:
        return LAYER.answer(x, **parts, **how)

    def stack(self, x: Tensor, layers: Layers, how: dict[str, Any]) -> Tensor:
        for parts in layers:
            x = self.layer(x, parts, how)
        return x

    def finish(self, logits: Tensor) -> Tensor:
        return logits

    # Mistakes

    @mistake(
        "layer",
        "the residuals of the layers are missing",
        line=("norm", "attn", "attention"),
    )
    def no_residual(self, x: Tensor, parts: dict[str, Any], how: dict[str, Any]) -> Tensor:
        return LAYER.with_mistakes("no_residual").answer(x, **parts, **how)

    @mistake(
        "layer",
        "the layers are causal; in an encoder every token attends to all tokens",
        line=("tril", "triu", "causal", "mask"),
    )
    def causal_layers(self, x: Tensor, parts: dict[str, Any], how: dict[str, Any]) -> Tensor:
        return LAYER.answer(x, **parts, **how, is_causal=True)

    @mistake("stack", "only the first layer is used", line=("[0]", "layers", "blocks", "for "))
    def first_layer_only(self, x: Tensor, layers: Layers, how: dict[str, Any]) -> Tensor:
        return self.layer(x, layers[0], how)

    @mistake(
        "stack",
        "the layers are not chained: each reads the input of the first one, and only the last "
        "output is used",
        line=("for ", "layer(", "block("),
    )
    def layers_not_chained(self, x: Tensor, layers: Layers, how: dict[str, Any]) -> Tensor:
        return self.layer(x, layers[-1], how)

    @mistake("stack", "the layers run in reverse order", line=("reversed", "[::-1]"))
    def layers_reversed(self, x: Tensor, layers: Layers, how: dict[str, Any]) -> Tensor:
        for parts in reversed(layers):
            x = self.layer(x, parts, how)
        return x

    @mistake(
        "finish",
        "there is a softmax at the end: the loss expects logits and applies its own",
        line=("softmax",),
    )
    def softmax_at_the_end(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    @mistake(
        "finish",
        "there is a sigmoid at the end: the loss expects logits and applies its own",
        line=("sigmoid",),
    )
    def sigmoid_at_the_end(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()


def list_conventions(n_heads: int) -> list[dict[str, Any]]:
    """The accepted conventions of a layer: place of the norm, activation."""
    return [
        {"n_heads": n_heads, "is_pre": is_pre, "phi": phi}
        for is_pre in (True, False)
        for phi in ACTIVATIONS
    ]

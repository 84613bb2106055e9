"""The residual stream of a model: the sum that blocks add to, and how logits are read from it.

    x_0 = embedding        x_{l+1} = x_l + attention_l + feed_forward_l        logits = norm(x_L) Wᵀ

W is the weight of the output layer (`model.head`). logit_lens.py computes logits from every x_l;
attribution.py splits the logits into the terms of the sum. Both need a model that ends in a stack
of blocks and a linear output layer.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.inspection.record import record
from clearhead.inspection.sites import check_model
from clearhead.layers.block import Block
from clearhead.layers.stack import Stack
from clearhead.models.gpt import GPT
from clearhead.models.model import evaluation_mode

Arguments = Tensor | Sequence[Any]


@dataclass(frozen=True, eq=False)
class Stream:
    """The last stack of blocks of a model, and the output layer that computes the logits."""

    model: nn.Module
    name: str  # of the stack
    stack: Stack
    head: nn.Linear

    @property
    def named_blocks(self) -> list[tuple[str, Block]]:
        """The blocks in their order, each with its name in the model."""
        blocks = (block for block in self.stack.blocks if isinstance(block, Block))
        return [(f"{self.name}.blocks.{layer}", block) for layer, block in enumerate(blocks)]

    def select_read(self, x: Tensor, position: int | slice = slice(None)) -> Tensor:
        """The P tokens whose mean is the input of the output layer: (..., T, D) → (..., P, D).

        For a VisionTransformer these are the class token or all patches. Any other model computes
        logits from each token separately, so it is the token at this position.
        """
        config: Any = getattr(self.model, "config", None)
        pool = getattr(config, "pool", None)
        if pool is None:
            return x[..., position, :] if isinstance(position, slice) else x[..., [position], :]
        return x[..., :1, :] if pool == "class" else x[..., int(config.class_token) :, :]

    @property
    def is_pooled(self) -> bool:
        """Whether the model has one row of logits for a whole input, as a VisionTransformer."""
        return hasattr(getattr(self.model, "config", None), "pool")

    def read_logits(self, x: Tensor) -> Tensor:
        """The residual stream (..., T, D) → logits, as the model computes them after its blocks."""
        x = x if self.stack.norm is None else self.stack.norm(x)
        x = self.select_read(x).mean(-2) if self.is_pooled else x
        return self.model.logits(x) if isinstance(self.model, GPT) else self.head(x)

    def check_end(self, x: Tensor, logits: Tensor) -> None:
        """Refuse a model that computes more than norm and output layer after the last block x."""
        if not torch.allclose(self.read_logits(x), logits, rtol=1e-3, atol=1e-3, equal_nan=True):
            raise ValueError(
                f"{type(self.model).__name__} computes more than a norm and its head after the "
                f"last block, so its logits cannot be read from the residual stream"
            )


def find_stream(model: nn.Module) -> Stream:
    """The residual stream that ends in the logits; for a translator, that of its decoder."""
    check_model(model)
    stacks = [(name, part) for name, part in model.named_modules() if isinstance(part, Stack)]
    head = getattr(model, "head", None)
    if not stacks or not isinstance(head, nn.Linear):
        raise ValueError(
            f"{type(model).__name__} has no residual stream that ends in logits: it needs a Stack "
            f"of blocks and a linear `head`, as GPT, VisionTransformer, SequenceClassifier and "
            f"Seq2SeqTransformer have"
        )
    name, stack = stacks[-1]
    if not all(isinstance(block, Block) for block in stack.blocks):
        raise ValueError(
            f"the blocks of {name!r} must be Blocks, so that their terms can be computed"
        )
    return Stream(model, name, stack, head)


def read_stream(model: nn.Module, inputs: Arguments) -> tuple[Stream, list[Tensor]]:
    """The stream before the first block and after each: L + 1 tensors (B, T, D)."""
    stream = find_stream(model)
    with evaluation_mode(model), record(model) as trace:
        logits = model(*as_arguments(inputs))
        calls = [trace[name] for name, _ in stream.named_blocks]
        stream.check_end(calls[-1].output, logits)
    return stream, [calls[0].input, *(call.output for call in calls)]


@contextmanager
def gradient_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout off and gradients on inside a `with`, also inside torch.inference_mode."""
    with evaluation_mode(model), torch.inference_mode(False), torch.enable_grad():
        yield


def as_arguments(inputs: Arguments) -> tuple[Any, ...]:
    """The positional arguments of a model: one tensor, or several, as for a translator."""
    arguments = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    if not arguments or not isinstance(arguments[0], Tensor):
        raise TypeError(
            f"inputs must be a tensor or a tuple of them, got {type(inputs).__name__}; encode a "
            f"text first: torch.tensor([tokenizer.encode(text)])"
        )
    return arguments

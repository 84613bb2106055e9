"""The sizes of a recipe's model: what a process holds between steps, and what a pass costs.

    sizes = Sizes(recipe)
    sizes.hold(1)                       bytes of weights, gradient, optimizer; hold(8): of a shard
    sizes.count(32, mixed=True)         a forward pass of 32 examples, products in bfloat16

The model is built on the meta device, so nothing is allocated. A model whose code reads numbers
cannot be computed there; it is built on the CPU, and the pass is really computed.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import cast

import torch
from torch import Tensor, nn

from clearhead.data.batch import Batch
from clearhead.models.model import Model
from clearhead.models.registry import build_on_meta, check_config
from clearhead.parallel.counting import Cost, count_pass, find_blocks
from clearhead.parallel.planning.stand_ins import open_task
from clearhead.training.optimizer import find_inner_matrices
from clearhead.training.recipe import Recipe, TrainingConfig

FLOAT = 4  # bytes of a float32 number
N_BATCHES = 20  # the largest of these is counted, because sentences differ in length


@dataclass(frozen=True)
class Held:
    """Bytes that a process holds from step to step."""

    weights: int  # and buffers, such as the statistics of batch norm
    gradient: int
    optimizer: int


class Sizes:
    """The sizes of the model that a recipe trains."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.task, self.config = open_task(recipe)
        check_config(self.config)
        self.model = self._build()
        self.n_parameters = sum(p.numel() for p in self.model.parameters())
        self.learned = [p for p in self.model.parameters() if p.requires_grad]
        self.count = cache(self._count)

    def change(self, training: TrainingConfig) -> "Sizes":
        """The same model, trained with other settings.

        Passes are counted as before: `count` cuts its examples from batches of the first settings.
        """
        other = copy(self)
        other.recipe = replace(self.recipe, training=training)
        return other

    def hold(self, n_shards: int) -> Held:
        """Weights 4P, gradient 4P; AdamW 8P, Muon 4 for each number of an inner matrix, SGD 0.

        Of each tensor a process holds the n-th part of the rows, rounded up, as FSDP2 shards it.
        AdamW also counts the steps of each tensor, in a float32 number.
        """

        def add_up(tensors: Iterable[Tensor], each: int = FLOAT, more: int = 0) -> int:
            return sum(each * count_shard(x, n_shards) + more for x in tensors)

        kind = self.recipe.training.optimizer
        inner = set(self.inner) if kind == "muon" else set()
        rest = [p for p in self.learned if p not in inner and kind != "sgd"]
        buffers = sum(x.numel() * x.element_size() for x in self.model.buffers())
        return Held(
            weights=add_up(self.model.parameters()) + buffers,
            gradient=add_up(self.learned),
            optimizer=add_up(inner) + add_up(rest, 2 * FLOAT, FLOAT),
        )

    @cached_property
    def inner(self) -> list[nn.Parameter]:
        """The matrices that Muon updates, if it is the optimizer."""
        return list(find_inner_matrices(self.model).values())

    @cached_property
    def block_sizes(self) -> tuple[int, int]:
        """How many parameters the largest block has, and how many are in no block."""
        blocks = [sum(p.numel() for p in block.parameters()) for block in find_blocks(self.model)]
        return max(blocks, default=0), self.n_parameters - sum(blocks)

    @cached_property
    def most_in_a_shape(self) -> int:
        """How many numbers the inner matrices of one shape have together, at most.

        Muon updates all matrices of one shape at once.
        """
        totals: dict[torch.Size, int] = defaultdict(int)
        for matrix in self.inner:
            totals[matrix.flatten(1).shape] += matrix.numel()
        return max(totals.values(), default=0)

    @property
    def most_in_a_matrix(self) -> int:
        """How many numbers the largest inner matrix has."""
        return max((matrix.numel() for matrix in self.inner), default=0)

    @cached_property
    def muon_flops(self) -> int:
        """FLOPs of the Newton–Schulz steps for r × c matrices, r ≤ c: 4r²c + 2r³ each."""
        total = 0
        for matrix in self.inner:
            r, c = sorted(matrix.flatten(1).shape)
            total += self.recipe.training.newton_steps * (4 * r * r * c + 2 * r**3)
        return total

    def _count(self, n_examples: int, mixed: bool) -> Cost:
        """The cost of a forward pass of n_examples."""
        batch = self._make_batch(n_examples)
        with suppress(NotImplementedError, RuntimeError):
            return count_pass(self.model, self.task.loss, batch.to("meta"), mixed=mixed)
        return count_pass(self._real_model, self.task.loss, batch, mixed=mixed)

    def _build(self) -> Model:
        """The model on the meta device, if it can be built there."""
        with suppress(NotImplementedError, RuntimeError):
            model = build_on_meta(cast(type[Model], self.task.build), self.config)
            with suppress(NotImplementedError, RuntimeError):  # there are no numbers to set
                self.task.initialise(model)
            return model.train()
        return self._real_model

    @cached_property
    def _real_model(self) -> Model:
        model: Model = self.task.initialise(self.task.build(self.config))
        return model.train()

    def _make_batch(self, n_examples: int) -> Batch:
        """The largest of the first batches of an epoch, cut to n_examples."""
        c = self.recipe.training
        plans = self.task.plans(c.seed, 0, c.batch_size)[:N_BATCHES]
        batches = (self.task.batch(plan[:n_examples]) for plan in plans)
        return self.task.augment(max(batches, key=count_numbers))


def count_numbers(batch: Batch) -> int:
    """How many numbers a batch has."""
    return sum(x.numel() for x in vars(batch).values() if isinstance(x, Tensor))


def count_shard(tensor: Tensor, n: int) -> int:
    """How many numbers the largest of n shards has; a tensor is divided along its first axis."""
    if tensor.ndim == 0:
        return 1
    return -(-tensor.size(0) // n) * (tensor.numel() // max(1, tensor.size(0)))

"""Memory of a process and time of a step in every mode, computed before a run is started.

    plan = make_plan(recipe, find_card("a100"), 8)
    plan.costs["ddp"].memory.total, plan.costs["ddp"].time.total
    plan.advice.mode                        the mode to take
    plan.advice.changes                     … and the settings to change

planning/steps.py has the formulas. The advice is the simplest mode that leaves a tenth of the
memory free; if the recipe names a mode, only that one is tried. If none fits, activation
checkpointing and smaller batches are tried. More of the smaller batches are accumulated, so a step
still learns from as many examples.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from clearhead.parallel.planning.cards import Card, share_machine
from clearhead.parallel.planning.sizes import Sizes
from clearhead.parallel.planning.steps import (
    Memory,
    Share,
    Time,
    compute_memory,
    compute_time,
    share_step,
)
from clearhead.shapes import check_positive
from clearhead.training.recipe import Recipe, TrainingConfig

RESERVE = 0.1  # of the memory: for fragments, the kernels' own buffers, and what the formulas miss
SIMPLEST_FIRST = ("none", "ddp", "fsdp")  # exact: only if the recipe names it


@dataclass(frozen=True)
class ModeCost:
    """What a step costs each process in one mode."""

    share: Share
    memory: Memory
    time: Time
    fits: bool  # whether the memory suffices


@dataclass(frozen=True)
class Advice:
    """What to type: the mode, and the settings that must change for it to fit."""

    mode: str | None  # None if nothing fits
    changes: tuple[str, ...] = ()
    cost: ModeCost | None = None


@dataclass(frozen=True)
class StepPlan:
    """The costs of a step in every mode, and the advice that follows from them."""

    recipe: Recipe
    card: Card  # what one process has
    n: int  # processes
    mixed: bool  # products in bfloat16
    n_parameters: int
    costs: dict[str, ModeCost]
    advice: Advice


def make_plan(recipe: Recipe, card: Card, n: int) -> StepPlan:
    """The plan of a recipe on n cards of one kind, with one process each."""
    check_positive(gpus=n)
    c = recipe.training
    on_gpu = card.name != "cpu"
    card = card if on_gpu else share_machine(card, n)
    mixed = c.precision == "bfloat16" or (c.precision == "auto" and on_gpu)
    # "exact" needs a chunk for each process.
    sizes = Sizes(replace(recipe, training=replace(c, chunks=max(c.chunks, n))))
    modes: tuple[str, ...] = ("none", "exact") if n == 1 else ("exact", "ddp", "fsdp")
    if c.parallel is not None and c.parallel not in modes:
        modes += (c.parallel,)
    costs = {mode: compute_cost(sizes, card, mode, n, mixed=mixed) for mode in modes}
    advice = advise(sizes, card, n, costs, mixed=mixed)
    return StepPlan(recipe, card, n, mixed, sizes.n_parameters, costs, advice)


def compute_cost(sizes: Sizes, card: Card, mode: str, n: int, *, mixed: bool) -> ModeCost:
    """What a step costs each process in this mode."""
    c = sizes.recipe.training
    checkpoint = c.checkpoint_activations and mode == "fsdp"
    memory = compute_memory(sizes, mode, n, mixed=mixed, checkpoint=checkpoint)
    time = compute_time(sizes, card, mode, n, mixed=mixed, checkpoint=checkpoint)
    fits = memory.total <= (1 - RESERVE) * card.memory
    return ModeCost(share_step(c, mode, n), memory, time, fits)


def advise(sizes: Sizes, card: Card, n: int, costs: dict[str, ModeCost], *, mixed: bool) -> Advice:
    """The simplest mode that fits, or what to change so that one does."""
    c = sizes.recipe.training
    wanted = SIMPLEST_FIRST if c.parallel is None else (c.parallel,)
    for mode in wanted:
        if mode in costs and costs[mode].fits:
            return Advice(mode, (), costs[mode])
    mode = [mode for mode in wanted if mode in costs][-1]
    for changed, words in _make_smaller(c, mode, n):
        smaller = sizes.change(changed)
        cost = compute_cost(smaller, card, mode, n, mixed=mixed)
        if cost.fits:
            return Advice(mode, words, cost)
    return Advice(None)


def _make_smaller(
    c: TrainingConfig, mode: str, n: int
) -> Iterator[tuple[TrainingConfig, tuple[str, ...]]]:
    """Settings that need less and less memory, with the arguments that set them."""
    words: tuple[str, ...] = ()
    if mode == "fsdp":
        c = replace(c, parallel="fsdp", checkpoint_activations=True)
        words = ("training.checkpoint_activations=true",)
        yield c, words
    while c.batch_size % 2 == 0 and c.batch_size // 2 >= n:
        c = replace(c, batch_size=c.batch_size // 2, accumulate=c.accumulate * 2)
        batch = f"training.batch_size={c.batch_size}", f"training.accumulate={c.accumulate}"
        yield c, (*words, *batch)

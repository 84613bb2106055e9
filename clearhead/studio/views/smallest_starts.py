"""Where the matrices of the smallest transformer come from: a start, or edits on the page.

    by hand     designs.py, with a sharpness
    random      the weights that the recipe of the rule starts from, by a seed
    learned     the weights after training by that recipe, which takes 1.3 to 4.6 s, once for each
                rule and length
    run         the weights of a run

Random and learned weights have the shapes of those set by hand, so that they can be compared cell
by cell. Each model comes with the Python lines that make it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

import torch

from clearhead.models.smallest import NumpyTransformer, TorchTransformer, designs
from clearhead.shapes import check_whole
from clearhead.studio.sources import Opened
from clearhead.training import Training, find_recipe, with_changes
from clearhead.training.tasks.sequences import SequenceData, SequencePredictor, SequenceTask

Rule = Literal["identity", "first", "unique"]
Start = Literal["by hand", "learned", "random", "run"]

LENGTHS = (4, 6)  # the least and the most letters of a sequence; a run may have others
MAX_SIDE = 64  # rows or columns of a matrix
MAX_NUMBER = 1e6  # absolute value of a number: products of such numbers are still finite
MAX_SEEDS = 5  # seeds tried until one learns the rule
LINES = ["from clearhead.models.smallest import NumpyTransformer, TorchTransformer, designs"]
TRAINING_LINES = ["from clearhead.training import Training, find_recipe, with_changes"]


@dataclass(frozen=True)
class Matrices:
    """The parameters as lists of rows; pos: None without positions."""

    Km: list[list[float]]
    Qm: list[list[float]]
    Vm: list[list[float]]
    pos: list[list[float]] | None = None


@dataclass(frozen=True)
class SmallestModel:
    """A transformer, the predictor of its rule, and the Python lines that make it as `model`."""

    model: NumpyTransformer
    predictor: SequencePredictor
    lines: list[str]


def make_start(
    rule: Rule, max_len: int, start: Start, sharpness: float, seed: int
) -> SmallestModel:
    """The transformer set by hand, learned, or drawn at random."""
    least, most = LENGTHS
    check_whole("max_len", max_len, least=least, most=most)
    if start == "by hand":
        return set_by_hand(rule, max_len, sharpness)
    return learn(rule, max_len) if start == "learned" else draw(rule, max_len, seed)


def set_by_hand(rule: Rule, max_len: int, sharpness: float) -> SmallestModel:
    """The design of the rule."""
    if rule == "identity":
        model, call = designs.identity(sharpness), f"identity({sharpness!r})"
    else:
        build = {"first": designs.first, "unique": designs.unique}[rule]
        model, call = build(max_len, sharpness), f"{rule}({max_len}, {sharpness!r})"
    return SmallestModel(
        model, SequencePredictor(rule, max_len), [*LINES, f"model = designs.{call}"]
    )


@lru_cache(32)
def draw(rule: Rule, max_len: int, seed: int) -> SmallestModel:
    """The weights that a training starts from."""
    check_whole("seed", seed, least=0, most=2**31 - 1)
    changes = list_changes(rule, max_len, _make_design(rule, max_len), f"training.seed={seed}")
    training = begin_training(rule, max_len, changes)
    lines = [*write_training(rule, changes), "model = training.model.to_numpy()"]
    return SmallestModel(_to_numpy(training), training.task.predictor, lines)


@cache
def learn(rule: Rule, max_len: int) -> SmallestModel:
    """The weights after training, by the first seed that makes no mistake, or the last tried."""
    for seed in range(MAX_SEEDS):
        changes = list_changes(rule, max_len, _make_design(rule, max_len), f"training.seed={seed}")
        training = begin_training(rule, max_len, changes)
        with run_alone():
            training.run()
        if training.task.evaluate(training.model)["val_worst"] < 0.5:
            break
    lines = write_training(rule, changes)
    lines += ["training.run()", "model = training.model.to_numpy()"]
    return SmallestModel(_to_numpy(training), training.task.predictor, lines)


def open_run(opened: Opened) -> SmallestModel:
    """The weights of a run."""
    if not isinstance(opened.model, TorchTransformer):
        raise ValueError(
            f"{opened.source.id} is a {opened.kind}; this view shows runs of a TorchTransformer, "
            f"such as `clearhead train first`"
        )
    lines = [*opened.lines, *LINES, "model = model.to_numpy()"]
    return SmallestModel(opened.model.to_numpy(), opened.predictor, lines)


def read_matrices(matrices: Matrices, rule: Rule, max_len: int) -> SmallestModel:
    """The matrices of the page. Checks that they fit the rule, and that no number is too large."""
    SequenceData(rule, max_len)  # checks both
    predictor = SequencePredictor(rule, max_len)
    values = {name: value for name, value in vars(matrices).items() if value is not None}
    for name, rows in values.items():
        if max(len(rows), *map(len, rows), 0) > MAX_SIDE:
            raise ValueError(f"{name} must have at most {MAX_SIDE} rows and columns")
        if not all(abs(x) <= MAX_NUMBER for row in rows for x in row):
            raise ValueError(f"{name} must hold numbers from −{MAX_NUMBER:g} to {MAX_NUMBER:g}")
    model = NumpyTransformer(**values)
    sizes, own = predictor.model_sizes, {"d_input": model.d_input, "d_v": model.Vm.shape[1]}
    if own != sizes:
        raise ValueError(f"{predictor.rule} needs the sizes {sizes}, got matrices with {own}")
    n = predictor.max_len + (predictor.rule == "unique")
    if model.pos is not None and len(model.pos) < n:
        raise ValueError(f"pos must have at least {n} rows for max_len={predictor.max_len}")
    return SmallestModel(model, predictor, [*LINES, *write_matrices(model)])


def write_matrices(model: NumpyTransformer) -> list[str]:
    """The Python lines that make the model from its numbers."""
    named = {"Km": model.Km, "Qm": model.Qm, "Vm": model.Vm, "pos": model.pos}
    given = [f"    {name}={x.tolist()!r}," for name, x in named.items() if x is not None]
    return ["model = NumpyTransformer(", *given, ")"]


# Training


@contextmanager
def run_alone() -> Iterator[None]:
    """One thread, and a random state of its own: a step of the training seeds torch's generator.

    With such small tensors a second thread gains nothing. On a busy machine, where threads wait for
    each other, it makes a training 20 times slower.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


def list_changes(rule: Rule, max_len: int, like: NumpyTransformer, *more: str) -> tuple[str, ...]:
    """The changes of the rule's recipe that give its model the shapes of `like`."""
    changes = [f"data.max_len={max_len}", f"model.d_qk={like.Km.shape[1]}"]
    if rule == "identity":
        changes.append("training.matrix_lr=0.03")  # few columns learn slowly with the recipe's 0.01
    if like.pos is None:
        changes.append("model.d_pos=none")
    else:
        changes += [f"model.max_len={len(like.pos)}", f"model.d_pos={like.d_pos}"]
    return (*changes, *more)


def begin_training(rule: Rule, max_len: int, changes: tuple[str, ...]) -> Any:
    """A training in memory before its first step."""
    with run_alone():
        return Training(with_changes(find_recipe(rule), changes), _open_task(rule, max_len))


def write_training(rule: Rule, changes: tuple[str, ...]) -> list[str]:
    """The Python lines that begin the same training."""
    return [
        *LINES,
        *TRAINING_LINES,
        f"recipe = with_changes(find_recipe({rule!r}), {list(changes)!r})",
        "training = Training(recipe, recipe.data.open())",
    ]


@cache
def _open_task(rule: Rule, max_len: int) -> SequenceTask:
    """The sequences to learn from; trainings only read them."""
    task = with_changes(find_recipe(rule), [f"data.max_len={max_len}"]).data.open()
    assert isinstance(task, SequenceTask)
    return task


def _make_design(rule: Rule, max_len: int) -> NumpyTransformer:
    """The model set by hand; random and learned weights get its shapes."""
    return set_by_hand(rule, max_len, designs.SHARPNESS).model


def _to_numpy(training: Any) -> NumpyTransformer:
    model: TorchTransformer = training.model
    return model.to_numpy()

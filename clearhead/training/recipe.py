"""A run as a value: which data, which model, how long and how fast to train.

    recipe = Recipe("substring", data=SubstringData(), model=ClassifierConfig(…),
                    training=TrainingConfig(steps=2000, lr=3e-3))
    with_changes(recipe, ["model.n_layers=4", "training.lr=3e-4"])

A change is typed by the field it sets; an unknown name is answered with the nearest known one.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import nn

from clearhead.config import Config, find_nearest, read_text
from clearhead.shapes import check_above_zero, check_choice, check_divides, check_positive
from clearhead.training.optimizer import OPTIMIZERS, Optimizer
from clearhead.training.schedule import SCHEDULES, Schedule, make_schedule
from clearhead.training.tasks.task import DataConfig

PARALLEL = ("exact", "ddp", "fsdp")
PRECISIONS = ("auto", "float32", "bfloat16")
SECTIONS = ("data", "model", "training")


@dataclass(frozen=True)
class TrainingConfig(Config):
    """How long and how fast to train, and how often to log, evaluate and save.

    accumulate      batches whose mean gradient makes a step
    workers         how many of them are computed side by side (gradient.py)
    optimizer       "adamw"; "sgd", plain; or "muon": matrix_lr, momentum and newton_steps are for
                    the inner matrices, and AdamW updates the rest (optimizer.py)
    schedule        "linear", "cosine", or "stable": level until the cooldown (schedule.py)
    warmup          share of the steps, as is cooldown
    clip            the largest norm of the gradient; None for no limit
    patience        evaluations without improvement that end the run
    log_mean        log the mean loss since the last log; if false, the loss of single steps: of
                    steps 0, log_every, …, counted from 0, each before its update
    eval_every      steps; None for once an epoch
    keep            checkpoints that stay, beside the best
    save_in_background    write checkpoints while the training goes on, from a copy of all weights
                    and optimizer tensors in memory
    precision       of the matrix products in training: "float32"; "bfloat16", about twice as fast
                    where the processor has instructions for it; "auto": bfloat16 on a GPU only.
                    Weights and optimizer stay in float32, and so does evaluation, except in
                    "fsdp" mode
    compile         use torch.compile, which pays for long runs of large models only
    parallel        how several processes share a step: "exact", with the same numbers on any number
                    of processes; "ddp", fastest; "fsdp", for models too large for one of them. None
                    is for one process (clearhead/parallel)
    chunks          parts of a step in "exact" mode, for at most as many processes (chunks.py)
    checkpoint_activations    in "fsdp" mode, compute each block's activations again when its
                    gradient is computed, instead of keeping them
    """

    steps: int
    batch_size: int = 32
    lr: float = 1e-3
    optimizer: str = "adamw"
    matrix_lr: float = 0.03
    momentum: float = 0.95
    newton_steps: int = 5
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    schedule: str = "linear"
    warmup: float = 0.0
    cooldown: float = 0.0
    clip: float | None = 1.0
    accumulate: int = 1
    workers: int = 1
    patience: int | None = None
    log_every: int = 20
    log_mean: bool = True
    eval_every: int | None = 200
    save_every: int = 200
    keep: int = 2
    save_in_background: bool = False
    seed: int = 0
    compile: bool = False
    precision: str = "auto"
    parallel: str | None = None
    chunks: int = 4
    checkpoint_activations: bool = False

    def check(self) -> None:
        check_positive(steps=self.steps, batch_size=self.batch_size, accumulate=self.accumulate)
        check_positive(log_every=self.log_every, save_every=self.save_every)
        check_positive(newton_steps=self.newton_steps)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_positive(chunks=self.chunks)
        if self.parallel is not None:
            check_choice("parallel", self.parallel, PARALLEL)
        if self.checkpoint_activations and self.parallel != "fsdp":
            raise ValueError(
                f"checkpoint_activations is for parallel=fsdp, got parallel={self.parallel}; "
                f"leave one out"
            )
        if self.save_in_background and self.parallel == "fsdp":
            raise ValueError(
                "save_in_background is for one writing process, but with parallel=fsdp all write; "
                "leave it out (a larger save_every makes the saves cost less)"
            )
        if min(self.warmup, self.cooldown) < 0 or self.warmup + self.cooldown > 1:
            raise ValueError(
                f"warmup and cooldown are shares of the steps, together at most 1, "
                f"got {self.warmup} and {self.cooldown}"
            )
        check_divides("workers", self.workers, "accumulate", self.accumulate)
        if self.compile and self.workers > 1:
            raise ValueError(
                f"compile is for one worker, got workers={self.workers}; leave one out"
            )
        if self.compile and self.parallel is not None:
            raise ValueError(
                f"compile is for one process, got parallel={self.parallel}; leave one out"
            )
        check_above_zero(lr=self.lr, matrix_lr=self.matrix_lr, clip=self.clip)
        for name in ("momentum", "weight_decay", "beta1", "beta2"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1, got {value}")
        if self.optimizer == "sgd" and self.momentum not in (0, TrainingConfig.momentum):
            raise ValueError(
                f"optimizer=sgd is plain: it has no momentum, got momentum={self.momentum}; "
                f"set momentum=0, or take optimizer=muon"
            )
        optional = {"eval_every": self.eval_every, "patience": self.patience}
        check_positive(**{name: value for name, value in optional.items() if value is not None})
        if self.keep < 2:
            raise ValueError(
                f"keep must be at least 2, so that a damaged checkpoint has one before it, "
                f"got {self.keep}"
            )

    def make_schedule(self) -> Schedule:
        """The schedule of the learning rate, in steps."""
        warmup = round(self.warmup * self.steps)
        cooldown = min(round(self.cooldown * self.steps), self.steps - warmup)
        return make_schedule(self.schedule, warmup, self.steps, cooldown=cooldown)

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """The optimizer of a model's parameters."""
        return Optimizer(
            model,
            self.optimizer,
            lr=self.lr,
            matrix_lr=self.matrix_lr,
            betas=(self.beta1, self.beta2),
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            newton_steps=self.newton_steps,
        )


@dataclass(frozen=True)
class Recipe:
    """A whole run; model sizes that follow from the data, such as vocab_size, may be left open."""

    name: str
    data: DataConfig
    model: Config
    training: TrainingConfig

    @property
    def sections(self) -> dict[str, Config]:
        """The three configs by section: "data", "model" and "training"."""
        return {name: getattr(self, name) for name in SECTIONS}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values: dict[str, Any] = {"recipe": self.name}
        for name, section in self.sections.items():
            values[name] = {"kind": type(section).__name__, **section.to_dict()}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], kinds: Mapping[str, type[Config]]) -> Self:
        """The recipe that `to_dict` gave; kinds: the known classes of configs by their names."""
        parts: dict[str, Any] = {}
        for name in SECTIONS:
            section = values[name]
            kind = section.get("kind") if isinstance(section, Mapping) else None
            if not isinstance(kind, str) or kind not in kinds:
                raise ValueError(
                    f"{name} is of the unknown kind {kind!r:.80}; pass a class of your own to "
                    f"load_run(run, kinds=[…])"
                )
            rest = {key: value for key, value in section.items() if key != "kind"}
            parts[name] = kinds[kind].from_dict(rest)
        for name, wanted in (("data", DataConfig), ("training", TrainingConfig)):
            if not isinstance(parts[name], wanted):
                raise TypeError(f"{name} must be a {wanted.__name__}, got {parts[name]!r:.80}")
        return cls(str(values["recipe"]), **parts)


def with_changes(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """The recipe with changes such as "training.lr=3e-4", all made at once."""
    given: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    parts = {section: dataclasses.fields(getattr(recipe, section)) for section in SECTIONS}
    known = [f"{section}.{field.name}" for section in SECTIONS for field in parts[section]]
    for change in changes:
        name, equals, text = (part.strip() for part in change.partition("="))
        if not equals:
            raise ValueError(f"a change is written section.name=value, got {change!r:.80}")
        if name not in known:
            near = find_nearest(name[:80], known)
            raise ValueError(f"{name!r:.80} is unknown; the nearest is {near!r}")
        section, _, field = name.partition(".")
        hints = typing.get_type_hints(type(getattr(recipe, section)))
        given[section][field] = read_text(name, text, hints[field])
    data = dataclasses.replace(recipe.data, **given["data"])
    # Set the sizes that follow from the changed data as well: with an old one, the model's own
    # check could refuse the change.
    sizes = {name: size for name, size in data.known_sizes.items() if hasattr(recipe.model, name)}
    model = dataclasses.replace(recipe.model, **{**sizes, **given["model"]})
    training = dataclasses.replace(recipe.training, **given["training"])
    return dataclasses.replace(recipe, data=data, model=model, training=training)

"""A run as a value: what is learned from what, by which model, how long and how fast.

    recipe = Recipe("substring", data=SubstringData(), model=ClassifierConfig(…),
                    training=TrainingConfig(steps=2000, lr=3e-3))
    with_changes(recipe, ["model.n_layers=4", "training.lr=3e-4"])

A change is typed by the field it sets, and a name that is not there is answered with the nearest.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import nn

from clearhead.config import Config, find_nearest, read_text
from clearhead.shapes import check_choice, check_divides, check_positive
from clearhead.training.optimizer import OPTIMIZERS, Optimizer
from clearhead.training.schedule import SCHEDULES, Schedule, make_schedule
from clearhead.training.tasks.task import DataConfig


@dataclass(frozen=True)
class TrainingConfig(Config):
    """How long, how fast, and what is written on the way.

    steps are updates; each takes the mean gradient of `accumulate` batches, of which `workers` are
    learned side by side. schedule: "linear", "cosine" or "stable" (level until the cooldown);
    warmup and cooldown are shares of the steps. optimizer: "adamw", or "muon", which takes
    matrix_lr, momentum and newton_steps for the matrices inside, and AdamW for the rest. clip: the
    longest gradient. eval_every: steps from one evaluation to the next, None for an epoch.
    patience: evaluations without a better one before the end. keep: how many of the newest
    checkpoints stay, beside the best. compile: by torch.compile, which pays for long runs of large
    models only.
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
    eval_every: int | None = 200
    save_every: int = 200
    keep: int = 2
    seed: int = 0
    compile: bool = False

    def check(self) -> None:
        check_positive(steps=self.steps, batch_size=self.batch_size, accumulate=self.accumulate)
        check_positive(log_every=self.log_every, save_every=self.save_every)
        check_positive(newton_steps=self.newton_steps)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
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
        for name in ("lr", "matrix_lr", "clip"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        for name in ("momentum", "weight_decay", "beta1", "beta2"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1, got {value}")
        for name in ("eval_every", "patience"):
            if getattr(self, name) is not None:
                check_positive(**{name: getattr(self, name)})
        if self.keep < 2:
            raise ValueError(
                f"keep must be at least 2, so that a damaged checkpoint has one before it, "
                f"got {self.keep}"
            )

    def make_schedule(self) -> Schedule:
        """The schedule in steps."""
        warmup = round(self.warmup * self.steps)
        cooldown = min(round(self.cooldown * self.steps), self.steps - warmup)
        return make_schedule(self.schedule, warmup, self.steps, cooldown=cooldown)

    def optimizer_for(self, model: nn.Module) -> Optimizer:
        """The optimizer for the parameters of a model."""
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
    """A whole run. What of the model's config the data decide is set when they are read."""

    name: str
    data: DataConfig
    model: Config
    training: TrainingConfig

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        sections = {name: getattr(self, name) for name in SECTIONS}
        return {
            "recipe": self.name,
            **{
                name: {"kind": type(section).__name__, **section.to_dict()}
                for name, section in sections.items()
            },
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], kinds: Mapping[str, type[Config]]) -> Self:
        """The recipe of what `to_dict` gave; kinds: the known configs by their names."""
        parts: dict[str, Any] = {}
        for name in SECTIONS:
            section = values[name]
            kind = section.get("kind") if isinstance(section, Mapping) else None
            if not isinstance(kind, str) or kind not in kinds:
                raise ValueError(f"{name} is of the unknown kind {kind!r:.80}")
            rest = {key: value for key, value in section.items() if key != "kind"}
            parts[name] = kinds[kind].from_dict(rest)
        for name, wanted in (("data", DataConfig), ("training", TrainingConfig)):
            if not isinstance(parts[name], wanted):
                raise TypeError(f"{name} must be a {wanted.__name__}, got {parts[name]!r:.80}")
        return cls(str(values["recipe"]), **parts)


SECTIONS = ("data", "model", "training")


def with_changes(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """The recipe with changes such as "training.lr=3e-4", which are made together."""
    given: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for change in changes:
        place, equals, text = (part.strip() for part in change.partition("="))
        if not equals:
            raise ValueError(f"a change is written section.name=value, got {change!r:.80}")
        if place not in _all_names(recipe):
            near = find_nearest(place[:80], _all_names(recipe))
            raise ValueError(f"{place!r:.80} is unknown; the nearest is {near!r}")
        section, _, field = place.partition(".")
        hints = typing.get_type_hints(type(getattr(recipe, section)))
        given[section][field] = read_text(place, text, hints[field])
    data = dataclasses.replace(recipe.data, **given["data"])
    model = dataclasses.replace(recipe.model, **{**_decided(data, recipe.model), **given["model"]})
    training = dataclasses.replace(recipe.training, **given["training"])
    return dataclasses.replace(recipe, data=data, model=model, training=training)


def _decided(data: DataConfig, model: Config) -> dict[str, Any]:
    """What the data decide, so that the model is not refused for what they will change."""
    return {name: value for name, value in data.known_sizes.items() if hasattr(model, name)}


def _all_names(recipe: Recipe) -> list[str]:
    return [
        f"{section}.{field.name}"
        for section in SECTIONS
        for field in dataclasses.fields(getattr(recipe, section))
    ]

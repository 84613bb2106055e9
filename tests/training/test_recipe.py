"""A run as a value, and changes of it."""

import dataclasses
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.models import GPTConfig
from clearhead.training.recipe import Recipe, TrainingConfig, with_changes
from clearhead.training.tasks.task import DataConfig


@dataclasses.dataclass(frozen=True)
class EveryType(DataConfig):
    whole: int = 1
    number: float = 0.5
    flag: bool = False
    word: str = "a"
    maybe: int | None = 3
    maybe_number: float | None = None
    maybe_word: str | None = None
    pair: tuple[int, int] = (1, 2)
    mixed: tuple[str, float] = ("x", 1.0)


def recipe():
    model = GPTConfig(vocab_size=5, max_len=7, d_model=8, n_layers=1, n_heads=2)
    return Recipe("every", EveryType(), model, TrainingConfig(steps=10))


RECIPE = recipe()
TEXTS = st.text(max_size=20) | st.floats().map(str) | st.integers().map(str)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("data.whole=7", 7),
        ("data.whole=-7", -7),
        ("data.whole=1_000", 1000),
        ("data.whole = 12 ", 12),
        ("data.number=3e-4", 3e-4),
        ("data.number=2", 2.0),
        ("data.flag=true", True),
        ("data.flag=False", False),
        ("data.word=b=c", "b=c"),
        ("data.word=", ""),
        ("data.word=none", "none"),
        ("data.maybe=none", None),
        ("data.maybe=4", 4),
        ("data.maybe_number=1e3", 1000.0),
        ("data.maybe_word=null", None),
        ("data.maybe_word=x", "x"),
        ("data.pair=4,10", (4, 10)),
        ("data.pair=(4, 0)", (4, 0)),
        ("data.mixed=[y, 2.5]", ("y", 2.5)),
        ("training.lr=1e-2", 0.01),
        ("model.n_layers=4", 4),
    ],
)
def test_a_change_is_typed_by_its_field(change, value):
    made = with_changes(recipe(), [change])
    section, name = change.split("=")[0].strip().split(".")
    found = getattr(getattr(made, section), name)
    assert found == value
    assert type(found) is type(value)
    untouched = [part for part in ("data", "model", "training") if part != section]
    assert all(getattr(made, part) == getattr(recipe(), part) for part in untouched)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("data.whole=1.5", "data.whole must be a whole number, got '1.5'"),
        ("data.whole=", "data.whole must be a whole number, got ''"),
        ("data.number=x", "data.number must be a number, got 'x'"),
        ("data.number=nan", "number must be a finite number, got nan"),
        ("data.flag=1", "data.flag must be true or false, got '1'"),
        ("data.maybe=x", "data.maybe must be a whole number or none, got 'x'"),
        ("data.pair=1", r"data.pair must be \(a whole number, a whole number\), got '1'"),
        ("data.pair=1,2,3", "data.pair must be"),
        ("data.pair=1,x", "data.pair must be"),
        ("data.whole", "a change is written section.name=value, got 'data.whole'"),
        ("training.lrr=1", "'training.lrr' is unknown; the nearest is 'training.lr'"),
        ("lr=1", "'lr' is unknown; the nearest is 'training.lr'"),
        ("n_layers=2", "the nearest is 'model.n_layers'"),
        ("modle.n_layers=2", "the nearest is 'model.n_layers'"),
        ("=3", "'' is unknown"),
        ("training.steps=0", "steps must be at least 1, got 0"),
        ("x" * 100_000 + "=1", "is unknown; the nearest is"),
        ("model.n_heads=3", "n_heads"),
    ],
)
def test_a_wrong_change_is_refused_with_the_way_out(change, words):
    with pytest.raises(ValueError, match=words):
        with_changes(recipe(), [change])


def test_changes_are_made_together_and_the_recipe_stays():
    before = recipe()
    made = with_changes(before, ["training.warmup=0.9", "training.cooldown=0.1", "data.whole=3"])
    assert (made.training.warmup, made.training.cooldown, made.data.whole) == (0.9, 0.1, 3)
    assert before == recipe()
    assert with_changes(before, []) == before
    with_changes(recipe(), ["model.d_model=9", "model.n_heads=3"])  # neither alone would do


KEYS = [f"data.{field.name}" for field in dataclasses.fields(EveryType)]


@given(
    key=st.sampled_from(KEYS) | st.text(max_size=8), equals=st.sampled_from(["=", ""]), text=TEXTS
)
def test_any_text_is_a_change_or_a_sentence(key, equals, text):
    with suppress(ValueError):
        assert isinstance(with_changes(RECIPE, [f"{key}{equals}{text}"]), Recipe)


def test_a_recipe_is_plain_values_and_back():
    kinds = {"EveryType": EveryType, "GPTConfig": GPTConfig, "TrainingConfig": TrainingConfig}
    plain = recipe().to_dict()
    assert plain["recipe"] == "every"
    assert plain["data"]["kind"] == "EveryType"
    assert plain["data"]["pair"] == [1, 2]
    assert Recipe.from_dict(plain, kinds) == recipe()
    with pytest.raises(ValueError, match="model is of the unknown kind 'GPTConfig'"):
        Recipe.from_dict(plain, {"EveryType": EveryType})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"accumulate": 0}, "accumulate must be at least 1"),
        ({"log_every": 0}, "log_every must be at least 1"),
        ({"eval_every": -1}, "eval_every must be at least 1"),
        ({"save_every": 0}, "save_every must be at least 1"),
        ({"newton_steps": 0}, "newton_steps must be at least 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"keep": 1}, "keep must be at least 2, so that a damaged checkpoint has one before it"),
        ({"optimizer": "lion"}, "optimizer must be one of 'adamw', 'muon', 'sgd', got 'lion'"),
        ({"optimizer": "sgd", "momentum": 0.9}, "sgd is plain: it has no momentum, got momentum=0"),
        ({"schedule": "step"}, "schedule must be one of"),
        ({"warmup": -0.1}, "warmup and cooldown are shares of the steps"),
        ({"warmup": 0.6, "cooldown": 0.5}, "together at most 1, got 0.6 and 0.5"),
        ({"lr": 0.0}, "lr must be a finite number above 0, got 0.0"),
        ({"matrix_lr": -1.0}, "matrix_lr must be a finite number above 0"),
        ({"clip": 0.0}, "clip must be a finite number above 0, got 0.0"),
        ({"beta1": 1.0}, "beta1 must be at least 0 and less than 1, got 1.0"),
        ({"beta2": -0.5}, "beta2 must be at least 0"),
        ({"momentum": 1.5}, "momentum must be at least 0"),
        ({"weight_decay": 2.0}, "weight_decay must be at least 0"),
        ({"lr": float("inf")}, "lr must be a finite number"),
    ],
)
def test_training_values_that_do_not_go_are_refused(values, words):
    with pytest.raises(ValueError, match=words):
        TrainingConfig(**{"steps": 10, **values})


@pytest.mark.parametrize("values", [{}, {"momentum": 0.0}, {"beta2": 0.99, "matrix_lr": 0.01}])
def test_sgd_takes_the_settings_of_any_recipe_without_momentum(values):
    assert TrainingConfig(10, optimizer="sgd", **values).optimizer == "sgd"


def test_types_are_checked():
    with pytest.raises(TypeError, match="steps must be a whole number"):
        TrainingConfig(steps=1.5)
    with pytest.raises(TypeError, match="compile must be true or false"):
        TrainingConfig(steps=1, compile=1)

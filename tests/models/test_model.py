"""Config and Model: what is refused and by which words; counts and tables."""

import re
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.models import GPT, GPTConfig
from clearhead.models.model import Config, Model, empty_model


@dataclass(frozen=True)
class KiteConfig(Config):
    """One field of each kind."""

    n_tails: int
    d_model: int
    colour: str = "red"
    lift: float = 0.5
    flies: bool = True
    limit: float | None = None
    n_strings: int | None = None
    size: int | tuple[int, int] = 3
    gusts: tuple[float, float] = (0.0, 1.0)

    def check(self) -> None:
        if self.n_tails > 9:
            raise ValueError(f"n_tails must be at most 9, got {self.n_tails}")


class Kite(Model):
    """A module inside another, a table used twice, and a parameter of its own."""

    config_type = KiteConfig
    config: KiteConfig

    def __init__(self, config: KiteConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.n_tails, config.d_model)
        self.body = nn.Sequential(nn.Linear(config.d_model, 3), nn.ReLU(), nn.LayerNorm(3))
        self.head = nn.Linear(config.d_model, config.n_tails, bias=False)
        self.head.weight = self.embedding.weight
        self.again = self.body[0]


GOOD = {"n_tails": 5, "d_model": 4}


def len_of(value):
    """An id for a number too long to write."""
    return f"{'-' if value < 0 else ''}{value.bit_length()} bits"


def kite(**values):
    return KiteConfig.from_dict(GOOD | values)


# Types


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_tails": 2.0}, "n_tails must be a whole number, got 2.0 of type float"),
        ({"n_tails": "2"}, "n_tails must be a whole number, got '2' of type str"),
        ({"n_tails": None}, "n_tails must be a whole number, got None of type NoneType"),
        ({"n_tails": True}, "n_tails must be a whole number, got True of type bool"),
        ({"n_tails": [2]}, "n_tails must be a whole number, got a list"),
        ({"n_tails": {"a": 1}}, "n_tails must be a whole number, got a dict"),
        ({"colour": 3}, "colour must be a word, got 3 of type int"),
        ({"lift": "0.5"}, "lift must be a number, got '0.5' of type str"),
        ({"lift": False}, "lift must be a number, got False of type bool"),
        ({"lift": 1j}, "lift must be a number, got a complex"),
        ({"flies": 1}, "flies must be true or false, got 1 of type int"),
        ({"flies": "yes"}, "flies must be true or false, got 'yes' of type str"),
        ({"limit": "x"}, "limit must be a number or nothing, got 'x' of type str"),
        ({"limit": True}, "limit must be a number or nothing, got True of type bool"),
        ({"n_strings": 1.5}, "n_strings must be a whole number or nothing, got 1.5 of type float"),
        ({"size": (3, 4, 5)}, "size must be a whole number or tuple[int, int], got a tuple"),
        ({"size": (3, 2.5)}, "size[1] must be a whole number, got 2.5 of type float"),
        ({"size": [True, 3]}, "size[0] must be a whole number, got True of type bool"),
        ({"gusts": 1.0}, "gusts must be tuple[float, float], got 1.0 of type float"),
        ({"gusts": ["a", 1.0]}, "gusts[0] must be a number, got 'a' of type str"),
    ],
)
def test_F11_a_value_of_the_wrong_type_is_refused_by_field_and_type(values, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        kite(**values)
    if not any(isinstance(value, list) for value in values.values()):
        with pytest.raises(TypeError, match=re.escape(message)):
            KiteConfig(**(GOOD | values))


@pytest.mark.parametrize("name", ["lift", "limit"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_F11_a_number_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number, got {value}"):
        kite(**{name: value})
    with pytest.raises(ValueError, match=re.escape("gusts[1] must be a finite number, got")):
        kite(gusts=(0.0, value))


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**400, -(10**400), 10**5000], ids=len_of)
@pytest.mark.parametrize("name", ["n_tails", "n_strings", "lift", "limit", "size"])
def test_F11_a_huge_whole_number_is_refused_not_computed_with(name, value):
    """10^400 has no float, and Python will not even write 10^5000 out."""
    bits = value.bit_length()
    with pytest.raises(
        ValueError,
        match=rf"^{name} must be less than 2\^63 in size, got a whole number of {bits} bits$",
    ):
        kite(**{name: value})


def test_F11_a_huge_whole_number_where_a_word_belongs_is_refused():
    with pytest.raises(TypeError, match="colour must be a word, got a whole number of"):
        kite(colour=10**5000)


def test_F11_a_value_too_deep_or_too_long_to_write_out_is_refused_in_a_few_words():
    deep = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(TypeError, match=r"n_tails must be a whole number, got a list$"):
        kite(n_tails=deep)
    with pytest.raises(TypeError, match=r"size must be a whole number or tuple.*, got a tuple$"):
        kite(size=deep)
    with pytest.raises(TypeError, match="KiteConfig is made from names and values, got a list"):
        KiteConfig.from_dict(deep)
    with pytest.raises(TypeError) as refused:
        kite(n_tails="x" * 10_000_000)
    assert len(str(refused.value)) < 200
    with pytest.raises(ValueError, match="KiteConfig has no 'xxx") as unknown:
        KiteConfig.from_dict(GOOD | {"x" * 1_000_000: 1})
    assert len(str(unknown.value)) < 200


def test_a_whole_number_is_a_float_where_one_is_asked_for():
    config = kite(lift=2, limit=3, gusts=[1, 2])
    assert (config.lift, config.limit, config.gusts) == (2.0, 3.0, (1.0, 2.0))
    values = (config.lift, config.limit, *config.gusts)
    assert [type(value) for value in values] == [float] * 4


def test_a_tuple_may_come_as_a_list_from_a_file():
    assert kite(size=[2, 3]).size == (2, 3)
    assert kite(size=7).size == 7
    assert kite(size=(2, 3)) == kite(size=[2, 3])


@given(
    st.dictionaries(
        st.sampled_from([*KiteConfig.__dataclass_fields__, "kites", ""]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
        ),
    )
)
def test_F11_any_values_make_a_config_or_one_clear_error(values):
    config, sentence = made_or_refused(values)
    if config is None:
        assert "\n" not in sentence
        assert any(name in sentence for name in (*KiteConfig.__dataclass_fields__, "KiteConfig"))
    else:
        assert KiteConfig.from_dict(config.to_dict()) == config


def made_or_refused(values):
    try:
        return KiteConfig.from_dict(values), ""
    except (ValueError, TypeError) as error:
        return None, str(error)


# Names


@pytest.mark.parametrize(
    ("name", "nearest"), [("n_tail", "n_tails"), ("color", "colour"), ("dmodel", "d_model")]
)
def test_F11_an_unknown_name_is_answered_with_the_nearest(name, nearest):
    with pytest.raises(
        ValueError, match=f"^KiteConfig has no '{name}'; the nearest is '{nearest}'$"
    ):
        KiteConfig.from_dict(GOOD | {name: 1})


def test_F11_a_name_that_is_no_word_is_refused():
    with pytest.raises(ValueError, match="KiteConfig has no 'int'; the nearest is"):
        KiteConfig.from_dict(GOOD | {10**5000: 1})


def test_a_missing_name_is_asked_for():
    with pytest.raises(ValueError, match="KiteConfig needs 'd_model', which is missing"):
        KiteConfig.from_dict({"n_tails": 5})
    with pytest.raises(TypeError, match="made from names and values, got 'd_model' of type str"):
        KiteConfig.from_dict("d_model")


def test_F12_a_word_that_names_code_is_only_a_word():
    assert kite(colour="os.system").colour == "os.system"


# Values


def test_check_is_asked_however_a_config_is_made():
    for make in (
        lambda: kite(n_tails=10),
        lambda: KiteConfig(10, 4),
        lambda: replace(kite(), n_tails=10),
    ):
        with pytest.raises(ValueError, match="n_tails must be at most 9, got 10"):
            make()


def test_a_config_is_frozen_and_comes_back_from_plain_values():
    config = kite(size=(2, 3), limit=1.5)
    with pytest.raises(AttributeError):
        config.n_tails = 4
    values = config.to_dict()
    assert values["size"] == [2, 3]
    assert list(values) == list(KiteConfig.__dataclass_fields__)
    assert KiteConfig.from_dict(values) == config
    values["size"].append(4)
    assert config.size == (2, 3)


# Models


def test_a_model_is_built_from_its_config_or_its_values():
    config = kite()
    assert Kite(config).config is config
    assert Kite.from_config(config).config is config
    assert Kite.from_config(GOOD).config == config
    with pytest.raises(TypeError, match="Kite is built from a KiteConfig, got dict"):
        Kite(GOOD)
    with pytest.raises(TypeError, match="Kite is built from a KiteConfig, got Config"):
        Kite(Config())
    with pytest.raises(ValueError, match="KiteConfig has no 'tails'"):
        Kite.from_config({"tails": 3})


def test_shared_parameters_count_once():
    assert Kite(kite()).n_parameters == 5 * 4 + (4 * 3 + 3) + (3 + 3)


def test_the_table_names_each_layer_with_its_shapes_and_count():
    lines = [line.split() for line in Kite(kite()).describe().splitlines()]
    assert lines == [
        ["layer", "kind", "shapes", "parameters"],
        ["embedding", "Embedding", "weight", "5×4", "20"],
        ["body.0", "Linear", "weight", "3×4,", "bias", "3", "15"],
        ["body.2", "LayerNorm", "weight", "3,", "bias", "3", "6"],
        ["head", "Linear", "weight", "5×4", "(=", "embedding.weight)", "0"],
        ["Kite", "41"],
    ]


def test_the_columns_of_the_table_stand_under_each_other():
    lines = Kite(kite()).describe().splitlines()
    assert len({len(line) for line in lines}) == 1  # the counts are flush right
    for words in (("kind", "Embedding", "Linear", "LayerNorm"), ("shapes", "weight")):
        starts = [line.index(word) for line in lines for word in words if f"  {word} " in line]
        assert len(starts) == 5
        assert len(set(starts)) == 1


def test_a_layer_of_many_parameters_takes_several_lines():
    class Flock(Kite):
        def __init__(self, config: KiteConfig) -> None:
            super().__init__(config)
            self.gru = nn.GRU(2, 1, bias=True)
            self.turn = nn.Bilinear(2, 1, 1)
            self.turn.register_parameter("twist", nn.Parameter(torch.zeros(7)))

    lines = [line.split() for line in Flock(kite()).describe().splitlines()]
    assert lines[5:9] == [
        ["gru", "GRU", "weight_ih_l0", "3×2,", "weight_hh_l0", "3×1", "15"],
        ["bias_ih_l0", "3,", "bias_hh_l0", "3"],
        ["turn", "Bilinear", "weight", "1×2×1,", "bias", "1", "10"],
        ["twist", "7"],
    ]


# Models without memory


class Operations(TorchDispatchMode):
    """Notes what is computed."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("positions", ["learned", "toeplitz", "alibi"])
def test_a_model_without_memory_draws_and_fills_nothing(positions):
    """Drawing on the meta device took most of the time: 10 s for 2,000 layers."""
    config = GPTConfig(7, 5, 12, n_layers=3, n_heads=3, positions=positions, qk_norm=True)
    with Operations() as done:
        model = empty_model(GPT, config)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert not [name for name in done.names if "uniform" in name or "normal" in name]
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    assert shapes == {name: parameter.shape for name, parameter in GPT(config).named_parameters()}

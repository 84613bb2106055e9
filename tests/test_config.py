"""Typed settings: what is read, what is refused and by which words."""

import copy
import json
import pickle
import re
from dataclasses import dataclass, field, replace
from inspect import signature

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.config import (
    UNDECIDED,
    Config,
    UndecidedError,
    find_nearest,
    read_dataclass,
    read_text,
)


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
        ({"limit": "x"}, "limit must be a number or none, got 'x' of type str"),
        ({"limit": True}, "limit must be a number or none, got True of type bool"),
        ({"n_strings": 1.5}, "n_strings must be a whole number or none, got 1.5 of type float"),
        (
            {"size": (3, 4, 5)},
            "size must be a whole number or (a whole number, a whole number), got a tuple",
        ),
        ({"size": (3, 2.5)}, "size[1] must be a whole number, got 2.5 of type float"),
        ({"size": [True, 3]}, "size[0] must be a whole number, got True of type bool"),
        ({"gusts": 1.0}, "gusts must be (a number, a number), got 1.0 of type float"),
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
    with pytest.raises(TypeError, match=r"size must be a whole number or \(.*\), got a tuple$"):
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


def test_fields_given_by_name_only_come_last_also_if_a_base_class_has_them():
    @dataclass(frozen=True, kw_only=True)
    class Common(Config):
        wind: float = 2.0

    @dataclass(frozen=True)
    class Glider(Common):
        n_wings: int

    assert list(Glider(2).to_dict()) == list(signature(Glider).parameters) == ["n_wings", "wind"]


# Undecided sizes


def test_an_undecided_field_passes_until_it_is_filled_in():
    config = KiteConfig(UNDECIDED, 4, size=UNDECIDED)
    assert config.undecided == ("n_tails", "size")
    with pytest.raises(ValueError, match="KiteConfig leaves n_tails and size undecided; open"):
        config.check_complete()
    complete = replace(config, n_tails=5, size=3)
    assert complete == kite()
    assert complete.undecided == ()
    complete.check_complete()
    with pytest.raises(ValueError, match="n_tails must be at most 9, got 10"):
        replace(config, n_tails=10)


def test_what_is_decided_is_checked_beside_what_is_not():
    with pytest.raises(TypeError, match="d_model must be a whole number, got 'x'"):
        KiteConfig(UNDECIDED, "x")
    with pytest.raises(ValueError, match="n_tails must be at most 9, got 10"):
        KiteConfig(10, UNDECIDED)


def test_an_undecided_config_is_plain_values_and_back():
    config = KiteConfig(UNDECIDED, 4)
    plain = json.loads(json.dumps(config.to_dict()))
    assert plain["n_tails"] == "undecided"
    assert KiteConfig.from_dict(plain) == config
    assert kite(colour="undecided").colour == "undecided"  # a word is only a word
    assert read_text("n_tails", "undecided", int) is UNDECIDED
    assert read_text("colour", "undecided", str) == "undecided"


def test_undecided_stays_one_object_and_no_number():
    unpickled = pickle.loads(pickle.dumps(UNDECIDED))
    assert all(x is UNDECIDED for x in (copy.copy(UNDECIDED), copy.deepcopy(UNDECIDED), unpickled))
    assert (repr(UNDECIDED), str(UNDECIDED)) == ("UNDECIDED", "undecided")
    for use in (
        lambda: UNDECIDED < 1,
        lambda: 0 <= UNDECIDED,  # noqa: SIM300
        lambda: UNDECIDED + 1,
        lambda: 4 * UNDECIDED,
        lambda: 8 % UNDECIDED,
        lambda: UNDECIDED // 2,
        lambda: range(UNDECIDED),
        lambda: float(UNDECIDED),
        lambda: UNDECIDED[0],
        lambda: list(UNDECIDED),
    ):
        with pytest.raises(UndecidedError, match="undecided until the data are opened"):
            use()


# Plain dataclasses


@dataclass
class Journey:
    step: int = 0
    seconds: float = 0.0
    best: float | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    is_done: bool = False
    ends: tuple[int, int] = (0, 1)


WHOLE = {"step": 3, "seconds": 1, "best": None, "sizes": {"a": 2}, "is_done": True, "ends": [4, 5]}


def test_a_plain_dataclass_is_read_with_every_field():
    made = read_dataclass(Journey, WHOLE)
    assert made == Journey(3, 1.0, None, {"a": 2}, True, (4, 5))
    assert type(made.seconds) is float


@pytest.mark.parametrize("name", WHOLE)
def test_a_plain_dataclass_needs_every_field(name):
    with pytest.raises(ValueError, match=f"^Journey needs '{name}', which is missing$"):
        read_dataclass(Journey, {key: value for key, value in WHOLE.items() if key != name})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stpe": 1}, "Journey has no 'stpe'; the nearest is 'step'"),
        ({"step": "3"}, "step must be a whole number, got '3' of type str"),
        ({"step": True}, "step must be a whole number, got True of type bool"),
        ({"seconds": None}, "seconds must be a number, got None of type NoneType"),
        ({"best": "x"}, "best must be a number or none, got 'x' of type str"),
        ({"sizes": [1]}, "sizes must be dict[str, int], got a list"),
        ({"sizes": {"a": "b"}}, "sizes['a'] must be a whole number, got 'b' of type str"),
        ({"is_done": 1}, "is_done must be true or false, got 1 of type int"),
        ({"ends": [1]}, "ends must be (a whole number, a whole number), got a tuple"),
    ],
)
def test_a_plain_dataclass_refuses_other_names_and_types(change, message):
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(message)}$"):
        read_dataclass(Journey, WHOLE | change)


# Text


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("7", int, 7),
        ("1_000", int, 1000),
        ("3e-4", float, 3e-4),
        ("2", float, 2.0),
        ("False", bool, False),
        ("none", str, "none"),
        ("none", int | None, None),
        ("NULL", str | None, None),
        ("4,10", tuple[int, int], (4, 10)),
        ("[y, 2.5]", tuple[str, float], ("y", 2.5)),
        ("4", int | tuple[int, int], 4),
        ("(4, 5)", int | tuple[int, int], (4, 5)),
    ],
)
def test_a_text_is_read_by_the_type_of_its_field(text, hint, value):
    found = read_text("x", text, hint)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "hint", "message"),
    [
        ("1.5", int, "x must be a whole number, got '1.5'"),
        ("", float, "x must be a number, got ''"),
        ("1", bool, "x must be true or false, got '1'"),
        ("y", int | None, "x must be a whole number or none, got 'y'"),
        ("1,2,3", tuple[int, int], "x must be (a whole number, a whole number), got '1,2,3'"),
        ("1,y", tuple[int, float], "x must be (a whole number, a number), got '1,y'"),
    ],
)
def test_a_text_of_another_type_is_refused(text, hint, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_text("x", text, hint)


def test_the_nearest_name_is_found_by_likeness_or_by_its_ending():
    known = ["training.lr", "model.n_layers"]
    assert find_nearest("training.lrr", known) == "training.lr"
    assert find_nearest("n_layers", known) == "model.n_layers"
    assert find_nearest("", known) in known
    assert find_nearest("x" * 100_000, known) in known
    assert find_nearest("zzz", known, cutoff=0.6) is None
    assert find_nearest("lr", []) is None

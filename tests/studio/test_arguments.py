"""The arguments of a question are checked by its annotations, and the wrong one is named."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from clearhead.studio import arguments
from clearhead.studio.arguments import read_arguments


@dataclass(frozen=True)
class Kite:
    colour: Literal["red", "blue"]
    tails: list[int] = field(default_factory=list)
    lift: float | None = None


def fly(
    sources: object,
    name: str,
    kites: list[Kite] = [],  # noqa: B006
    size: tuple[int, float] = (1, 1.0),
    is_windy: bool = False,
    places: dict[str, int] | None = None,
) -> None: ...


def test_right_values_are_read_and_objects_become_dataclasses():
    values = {
        "name": "é",
        "kites": [{"colour": "red", "tails": [1, 2]}, {"colour": "blue", "lift": 2}],
        "size": [3, 4],
        "is_windy": True,
        "places": {"x": 1},
    }
    found = read_arguments(fly, values)
    assert found["kites"] == [Kite("red", [1, 2]), Kite("blue", lift=2.0)]
    assert found["size"] == (3, 4.0)
    assert (found["name"], found["is_windy"], found["places"]) == ("é", True, {"x": 1})
    assert read_arguments(fly, {"name": "a"}) == {"name": "a"}
    assert read_arguments(fly, {"name": "a", "places": None})["places"] is None


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([], "the question must be an object with names, got list"),
        ({}, "name is missing"),
        ({"name": 3}, "name must be a word, got 3"),
        ({"name": None}, "name must be a word, got None"),
        ({"nam": "a"}, "has no argument 'nam'; did you mean name"),
        ({"name": "a", "kites": {}}, "kites must be a list, got dict"),
        ({"name": "a", "kites": [3]}, r"kites\[0\] must be an object, got int"),
        ({"name": "a", "kites": [{}]}, r"kites\[0\].colour is missing"),
        ({"name": "a", "kites": [{"colour": "rad"}]}, r"kites\[0\].colour must be one of red"),
        ({"name": "a", "kites": [{"colour": 1}]}, r"kites\[0\].colour must be one of red, blue"),
        (
            {"name": "a", "kites": [{"colour": "red", "tails": [1.5]}]},
            r"tails\[0\] must be a whole",
        ),
        (
            {"name": "a", "kites": [{"colour": "red", "lift": "x"}]},
            r"lift must be a number or none",
        ),
        ({"name": "a", "kites": [{"colour": "red", "b": 1}]}, r"kites\[0\] has no argument 'b'"),
        ({"name": "a", "size": [1]}, "size must have 2 items, got 1"),
        ({"name": "a", "size": [True, 1]}, r"size\[0\] must be a whole number, got True"),
        ({"name": "a", "is_windy": 1}, "is_windy must be true or false, got 1"),
        ({"name": "a", "places": {"x": "y"}}, "places.x must be a whole number"),
        ({"name": "a", "places": 3}, "places must be"),
        ({"name": "a", "sources": 3}, "has no argument 'sources'"),
    ],
)
def test_W11_a_wrong_value_is_named(values, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        read_arguments(fly, values)


def test_a_list_has_a_limit(monkeypatch):
    monkeypatch.setattr(arguments, "MAX_ITEMS", 3)
    kite = {"colour": "red", "tails": [1, 2, 3, 4]}
    with pytest.raises(ValueError, match=r"kites\[0\].tails has 4 items, but may have at most 3"):
        read_arguments(fly, {"name": "a", "kites": [kite]})

"""Random arguments for the questions of the studio: the right types, and values of any kind."""

import dataclasses
import inspect
import types
import typing

TEXTS = ["a", "abcab|cab", "ROMEO: what", "abc|c", "3 may 1999", "sep 21, 1883", "", "\x00", "|"]
TEXTS += ["é😀" * 5, "a" * 3000, "<script>", "\n\n", "layer 0 head 1", "substring", "rotary"]
NUMBERS = [0, 1, 2, 3, 4, 5, 6, 7, 31, -1, 1 << 31, -(1 << 63), (1 << 64) - 1]
FLOATS = [0.0, 0.5, 1.0, 2.0, -1.0, 1e-30, 1e30]


def draw(rng, hint):
    """A random value of this type, as JSON."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return draw(rng, rng.choice(parts))
    if origin is typing.Literal:
        return rng.choice(parts)
    if origin is list:
        return [draw(rng, parts[0]) for _ in range(rng.choice([0, 1, 1, 2, 3, 9]))]
    if origin is tuple:
        return [draw(rng, part) for part in parts]
    if origin is dict:
        return {rng.choice(TEXTS): draw(rng, parts[1]) for _ in range(2)}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return {field.name: draw(rng, hints[field.name]) for field in dataclasses.fields(hint)}
    pools = {str: TEXTS, int: NUMBERS, float: FLOATS, bool: [False, True]}
    return rng.choice(pools.get(hint, [None]))


def draw_arguments(rng, function, models):
    """Random arguments; mostly of a model that there is."""
    _, *parameters = inspect.signature(function).parameters.values()
    hints, values = typing.get_type_hints(function), {}
    for each in parameters:
        if each.default is each.empty or rng.random() < 0.5:
            values[each.name] = draw(rng, hints[each.name])
    if "model" in values:
        values["model"] = rng.choice([*models * 5, "nothing"])
    return values

"""What differs between two configs, field by field.

list(list_differences({"model": {"n_layers": 3}}, {"model": {"n_layers": 4}}))
[("model.n_layers", 3, 4)]
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any


def list_differences(
    one: Any, other: Any, *, ignore: Collection[str] = (), name: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, its value in one, in the other) of each field that differs; None if absent.

    ignore: dotted names that are not compared. name: of the two values themselves.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            inside = f"{name}.{key}" if name else str(key)
            if inside not in ignore:
                yield from list_differences(
                    one.get(key), other.get(key), ignore=ignore, name=inside
                )
    elif one != other:
        yield name, one, other

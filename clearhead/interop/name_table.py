"""Tables of names: which tensor of another project holds which of ours.

    layer("transformer.h.#.attn.c_attn", (q, k, v), transposed=True)

means: one transposed tensor of theirs holds our three weights, one after the other, and likewise
the three biases; # is the number of a block. The table and the shapes of our model – built on the
"meta" device, which has shapes but no memory – say exactly what a file must hold. So a file is
compared with the model before its numbers are read, and one table serves loading and exporting.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import torch
from torch import Tensor

from clearhead.files import BadFile
from clearhead.files.reading import quote
from clearhead.files.tensors import TensorInfo
from clearhead.interop.config_json import TheirConfig
from clearhead.interop.fill import ModelType, get_shapes
from clearhead.models import Config, Model

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """Their tensor, and our tensors that it holds one after the other along the first axis.

    transposed: theirs is (inputs, outputs). axes: theirs has this many axes of length 1 in front.
    optional: a file may lack it; ours are zeros then.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    axes: int = 0
    optional: bool = False

    def their_shape(self, shapes: Shapes) -> tuple[int, ...]:
        """The shape of their tensor, given the shapes of ours."""
        parts = [shapes[name] for name in self.ours]
        whole = (sum(part[0] for part in parts), *parts[0][1:])
        return (1,) * self.axes + (whole[::-1] if self.transposed else whole)

    def to_ours(self, tensor: Tensor, shapes: Shapes) -> dict[str, Tensor]:
        """Split their tensor into ours, by name; each gets its own memory."""
        tensor = tensor.reshape(tensor.shape[self.axes :])
        whole = tensor.t().contiguous() if self.transposed else tensor
        if len(self.ours) == 1:
            return {self.ours[0]: whole}
        parts = whole.split([shapes[name][0] for name in self.ours])
        return {name: part.clone() for name, part in zip(self.ours, parts, strict=True)}

    def to_theirs(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Join our tensors into theirs: the inverse of to_ours."""
        whole = torch.cat([tensors[name] for name in self.ours])
        whole = whole.t().contiguous() if self.transposed else whole
        return whole.reshape((1,) * self.axes + tuple(whole.shape))


def same(theirs: str, ours: str, *, axes: int = 0) -> Row:
    """One tensor with the same numbers."""
    return Row(theirs, (ours,), axes=axes)


def layer(
    theirs: str, ours: str | Sequence[str], *, transposed: bool = False, optional: bool = False
) -> list[Row]:
    """The weight and bias of a linear layer, or of several of ours that are one layer in theirs."""
    names = (ours,) if isinstance(ours, str) else tuple(ours)
    return [
        Row(f"{theirs}.{part}", tuple(f"{name}.{part}" for name in names), transposed, 0, optional)
        for part in ("weight", "bias")
    ]


def norm(theirs: str, ours: str) -> list[Row]:
    """The weight and bias of a norm: our gain and shift."""
    return [same(f"{theirs}.weight", f"{ours}.gain"), same(f"{theirs}.bias", f"{ours}.shift")]


@dataclass(frozen=True)
class Family(Generic[ModelType]):
    """A family of models: how its config and its tensors become ours.

    config: builds our config from theirs. prefix: the start of their names, which is absent in
    files saved without a head. ignored: names we do not need, with the reason; * matches anything.
    """

    kind: str
    model: type[ModelType]
    config: Callable[[TheirConfig], Config]
    rows: tuple[Row, ...]
    prefix: str
    ignored: tuple[tuple[str, str], ...]

    def match_prefix(self, names: Iterable[str]) -> "Family[ModelType]":
        """The family with names as in this file: with the prefix or without."""
        if any(name.startswith(self.prefix) for name in names):
            return self
        cut = self.prefix
        return replace(
            self,
            rows=tuple(replace(row, theirs=row.theirs.removeprefix(cut)) for row in self.rows),
            ignored=tuple((name.removeprefix(cut), reason) for name, reason in self.ignored),
        )

    def reason_to_ignore(self, name: str) -> str | None:
        """Why one of their tensors is not needed; None if it is needed."""
        for pattern, reason in self.ignored:
            words = re.escape(pattern).replace(r"\#", "[0-9]+").replace(r"\*", ".*")
            if re.fullmatch(words, name):
                return reason
        return None


def list_rows(family: Family[Any], model: Model) -> list[Row]:
    """The rows of a model, one per block; a model without biases has no rows for them."""
    shapes = get_shapes(model)
    config: Any = model.config
    rows = []
    for row in family.rows:
        numbers = [str(n) for n in range(config.n_layers)] if "#" in row.theirs else [""]
        for n in numbers:
            ours = tuple(name.replace("#", n) for name in row.ours)
            if all(name in shapes for name in ours):
                rows.append(replace(row, theirs=row.theirs.replace("#", n), ours=ours))
    missing = shapes.keys() - {name for row in rows for name in row.ours}
    if missing:
        raise ValueError(f"the table of {family.kind} lacks {sorted(missing)}")
    return rows


def check_header(where: object, header: Mapping[str, TensorInfo], expected: Shapes) -> None:
    """Refuse a file whose tensors are not exactly the expected ones, in floating point."""
    differences = []
    for name, shape in expected.items():
        if name not in header:
            differences.append(f"{name} {shape} is missing")
        elif header[name].shape != shape:
            differences.append(f"{name} is {header[name].shape}, not {shape}")
        elif not header[name].dtype.is_floating_point:
            differences.append(f"{name} holds {str(header[name].dtype)[6:]}, not floating point")
    extra = header.keys() - expected.keys()
    differences += [f"{quote(name)} {header[name].shape} is not expected" for name in sorted(extra)]
    if differences:
        more = f"; and {len(differences) - 5} more" if len(differences) > 5 else ""
        raise BadFile(
            f"{quote(where)} does not hold the model of its config, {len(differences)} "
            f"difference{'s' * (len(differences) > 1)}: {'; '.join(differences[:5])}{more}"
        )

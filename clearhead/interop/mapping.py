"""Other people's names for the tensors of our models, as tables.

    layer("transformer.h.#.attn.c_attn", (q, k, v), transposed=True)

says that their one tensor, on its side, holds our three weights one after the other, and likewise
the three biases; # is the number of a block. A table and the shapes of our model – built on the
"meta" device, which has shapes but no memory – say all that a file must hold. So a file is compared
with what is expected before anything is read, and one table serves reading and writing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from clearhead.files import BadFile
from clearhead.files.reading import quote
from clearhead.files.tensors import TensorInfo
from clearhead.interop.settings import Settings
from clearhead.models import Config, Model

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """Their tensor and those of ours that it holds, one after the other along the first axis.

    transposed: theirs is (inputs, outputs). axes: theirs has so many axes of length 1 in front.
    optional: a file may do without it, and ours are then zeros.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    axes: int = 0
    optional: bool = False

    def shape(self, shapes: Shapes) -> tuple[int, ...]:
        """The shape of theirs, if ours have these shapes."""
        parts = [shapes[name] for name in self.ours]
        whole = (sum(part[0] for part in parts), *parts[0][1:])
        return (1,) * self.axes + (whole[::-1] if self.transposed else whole)

    def to_ours(self, tensor: Tensor, shapes: Shapes) -> dict[str, Tensor]:
        """Ours by name, each in memory of its own."""
        tensor = tensor.reshape(tensor.shape[self.axes :])
        whole = tensor.t().contiguous() if self.transposed else tensor
        if len(self.ours) == 1:
            return {self.ours[0]: whole}
        parts = whole.split([shapes[name][0] for name in self.ours])
        return {name: part.clone() for name, part in zip(self.ours, parts, strict=True)}

    def to_theirs(self, state: Mapping[str, Tensor]) -> Tensor:
        """The inverse of to_ours."""
        whole = torch.cat([state[name] for name in self.ours])
        whole = whole.t().contiguous() if self.transposed else whole
        return whole.reshape((1,) * self.axes + tuple(whole.shape))


def same(theirs: str, ours: str, *, axes: int = 0) -> Row:
    """One tensor with the same numbers."""
    return Row(theirs, (ours,), axes=axes)


def layer(
    theirs: str, ours: str | Sequence[str], *, transposed: bool = False, optional: bool = False
) -> list[Row]:
    """The weight and the bias of a linear layer, or of several of ours that theirs has in one."""
    names = (ours,) if isinstance(ours, str) else tuple(ours)
    return [
        Row(f"{theirs}.{part}", tuple(f"{name}.{part}" for name in names), transposed, 0, optional)
        for part in ("weight", "bias")
    ]


def norm(theirs: str, ours: str) -> list[Row]:
    """The weight and the bias of a norm: our gain and shift."""
    return [same(f"{theirs}.weight", f"{ours}.gain"), same(f"{theirs}.bias", f"{ours}.shift")]


@dataclass(frozen=True)
class Family:
    """All that is known of a kind of model: a page of this folder each.

    config: their settings → our config. prefix: what their names begin with, unless a file holds
    the model without its head. ignored: names with the reason why we do not need them; * is
    anything.
    """

    kind: str
    model: type[Model]
    config: Callable[[Settings], Config]
    rows: tuple[Row, ...]
    prefix: str
    ignored: tuple[tuple[str, str], ...]

    def named_as_in(self, names: Iterable[str]) -> "Family":
        """The same family with names as this file has them: with the prefix or without."""
        if any(name.startswith(self.prefix) for name in names):
            return self
        cut = self.prefix
        return replace(
            self,
            rows=tuple(replace(row, theirs=row.theirs.removeprefix(cut)) for row in self.rows),
            ignored=tuple((name.removeprefix(cut), reason) for name, reason in self.ignored),
        )

    def reason_to_ignore(self, name: str) -> str | None:
        """Why a tensor of theirs is not needed; None if it is."""
        for pattern, reason in self.ignored:
            words = re.escape(pattern).replace(r"\#", "[0-9]+").replace(r"\*", ".*")
            if re.fullmatch(words, name):
                return reason
        return None


def cast_to(dtype: torch.dtype, tensor: Tensor, name: str) -> Tensor:
    """The tensor in this dtype, whose range must hold all its numbers."""
    cast = tensor.to(dtype)
    if cast is not tensor and not bool(cast.isfinite().all()):
        raise BadFile(f"{name} has numbers too large for {str(dtype)[6:]}; take a wider dtype")
    return cast


def rows_of(family: Family, model: Model) -> list[Row]:
    """The rows that this model has, one for each block; a model without biases has no bias rows."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    config: Any = model.config
    rows = []
    for row in family.rows:
        numbers = [str(n) for n in range(config.n_layers)] if "#" in row.theirs else [""]
        for n in numbers:
            ours = tuple(name.replace("#", n) for name in row.ours)
            if all(name in shapes for name in ours):
                rows.append(replace(row, theirs=row.theirs.replace("#", n), ours=ours))
    uncovered = shapes.keys() - {name for row in rows for name in row.ours}
    if uncovered:
        raise ValueError(f"the table of {family.kind} says nothing of {sorted(uncovered)}")
    return rows


def check_header(where: object, header: Mapping[str, TensorInfo], expected: Shapes) -> None:
    """The tensors of a file are exactly those expected, as floating-point numbers; else BadFile."""
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

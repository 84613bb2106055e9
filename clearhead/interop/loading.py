"""From a folder of another project to a model of ours, or to one sentence that says why not.

    their config.json → our config → our model without memory → what the file must hold
    the file's headers = that? → read, turn, cast → our model

The comparison comes before the first number is read, so nothing is half-loaded. Half-precision
files become float32 unless a dtype is given. A model comes in evaluation mode, as it was measured;
`model.train()` brings its dropout back.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.files import BadFile
from clearhead.files.reading import prefix_errors, quote
from clearhead.interop.mapping import Family, Row, cast_to, check_header, rows_of
from clearhead.interop.settings import Settings
from clearhead.interop.weights import Weights
from clearhead.models import Model
from clearhead.models.model import empty_model


@dataclass(frozen=True)
class Report:
    """What was loaded. str(report) is the text for people."""

    kind: str
    source: str
    dtypes: tuple[str, ...]  # of the numbers in the file
    n_tensors: int  # read from the file
    n_bytes: int  # of those tensors
    n_parameters: int  # of the model
    ignored: Mapping[str, str] = field(default_factory=dict)  # tensor → why it is not needed
    zeros: tuple[str, ...] = ()  # parameters that the file does not have

    def __str__(self) -> str:
        lines = [
            f"{self.kind} from {self.source}",
            f"  read     {self.n_tensors} tensors, {self.n_bytes:,} bytes of "
            f"{' and '.join(self.dtypes)}: {self.n_parameters:,} parameters",
        ]
        for reason, count in Counter(self.ignored.values()).items():
            first = next(name for name in self.ignored if self.ignored[name] == reason)
            more = f" and {count - 1} more" if count > 1 else ""
            lines.append(f"  ignored  {quote(first)}{more}: {reason}")
        lines += [f"  zeros    {name}: the file has none" for name in self.zeros]
        return "\n".join(lines)


def load_family(family: Family, path: Path, dtype: torch.dtype) -> tuple[Model, Report]:
    """The model in a Hugging Face folder, and what was loaded."""
    check_dtype(dtype)
    check_folder(path)
    settings = Settings.read(path)
    if settings.kind != family.kind:
        raise settings.bad(f"model_type is {settings.kind!a:.40}, not {family.kind!r}")
    weights = Weights.find(path)
    with prefix_errors(settings.path):
        settings.must_be_absent("quantization_config")
        config: Any = family.config(settings)
        if config.n_layers > len(weights.header):
            raise ValueError(f"there are {config.n_layers:,} layers, but fewer tensors")
    model = empty_model(family.model, config)
    family = family.named_as_in(weights.header)
    rows, ignored, zeros = _plan(family, model, weights)
    read = [row for row in rows if row.theirs in weights.header]
    state = _state(read, model, weights, dtype)
    state |= {name: torch.zeros(_shape(model, name), dtype=dtype) for name in zeros}
    infos = [weights.header[row.theirs] for row in read]
    report = Report(
        kind=family.kind,
        source=quote(path),
        dtypes=tuple(sorted({str(info.dtype).removeprefix("torch.") for info in infos})),
        n_tensors=len(infos),
        n_bytes=sum(info.stop - info.start for info in infos),
        n_parameters=model.n_parameters,
        ignored=ignored,
        zeros=zeros,
    )
    return fill(model, state), report


def fill(model: Model, state: Mapping[str, Tensor]) -> Model:
    """Give a model without memory its tensors; what it shares stays shared."""
    first = _first_names(model)
    own = {name: nn.Parameter(tensor) for name, tensor in state.items()}
    model.load_state_dict({name: own[first[name]] for name in first}, assign=True)
    return model.eval()


def check_dtype(dtype: torch.dtype) -> None:
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating-point type such as torch.float32, got {dtype!r}")


def check_folder(path: Path) -> None:
    if not path.is_dir():
        fault = "is not a folder" if path.exists() else "is not there"
        raise BadFile(f"{quote(path)} {fault}; give a folder with config.json and its weights")


def _plan(
    family: Family, model: Model, weights: Weights
) -> tuple[list[Row], dict[str, str], tuple[str, ...]]:
    """The rows to read, what is ignored and why, and what is set to zeros."""
    rows, first = rows_of(family, model), _first_names(model)
    optional = [row for row in rows if row.optional]
    absent = [] if any(row.theirs in weights.header for row in optional) else optional
    copies = [row for row in rows if first[row.ours[0]] != row.ours[0]]
    rows = [row for row in rows if row not in absent]
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    expected = {
        row.theirs: row.shape(shapes)
        for row in rows
        if row not in copies or row.theirs in weights.header
    }
    reasons = {name: family.reason_to_ignore(name) for name in weights.header.keys() - expected}
    ignored = {name: reason for name, reason in sorted(reasons.items()) if reason}
    needed = {name: info for name, info in weights.header.items() if name not in ignored}
    check_header(weights.folder, needed, expected)
    return rows, ignored, tuple(name for row in absent for name in row.ours)


def _state(
    rows: Iterable[Row], model: Model, weights: Weights, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Our tensors by name. A table that stands twice must be twice the same."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    by_name = {row.theirs: row for row in rows}
    first = _first_names(model)
    state: dict[str, Tensor] = {}
    copies: dict[str, Tensor] = {}
    for theirs, tensor in weights.read(by_name):
        tensor = cast_to(dtype, tensor, f"{quote(weights.places[theirs])}: tensor {theirs}")
        for name, ours in by_name[theirs].to_ours(tensor, shapes).items():
            (state if first[name] == name else copies)[name] = ours
    for name, copy in copies.items():
        if not torch.equal(copy, state[first[name]]):
            raise BadFile(
                f"{quote(weights.folder)}: its config ties {name} to {first[name]}, but the file "
                f"has other numbers for it; set tie_word_embeddings to false"
            )
    return state


def _first_names(model: Model) -> dict[str, str]:
    """Each parameter's name → the first name of the same parameter, another one if it is shared."""
    seen: dict[int, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {name: seen.setdefault(id(parameter), name) for name, parameter in named}


def _shape(model: Model, name: str) -> tuple[int, ...]:
    return tuple(model.state_dict()[name].shape)

"""From a Hugging Face folder to one of our models, or to an error that says why not.

    their config.json → our config → our model without memory → what the file must hold
    compare with the headers of the file → read, transpose, cast → our model

The comparison comes before the first number is read, so no model is ever half loaded. Files in
half precision become float32 unless another dtype is given.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from clearhead.files import BadFile
from clearhead.files.reading import prefix_errors, quote
from clearhead.interop.config_json import TheirConfig
from clearhead.interop.fill import (
    ModelType,
    cast_to,
    check_dtype,
    fill_model,
    find_first_names,
    get_shapes,
)
from clearhead.interop.name_table import Family, Row, check_header, list_rows
from clearhead.interop.report import Report
from clearhead.interop.weight_files import WeightFiles
from clearhead.models import Model
from clearhead.models.registry import build_on_meta


def load_folder(
    family: Family[ModelType], path: Path, dtype: torch.dtype
) -> tuple[ModelType, Report]:
    """Build the model that a folder holds; returns it with a report of what was loaded."""
    check_dtype(dtype)
    check_folder(path)
    theirs = TheirConfig.read(path)
    if theirs.kind != family.kind:
        raise theirs.error(f"model_type is {theirs.kind!r:.40}, not {family.kind!r}")
    files = WeightFiles.find(path)
    model = cast(ModelType, _build_empty_model(family, theirs, len(files.header)))
    plan = _make_plan(family.match_prefix(files.header), model, files)
    fill_model(model, _read_tensors(plan, model, files, dtype))
    return model, _build_report(family.kind, plan, model, files)


def check_folder(path: Path) -> None:
    """Refuse a path that is not a folder."""
    if not path.is_dir():
        fault = "is not a folder" if path.exists() else "is not there"
        raise BadFile(f"{quote(path)} {fault}; give a folder with config.json and its weights")


def _build_empty_model(family: Family[Any], theirs: TheirConfig, n_tensors: int) -> Model:
    """Our model with shapes but without memory."""
    with prefix_errors(theirs.path):
        theirs.refuse("quantization_config")
        config: Any = family.config(theirs)
        if config.n_layers > n_tensors:  # before a thousand blocks are built for nothing
            raise ValueError(f"there are {config.n_layers:,} layers, but fewer tensors")
    return build_on_meta(family.model, config)


@dataclass(frozen=True)
class _Plan:
    """The rows to read, the tensors to ignore and why, and our parameters that stay zero."""

    rows: list[Row]
    ignored: dict[str, str]
    zeros: tuple[str, ...]


def _make_plan(family: Family[Any], model: Model, files: WeightFiles) -> _Plan:
    """Compare a file with the model; a difference is refused."""
    rows, first = list_rows(family, model), find_first_names(model)
    optional = [row for row in rows if row.optional]
    absent = [] if any(row.theirs in files.header for row in optional) else optional
    # A tied head may be left out of the file: it is the embedding table under another name.
    copies = [
        row for row in rows if first[row.ours[0]] != row.ours[0] and row.theirs not in files.header
    ]
    rows = [row for row in rows if row not in absent and row not in copies]
    shapes = get_shapes(model)
    expected = {row.theirs: row.their_shape(shapes) for row in rows}
    reasons = {name: family.reason_to_ignore(name) for name in files.header.keys() - expected}
    ignored = {name: reason for name, reason in sorted(reasons.items()) if reason}
    needed = {name: info for name, info in files.header.items() if name not in ignored}
    check_header(files.folder, needed, expected)
    return _Plan(rows, ignored, tuple(name for row in absent for name in row.ours))


def _read_tensors(
    plan: _Plan, model: Model, files: WeightFiles, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Read our tensors, by name. Two copies of one parameter must be equal."""
    shapes, first = get_shapes(model), find_first_names(model)
    rows = {row.theirs: row for row in plan.rows}
    tensors = {name: torch.zeros(shapes[name], dtype=dtype) for name in plan.zeros}
    for name, tensor in files.read(rows):
        tensor = cast_to(dtype, tensor, f"{quote(files.files[name])}: tensor {name}")
        tensors |= rows[name].to_ours(tensor, shapes)
    for name in tensors:
        if not torch.equal(tensors[name], tensors[first[name]]):
            raise BadFile(
                f"{quote(files.folder)}: its config ties {name} to {first[name]}, but the file "
                f"has other numbers for it; set tie_word_embeddings to false"
            )
    return tensors


def _build_report(kind: str, plan: _Plan, model: Model, files: WeightFiles) -> Report:
    infos = [files.header[row.theirs] for row in plan.rows]
    return Report(
        kind=kind,
        source=quote(files.folder),
        dtypes=tuple(sorted({str(info.dtype).removeprefix("torch.") for info in infos})),
        n_tensors=len(infos),
        n_bytes=sum(info.stop - info.start for info in infos),
        n_parameters=model.n_parameters,
        ignored=plan.ignored,
        zeros=plan.zeros,
    )

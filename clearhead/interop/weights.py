"""The weights in a Hugging Face folder: one safetensors file, or several and an index.

    model.safetensors
    model.safetensors.index.json        {"weight_map": {"name of a tensor": "name of a file", …}}

A folder with neither, but with exactly one other safetensors file, is taken by that. The headers of
all files are read and joined first; numbers are read only when a model is known to fit them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.files import BadFile, check_file_name, read_json
from clearhead.files.reading import quote
from clearhead.files.tensors import TensorInfo, read_header, read_tensors

INDEX = "model.safetensors.index.json"
MAX_FILES = 1000


@dataclass(frozen=True)
class Weights:
    """What the files of a folder hold, and in which file each tensor stands."""

    folder: Path
    header: dict[str, TensorInfo]
    places: dict[str, Path]

    @classmethod
    def find(cls, folder: Path) -> "Weights":
        """The weights of a folder; only headers are read."""
        if (folder / "model.safetensors").exists():
            return cls._of(folder, [folder / "model.safetensors"])
        if (folder / INDEX).exists():
            return cls._indexed(folder)
        return cls._of(folder, [_only_file(folder)])

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """The named tensors, file by file. NaN and infinities are refused."""
        wanted = set(names)
        for path in dict.fromkeys(self.places.values()):
            here = [name for name in self.header if name in wanted and self.places[name] == path]
            tensors = read_tensors(path, here)
            for name in here:
                yield name, tensors.pop(name)  # handed over, so that no tensor is held twice

    @classmethod
    def _of(cls, folder: Path, paths: Iterable[Path]) -> "Weights":
        header: dict[str, TensorInfo] = {}
        places: dict[str, Path] = {}
        for path in paths:
            for name, info in read_header(path).items():
                if name in header:
                    raise BadFile(
                        f"{quote(folder)}: {quote(name)} stands in {places[name].name} and again "
                        f"in {path.name}"
                    )
                header[name], places[name] = info, path
        return cls(folder, header, places)

    @classmethod
    def _indexed(cls, folder: Path) -> "Weights":
        index = folder / INDEX
        promised = _weight_map(index)
        found = cls._of(folder, [folder / name for name in sorted(set(promised.values()))])
        actual = {name: path.name for name, path in found.places.items()}
        for name in sorted(promised.keys() | actual.keys()):
            if promised.get(name) != actual.get(name):
                raise BadFile(
                    f"{quote(index)} says that {quote(name)} stands in {promised.get(name)}, but "
                    f"it stands in {actual.get(name)}"
                )
        return found


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor → file, with names that stay inside the folder."""
    values: Any = read_json(index)
    names = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
        raise BadFile(f"{quote(index)} must hold a weight_map of tensors to names of files")
    files = set(names.values())
    if len(files) > MAX_FILES:
        raise BadFile(f"{quote(index)} names {len(files):,} files; at most {MAX_FILES:,} are read")
    for file in files:
        check_file_name(file, f"in {quote(index)} the file")
    return names


def _only_file(folder: Path) -> Path:
    files = sorted(path for path in folder.iterdir() if path.suffix == ".safetensors")
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(path.name for path in files[:5])
        raise BadFile(f"{quote(folder)} holds several weight files ({names}) and no {INDEX}")
    pickled = [name for name in ("pytorch_model.bin", "model.bin") if (folder / name).exists()]
    why = f"; {pickled[0]} is a pickle, which runs code when it is read" if pickled else ""
    raise BadFile(f"{quote(folder)} holds no model.safetensors{why}; save the model as safetensors")

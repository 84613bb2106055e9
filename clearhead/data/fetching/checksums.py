"""SHA-256 and size of every archive that is fetched and of every file that is kept from it.

They are in checksums.txt: a section for the archives, then one for each data set.
"""

from pathlib import Path


def _read(path: Path) -> dict[str, dict[str, tuple[int, str]]]:
    table: dict[str, dict[str, tuple[int, str]]] = {}
    for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            section = table.setdefault(line.strip("[]"), {})
        else:
            sha256, size, name = line.split()
            section[name] = (int(size), sha256)
    return table


# "archives" or a data set → name → (size, SHA-256)
CHECKSUMS = _read(Path(__file__).with_suffix(".txt"))

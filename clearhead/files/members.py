"""What may stand in an archive: regular files and folders, under names that stay inside.

A name is relative and plain: no `..`, no root, no drive, no backslash, no control character. No two
members share a name, not even one that differs only in case or in the form of its accents: on many
disks the second would overwrite the first. Nor is a name a file and a folder at once.
"""

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clearhead.files.reading import BadFile, quote

MAX_NAME = 500
MAX_DEPTH = 20


@dataclass(frozen=True)
class Member:
    """A file or folder of an archive; `chunks` reads its bytes, once, when asked."""

    name: str
    size: int
    is_folder: bool
    chunks: Callable[[], Iterator[bytes]]


def plain_name(raw: bytes, archive: str) -> str:
    """The name of a member without a leading ./ or a last slash; "" is the archive's own root."""
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadFile(f"{archive} has a member whose name is not UTF-8: {raw!r:.80}") from None
    if name in (".", "./"):
        return ""
    plain = name.removeprefix("./").removesuffix("/")
    parts = plain.split("/")
    wrong = not name or name.startswith("/") or "\\" in name or ":" in name
    if wrong or not name.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise BadFile(f"{archive} has a member with the name {quote(ascii(name))}, which is unsafe")
    if len(plain) > MAX_NAME or len(parts) > MAX_DEPTH:
        raise BadFile(f"{archive} has a member with an overlong name: {quote(name)}")
    return plain


@dataclass(frozen=True)
class _Met:
    path: str
    is_file: bool
    name: str  # of the member that brought the path


class Names:
    """The names met so far, of members or of the files they become; refuses two that collide."""

    def __init__(self, archive: str, what: str = "members that would share a name") -> None:
        self.archive, self.what = archive, what
        self.met: dict[str, _Met] = {}

    def add(self, name: str, *, is_folder: bool = False) -> None:
        """Note a name and the folders on its way."""
        parts = name.split("/") if name else []
        for end in range(1, len(parts) + 1):
            is_file = end == len(parts) and not is_folder
            self._note(_Met("/".join(parts[:end]), is_file, name))

    def _note(self, new: _Met) -> None:
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", new.path).casefold())
        known = self.met.setdefault(folded, new)
        if known is not new and (known.path != new.path or known.is_file or new.is_file):
            raise BadFile(
                f"{self.archive} has two {self.what}: {quote(known.name)} and {quote(new.name)}"
            )

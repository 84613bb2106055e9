"""What may stand in an archive: regular files and folders, under names that stay inside.

A name is relative and plain: no `..`, no root, no drive, no backslash, no control character. No two
members share a name, not even one that differs only in case or in the form of its accents: on many
disks the second would overwrite the first.
"""

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clearhead.files.regular import BadFile, shown

__all__ = ["Member", "Names", "plain_name"]

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
    plain = name.removeprefix("./").removesuffix("/")
    if plain in ("", ".") and name:
        return ""
    parts = plain.split("/")
    wrong = not name or name.startswith("/") or "\\" in name or ":" in name
    if wrong or not name.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise BadFile(f"{archive} has a member with the name {shown(ascii(name))}, which is unsafe")
    if len(plain) > MAX_NAME or len(parts) > MAX_DEPTH:
        raise BadFile(f"{archive} has a member with an overlong name: {shown(name)}")
    return plain


class Names:
    """The names met so far in an archive; refuses doubles, collisions and too many."""

    def __init__(self, archive: str, max_members: int) -> None:
        self.archive, self.max_members = archive, max_members
        self.count = 0
        self.met: dict[str, tuple[str, bool]] = {}

    def add(self, member: Member) -> None:
        """Note a member and the folders on its way."""
        self.count += 1
        if self.count > self.max_members:
            raise BadFile(f"{self.archive} has more than {self.max_members:,} members")
        parts = member.name.split("/") if member.name else []
        for end in range(1, len(parts) + 1):
            is_file = end == len(parts) and not member.is_folder
            self._note("/".join(parts[:end]), is_file)

    def _note(self, path: str, is_file: bool) -> None:
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        known = self.met.get(folded)
        if known is None:
            self.met[folded] = (path, is_file)
        elif is_file or known != (path, False):
            raise BadFile(
                f"{self.archive} has two members that would share a name: "
                f"{shown(known[0])} and {shown(path)}"
            )

"""Chosen members of a tar, a tar.gz or a Debian package.

The standard library's tarfile parses the headers. It would also accept links, devices, any name and
any length, and stop silently at a broken header, so the rules around it are ours:

    kinds       regular files and folders; a member of another kind refuses the whole archive
    names       plain, relative, and no two that would share a file on some disk
    sizes       unpacked bytes are counted as they come: a decompression bomb stops at a limit
    headers     8 KB at most for one member: a forged length costs neither memory nor time
    the end     a block of zeros, and nothing but zeros after it

Wanted members are written with new permissions into a temporary folder, which is renamed when all
are complete; `extractall` is never called. An archive inside an archive is an ordinary file.
"""

import gzip
import lzma
import os
import tarfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from clearhead.files.names import check_file_name
from clearhead.files.reading import BadFile, open_regular, quote
from clearhead.files.writing import create_folder, write_new

MAX_ARCHIVE = 4 << 30
MAX_HEADER = 1 << 13  # extended headers included; in older Pythons their cost is quadratic
MAX_NAME, MAX_DEPTH = 500, 20
MAX_XZ_MEMORY = 256 << 20  # xz -9 needs 65 MB; a hostile file may ask for 4 GB
SLACK = 1 << 20  # any archive may unpack to this much, whatever the ratio
CHUNK = 1 << 18
KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
}

Wanted = Mapping[str, str] | Callable[[str], str | None]


def read_members(
    archive: str | os.PathLike[str],
    wanted: Wanted,
    into: str | os.PathLike[str],
    *,
    max_members: int = 10_000,
    max_bytes: int = 4 << 30,
    max_ratio: int = 200,
) -> dict[str, Path]:
    """Unpack the wanted members into the new folder `into`; returns target name → path.

    `wanted` maps names of members to target names relative to `into`, or is a function that returns
    the target name, or None to leave the member out. The whole archive may unpack to max_bytes, and
    to max_ratio times its own size.
    """
    name = quote(archive)
    with open_regular(archive, MAX_ARCHIVE) as file, create_folder(into) as folder:
        limit = min(max_bytes, max_ratio * os.fstat(file.fileno()).st_size + SLACK)
        stream = _Stream(_decompress(file, name), name, limit)
        targets = _extract(stream, wanted, folder, max_members)
    return {target: Path(into) / target for target in targets}


def _extract(stream: "_Stream", wanted: Wanted, folder: Path, max_members: int) -> list[str]:
    """Write the wanted members into the folder; returns their target names."""
    names = _Names(stream.archive, "members that would share a name")
    targets = _Names(stream.archive, "members whose targets would share a name")
    found: dict[str, str] = {}
    for count, (name, member) in enumerate(_iterate(stream), 1):
        if count > max_members:
            raise BadFile(f"{stream.archive} has more than {max_members:,} members")
        names.add(name, is_folder=member.isdir())
        target = None if member.isdir() else _choose_target(name, wanted)
        if target is not None:
            targets.add(target)
            found[target] = name
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            write_new(folder / target, stream.chunks(member.size))
    missing = set(wanted) - set(found.values()) if isinstance(wanted, Mapping) else set()
    if missing:
        raise BadFile(f"{stream.archive} has no member {quote(min(missing))}")
    return list(found)


def _iterate(stream: "_Stream") -> Iterator[tuple[str, tarfile.TarInfo]]:
    """The name and header of each member, whose bytes can be read until the next one."""
    tar = None
    while True:
        try:
            tar = tar or tarfile.TarFile(fileobj=stream, encoding="utf-8", errors="strict")  # type: ignore[arg-type]
            member = tar.next()
        except (BadFile, OSError):
            raise
        except Exception as reason:  # whatever the parser raises, the file is the cause
            raise BadFile(f"{stream.archive} has a broken header: {reason!s:.80}") from None
        if member is None:
            break
        yield _check_member(member, stream.archive), member
        stream.seek(member.offset_data + member.size + -member.size % tarfile.BLOCKSIZE)
    if stream.last != bytes(tarfile.BLOCKSIZE):  # tarfile stops silently at a broken header
        raise BadFile(f"{stream.archive} has a broken header, or ends too early")
    while rest := stream.take(CHUNK):
        if rest.strip(b"\0"):
            raise BadFile(f"{stream.archive} continues after its end")


def _choose_target(name: str, wanted: Wanted) -> str | None:
    target = wanted(name) if callable(wanted) else wanted.get(name)
    if target is not None:
        if not isinstance(target, str):
            raise TypeError(f"the target of {name} must be a name, got {target!r:.80}")
        for part in target.split("/"):
            check_file_name(part, "target")
    return target


# Streams


def _decompress(file: BinaryIO, archive: str) -> "BinaryIO | gzip.GzipFile | _XzStream":
    """The bytes of the tar in any of the three kinds of archive."""
    start = file.read(262)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(b"!<arch>\n"):
        _seek_data(file, archive)
        return _XzStream(file)
    if start[257:] == b"ustar":
        return file
    raise BadFile(f"{archive} is not an archive that is read here (tar, tar.gz, deb)")


def _seek_data(file: BinaryIO, archive: str) -> None:
    """Move to the data.tar.xz of a Debian package, which is an `ar` archive (deb(5)).

    Before each member, padded to an even length, stand 60 bytes: name, …, size, `\\n.
    """
    file.seek(8)
    while len(header := file.read(60)) == 60 and header.endswith(b"`\n"):
        name, size = header[:16].rstrip(b" /"), header[48:58].strip()
        if name == b"data.tar.xz":
            return
        if not size.isdigit():
            break
        file.seek(int(size) + int(size) % 2, os.SEEK_CUR)
    raise BadFile(f"{archive} has no data.tar.xz; it is broken or not a Debian package")


class _XzStream:
    """An xz stream, unpacked within a limit on memory, which lzma.open does not have."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)

    def read(self, n_bytes: int) -> bytes:
        parts: list[bytes] = []
        while n_bytes and not self.unpacker.eof:
            packed = self.file.read(CHUNK) if self.unpacker.needs_input else b""
            if self.unpacker.needs_input and not packed:
                raise EOFError("the compressed data end too early")
            parts.append(self.unpacker.decompress(packed, n_bytes))
            n_bytes -= len(parts[-1])
        return b"".join(parts)


class _Stream:
    """An unpacked tar that only moves forward and counts its bytes.

    tarfile takes it for a file, and reads headers by `read`; `chunks` are the bytes of a member.
    """

    def __init__(self, source: Any, archive: str, limit: int) -> None:
        self.source, self.archive, self.limit = source, archive, limit
        self.position, self.header_end = 0, MAX_HEADER
        self.last = b""  # what `read` returned last

    def take(self, n_bytes: int) -> bytes:
        """The next n_bytes, fewer only at the end; raises beyond the limit."""
        try:
            data = self.source.read(n_bytes)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as reason:
            raise BadFile(f"{self.archive} is broken or cut short: {reason}") from None
        self.position += len(data)
        if self.position > self.limit:
            raise BadFile(f"{self.archive} unpacks to more than is allowed; it may be a bomb")
        return data

    def chunks(self, n_bytes: int) -> Iterator[bytes]:
        """Exactly the next n_bytes, in parts."""
        while n_bytes:
            chunk = self.take(min(n_bytes, CHUNK))
            if not chunk:
                raise BadFile(f"{self.archive} ends too early; it is cut short")
            n_bytes -= len(chunk)
            yield chunk

    def read(self, n_bytes: int) -> bytes:
        """A part of a header."""
        if not 0 <= n_bytes <= self.header_end - self.position:
            raise BadFile(f"{self.archive} has a header of more than {MAX_HEADER:,} bytes")
        self.last = self.take(n_bytes)
        return self.last

    def tell(self) -> int:
        return self.position

    def seek(self, position: int) -> int:
        """Skip to the next header."""
        if position < self.position:
            raise BadFile(f"{self.archive} has a header that points backwards; it is broken")
        for _ in self.chunks(position - self.position):
            pass
        self.header_end = position + MAX_HEADER
        return position


# Members and their names


def _check_member(member: tarfile.TarInfo, archive: str) -> str:
    """The plain name of a regular file or folder; anything else is refused."""
    name, is_folder = member.name.removeprefix("./"), member.isdir()
    is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
    if not is_file and not is_folder:
        kind = KINDS.get(member.type, f"of the type {member.type!r}")
        raise BadFile(f"{archive}: {quote(name)} is {kind}; only files and folders are read")
    if is_folder and member.name in (".", "./"):
        return ""  # the root of the archive itself
    is_unsafe = name.startswith("/") or "\\" in name or ":" in name or not name.isprintable()
    if is_unsafe or any(part in ("", ".", "..") for part in name.split("/")):
        raise BadFile(f"{archive} has a member with the unsafe name {quote(repr(member.name))}")
    if len(name) > MAX_NAME or name.count("/") >= MAX_DEPTH:
        raise BadFile(f"{archive} has a member with an overlong name: {quote(name)}")
    if member.size < 0 or (is_folder and member.size > 0):
        raise BadFile(f"{archive}: {name} has an impossible size, {member.size}")
    if is_file and member.mode & 0o6000:
        raise BadFile(f"{archive}: {name} would run as another user (setuid)")
    return name


class _Names:
    """The names so far, each for one file or folder.

    Two names that differ only in case or in the form of accents are refused: on many disks the
    second would overwrite the first.
    """

    def __init__(self, archive: str, what: str) -> None:
        self.archive, self.what = archive, what
        self.known: dict[str, tuple[str, bool, str]] = {}  # folded → path, is_file, first name

    def add(self, name: str, *, is_folder: bool = False) -> None:
        """Add a name and the folders above it."""
        parts = name.split("/") if name else []
        for end in range(1, len(parts) + 1):
            path, is_file = "/".join(parts[:end]), end == len(parts) and not is_folder
            folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
            new = (path, is_file, name)
            known = self.known.setdefault(folded, new)
            if known is not new and (known[0] != path or known[1] or is_file):
                raise BadFile(
                    f"{self.archive} has two {self.what}: {quote(known[2])} and {quote(name)}"
                )

"""The members of a tar, read as a stream (POSIX.1-2001 "pax" and the long names of GNU tar).

A tar is a row of blocks of 512 bytes: a header, then the bytes of the file, padded to a block, and
two blocks of zeros at the end. A member of type x brings words for the one after it, such as a long
name. Memory stays bounded: names and words have caps, files pass in chunks.
"""

from collections.abc import Iterator
from typing import Protocol

from clearhead.files.members import Member, plain_name
from clearhead.files.reading import BadFile

BLOCK = 512
CHUNK = 1 << 18
MAX_WORDS = 1 << 16
REFUSED_WORDS = (b"linkpath", b"size", b"GNU.sparse", b"SCHILY.realsize", b"hdrcharset")
KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"K": "a link with a long name",
    b"S": "a sparse file",
}


class Readable(Protocol):
    """A stream of bytes: a file, or what unpacks one."""

    def read(self, n_bytes: int, /) -> bytes:
        """That many bytes, fewer only at the end."""


def tar_members(stream: Readable, archive: str) -> Iterator[Member]:
    """Each member in turn. Its chunks must be read before the next member is asked for."""
    long_name: bytes | None = None
    while True:
        header = _exactly(stream, BLOCK, archive)
        if not any(header):
            break
        name, size, kind = _parse(header, archive)
        if kind in (b"x", b"g", b"L"):
            words = _exactly(stream, size + -size % BLOCK, archive, MAX_WORDS)[:size]
            found = words.rstrip(b"\0") if kind == b"L" else _path_of(words, archive)
            if found is not None and (kind == b"g" or long_name is not None):
                raise BadFile(f"{archive} names a member in two ways")
            long_name = long_name if found is None else found
            continue
        yield from _member(stream, long_name or name, size, kind, header, archive)
        long_name = None
    if long_name is not None:
        raise BadFile(f"{archive} ends with the name of a member that does not follow")
    while rest := stream.read(CHUNK):
        if any(rest):
            raise BadFile(f"{archive} goes on after its end")


def _member(
    stream: Readable, raw_name: bytes, size: int, kind: bytes, header: bytes, archive: str
) -> Iterator[Member]:
    if kind not in (b"0", b"\0", b"5"):
        what = KINDS.get(kind, f"of the unknown type {kind!r}")
        raise BadFile(f"{archive}: {raw_name!r:.80} is {what}; only files and folders are read")
    name = plain_name(raw_name, archive)
    is_folder = kind == b"5"
    if size if is_folder else not name or raw_name.endswith(b"/"):
        raise BadFile(f"{archive}: {name or '.'} is a folder and a file at once")
    if not is_folder and _number(header[100:108], archive) & 0o6000:
        raise BadFile(f"{archive}: {name} would run as another user (setuid)")
    left = size

    def chunks() -> Iterator[bytes]:
        nonlocal left
        while left:
            chunk = _exactly(stream, min(left, CHUNK), archive)
            left -= len(chunk)
            yield chunk

    yield Member(name, size, is_folder, chunks)
    for _ in chunks():  # what nobody wanted
        pass
    _exactly(stream, -size % BLOCK, archive)


def _parse(header: bytes, archive: str) -> tuple[bytes, int, bytes]:
    """Name, size and type of a header whose checksum is right."""
    if header[257:262] != b"ustar":
        raise BadFile(f"{archive} is no tar, or a broken one: a header without its mark")
    blanked = header[:148] + b" " * 8 + header[156:]
    if _number(header[148:156], archive) != sum(blanked):
        raise BadFile(f"{archive} is broken: a header does not match its checksum")
    name = header[:100].split(b"\0")[0]
    prefix = header[345:500].split(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return (
        (prefix + b"/" + name if prefix else name),
        _number(header[124:136], archive),
        (header[156:157]),
    )


def _number(field: bytes, archive: str) -> int:
    digits = field.rstrip(b"\0 ").lstrip(b" ")
    if any(digit not in b"01234567" for digit in digits):  # also GNU's form for more than 8 GB
        raise BadFile(f"{archive} has a header with the number {field!r}, which is not octal")
    return int(digits or b"0", 8)


def _path_of(words: bytes, archive: str) -> bytes | None:
    """The path among the records `length key=value`, if it is there."""
    path = None
    while words:
        digits = words.partition(b" ")[0]
        if not digits.isdigit() or not len(digits) + 1 < int(digits[:8]) <= len(words):
            raise BadFile(f"{archive} has a broken extended header")
        record, words = words[len(digits) + 1 : int(digits)], words[int(digits) :]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise BadFile(f"{archive} has a broken extended header")
        if key.startswith(REFUSED_WORDS) or b"\0" in value:
            raise BadFile(f"{archive} has an extended header with {key!r:.40}, which is not read")
        if key == b"path":
            path = value[:-1]
    return path


def _exactly(stream: Readable, n_bytes: int, archive: str, most: int | None = None) -> bytes:
    if most is not None and n_bytes > most:
        raise BadFile(f"{archive} has an extended header of {n_bytes:,} bytes")
    data = stream.read(n_bytes) if n_bytes else b""
    if len(data) != n_bytes:
        raise BadFile(f"{archive} ends too early; it is cut short")
    return data

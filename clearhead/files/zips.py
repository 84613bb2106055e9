"""The members of a zip, read by its directory (PKWARE APPNOTE 4.3 and 4.4).

The directory at the end lists every member; before its bytes each has a header of its own. Both
must agree, no two members may overlap (that is how a small zip holds a petabyte), and a member may
give neither more nor less than the directory says. Stored and deflated members are read; encrypted
ones, split archives and the 64-bit form are refused.
"""

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from clearhead.files.members import Member, plain_name
from clearhead.files.reading import BadFile

END = struct.Struct("<4s4H2LH")
ENTRY = struct.Struct("<4s6H3L5H2L")
LOCAL = struct.Struct("<4s5H3L2H")
CHUNK = 1 << 18
MAX_DIRECTORY = 64 << 20  # bytes, all of them held at once
REPARSE_POINT = 0x400  # how Windows marks a link


@dataclass(frozen=True)
class _Entry:
    name: bytes
    method: int
    checksum: int
    packed: int
    size: int
    mode: int
    place: int


def zip_members(file: BinaryIO, archive: str, max_members: int, max_bytes: int) -> Iterator[Member]:
    """Each member in the order of the directory; all are checked before the first is given."""
    start, stop, count = _find_directory(file, archive)
    if count > max_members:
        raise BadFile(f"{archive} has more than {max_members:,} members")
    if stop - start > MAX_DIRECTORY:
        raise BadFile(f"{archive} has a directory of {stop - start:,} bytes, too many for one")
    file.seek(start)
    entries = list(_entries(file.read(stop - start), count, archive))
    if sum(entry.size for entry in entries) > max_bytes:
        raise BadFile(f"{archive} unpacks to more than is allowed; it looks like a bomb")
    places = {entry: _data_place(file, entry, archive) for entry in entries}
    _check_apart([(e.place, places[e] + e.packed) for e in entries], start, archive)
    yield from [_member(file, entry, places[entry], archive) for entry in entries]


def _find_directory(file: BinaryIO, archive: str) -> tuple[int, int, int]:
    """First byte, end and number of entries of the directory."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - END.size - 0xFFFF))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < END.size:
        raise BadFile(f"{archive} has no directory; it is cut short or no zip")
    _, disk, first_disk, count, total, length, start, comment = END.unpack_from(tail, at)
    end = size - len(tail) + at
    if (disk, first_disk) != (0, 0) or count != total or 0xFFFF in (count, total):
        raise BadFile(f"{archive} is split or of the 64-bit form; neither is read")
    if start + length != end or end + END.size + comment != size:
        raise BadFile(f"{archive} has a directory that is not where it says")
    return start, end, count


def _entries(directory: bytes, count: int, archive: str) -> Iterator[_Entry]:
    at = 0
    for _ in range(count):
        if len(directory) - at < ENTRY.size:
            raise BadFile(f"{archive} has a directory that is cut short")
        fields = ENTRY.unpack_from(directory, at)
        mark, _, _, flags, method, _, _, checksum, packed, size, n_name, n_extra, n_words = fields[
            :13
        ]
        attributes, place = fields[15:]
        name = directory[at + ENTRY.size : at + ENTRY.size + n_name]
        at += ENTRY.size + n_name + n_extra + n_words
        if mark != b"PK\1\2" or len(name) != n_name or 0xFFFFFFFF in (packed, size, place):
            raise BadFile(f"{archive} has a broken directory, or is of the 64-bit form")
        if flags & 0x2041 or method not in (0, 8):
            raise BadFile(f"{archive}: {name!r:.80} is encrypted or packed in an unknown way")
        if not flags & 0x800 and not name.isascii():
            raise BadFile(f"{archive} has a name in an unknown character set: {name!r:.80}")
        if attributes & REPARSE_POINT:
            raise BadFile(f"{archive}: {name!r:.80} is a link; only files and folders are read")
        yield _Entry(name, method, checksum, packed, size, attributes >> 16, place)
    if at != len(directory):
        raise BadFile(f"{archive} has more in its directory than it counts")


def _data_place(file: BinaryIO, entry: _Entry, archive: str) -> int:
    """Where the bytes of a member begin; its own header must agree with the directory."""
    file.seek(entry.place)
    header = file.read(LOCAL.size)
    if len(header) < LOCAL.size:
        raise BadFile(f"{archive}: {entry.name!r:.80} lies outside the file")
    mark, _, _, method, _, _, _, _, _, n_name, n_extra = LOCAL.unpack(header)
    if (mark, method, file.read(n_name)) != (b"PK\3\4", entry.method, entry.name):
        raise BadFile(f"{archive}: {entry.name!r:.80} has a header that says something else")
    return entry.place + LOCAL.size + int(n_name) + int(n_extra)


def _check_apart(ranges: list[tuple[int, int]], end: int, archive: str) -> None:
    last = 0
    for start, stop in sorted(ranges):
        if start < last:
            raise BadFile(f"{archive} has members that overlap")
        last = stop
    if last > end:
        raise BadFile(f"{archive} has a member that reaches into its directory")


def _member(file: BinaryIO, entry: _Entry, place: int, archive: str) -> Member:
    name = plain_name(entry.name, archive)
    is_folder = entry.name.endswith(b"/")
    kind = stat.S_IFMT(entry.mode)
    if kind not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG):
        raise BadFile(f"{archive}: {name} is a link, pipe or device; only files are read")
    if entry.size if is_folder else not name:
        raise BadFile(f"{archive}: {name or '.'} is a folder and a file at once")
    if not is_folder and entry.mode & (stat.S_ISUID | stat.S_ISGID):
        raise BadFile(f"{archive}: {name} would run as another user (setuid)")
    return Member(name, entry.size, is_folder, lambda: _chunks(file, entry, place, archive))


def _chunks(file: BinaryIO, entry: _Entry, place: int, archive: str) -> Iterator[bytes]:
    """The bytes of a member; stops as soon as they are more than the directory says."""
    size = checksum = 0
    for chunk in _unpacked(file, entry, place, archive):
        size += len(chunk)
        checksum = zlib.crc32(chunk, checksum)
        if size > entry.size:
            break
        yield chunk
    if (size, checksum) != (entry.size, entry.checksum):
        raise BadFile(f"{archive}: {entry.name!r:.80} does not hold what the directory says")


def _unpacked(file: BinaryIO, entry: _Entry, place: int, archive: str) -> Iterator[bytes]:
    unpack = zlib.decompressobj(-15) if entry.method else None
    for start in range(0, entry.packed, CHUNK):
        file.seek(place + start)
        packed = file.read(min(CHUNK, entry.packed - start))
        if unpack is None:
            yield packed
            continue
        chunk = b""
        while packed or len(chunk) == CHUNK:  # a full chunk: the rest may wait inside of zlib
            try:
                chunk = unpack.decompress(packed, CHUNK)
            except zlib.error:
                raise BadFile(f"{archive}: {entry.name!r:.80} is broken") from None
            if unpack.unused_data:
                raise BadFile(f"{archive}: {entry.name!r:.80} goes on after its end")
            packed = unpack.unconsumed_tail
            yield chunk
    if unpack is not None and not unpack.eof:
        raise BadFile(f"{archive}: {entry.name!r:.80} is broken")

"""The files of a Debian package: an `ar` archive whose member data.tar.xz holds them (deb(5)).

!<arch>\\n                     8 bytes
name, …, size, `\\n            60 bytes before each member, which is padded to an even length
"""

import lzma
from typing import BinaryIO

from clearhead.files.reading import BadFile

MARK = b"!<arch>\n"
CHUNK = 1 << 18
MOST_MEMORY = 256 << 20  # xz -9 needs 65 MB; a hostile file may ask for 4 GB


def find_data(file: BinaryIO, archive: str) -> None:
    """Move to the first byte of data.tar.xz."""
    file.seek(len(MARK))
    while len(header := file.read(60)) == 60 and header.endswith(b"`\n"):
        name, size = header[:16].rstrip(b" /"), header[48:58].strip()
        if name == b"data.tar.xz":
            return
        if not size.isdigit():
            break
        file.seek(int(size) + int(size) % 2, 1)
    raise BadFile(f"{archive} has no data.tar.xz; it is broken or no Debian package read here")


class Unpacked:
    """The bytes behind an xz stream, as far as they are asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.unpack = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_MEMORY)

    def read(self, n_bytes: int) -> bytes:
        """n_bytes, or fewer at the end."""
        parts: list[bytes] = []
        while n_bytes and not self.unpack.eof:
            packed = self.file.read(CHUNK) if self.unpack.needs_input else b""
            if self.unpack.needs_input and not packed:
                raise EOFError("the packed data end too early")
            parts.append(self.unpack.decompress(packed, n_bytes))
            n_bytes -= len(parts[-1])
        return b"".join(parts)

"""Text files: strict UTF-8, no NUL, no endless line.

The text is returned unchanged but for two things: a byte-order mark at the start is dropped, and
the line ends of Windows and of old machines (\\r\\n and \\r) become \\n.

`read_chunks` reads a file of any size part by part, with lines of any length.

A text in ASCII takes twice the memory of its file while it is read, and one with characters of four
bytes five times. A file that is refused takes its own size.
"""

import codecs
import io
import os
from collections.abc import Iterator

from clearhead.files.reading import ANY_SIZE, BadFile, open_regular, quote, read_bytes

MAX_BYTES = 100 << 20
CHUNK = 1 << 20
MAX_LINE = 1 << 20


def read_text(
    path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES, max_line: int = MAX_LINE
) -> str:
    """Read a text file, which may be empty. Offsets in errors count bytes from 0."""
    data = read_bytes(path, max_bytes)
    name = quote(path)
    _check_nul(data, 0, name)
    _check_lines(data, name, max_line)
    _check_utf8(data, name)
    text = decode_utf8(data, name).removeprefix("\ufeff")
    del data
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_chunks(path: str | os.PathLike[str], *, chunk: int = CHUNK) -> Iterator[str]:
    """The text of a file of any size, read chunk bytes at a time.

    The parts together are what `read_text` returns; none is empty.
    """
    name, start, is_first = quote(path), 0, True
    utf8 = codecs.getincrementaldecoder("utf-8")()
    line_ends = io.IncrementalNewlineDecoder(None, translate=True)
    with open_regular(path, ANY_SIZE) as file:
        while True:
            data = file.read(chunk)
            _check_nul(data, start, name)
            text = _decode_next(utf8, data, start, name, is_last=not data)
            if is_first and text:
                text, is_first = text.removeprefix("\ufeff"), False
            if text := line_ends.decode(text, final=not data):
                yield text
            if not data:
                return
            start += len(data)


def decode_utf8(data: bytes, name: str) -> str:
    """Decode UTF-8; the error gives the offset of the first bad byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise _describe_fault(fault, fault.start, name) from None


def _check_utf8(data: bytes, name: str) -> None:
    """Refuse invalid UTF-8 part by part, before a text of up to four times the size is made."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), CHUNK):
        part = data[start : start + CHUNK]
        _decode_next(decoder, part, start, name, is_last=start + CHUNK >= len(data))


def _decode_next(
    decoder: codecs.IncrementalDecoder, data: bytes, start: int, name: str, *, is_last: bool
) -> str:
    """Decode the part of a file that begins at byte `start`."""
    n_kept = len(decoder.getstate()[0])  # bytes of a character that the part before cut
    try:
        return decoder.decode(data, final=is_last)
    except UnicodeDecodeError as fault:
        raise _describe_fault(fault, start - n_kept + fault.start, name) from None


def _check_nul(data: bytes, start: int, name: str) -> None:
    zero = data.find(0)
    if zero >= 0:
        raise BadFile(f"{name} is not text: it has a NUL at byte {start + zero:,}")


def _describe_fault(fault: UnicodeDecodeError, offset: int, name: str) -> BadFile:
    byte = fault.object[fault.start]
    return BadFile(
        f"{name} is not UTF-8: byte {offset:,} is 0x{byte:02x} ({fault.reason}); save it as UTF-8"
    )


def _check_lines(data: bytes, name: str, max_line: int) -> None:
    """Each line has at most max_line bytes. Jumps to the last line end within that distance."""
    start = 0
    while len(data) - start > max_line:
        reach = start + max_line + 1
        end = max(data.rfind(b"\n", start, reach), data.rfind(b"\r", start, reach))
        if end < 0:
            raise BadFile(
                f"{name} has a line of more than {max_line:,} bytes at byte {start:,}; "
                "break it into lines"
            )
        start = end + 1

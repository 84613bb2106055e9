"""A run's metrics for TensorBoard: the lines of metrics.jsonl as an event file.

    write_events("runs/substring-0001")     → runs/substring-0001/events.out.tfevents.clearhead
    tensorboard --logdir runs               shows all runs with such a file in the same charts

The writer is our own for two reasons: TensorBoard's needs the whole of TensorBoard installed, and
it starts a new file in each process, while this one appends the new lines to the same file.
To view the file, install TensorBoard: pip install 'clearhead[tb]'.

An event file is a sequence of records (TensorFlow's TFRecord format), little-endian:

    length (8 bytes), checksum of the length (4), data, checksum of the data (4)

The data are a protocol buffers message. Each field is a key, 8 · number + kind, then its content:

    Event       1 wall_time, double     2 step, varint     3 file_version, text     5 Summary
    Summary     1 Value, once for each metric
    Value       1 tag, text             2 simple_value, float

metrics.jsonl holds no times, so that equal runs write equal files. So every event has the time at
which the run was started; view the charts over steps.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clearhead.files.reading import read_bytes
from clearhead.runs.folder import CONFIG, MAX_METRICS, RunFolder
from clearhead.shapes import is_number

EVENTS = "events.out.tfevents.clearhead"  # TensorBoard reads files with tfevents in their name
VERSION = b"brain.Event:2"
MAX_FLOAT32 = 3.4028234663852886e38

VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5  # kinds of fields


def write_events(run: str | os.PathLike[str]) -> Path:
    """Write the event file of a run, finished or not, and return its path.

    New events are appended to an existing file, because a running TensorBoard reads a file only
    forwards. If the run was resumed from an earlier step, the file is written anew.
    """
    folder = RunFolder(run)
    folder.check()
    path, started = folder / EVENTS, (folder / CONFIG).stat().st_mtime
    events = b"".join(map(_record, _events(folder.read_metrics(), started)))
    known = read_bytes(path, 4 * MAX_METRICS) if path.exists() else b""
    if known and events.startswith(known):
        with folder.open(EVENTS, "ab") as file:
            file.write(events[len(known) :])
    else:
        with folder.replace(EVENTS) as file:
            file.write(events)
    return path


def _events(lines: Iterable[Mapping[str, Any]], started: float) -> Iterator[bytes]:
    """The version of the format, then one Event for each line."""
    time = _field(1, DOUBLE, struct.pack("<d", started))
    yield time + _bytes(3, VERSION)
    for line in lines:
        step = _field(2, VARINT, _varint(line["step"] % 2**64))
        metrics = {name: x for name, x in line.items() if name != "step" and is_number(x)}
        yield time + step + _bytes(5, b"".join(map(_value, metrics, metrics.values())))


def _value(name: str, number: float) -> bytes:
    """A field of a Summary: one metric, clipped to what 32 bits can hold."""
    clipped = max(-MAX_FLOAT32, min(MAX_FLOAT32, number))
    tag = _bytes(1, name.encode(errors="replace"))
    return _bytes(1, tag + _field(2, FLOAT, struct.pack("<f", clipped)))


# Protocol buffers


def _field(number: int, kind: int, content: bytes) -> bytes:
    return _varint(8 * number + kind) + content


def _bytes(number: int, content: bytes) -> bytes:
    """A field of bytes, their count first: a text or another message."""
    return _field(number, BYTES, _varint(len(content)) + content)


def _varint(number: int) -> bytes:
    """Seven bits in each byte, the lowest first; the eighth bit says that more follow."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


# Records

_TABLE = list(range(256))  # the CRC of each byte
for _ in range(8):
    _TABLE = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in _TABLE]


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecord masks it: data may contain checksums themselves."""
    crc = _crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


def _crc32c(data: bytes) -> int:
    """The CRC with Castagnoli's polynomial, lowest bit first, as in RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF

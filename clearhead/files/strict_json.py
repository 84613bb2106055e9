r"""JSON with no doubt left (RFC 8259, and where it leaves a choice, the stricter one).

Refused are: a key that stands twice, NaN and infinities (also 1e999), nesting deeper than 32, whole
numbers beyond 64 bits, half a surrogate pair (\ud800), a byte-order mark, bytes that are no UTF-8,
and more than 4 MB. What `write_json` writes, `read_json` reads back as the same value.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from clearhead.files.reading import BadFile, quote, read_bytes
from clearhead.files.text import decode_utf8
from clearhead.files.writing import replace_file

MAX_BYTES = 4 << 20
MAX_DEPTH = 32
BRACES = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")


def hash_json(values: Mapping[str, Any]) -> str:
    """The SHA-256 of values as JSON, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_json(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """The value in a JSON file."""
    return parse_json(read_bytes(path, max_bytes), quote(path), max_bytes=max_bytes)


def parse_json(data: bytes | str, name: str = "JSON", *, max_bytes: int = MAX_BYTES) -> Any:
    """The value of a JSON text; `name` stands in the sentence if it is refused."""
    data = _as_bytes(data, name)
    if len(data) > max_bytes:
        raise BadFile(f"{name} has {len(data):,} bytes, more than the {max_bytes:,} read here")
    text = decode_utf8(data, name)
    if text.startswith("\ufeff"):
        raise BadFile(f"{name} begins with a byte-order mark; save it as UTF-8 without one")
    if _depth(data) > MAX_DEPTH:
        raise BadFile(f"{name} is nested deeper than {MAX_DEPTH} levels")
    value = _parse(text, name)
    if HALF_PAIR.search(data):
        _as_bytes(json.dumps(value, ensure_ascii=False), name)
    return value


def write_json(path: str | os.PathLike[str], value: Any, *, max_bytes: int = MAX_BYTES) -> None:
    """Write a value, keys in their order; the file is replaced whole or not at all."""
    name = quote(path)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    except (ValueError, RecursionError) as reason:
        raise BadFile(f"the value for {name} cannot be written as JSON: {reason}") from None
    data = _as_bytes(text, name)
    parse_json(data, f"the value for {name}", max_bytes=max_bytes)  # else it could not be read
    with replace_file(path) as file:
        file.write(data)


def _as_bytes(text: bytes | str, name: str) -> bytes:
    try:
        return text if isinstance(text, bytes) else text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadFile(f"{name} holds half a surrogate pair, which is no character") from None


def _depth(data: bytes) -> int:
    """How deep brackets nest. Python's parser would recurse that deep; this does not."""
    # Without escaped quotes, every second piece between quotes is a string. A backslash outside a
    # string would mislead this, but that is no JSON, and the parser stops there.
    pieces = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    brackets = b"".join(pieces[::2]).translate(BRACES, NO_BRACKETS)
    return max(accumulate(92 - bracket for bracket in brackets), default=0)  # [ is 91, ] is 93


def _parse(text: str, name: str) -> Any:
    def no_double_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            (double, _), *_ = Counter(key for key, _ in pairs).most_common(1)
            raise BadFile(f"{name} has the key {double!a:.80} twice")
        return values

    def whole(digits: str) -> int:
        if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
            raise BadFile(f"{name} has a whole number beyond 64 bits: {digits:.30}")
        return int(digits)

    def finite(digits: str) -> float:
        if digits in ("NaN", "Infinity", "-Infinity") or abs(float(digits)) == float("inf"):
            raise BadFile(f"{name} has {digits:.30}, which is no finite number")
        return float(digits)

    try:
        return json.loads(
            text,
            object_pairs_hook=no_double_keys,
            parse_int=whole,
            parse_float=finite,
            parse_constant=finite,
        )
    except json.JSONDecodeError as fault:
        words = f"line {fault.lineno}, column {fault.colno}: {fault.msg.lower()}"
        raise BadFile(f"{name} is not JSON: {words}") from None

r"""JSON that has only one meaning (RFC 8259, and where it leaves a choice, the stricter one).

Refused are: a key that occurs twice, NaN and infinities (also 1e999), nesting deeper than 32, whole
numbers beyond 64 bits, half a surrogate pair (\ud800), a byte-order mark, invalid UTF-8, more than
4 MB, and more than 1.5 million parts, which could take 30 times the memory of the file. A value
that `write_json` wrote, `read_json` reads back unchanged.

Python's `json` parses; the checks around it are ours, because it accepts nearly all of these. They
take three times as long as the parsing, 0.1 s for 1 MB.
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
MAX_PARTS = 1_500_000  # commas, colons and opening brackets
MAX_DEPTH = 32
STRING = re.compile(rb'"[^"]*"?')
BRACES = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
NO_SIGNS = bytes(set(range(256)) - set(b"[]{},:"))
HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")


def hash_json(values: Mapping[str, Any]) -> str:
    """The SHA-256 of values as JSON; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_json(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """Read the value in a JSON file."""
    return parse_json(read_bytes(path, max_bytes), quote(path), max_bytes=max_bytes)


def parse_json(
    data: bytes | str,
    name: str = "JSON",
    *,
    max_bytes: int = MAX_BYTES,
    max_parts: int = MAX_PARTS,
) -> Any:
    """Parse a JSON text; `name` begins the error message."""
    data = _encode(data, name)
    if len(data) > max_bytes:
        raise BadFile(f"{name} has {len(data):,} bytes, more than the {max_bytes:,} read here")
    _check_size(data, name, max_parts)
    text = decode_utf8(data, name)
    if text.startswith("\ufeff"):
        raise BadFile(f"{name} begins with a byte-order mark; save it as UTF-8 without one")
    value = _parse(text, name)
    if HALF_PAIR.search(data):
        _encode(json.dumps(value, ensure_ascii=False), name)
    return value


def write_json(
    path: str | os.PathLike[str], value: Any, *, max_bytes: int = MAX_BYTES, follow: bool = True
) -> None:
    """Write a value, keys in the given order; the file is replaced whole or not at all.

    follow: as in `replace_file`.
    """
    name = quote(path)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    except (ValueError, RecursionError) as reason:
        raise BadFile(f"the value for {name} cannot be written as JSON: {reason}") from None
    data = _encode(text, name)
    parse_json(data, f"the value for {name}", max_bytes=max_bytes)  # else it could not be read
    with replace_file(path, follow=follow) as file:
        file.write(data)


def _encode(text: bytes | str, name: str) -> bytes:
    try:
        return text if isinstance(text, bytes) else text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadFile(f"{name} holds half a surrogate pair, which is not a character") from None


def _check_size(data: bytes, name: str, max_parts: int) -> None:
    """Refuse deep nesting, without the recursion of Python's parser, and too many parts."""
    # A backslash outside a string would mislead this, but that is not JSON, and the parser stops.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    n_parts = bare.count(b'"') // 2
    if n_parts <= max_parts:  # else already the pieces between strings would fill the memory
        signs = STRING.sub(b"", bare).translate(None, NO_SIGNS)
        n_parts = sum(signs.count(sign) for sign in b",:[{")
        brackets = signs.translate(BRACES, NO_BRACKETS)[: 2 * max_parts]
        depths = accumulate(92 - bracket for bracket in brackets)  # [ is 91, ] is 93
        if max(depths, default=0) > MAX_DEPTH:
            raise BadFile(f"{name} is nested deeper than {MAX_DEPTH} levels")
    if n_parts > max_parts:
        raise BadFile(f"{name} has {n_parts:,} parts, more than the {max_parts:,} read here")


def _parse(text: str, name: str) -> Any:
    def check_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
            raise BadFile(f"{name} has the key {repeated!r:.80} twice")
        return values

    def parse_integer(digits: str) -> int:
        if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
            raise BadFile(f"{name} has a whole number beyond 64 bits: {digits:.30}")
        return int(digits)

    def parse_finite(digits: str) -> float:
        if digits in ("NaN", "Infinity", "-Infinity") or abs(float(digits)) == float("inf"):
            raise BadFile(f"{name} has {digits:.30}, which is not a finite number")
        return float(digits)

    try:
        return json.loads(
            text,
            object_pairs_hook=check_keys,
            parse_int=parse_integer,
            parse_float=parse_finite,
            parse_constant=parse_finite,
        )
    except json.JSONDecodeError as fault:
        words = f"line {fault.lineno}, column {fault.colno}: {fault.msg.lower()}"
        raise BadFile(f"{name} is not JSON: {words}") from None

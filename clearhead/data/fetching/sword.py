"""Verses of SWORD text modules (the driver zText), paired across two languages.

A testament is three files. Blocks of text, usually a book each, are packed by zlib in `.bzz`;

    .bzs   for each block   uint32 offset in .bzz, uint32 packed size, uint32 unpacked size
    .bzv   for each verse   uint32 block, uint32 offset in the unpacked block, uint16 length

Verses are marked up in OSIS, an XML dialect. Before the verses of each chapter stands an entry with
`<chapter osisID="Gen.1" …/>`, so chapters and verse numbers can be read from the text, and two
modules that number verses differently can still be paired.
"""

import html
import re
import struct
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from clearhead.files import BadFile
from clearhead.files.reading import read_bytes
from clearhead.files.text import decode_utf8

MAX_FILE = 64 << 20
MAX_BLOCK = 16 << 20
MAX_RATIO = 2.2  # of lengths: beyond it, two verses of one number are not the same verse
BLOCK, VERSE = struct.Struct("<3L"), struct.Struct("<2LH")
CHAPTER = re.compile(r'<chapter\b(?=[^>]*\bsID=)[^>]*\bosisID="([^"]+)"')
BOOK = re.compile(r'<div\b(?=[^>]*\bsID=)(?=[^>]*\btype="book")')  # its start, not its end
ASIDES = re.compile(r"<(note|title|speaker)\b[^>]*(?<!/)>.*?</\1>", re.DOTALL)
# Some texts lack the space beside a word that a translator added; but "sáca" + "lo" is one word.
JOINS = re.compile(r"(</w>)(?=<transChange\b[^>]*>(?!l[aeo]s?<))|(</transChange>)(?=<w\b)")
TAGS = re.compile(r"<[^>]*>")
LOOSE = re.compile(r" ([,.;:!?)”’])")

Verses = dict[tuple[str, int], str]  # ("Gen.1", 3) → the text of Genesis 1:3


def read_verses(folder: Path) -> Verses:
    """The plain text of each verse of a module, by chapter and number."""
    verses: Verses = {}
    for testament in ("ot", "nt"):
        chapter, number = None, 0
        for entry in _read_entries(folder, testament):
            found = CHAPTER.findall(entry)
            if found or BOOK.search(entry):
                chapter, number = found[-1] if found else None, 0
            elif chapter is not None:
                number += 1
                verses[chapter, number] = plain_text(entry)
    return verses


def plain_text(entry: str) -> str:
    """The words of a verse, without notes, headings and markup."""
    entry = JOINS.sub(r"\g<0> ", ASIDES.sub(" ", entry))
    words = html.unescape(TAGS.sub("", entry)).split()
    return LOOSE.sub(r"\1", " ".join(words))


def pair_verses(first: Verses, second: Verses) -> list[tuple[str, str]]:
    """Pair the verses that both have, in the order of the first.

    A verse that is missing or far longer in one of the two shows that they are numbered
    differently, so that the following verses do not match: such a chapter is left out.
    """
    pairs: list[tuple[str, str]] = []
    for _, keys in groupby(first, key=lambda key: key[0]):
        chapter = [(first[key], second.get(key, "")) for key in keys]
        if all(_have_similar_lengths(a, b) for a, b in chapter):
            pairs += chapter
    return pairs


def _have_similar_lengths(a: str, b: str) -> bool:
    return 0 < len(a) <= MAX_RATIO * len(b) and len(b) <= MAX_RATIO * len(a)


def _read_entries(folder: Path, testament: str) -> Iterator[str]:
    """The entries of a testament with their markup: introductions and verses."""
    blocks_file, verses_file, packed = (
        read_bytes(folder / f"{testament}.{end}", MAX_FILE) for end in ("bzs", "bzv", "bzz")
    )
    if len(blocks_file) % BLOCK.size or len(verses_file) % VERSE.size:
        raise BadFile(f"{folder / testament}.bzs or .bzv is cut short")
    blocks = list(BLOCK.iter_unpack(blocks_file))
    number, text = -1, b""
    for wanted, start, length in VERSE.iter_unpack(verses_file):
        if length and wanted != number:
            text = _unpack_block(packed, blocks, wanted, f"{folder / testament}.bzz")
            number = wanted
        if length and start + length > len(text):
            raise BadFile(f"{folder / testament}.bzv points beyond block {wanted}")
        yield decode_utf8(text[start : start + length] if length else b"", f"{folder / testament}")


def _unpack_block(packed: bytes, blocks: list[tuple[int, ...]], number: int, name: str) -> bytes:
    if number >= len(blocks):
        raise BadFile(f"{name} has no block {number}")
    offset, length, size = blocks[number]
    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(packed[offset : offset + length], min(size, MAX_BLOCK) + 1)
    except zlib.error as fault:
        raise BadFile(f"{name}: block {number} is broken ({fault})") from None
    if len(text) != size:
        raise BadFile(f"{name}: block {number} does not have the {size:,} bytes it claims")
    return text

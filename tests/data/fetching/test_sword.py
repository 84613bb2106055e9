"""Verses of SWORD text modules, paired across two languages."""

import struct
import zlib

import pytest

from clearhead.data.fetching.sword import pair_verses, plain_text, read_verses
from clearhead.files import BadFile

BOOK = '<div canonical="true" osisID="Gen" sID="g1" type="book"/><title>Genesis</title>'
END = '<div eID="g1" type="book"/>'


def chapter(name):
    return f'<chapter n="1" osisID="{name}" sID="{name}"/>'


def write_module(folder, blocks, testament="ot"):
    """A testament of these blocks of entries; the other one is empty."""
    folder.mkdir(exist_ok=True)
    index = places = packed = b""
    for number, entries in enumerate(blocks):
        text = b""
        for entry in entries:
            places += struct.pack("<2LH", number, len(text), len(entry.encode()))
            text += entry.encode()
        data = zlib.compress(text)
        index += struct.pack("<3L", len(packed), len(data), len(text))
        packed += data
    other = "nt" if testament == "ot" else "ot"
    for end, data in {"bzs": index, "bzv": places, "bzz": packed}.items():
        (folder / f"{testament}.{end}").write_bytes(data)
        (folder / f"{other}.{end}").write_bytes(b"")
    return folder


BLOCKS = [
    ["", '<milestone type="x-importer"/>'],
    [
        *(BOOK, chapter("Gen.1"), "<w>In</w> <w>the</w> beginning.", "And <w>light</w>."),
        *(chapter("Gen.2"), "Third.", "", f"Last. {END}"),
    ],
    [BOOK.replace("Gen", "Exod"), chapter("Exod.1"), "Éxodo – “ja”."],
]


@pytest.mark.parametrize("testament", ["ot", "nt"])
def test_verses_are_found_by_chapter_and_number(tmp_path, testament):
    found = read_verses(write_module(tmp_path / "m", BLOCKS, testament))
    assert found == {
        ("Gen.1", 1): "In the beginning.",
        ("Gen.1", 2): "And light.",
        ("Gen.2", 1): "Third.",
        ("Gen.2", 2): "",
        ("Gen.2", 3): "Last.",
        ("Exod.1", 1): "Éxodo – “ja”.",
    }


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ('Christ,<note n="1">or <b>Messiah</b></note><w>the</w> son', "Christ, the son"),
        ("<title>A Psalm.</title>Blessed  is\n he .", "Blessed is he."),
        ("<speaker>Lover</speaker><q>“I am” </q>", "“I am”"),
        ("<divineName>Lord</divineName>’s day &amp; night &#233;", "Lord’s day & night é"),
        ('<title type="x"/>kept<note/> too', "kept too"),
        ("<w>a</w> <w>b</w> , c ; d", "a b, c; d"),
        ("<w>hay</w><transChange>que</transChange><w>ir</w>", "hay que ir"),
        ('<w>sáca</w><transChange type="added">lo</transChange>, ya', "sácalo, ya"),
    ],
)
def test_only_the_words_are_kept(entry, expected):
    assert plain_text(entry) == expected


def test_verses_of_one_place_are_paired_in_the_order_of_the_first():
    first = {("A.1", 1): "one", ("A.1", 2): "two", ("B.1", 1): "three"}
    second = {("B.1", 1): "tres", ("A.1", 2): "dos", ("A.1", 1): "uno", ("C.1", 1): "más"}
    assert pair_verses(first, second) == [("one", "uno"), ("two", "dos"), ("three", "tres")]


@pytest.mark.parametrize("other", ["", None, "x" * 40])
def test_a_chapter_that_counts_differently_is_left_out_whole(other):
    first = {("A.1", 1): "one", ("A.1", 2): "two two two", ("B.1", 1): "three"}
    second = {("A.1", 1): "uno", ("A.1", 2): other, ("B.1", 1): "tres"}
    second = {place: text for place, text in second.items() if text is not None}
    assert pair_verses(first, second) == [("three", "tres")]
    assert pair_verses({**first, ("A.1", 2): ""}, {**second, ("A.1", 2): "dos"}) == [
        ("three", "tres")
    ]


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("ot.bzs", lambda d: d[:-1], "cut short"),
        ("ot.bzv", lambda d: d[:-1], "cut short"),
        ("ot.bzz", lambda d: d[:-8], "block 2 (is broken|does not have)"),
        ("ot.bzz", lambda d: b"\xff" * len(d), "block 0 is broken"),
        ("ot.bzs", lambda d: d[:-12], "has no block 2"),
        (
            "ot.bzs",
            lambda d: d[:8] + b"\xff\xff\xff\xff" + d[12:],
            "does not have the 4,294,967,295",
        ),
        ("ot.bzv", lambda d: d[:-2] + b"\xff\xff", "points beyond block 2"),
        ("ot.bzv", lambda d: d[:-6] + b"\xff\xff\xff\xff" + d[-2:], "points beyond block 2"),
    ],
)
def test_a_broken_module_is_refused(tmp_path, file, change, words):
    folder = write_module(tmp_path / "m", BLOCKS)
    (folder / file).write_bytes(change((folder / file).read_bytes()))
    with pytest.raises(BadFile, match=words):
        read_verses(folder)


def test_a_missing_file_and_bytes_that_are_no_utf8_are_refused(tmp_path):
    folder = write_module(tmp_path / "m", BLOCKS)
    (folder / "nt.bzz").unlink()
    with pytest.raises(BadFile, match=r"nt\.bzz is not there"):
        read_verses(folder)
    folder = write_module(tmp_path / "n", [[]])
    (folder / "ot.bzz").write_bytes(data := zlib.compress(b"\xff\xfe"))
    (folder / "ot.bzs").write_bytes(struct.pack("<3L", 0, len(data), 2))
    (folder / "ot.bzv").write_bytes(struct.pack("<2LH", 0, 0, 2))
    with pytest.raises(BadFile, match="not UTF-8: byte 0"):
        read_verses(folder)

"""Whatever a file holds, a reader returns or raises BadFile; it never hangs, crashes or leaks.

Each reader gets good files with bytes changed, cut, doubled or moved. 2 000 cases for each here;
HYPOTHESIS_PROFILE=deep takes 100 000.
"""

import io
import json
import os
import random
import shutil
import time

import numpy
import pytest
import torch
from archive_files import member, packed, tar_of
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from clearhead.files import BadFile, parse_json, read_members, read_text
from clearhead.files.pictures import read_picture
from clearhead.files.tensors import read_tensors, write_tensors

CASES = 100_000 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 2_000
TELLING = [0, 1, 0x20, 0x2F, 0x2E, 0x22, 0x5B, 0x7B, 0x7F, 0x80, 0xFF]


def mutated(data, rng):
    """A good file, damaged in one to four ways."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        length = rng.choice([1, 1, 1, 2, 4, 8, 100])
        match rng.randrange(7):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at : at + length] = bytes([rng.choice(TELLING)]) * length
            case 2 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 3:
                del data[at : at + length]
            case 4:
                data[at:at] = data[at : at + length]
            case 5:
                del data[at:]
            case 6:
                other = rng.randrange(len(data) + 1)
                data[at : at + length] = data[other : other + length]
    return bytes(data)


def good_files(folder):
    """Reader → good files for it."""
    rng = numpy.random.default_rng(0)
    noise = rng.integers(0, 256, (9, 7, 3), dtype="uint8")
    files = {"a/b.txt": b"one" * 50, "a/c": bytes(range(200)), "d": b""}  # of unequal length
    tar = tar_of([member(name, data) for name, data in files.items()])
    long = tar_of([member("x/" * 8 + "y" * 120, b"1"), member("ü" * 60, b"2")])
    write_tensors(
        folder / "t",
        {"a": torch.ones(2, 3), "b.c": torch.arange(5), "d": torch.tensor(True)},
        metadata={"format": "pt"},
    )
    pictures = []
    for form, options in (("PNG", {}), ("JPEG", {}), ("JPEG", {"progressive": True})):
        for mode in ("RGB", "L"):
            buffer = io.BytesIO()
            Image.fromarray(noise).convert(mode).save(buffer, form, **options)
            pictures.append(buffer.getvalue())
    config = {"d_model": 8, "rates": [0.1, 1e-3, -7], "x": {"y": [None, True, 'é"\\[{']}}
    return {
        "tensors": [(folder / "t").read_bytes()],
        "json": [json.dumps(config, ensure_ascii=flag).encode() for flag in (True, False)],
        "text": ["Wherefore art thou?\r\n\tRömeo 😀\n".encode() * 3],
        "tar": [tar, long],
        "packed": [packed(tar, "tar.gz"), packed(tar, "deb")],
        "pictures": pictures,
    }


def read(kind, path):
    if kind == "tensors":
        return read_tensors(path)
    if kind == "json":
        return parse_json(path.read_bytes(), "x")
    if kind == "text":
        return read_text(path)
    if kind == "pictures":
        return read_picture(path)
    try:
        return read_members(path, lambda name: f"m{len(name)}", path.parent / "new")
    finally:
        shutil.rmtree(path.parent / "new", ignore_errors=True)
        assert os.listdir(path.parent) == [path.name], "something was left behind"


def refusal(kind, path, data):
    """The sentence of the refusal, None if the file was read; anything else is a failure."""
    try:
        read(kind, path)
    except BadFile as fault:
        return str(fault)
    except Exception as other:
        pytest.fail(f"{kind}: {type(other).__name__}: {other} from {data!r}")
    return None


@pytest.mark.parametrize("kind", ["tensors", "json", "text", "tar", "packed", "pictures"])
def test_F10_a_damaged_file_is_read_or_is_a_bad_file(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # thousands of waits for the disk
    rng = random.Random(f"{kind} {CASES}")
    goods = good_files(tmp_path)[kind]
    path = tmp_path / "in" / "file"
    path.parent.mkdir()
    outcomes = {True: 0, False: 0}
    for good in goods:
        path.write_bytes(good)
        read(kind, path)
    for case in range(CASES if kind != "pictures" else CASES // 2):
        data = mutated(goods[case % len(goods)], rng)
        path.write_bytes(data)
        start = time.process_time()
        words = refusal(kind, path, data)
        outcomes[words is None] += 1
        assert words is None or (words.isprintable() and len(words) < 600), data
        assert time.process_time() - start < 1, data
    assert min(outcomes.values()) > 0, outcomes  # both happen, else nothing was tried


@given(st.binary(max_size=300))
def test_F10_any_bytes_are_a_bad_file_for_every_reader(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("in") / "file"
    path.write_bytes(data)
    for kind in ("tensors", "tar", "pictures"):
        with pytest.raises(BadFile):
            read(kind, path)


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "U8", "BOOL", "F7", 3]),
                "shape": st.lists(st.integers(-1, 4) | st.just(1 << 62), max_size=9) | st.none(),
                "data_offsets": st.lists(st.integers(-1, 40) | st.booleans(), max_size=3),
            }
        ),
        max_size=3,
    ),
    st.binary(max_size=40),
)
def test_F10_any_header_is_read_or_is_a_bad_file(tmp_path_factory, header, numbers):
    path = tmp_path_factory.mktemp("in") / "file"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)
    try:
        found = read_tensors(path)
    except BadFile:
        return
    assert sum(x.numel() * x.element_size() for x in found.values()) == len(numbers)

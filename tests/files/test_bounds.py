"""What a file from elsewhere costs before it is read or refused: seconds of work and memory."""

import json
import os
import resource
import sys
import time

import pytest
from PIL import Image
from runs.tiny_runs import Child

from clearhead.data.tokenizers.byte_pairs import CHARACTERS
from clearhead.files import BadFile, read_json, read_text
from clearhead.files.pictures import read_picture
from clearhead.files.tensors import read_header
from clearhead.files.text import MAX_BYTES
from clearhead.interop.tokenizer_json import read_tokenizer_json

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


def cost(work, error=None):
    """The seconds of processor time and the megabytes that `work` takes, in a process of its own.

    error: the BadFile it must raise.
    """
    reader, writer = os.pipe()

    def measured(ready):
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        if error is None:
            work()
        else:
            with pytest.raises(BadFile, match=error):
                work()
        seconds = time.process_time() - start
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os.write(writer, json.dumps([seconds, grown * UNIT / 1e6]).encode())

    code = Child(measured).end(seconds=600)
    os.close(writer)
    with open(reader, "rb") as file:
        found = file.read()
    assert code == 0
    return json.loads(found)


def write(path, data):
    path.write_bytes(data)
    return path


JSON = {  # 32 MB, as much as the file of a tokenizer may have
    "empty lists": b"[" + b"[]," * 10_666_000 + b"[]]",
    "empty strings": b"[" + b'"", ' * 8_000_000 + b'""]',
    "one long string": b'["' + b'\\"' * 16_000_000 + b'"',
}


@pytest.mark.parametrize("kind", JSON)
def test_large_json_is_refused_in_a_second_and_200_MB(tmp_path, kind):
    path = write(tmp_path / "a.json", JSON[kind])
    words = "is not JSON" if kind == "one long string" else "parts, more than the 1,500,000 read"
    seconds, megabytes = cost(lambda: read_json(path, max_bytes=32 << 20), words)
    assert seconds < 1.5
    assert megabytes < 200


def test_a_header_of_many_entries_is_refused_before_it_is_parsed(tmp_path):
    header = b"{" + b",".join(b'"%d":[]' % i for i in range(700_000)) + b"}"
    path = write(tmp_path / "a.safetensors", len(header).to_bytes(8, "little") + header)
    seconds, megabytes = cost(lambda: read_header(path), "its header has .* parts, more than the")
    assert seconds < 1
    assert megabytes < 120


@pytest.mark.parametrize(("mode", "name"), [("RGBA", "a.png"), ("I;16", "b.png"), ("RGB", "c.jpg")])
def test_the_largest_picture_takes_less_than_200_MB(tmp_path, mode, name):
    exif = Image.Exif()
    exif[0x0112] = 6  # a JPEG to be turned
    options = {"exif": exif} if mode == "RGB" else {"compress_level": 1}
    Image.new(mode, (4096, 4096)).save(tmp_path / name, **options)
    seconds, megabytes = cost(lambda: read_picture(tmp_path / name))
    assert seconds < 3
    assert megabytes < 200


def test_the_largest_text_takes_twice_its_size_and_a_bad_one_no_more(tmp_path):
    line = b"a" * 99 + b"\n"
    path = write(tmp_path / "a.txt", line * (MAX_BYTES // 100))
    assert cost(lambda: read_text(path))[1] < 225
    with open(path, "r+b") as file:  # a text of four bytes for each character, but for its end
        file.write("😀".encode())
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    assert cost(lambda: read_text(path), "byte 104,857,599 is 0xff")[1] < 225
    with open(path, "ab") as file:
        file.write(line)
    assert cost(lambda: read_text(path), "more than the 104,857,600 read here")[1] < 10


@pytest.mark.parametrize("n", [1 << 20, (1 << 20) - 1, (1 << 20) - 3])
def test_a_character_cut_by_the_parts_in_which_a_text_is_checked_is_whole(tmp_path, n):
    text = "a\n" * (n // 2) + "b" * (n % 2) + "😀 ü\n"
    assert read_text(write(tmp_path / "a.txt", text.encode())) == text
    with pytest.raises(BadFile, match=f"byte {n:,} is 0xf0"):
        read_text(write(tmp_path / "b.txt", text.encode()[: n + 2]))


def test_many_special_tokens_are_read_in_linear_time(tmp_path):
    vocabulary = {character: i for i, character in enumerate(CHARACTERS)}
    added = [{"id": 256 + i, "content": f"<{i}>", "special": True} for i in range(50_000)]
    splits = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    values = {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}}
    values |= {"added_tokens": added, "pre_tokenizer": splits}
    path = write(tmp_path / "tokenizer.json", json.dumps(values).encode())
    seconds, _ = cost(lambda: read_tokenizer_json(path))
    assert seconds < 3

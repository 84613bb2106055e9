"""Text files: strict UTF-8, no NUL, no endless line."""

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.files import BadFile, read_text
from clearhead.files.text import decode_utf8, read_chunks

FAMILY = "👩‍❤️‍💋‍👨" * 5  # twenty persons in one emoji sequence after another


@pytest.fixture
def written(tmp_path):
    """The text that is read from these bytes."""

    def written(data, **caps):
        (tmp_path / "play.txt").write_bytes(data)
        return read_text(tmp_path / "play.txt", **caps)

    return written


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " \n \t\n",
        "no newline",
        "a\n\n\nb\n",
        "שלום world",
        "é",
        "e\u0301",
        FAMILY,
        "\u2028",
    ],
)
def test_F17_text_comes_back_exactly(written, text):
    assert written(text.encode()) == text


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")))
def test_F17_any_text_without_returns_comes_back_exactly(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("text") / "a"
    path.write_bytes(text.encode())
    assert read_text(path) == text.removeprefix("\ufeff")


def test_F17_mixed_newlines_become_one_kind(written):
    assert written(b"one\r\ntwo\rthree\n\r\n\r") == "one\ntwo\nthree\n\n\n"


def test_a_byte_order_mark_at_the_start_is_no_letter(written):
    assert written(b"\xef\xbb\xbfHAMLET\xef\xbb\xbf") == "HAMLET\ufeff"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"abc\0def", "has a NUL at byte 3"),
        (b"caf\xe9 noir", "not UTF-8: byte 3 is 0xe9"),
        (b"\xed\xa0\x80", "not UTF-8: byte 0 is 0xed"),  # half a surrogate pair
        (b"ok\xc0\x80", "byte 2 is 0xc0"),  # an overlong NUL
        ("ü".encode() + b"\xc3", "byte 2 is 0xc3"),  # cut in a letter
        (b"\xff\xfea\0", "NUL at byte 3|0xff"),  # UTF-16
        (b"\xf4\x90\x80\x80", "byte 0 is 0xf4"),  # beyond the last character
    ],
)
def test_F17_what_is_no_text_is_refused_with_its_offset(written, data, words):
    with pytest.raises(BadFile, match=words):
        written(data)


def test_F17_one_endless_line_is_refused_quickly(tmp_path):
    with open(tmp_path / "line.txt", "wb") as file:
        for _ in range(100):
            file.write(b"x" * (1 << 20))
    start = time.process_time()
    with pytest.raises(BadFile, match="a line of more than 1,048,576 bytes at byte 0; break it"):
        read_text(tmp_path / "line.txt")
    assert time.process_time() - start < 1


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_line_at_the_cap_is_read_and_one_byte_more_is_not(written, end):
    good = b"ab" + end + b"1234567" + end + b"1234567"
    assert written(good, max_line=7) == good.decode().replace("\r\n", "\n").replace("\r", "\n")
    for bad in (b"12345678" + end, b"a" + end + b"12345678", b"a" + end + b"12345678" + end):
        with pytest.raises(BadFile, match="a line of more than 7 bytes at byte"):
            written(bad, max_line=7)


def test_a_file_over_the_cap_is_refused(written):
    assert written(b"abcd", max_bytes=4) == "abcd"
    with pytest.raises(BadFile, match=r"play\.txt has 5 bytes, more than the 4 read here"):
        written(b"abcde", max_bytes=4)


def test_a_missing_file_and_a_folder_are_one_sentence(tmp_path):
    with pytest.raises(BadFile, match=r"none\.txt is not there$"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(BadFile, match=r"is a folder, not a file$"):
        read_text(tmp_path)


def test_bytes_are_decoded_under_a_name():
    assert decode_utf8(b"\xc3\xbc", "x") == "ü"
    with pytest.raises(BadFile, match=r"the vocabulary is not UTF-8: byte 1 is 0xfc .*; save it"):
        decode_utf8(b"a\xfc", "the vocabulary")


# Part by part


@given(
    st.lists(st.sampled_from(["\ufeff", "\r", "\n", "\r\n", "a", "é", "中", "😀", " "])),
    st.integers(1, 9),
)
def test_parts_joined_are_the_whole_text(tmp_path_factory, characters, chunk):
    path = tmp_path_factory.mktemp("text") / "play.txt"
    path.write_bytes("".join(characters).encode())
    parts = list(read_chunks(path, chunk=chunk))
    assert "".join(parts) == read_text(path)
    assert "" not in parts
    assert all(len(part) <= chunk + 1 for part in parts)  # a line end that waited for a second


@given(st.integers(0, 20), st.sampled_from([b"\xff", b"\0", b"\xc3", b"\xed\xa0\x80"]))
def test_a_fault_has_the_same_words_in_parts_as_in_a_whole(tmp_path_factory, n, fault):
    path = tmp_path_factory.mktemp("text") / "play.txt"
    path.write_bytes("aé中😀bcdefgh".encode()[:n].decode(errors="ignore").encode() + fault)
    with pytest.raises(BadFile) as whole:
        read_text(path)
    for chunk in (1, 2, 3, 100):
        with pytest.raises(BadFile) as found:
            list(read_chunks(path, chunk=chunk))
        assert str(found.value) == str(whole.value)


def test_an_endless_line_is_read_in_parts_of_bounded_size(tmp_path):
    with open(tmp_path / "line.txt", "wb") as file:
        for _ in range(30):
            file.write(b"x" * (1 << 20))
    tracemalloc.start()
    n = sum(map(len, read_chunks(tmp_path / "line.txt")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n == 30 << 20
    assert peak < 8 << 20

"""JSON with no doubt left."""

import json
import math
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.files import BadFile, parse_json, read_json, write_json

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('aé\U0001f600\0\n"\\[{'), inner),
)


@settings(max_examples=50)
@given(PLAIN)
def test_what_is_written_is_read_back(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("json") / "a.json"
    write_json(path, value)
    assert read_json(path) == value
    assert json.loads(path.read_bytes()) == value


def test_keys_keep_their_order_and_letters_stay_readable(tmp_path):
    write_json(tmp_path / "a", {"b": "é", "a": [1]})
    text = (tmp_path / "a").read_text(encoding="utf-8")
    assert text == '{\n  "b": "é",\n  "a": [\n    1\n  ]\n}\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "has the key 'a' twice"),
        ('{"x": {"a": 1, "\\u0061": 2}}', "has the key 'a' twice"),
        ("NaN", "NaN, which is not a finite number"),
        ("[-Infinity]", "-Infinity, which is not a finite"),
        ("1e999", "1e999, which is not a finite"),
        ("-1e400", "-1e400, which is not a finite"),
        ("[18446744073709551616]", "whole number beyond 64 bits: 18446744073709551616"),
        ("-9223372036854775809", "beyond 64 bits"),
        ("9" * 10_000, "beyond 64 bits"),
        ('"\\ud800"', "half a surrogate pair"),
        ('{"\\udfff": 1}', "half a surrogate pair"),
        ("\ufeff{}", "begins with a byte-order mark"),
        ("", "config.json is not JSON: line 1, column 1: expecting value"),
        ("{}x", "line 1, column 3: extra data"),
        ('{"a": 1,}', "is not JSON: line 1"),
        ("{'a': 1}", "is not JSON"),
        ("[1, 2", "is not JSON"),
        ("]", "is not JSON"),
        ('"\t"', "is not JSON"),
        ("01", "is not JSON"),
        ("true false", "is not JSON"),
    ],
)
def test_F11_what_leaves_a_doubt_is_refused(text, words):
    with pytest.raises(BadFile, match=words):
        parse_json(text, "config.json")


def test_both_ends_of_64_bits_are_read():
    assert parse_json("[-9223372036854775808, 18446744073709551615, -0, 1e308, 5e-324]") == [
        -(1 << 63),
        (1 << 64) - 1,
        0,
        1e308,
        5e-324,
    ]


def test_a_whole_surrogate_pair_is_a_character():
    assert parse_json(r'"\ud83d\ude00"') == "😀"


@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a":', "}"), ('[{"x":', "}]")])
def test_F11_nesting_stops_at_32(start, end):
    levels = start.count("[") + start.count("{")
    good, bad = 32 // levels, 32 // levels + 1
    parse_json(start * good + "1" + end * good)
    with pytest.raises(BadFile, match="nested deeper than 32 levels"):
        parse_json(start * bad + "1" + end * bad)


@pytest.mark.parametrize("levels", [33, 10_000, 1 << 21])
@pytest.mark.parametrize("start", ["[", '{"a":', '["]",'])
def test_F11_depth_of_ten_thousand_does_not_crash(levels, start):
    data = (start * levels)[: 4 << 20]
    begin = time.process_time()
    with pytest.raises(BadFile, match="nested deeper than 32"):
        parse_json(data)
    assert time.process_time() - begin < 3


def test_brackets_in_strings_do_not_nest():
    text = json.dumps(["[" * 100, '"[[' * 50, "\\" * 3 + "[" * 60, {"{" * 50: 1}])
    assert parse_json(text) == json.loads(text)


def test_a_string_that_never_ends_takes_no_longer_than_one_that_does():
    begin = time.process_time()
    with pytest.raises(BadFile, match="not JSON"):
        parse_json('"' + '\\"' * (2 << 20 - 1))
    assert time.process_time() - begin < 2


def test_many_keys_one_of_them_twice_are_refused_in_time():
    keys = [f'"{i}":0' for i in range(200_000)]
    begin = time.process_time()
    with pytest.raises(BadFile, match="the key '7' twice"):
        parse_json("{" + ",".join([*keys, '"7":0']) + "}")
    assert time.process_time() - begin < 3


def test_the_size_is_checked_before_the_bytes_are_read(tmp_path):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(BadFile, match="big has 1,073,741,824 bytes, more than the 4,194,304"):
        read_json(tmp_path / "big")
    with pytest.raises(BadFile, match="x has 8 bytes, more than the 7 read here"):
        parse_json(b'"123456"', "x", max_bytes=7)


def test_bytes_must_be_utf8():
    with pytest.raises(BadFile, match="x is not UTF-8: byte 1 is 0xff"):
        parse_json(b'"\xff"', "x")
    with pytest.raises(BadFile, match="x is not UTF-8"):
        parse_json('"é"'.encode("utf-16"), "x")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "cannot be written as JSON"),
        ({"a": [math.inf]}, "cannot be written as JSON"),
        ("\ud800", "half a surrogate"),
        ({1: "a", "1": "b"}, "has the key '1' twice"),
        (1 << 64, "beyond 64 bits"),
        ("x" * (5 << 20), "more than the 4,194,304 read here"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, value, words):
    path = tmp_path / "a.json"
    path.write_text("1")
    with pytest.raises(BadFile, match=words):
        write_json(path, value)
    assert path.read_text() == "1"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_value_that_contains_itself_or_no_plain_value_is_not_written(tmp_path):
    circle: list = []
    circle.append(circle)
    with pytest.raises(BadFile, match="cannot be written as JSON"):
        write_json(tmp_path / "a", circle)
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(tmp_path / "a", {1, 2})
    assert os.listdir(tmp_path) == []

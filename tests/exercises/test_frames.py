"""Frames keep values as they are; whatever else arrives is refused by name."""

import json
import math
import random
from io import BytesIO

import numpy as np
import pytest
import torch

from clearhead.exercises.sandbox import frames


def read(data):
    """The value in these bytes; EOFError if they end too early, as a closed pipe does."""
    stream = BytesIO(data)

    def take(n):
        assert n <= frames.MAX_DATA
        found = stream.read(n)
        if len(found) < n:
            raise EOFError
        return found

    return frames.read(take)


def build(value, sizes=(), data=b""):
    head = json.dumps({"value": value, "sizes": list(sizes)}).encode()
    return len(head).to_bytes(4, "big") + head + data


VALUES = [
    None,
    True,
    -7,
    2.5,
    "ä\n",
    [1, [2, ()]],
    (1, "x"),
    {"a": 1, 2: (3,)},
    torch.arange(6).view(2, 3),
    torch.tensor([True, False]),
    torch.zeros(0, 3),
    torch.tensor(1.5, dtype=torch.float64),
    np.arange(4.0),
    {"float": "nan"},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_arrives_as_it_was(value):
    found = read(frames.pack(value))
    assert type(found) is type(value)
    if isinstance(value, torch.Tensor):
        assert found.dtype == value.dtype
        assert torch.equal(found, value)
    elif isinstance(value, np.ndarray):
        assert np.array_equal(found, value)
    else:
        assert found == value


def test_numbers_that_json_does_not_know_arrive():
    found = read(frames.pack([math.inf, -math.inf, math.nan]))
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])


def test_other_objects_arrive_as_the_name_of_their_type():
    assert repr(read(frames.pack(torch.nn.Linear(1, 1)))) == "<Linear>"


BAD = {
    "a head that is too long": b"\xff\xff\xff\xff",
    "no JSON": b"\0\0\0\2[}",
    "a list as head": b"\0\0\0\2[]",
    "NaN": b"\0\0\0\x1a" + b'{"value": NaN, "sizes":[]}',
    "negative sizes": build(1, [-1]),
    "sizes that are no numbers": build(1, [True]),
    "too much data": build(1, [frames.MAX_DATA, 1]),
    "an unknown kind": build({"module": "os"}),
    "a shape that does not fit": build({"tensor": 0, "shape": [2], "dtype": "int8"}, [1], b"x"),
    "a huge empty shape": build({"tensor": 0, "shape": [1 << 26] * 7 + [0], "dtype": "int8"}, [0]),
    "a rank of nine": build({"tensor": 0, "shape": [1] * 9, "dtype": "int8"}, [1], b"x"),
    "a dtype that does not exist": build({"tensor": 0, "shape": [1], "dtype": "x"}, [1], b"x"),
    "a tensor without data": build({"tensor": 3, "shape": [1], "dtype": "int8"}),
    "a key that cannot be hashed": build({"dict": [[[], 1]]}),
    "pairs that are none": build({"dict": [[1, 2, 3]]}),
    "depth": build(json.loads("[" * 40 + "]" * 40)),
    "much depth": b"\0\x01\x86\xa0" + b"[" * 100_000,
}


@pytest.mark.parametrize("name", BAD)
def test_G15_a_bad_frame_is_refused(name):
    with pytest.raises(frames.BadFrame):
        read(BAD[name])


def test_half_of_a_surrogate_pair_becomes_a_question_mark():
    assert read(build("\ud800")) == "?"
    assert read(frames.pack("a\udfff")) == "a?"


def test_G15_five_thousand_random_frames_are_read_or_refused():
    rng = random.Random(14)
    good = [frames.pack(value) for value in VALUES]
    good += [frames.pack({"number": 1, "value": {"output": torch.ones(2, 3), "x": [1.5, None]}})]
    outcomes = {"read": 0, "refused": 0, "ended": 0}
    for _ in range(5000):
        data = mutate(bytearray(rng.choice(good)), rng)
        try:
            read(bytes(data))
            outcomes["read"] += 1
        except frames.BadFrame:
            outcomes["refused"] += 1
        except EOFError:
            outcomes["ended"] += 1
    assert sum(outcomes.values()) == 5000
    assert min(outcomes.values()) > 100, outcomes


def mutate(data, rng):
    """Change a frame: bytes, digits, pieces of it, or its length."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(data)) if data else 0
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[place] = rng.randrange(256)
        elif kind == 1:
            data[place:place] = rng.choice(
                (b"9", b"[", b"{}", b'"', b"-", b"null", b"1e999", b"\0")
            )
        elif kind == 2:
            del data[place : place + rng.randrange(1, 6)]
        elif kind == 3:
            data[place:place] = data[rng.randrange(len(data) + 1) :][:20]
        head = len(data) - 4 if rng.random() < 0.5 else None
        if head is not None and head > 0:  # so that the head is read to its end
            data[:4] = head.to_bytes(4, "big")
    return data

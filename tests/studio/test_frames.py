"""An answer survives the way to the page: values, arrays of every kind, and where they start."""

import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.studio.frames import decode_answer, encode_answer

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.lists(st.integers(0, 9), max_size=4))
def test_values_and_arrays_come_back_as_they_were(value, numbers):
    arrays = {"a": np.array(numbers, dtype=np.uint8), "b": torch.arange(5.0).reshape(1, 5)}
    found = decode_answer(encode_answer({"value": value, "arrays": [arrays]}))
    assert found["value"] == value
    assert found["arrays"][0]["a"].tolist() == numbers
    assert found["arrays"][0]["b"].tolist() == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (torch.ones(2, 3), "float32"),
        (torch.ones(2, 3, dtype=torch.float64), "float64"),
        (torch.ones(2, 3, dtype=torch.bool), "uint8"),
        (torch.ones(2, 3, dtype=torch.long), "int32"),
        (torch.ones(3, 2).T, "float32"),  # not contiguous
        (np.float16([[1, 1, 1], [1, 1, 1]]), "float64"),
    ],
)
def test_every_kind_of_array_has_a_dtype_that_the_page_reads(array, dtype):
    found = decode_answer(encode_answer({"x": array}))["x"]
    assert (found.dtype.name, found.shape) == (dtype, (2, 3))
    assert (found == 1).all()


def test_numbers_that_are_not_finite_are_null_in_json_and_stay_in_arrays():
    answer = {"x": float("nan"), "y": [float("inf")], "z": torch.tensor([float("-inf"), 1.0])}
    found = decode_answer(encode_answer(answer))
    assert found["x"] is None
    assert found["y"] == [None]
    assert found["z"].tolist() == [float("-inf"), 1.0]


def test_every_array_starts_at_a_multiple_of_eight_bytes():
    """So that the page can read it in place, whatever its type."""
    data = encode_answer({"é": np.uint8([1]), "b": np.float64([2.0]), "c": torch.ones(3)})
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    assert (4 + length) % 8 == 0
    assert [header[name]["$array"] % 8 for name in header] == [0, 0, 0]
    assert len({header[name]["$array"] for name in header}) == 3


def test_an_array_of_other_things_is_refused():
    with pytest.raises(TypeError, match="an answer cannot hold"):
        encode_answer({"x": np.array(["a"])})

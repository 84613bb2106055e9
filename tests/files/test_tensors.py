"""Named tensors in one file: what it refuses, and that the safetensors library agrees."""

import dataclasses
import json
import os
import resource
import struct
import time

import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from clearhead.files import BadFile
from clearhead.files.tensors import (
    DTYPES,
    TensorInfo,
    read_header,
    read_tensors,
    write_tensors,
)

ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def file_of(header, data=b"", length=None):
    """The bytes of a file of tensors, right or wrong."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


@pytest.fixture
def written(tmp_path):
    """A file of these bytes."""

    def written(data):
        path = tmp_path / "x.safetensors"
        path.write_bytes(data)
        return path

    return written


def some_tensor(dtype, shape, seed=0):
    bits = torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(seed))
    return bits.remainder(2).bool() if dtype == torch.bool else bits.to(dtype)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor)


# The library agrees

SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=4).map(tuple)
TENSORS = st.dictionaries(
    st.text('abcé.😀"\\ \n', max_size=6),
    st.tuples(st.sampled_from(list(DTYPES.values())), SHAPES, st.integers(0, 99)),
    max_size=5,
)


@settings(max_examples=60)
@given(TENSORS)
def test_what_we_write_the_library_reads_and_we_read_what_it_writes(tmp_path_factory, recipe):
    folder = tmp_path_factory.mktemp("tensors")
    tensors = {name: some_tensor(*parts) for name, parts in recipe.items()}
    write_tensors(folder / "ours", tensors, metadata={"by": "é"})
    assert_same(load_file(folder / "ours"), tensors)
    assert_same(read_tensors(folder / "ours"), tensors)
    with safetensors.safe_open(folder / "ours", "pt") as file:
        assert file.metadata() == {"by": "é"}
    save_file(tensors, folder / "theirs")
    assert_same(read_tensors(folder / "theirs"), tensors)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_dtype_and_a_tensor_without_axes_come_back(tmp_path, dtype):
    tensors = {
        "number": some_tensor(dtype, ()),
        "none": some_tensor(dtype, (3, 0, 2)),
        "table": some_tensor(dtype, (2, 3, 5)),
    }
    write_tensors(tmp_path / "x", tensors)
    assert_same(read_tensors(tmp_path / "x"), tensors)
    assert_same(load_file(tmp_path / "x"), tensors)


def test_the_header_says_where_each_number_is(tmp_path):
    write_tensors(
        tmp_path / "x", {"a": torch.tensor([1, 2], dtype=torch.uint8), "b": torch.ones(3)}
    )
    header = read_header(tmp_path / "x")
    data = (tmp_path / "x").read_bytes()
    a, b = header["a"], header["b"]
    assert (a.dtype, a.shape, b.dtype, b.shape) == (torch.uint8, (2,), torch.float32, (3,))
    assert data[a.start : a.stop] == b"\1\2"
    assert data[b.start : b.stop] == struct.pack("<3f", 1, 1, 1)
    assert isinstance(a, TensorInfo)
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.start = 0


def test_each_number_lies_at_a_multiple_of_its_size(tmp_path):
    tensors = {
        name: some_tensor(dtype, (3,), seed) for seed, (name, dtype) in enumerate(DTYPES.items())
    }
    shuffled = dict(sorted(tensors.items(), key=lambda item: hash(item[0]) % 7))
    write_tensors(tmp_path / "x", shuffled)
    for info in read_header(tmp_path / "x").values():
        assert info.start % info.dtype.itemsize == 0


def test_an_empty_file_of_tensors_is_one(tmp_path):
    write_tensors(tmp_path / "x", {})
    assert read_tensors(tmp_path / "x") == {}
    assert load_file(tmp_path / "x") == {}


def test_chosen_tensors_are_read_and_others_are_not(tmp_path):
    write_tensors(
        tmp_path / "x", {"layer.0": torch.ones(2), "layer.1": torch.full((2,), torch.nan)}
    )
    assert_same(read_tensors(tmp_path / "x", ["layer.0"]), {"layer.0": torch.ones(2)})
    with pytest.raises(BadFile, match=r"holds no tensor 'layer\.7'; the nearest is 'layer\.[01]'"):
        read_tensors(tmp_path / "x", ["layer.7"])


def test_views_parameters_and_shared_memory_are_written_as_they_look(tmp_path):
    x = torch.arange(12.0).reshape(3, 4)
    tensors = {"turned": x.T, "part": x[:, 1:3], "wide": x[:1].expand(5, 4), "same": x, "again": x}
    tensors["learned"] = torch.nn.Parameter(x)
    tensors["negative"] = torch.complex(x, x).conj().imag  # a view that negates when it is read
    tensors["one negative"] = tensors["negative"][1:2, 1:2]
    write_tensors(tmp_path / "x", tensors)
    assert_same(read_tensors(tmp_path / "x"), {k: v.detach() for k, v in tensors.items()})


def test_every_slice_of_a_table_is_written_as_it_looks(tmp_path):
    x = torch.arange(24.0).reshape(2, 3, 4)
    parts = [slice(None), slice(0, 1), slice(1, 2), slice(0, 2, 2), slice(0, 0), 1]
    slices = {f"{a} {b} {c}": x[a, b, c] for a in parts for b in parts for c in parts}
    slices |= {f"{name} turned": part.mT for name, part in slices.items() if part.ndim >= 2}
    write_tensors(tmp_path / "x", slices)
    assert_same(read_tensors(tmp_path / "x"), slices)


def test_what_is_read_lives_on_when_the_file_is_gone(tmp_path):
    write_tensors(tmp_path / "x", {"a": torch.ones(5000)})
    found = read_tensors(tmp_path / "x")["a"]
    (tmp_path / "x").write_bytes(b"")  # a mapped file would end the process here
    assert found.sum() == 5000
    found += 1


# What is refused


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "has 0 bytes, too few"),
        (b"\0\0\0\0\0\0\0", "has 7 bytes, too few"),
        (struct.pack("<Q", 0), "claims a header of 0 bytes"),
        (struct.pack("<Q", 0) + b"{}", "claims a header of 0 bytes"),
        (struct.pack("<Q", 1) + b"{", "claims a header of 1 bytes"),
        (file_of(b'{"a":1}', length=7), "must have exactly dtype, shape and data_offsets"),
        (file_of(b"{}", length=7), "claims a header of 7 bytes, but 2 bytes follow; it is cut"),
        (file_of(b"{}", length=3), "claims a header of 3 bytes, but 2 bytes"),
        (file_of(b"{}", length=(8 << 20) + 1), "at most 8,388,608 are read"),
        (file_of(b"{}", length=1 << 63), "at most 8,388,608 are read"),
        (file_of(b"{}", length=(1 << 64) - 1), "at most 8,388,608 are read"),
        (b"PK\3\4" * 20, "at most 8,388,608 are read"),
    ],
)
def test_F01_a_wrong_length_is_refused(written, data, words):
    with pytest.raises(BadFile, match=rf"x\.safetensors.* {words}"):
        read_header(written(data))


def test_F01_a_huge_length_costs_neither_time_nor_memory(written):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for length in (1 << 63, 8 << 20):
        with pytest.raises(BadFile):
            read_header(written(file_of(b"{}", length=length)))
    assert time.process_time() - start < 0.05
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000  # KB


def two(first, second):
    return {
        "a": {"dtype": "U8", "shape": [first[1] - first[0]], "data_offsets": list(first)},
        "b": {"dtype": "U8", "shape": [second[1] - second[0]], "data_offsets": list(second)},
    }


@pytest.mark.parametrize(
    ("header", "n_bytes", "words"),
    [
        (two((0, 4), (3, 8)), 8, "tensor 'b' overlaps another"),
        (two((0, 8), (0, 8)), 8, "tensor 'b' overlaps another"),
        (two((0, 8), (2, 4)), 8, "tensor 'b' overlaps another"),
        (two((0, 3), (4, 8)), 8, "tensor 'b' leaves a hole"),
        (two((1, 4), (4, 8)), 8, "tensor 'a' leaves a hole"),
        (two((0, 4), (4, 8)), 9, "1 bytes at the end belong to no tensor"),
        (two((0, 4), (4, 8)), 7, "1 bytes are missing: it is cut short"),
        (two((0, 4), (4, 8)), 0, "8 bytes are missing"),
        ({}, 3, "3 bytes at the end belong to no tensor"),
        ({"a": {**ONE, "data_offsets": [8, 0]}}, 8, r"has 8 bytes .* are -8 apart"),
        ({"a": {**ONE, "data_offsets": [-8, 0]}}, 8, r"offsets \[-8, 0\], not two whole"),
        ({"a": {**ONE, "data_offsets": [0, 1 << 62]}}, 8, "are 4,611,686,018,427,387,904 apart"),
        ({"a": {**ONE, "data_offsets": [1 << 62, (1 << 62) + 8]}}, 8, "leaves a hole"),
        ({"a": {**ONE, "data_offsets": [0, 8, 16]}}, 8, "two whole numbers"),
        ({"a": {**ONE, "data_offsets": [0, 8.0]}}, 8, "two whole numbers"),
        ({"a": {**ONE, "data_offsets": [False, 8]}}, 8, "two whole numbers"),
        ({"a": {**ONE, "data_offsets": None}}, 8, "two whole numbers"),
    ],
)
def test_F02_wrong_offsets_are_refused(written, header, n_bytes, words):
    path = written(file_of(header, b"\0" * n_bytes))
    for read in (read_header, read_tensors):
        with pytest.raises(BadFile, match=words):
            read(path)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ([1 << 32, 1 << 32], "larger than any file"),  # 2⁶⁴ is 0 in 64 bits
        ([1 << 31, 1 << 31, 4], "larger than any file"),
        ([3, 6148914691236517206, 1], "larger than any file"),  # wraps around to 2
        ([0, 1 << 60], "larger than any file"),
        ([1 << 60, 0], "larger than any file"),
        ([3], "has 12 bytes by shape"),
        ([], "has 4 bytes by shape"),
        ([2, 2], "has 16 bytes by shape"),
        ([-2], "whole numbers ≥ 0"),
        ([-1, -2], "whole numbers ≥ 0"),
        ([2.0], "whole numbers ≥ 0"),
        ([True, 2], "whole numbers ≥ 0"),
        (["2"], "whole numbers ≥ 0"),
        ("2", "whole numbers ≥ 0"),
        (2, "whole numbers ≥ 0"),
        ([1 << 70], "beyond 64 bits"),
        ([2, 1, 1, 1, 1, 1, 1, 1, 1], "up to 8 whole numbers"),
    ],
)
def test_F03_a_shape_that_does_not_match_is_refused_before_anything_is_allocated(
    written, shape, words, monkeypatch
):
    path = written(file_of({"a": {**ONE, "shape": shape}}, b"\0" * 8))
    monkeypatch.setattr(torch, "empty", None)
    with pytest.raises(BadFile, match=words):
        read_tensors(path)


def test_eight_axes_are_read(written):
    path = written(file_of({"a": {**ONE, "shape": [1, 2, 1, 1, 1, 1, 1, 1]}}, b"\0" * 8))
    assert read_tensors(path)["a"].shape == (1, 2, 1, 1, 1, 1, 1, 1)


def test_F04_too_many_tensors_and_a_huge_header_are_refused_in_time(tmp_path):
    entry = b'":{"dtype":"U8","shape":[],"data_offsets":[0,1]}'
    start = time.process_time()
    counts = {200_000: "at most 8,388,608 are", 150_000: "parts, more than the 400,000"}
    for count, words in {**counts, 20_001: "names 20,001 tensors; at most 20,000 are read"}.items():
        names = (b'"%x' % i + entry for i in range(count))
        (tmp_path / "many").write_bytes(file_of(b"{" + b",".join(names) + b"}"))
        with pytest.raises(BadFile, match=words):
            read_header(tmp_path / "many")
    with open(tmp_path / "long", "wb") as file:
        file.write(struct.pack("<Q", 90 << 20))
        file.truncate(100 << 20)
    with pytest.raises(BadFile, match="a header of 94,371,840 bytes; at most 8,388,608"):
        read_header(tmp_path / "long")
    with open(tmp_path / "large", "wb") as file:
        file.truncate((8 << 30) + 1)
    with pytest.raises(BadFile, match="more than the 8,589,934,592 read here"):
        read_header(tmp_path / "large")
    assert time.process_time() - start < 5


TEXT = json.dumps({"a": ONE}).encode()


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"{" + TEXT[1:-1] + b"," + TEXT[1:], "has the key 'a' twice"),
        (b'{"__metadata__":{},"__metadata__":{}}', "has the key '__metadata__' twice"),
        (TEXT.replace(b'"a"', b'"\xff"'), "not UTF-8"),
        (TEXT.replace(b'"a"', b'"\\ud800"'), "half a surrogate"),
        (b"\xef\xbb\xbf" + TEXT, "does not begin with {"),
        (b" " + TEXT, "does not begin with {"),
        (b"\n" + TEXT, "does not begin with {"),
        (TEXT + b"x", "not JSON"),
        (TEXT + b"\0", "not JSON"),
        (b"[" + TEXT + b"]", "does not begin with {"),
        (TEXT[:-2], "not JSON"),
        (b'{"__metadata__":{"a":{"b":{"c":"d"}}},' + TEXT[1:], "must hold strings by name"),
        (b'{"__metadata__":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, "nested deeper than 32"),
        (b'{"__metadata__":7,' + TEXT[1:], "must hold strings by name"),
        (b'{"__metadata__":{"a":1},' + TEXT[1:], "must hold strings by name"),
        (b'{"a":null}', "must have exactly dtype"),
        (b'{"a":{"dtype":"F32","shape":[2]}}', "must have exactly dtype"),
        (TEXT.replace(b'"shape"', b'"x":1,"shape"'), "must have exactly dtype"),
        (TEXT.replace(b"F32", b"F4"), "has the dtype 'F4'; supported are F64, F32"),
        (TEXT.replace(b'"F32"', b'["F32"]'), "has the dtype"),
        (TEXT.replace(b"F32", b"f32"), "has the dtype 'f32'"),
        (TEXT.replace(b"[2]", b"[NaN]"), "NaN"),
    ],
)
def test_F05_a_header_that_leaves_a_doubt_is_refused(written, header, words):
    path = written(file_of(header, b"\0" * 8))
    for read in (read_header, read_tensors):
        with pytest.raises(BadFile, match=words):
            read(path)


def test_F05_spaces_after_the_header_are_padding(written):
    assert read_tensors(written(file_of(TEXT + b"   ", b"\0" * 8)))["a"].tolist() == [0, 0]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_F07_a_broken_number_is_refused_unless_allowed(tmp_path, dtype, value):
    tensors = {"good": torch.ones(2), "bad": torch.tensor([[1, 2], [3, value]], dtype=dtype)}
    write_tensors(tmp_path / "x", tensors)
    with pytest.raises(BadFile, match=rf"x: tensor 'bad' has {value} at its number 3"):
        read_tensors(tmp_path / "x")
    found = read_tensors(tmp_path / "x", finite=False)["bad"]
    assert torch.equal(found.nan_to_num(7), tensors["bad"].nan_to_num(7))


@pytest.mark.parametrize(("dtype", "broken"), [(torch.float8_e4m3fn, 2), (torch.float8_e5m2, 8)])
def test_F07_every_number_of_8_bits_comes_back_and_a_broken_one_is_named(tmp_path, dtype, broken):
    numbers = torch.arange(256, dtype=torch.uint8).view(dtype)
    write_tensors(tmp_path / "x", {"all": numbers})
    for found in (read_tensors(tmp_path / "x", finite=False), load_file(tmp_path / "x")):
        assert found["all"].dtype == dtype
        assert found["all"].view(torch.uint8).tolist() == list(range(256))
    finite = numbers.float().isfinite()
    assert int((~finite).sum()) == broken
    first = int((~finite).int().argmax())
    with pytest.raises(BadFile, match=f"tensor 'all' has (nan|inf) at its number {first}"):
        read_tensors(tmp_path / "x")
    good = numbers.view(torch.uint8)[finite].view(dtype)
    write_tensors(tmp_path / "x", {"good": good})
    assert torch.equal(read_tensors(tmp_path / "x")["good"].float(), good.float())


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_the_largest_whole_numbers_come_back(tmp_path, dtype):
    numbers = torch.full((3,), -1, dtype=torch.int64).view(dtype)  # all bits set
    write_tensors(tmp_path / "x", {"most": numbers})
    for found in (read_tensors(tmp_path / "x"), load_file(tmp_path / "x")):
        assert found["most"].dtype == dtype
        assert found["most"].tolist() == [torch.iinfo(dtype).max] * len(numbers)


def test_a_truth_value_of_two_is_refused(written):
    header = {"a": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}
    assert read_tensors(written(file_of(header, b"\0\1")))["a"].tolist() == [False, True]
    with pytest.raises(
        BadFile, match=r"'a' in .* holds booleans, but some bytes are neither 0 nor 1"
    ):
        read_tensors(written(file_of(header, b"\1\2")))


def test_a_file_cut_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_tensors(path, {"a": torch.ones(100_000)})
    empty = torch.empty

    def cut_then_empty(*shape, **options):
        os.truncate(path, 1000)
        return empty(*shape, **options)

    monkeypatch.setattr(torch, "empty", cut_then_empty)
    with pytest.raises(BadFile, match=r"'a' in .* ended early"):
        read_tensors(path)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"__metadata__": torch.ones(1)}, "cannot be named '__metadata__'"),
        ({7: torch.ones(1)}, "cannot be named 7"),
        ({"\ud800": torch.ones(1)}, "half a surrogate"),
        ({"a": torch.ones(1, dtype=torch.complex64)}, r"'a' \(torch.complex64"),
        ({"a": torch.ones(2, 2).to_sparse()}, "sparse"),
        ({"a": torch.ones(1, device="meta")}, "meta"),
        ({"a": torch.ones([1] * 9)}, "up to 8 whole numbers"),
        ({str(i): torch.ones(()) for i in range(20_001)}, "names 20,001 tensors"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, tensors, words):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(BadFile, match=words):
        write_tensors(tmp_path / "x", tensors)
    assert (tmp_path / "x").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_what_is_no_tensor_is_a_type_error_and_metadata_are_words(tmp_path):
    with pytest.raises(TypeError, match="'a' must be a tensor, got list"):
        write_tensors(tmp_path / "x", {"a": [1]})
    with pytest.raises(BadFile, match="must hold strings by name"):
        write_tensors(tmp_path / "x", {}, metadata={"step": 7})
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    write_tensors(tmp_path / "x", {"a": torch.ones(3)})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_tensors(tmp_path / "x", {"a": torch.zeros(3)})
    monkeypatch.undo()
    assert read_tensors(tmp_path / "x")["a"].tolist() == [1, 1, 1]
    assert os.listdir(tmp_path) == ["x"]

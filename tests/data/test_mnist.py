"""MNIST from its IDX files, plain or packed; a file that lies about its size is refused."""

import contextlib
import gzip
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from picture_files import idx, write_mnist

from clearhead.data.mnist import read_idx, read_mnist
from clearhead.files.reading import BadFile


@pytest.mark.parametrize(("pack", "ending"), [(lambda data: data, ""), (gzip.compress, ".gz")])
def test_mnist_is_read_plain_or_packed(tmp_path, pack, ending):
    images, labels = write_mnist(tmp_path, pack, ending)
    pictures = read_mnist(tmp_path)
    assert torch.equal(pictures.images, images.unsqueeze(1))
    assert pictures.labels.tolist() == labels
    assert pictures.class_names == tuple("0123456789")
    assert torch.equal(read_mnist(tmp_path, "test").images, images.flip(1).unsqueeze(1))


def test_an_idx_file_by_hand(tmp_path):
    path = tmp_path / "it"
    path.write_bytes(bytes.fromhex("00 00 08 02  00 00 00 02  00 00 00 03  01 02 03 04 05 06"))
    assert read_idx(path, 2).tolist() == [[1, 2, 3], [4, 5, 6]]


GOOD = idx(np.zeros((2, 3), np.uint8))
BAD_IDX = {
    "empty": (b"", "not an IDX file of bytes with 2 axes: it begins with , not 00 00 08 02"),
    "foreign": (b"PK\3\4" + GOOD, "begins with 50 4b 03 04"),
    "other numbers": (idx(np.zeros((2, 3), np.uint8), kind=0x0D), "begins with 00 00 0d 02"),
    "other axes": (idx(np.zeros(6, np.uint8)), "begins with 00 00 08 01"),
    "header cut off": (GOOD[:9], "is cut short: it ends before the lengths of its axes"),
    "cut off": (GOOD[:-1], "says that it holds 2 × 3 bytes, but 5 follow"),
    "too long": (GOOD + b"\0", "but 7 follow"),
    "huge": (b"\0\0\x08\2" + b"\xff" * 8, "4,294,967,295 × 4,294,967,295 bytes, but 0 follow"),
    "wraps to 0": (b"\0\0\x08\2" + b"\x80\0\0\0\0\0\0\2", "2,147,483,648 × 2 bytes, but 0 follow"),
    "no row": (idx(np.zeros((0, 3), np.uint8)), "says that it holds 0 × 3 bytes"),
}


@pytest.mark.parametrize("case", BAD_IDX)
def test_a_bad_idx_file_is_refused(tmp_path, case):
    data, words = BAD_IDX[case]
    (tmp_path / "it").write_bytes(data)
    with pytest.raises(BadFile, match=words):
        read_idx(tmp_path / "it", 2)


def test_F09_a_bomb_in_a_gz_file_is_stopped_at_the_limit(tmp_path):
    packed = gzip.compress(bytes(16 << 20)) * 40  # 640 MB
    (tmp_path / "it.gz").write_bytes(packed)
    assert len(packed) < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(BadFile, match="unpacks to more than the 67,108,864 bytes read here"):
            read_idx(tmp_path / "it.gz", 2)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


PACKED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize("data", [b"", PACKED[:-9], b"no gz", PACKED * 2])
def test_a_bad_gz_file_is_refused(tmp_path, data):
    (tmp_path / "it.gz").write_bytes(data)
    with pytest.raises(BadFile, match=r"it\.gz"):
        read_idx(tmp_path / "it.gz", 2)


def test_mnist_files_that_do_not_belong_together_are_refused(tmp_path):
    write_mnist(tmp_path)
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.write_bytes(idx(np.array([1, 2], np.uint8)))
    with pytest.raises(BadFile, match="has 2 labels for 3 pictures"):
        read_mnist(tmp_path)
    labels.write_bytes(idx(np.array([1, 2, 10], np.uint8)))
    with pytest.raises(BadFile, match="has the label 10; digits go from 0 to 9"):
        read_mnist(tmp_path)
    labels.unlink()
    with pytest.raises(BadFile, match="train-labels-idx1-ubyte is not there"):
        read_mnist(tmp_path)
    for path in (labels, tmp_path / "train-images-idx3-ubyte"):  # not there, and a file
        with pytest.raises(BadFile, match=f"{path.name} is not a folder; name the folder of your"):
            read_mnist(path)
    with pytest.raises(ValueError, match="split must be one of"):
        read_mnist(tmp_path, "all")


@given(st.binary(max_size=40))
def test_F10_any_bytes_are_an_idx_file_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(b"\0\0\x08\2" + data)
    with contextlib.suppress(BadFile):
        assert read_idx(path, 2).numel() == len(data) - 8

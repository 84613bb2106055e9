"""Every form of CIFAR-10 gives the same pictures; no bad file gets through; bytes as numbers."""

import numpy as np
import pytest
import torch
from picture_files import TRAIN, N, binary_batch, some_pictures, write_cifar10
from PIL import Image

from clearhead.data.cifar10 import CIFAR10_CLASSES, read_cifar10
from clearhead.data.images import Pictures, compute_mean_and_std, to_float
from clearhead.files.reading import BadFile

# CIFAR-10


@pytest.mark.parametrize("form", ["binary", "python", "sprites"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_form_of_cifar10_gives_the_same_pictures(tmp_path, form, split):
    batches = write_cifar10(tmp_path, form)
    pictures = read_cifar10(tmp_path, split)
    wanted = [batches[name] for name in (TRAIN if split == "train" else ["test_batch"])]
    table = np.concatenate([table for table, _ in wanted])
    assert pictures.images.dtype == torch.uint8
    assert torch.equal(pictures.images, torch.from_numpy(table).view(-1, 3, 32, 32))
    assert pictures.labels.tolist() == [label for _, labels in wanted for label in labels]
    assert pictures.labels.dtype == torch.long
    assert pictures.class_names == CIFAR10_CLASSES
    assert len(pictures) == len(table)
    pictures.images[0] = 0  # memory of its own, which may be written to


def test_a_picture_is_red_then_green_then_blue_row_by_row(tmp_path):
    record = np.zeros(3073, np.uint8)
    record[0], record[1 + 33], record[1 + 1024 + 2], record[-1] = 9, 11, 12, 13
    (tmp_path / "test_batch.bin").write_bytes(record.tobytes())
    pictures = read_cifar10(tmp_path, "test")
    assert pictures.images.nonzero().tolist() == [[0, 0, 1, 1], [0, 1, 0, 2], [0, 2, 31, 31]]
    assert pictures.images[0, 2, 31, 31] == 13
    assert pictures.class_names[pictures.labels[0]] == "truck"


@pytest.mark.parametrize(("form", "inside"), [("binary", "bin"), ("python", "py")])
def test_the_official_folder_is_found_inside_the_given_one(tmp_path, form, inside):
    write_cifar10(tmp_path / f"cifar-10-batches-{inside}", form)
    assert len(read_cifar10(tmp_path, "test")) == N + 5


def test_a_folder_without_cifar10_says_how_to_get_it(tmp_path):
    with pytest.raises(BadFile, match=r"holds no CIFAR-10: it has no data_batch_1\.bin"):
        read_cifar10(tmp_path)
    with pytest.raises(BadFile, match="clearhead data get cifar10"):
        read_cifar10(tmp_path / "not there", "test")
    with pytest.raises(ValueError, match="split must be one of 'train', 'test', got 'val'"):
        read_cifar10(tmp_path, "val")


@pytest.mark.parametrize("form", ["binary", "python", "sprites"])
def test_a_missing_batch_is_named(tmp_path, form):
    write_cifar10(tmp_path, form)
    ending = {"binary": ".bin", "python": "", "sprites": ".png"}[form]
    (tmp_path / f"data_batch_4{ending}").unlink()
    with pytest.raises(BadFile, match=r"data_batch_4.* is not there"):
        read_cifar10(tmp_path)


# What is wrong with a batch, by its sentence


def read_one(tmp_path, ending, data):
    (tmp_path / f"test_batch{ending}").write_bytes(data)
    return read_cifar10(tmp_path, "test")


TABLE, LABELS = some_pictures()
BAD_BINARY = {
    "empty": (b"", "not a complete batch of CIFAR-10: 1 to 10,000 times 3,073 bytes.* got 0"),
    "cut off": (binary_batch(TABLE, LABELS)[:-1], "3,073 bytes were expected, got 9,218"),
    "too long": (binary_batch(TABLE, LABELS) + b"\0", "got 9,220"),
    "too many": (bytes(10_001 * 3073), "1 to 10,000 times .* got 30,733,073"),
    "foreign": (b"\x89PNG" * 3073, "label 0 is 137, not a number from 0 to 9"),
}


@pytest.mark.parametrize("case", BAD_BINARY)
def test_a_bad_binary_batch_is_refused(tmp_path, case):
    data, words = BAD_BINARY[case]
    with pytest.raises(BadFile, match=words):
        read_one(tmp_path, ".bin", data)


def test_a_file_larger_than_any_batch_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "test_batch.bin", "wb") as file:
        file.truncate(40 << 30)  # sparse: no byte of it is on the disk
    with pytest.raises(BadFile, match=r"test_batch.bin has 42,949,672,960 bytes, more than the 67"):
        read_cifar10(tmp_path, "test")


def test_bad_sprites_are_refused(tmp_path):
    write_cifar10(tmp_path, "sprites")
    labels = tmp_path / "test_lables.json"
    for words, content in {
        r"has 2 labels for 8 pictures": "[1, 2]",
        r"label 1 is 12, not a number from 0 to 9": "[1, 12]",
        r"label 0 is bool, not a number": "[true]",
        r"has labels that are not a list": "{}",
    }.items():
        labels.write_text(content)
        with pytest.raises(BadFile, match=words):
            read_cifar10(tmp_path, "test")
    Image.new("RGB", (1000, 4)).save(tmp_path / "test_batch.png")
    with pytest.raises(BadFile, match="not a sprite of CIFAR-10: a row must hold the 1024 pixels"):
        read_cifar10(tmp_path, "test")
    with pytest.raises(BadFile, match=r"test_batch\.png"):
        read_one(tmp_path, ".png", b"GIF89a")


# Pictures and to_float


def test_pictures_refuse_what_does_not_go_together():
    images, labels = torch.zeros(2, 3, 4, 5, dtype=torch.uint8), torch.tensor([0, 1])
    assert len(Pictures(images, labels, ("cat", "dog"))) == 2
    with pytest.raises(ValueError, match=r"images must be bytes .* got torch\.float32"):
        Pictures(images.float(), labels, ("cat", "dog"))
    with pytest.raises(ValueError, match=r"images must be bytes .* got torch\.uint8 \(3, 4, 5\)"):
        Pictures(images[0], labels, ("cat", "dog"))
    with pytest.raises(ValueError, match=r"one number for each of the 2 images, got shape \(1,\)"):
        Pictures(images, labels[:1], ("cat", "dog"))
    with pytest.raises(ValueError, match=r"labels\[1\] is 1, but classes go from 0 to 0"):
        Pictures(images, labels, ("cat",))
    with pytest.raises(TypeError, match="labels must hold integers"):
        Pictures(images, labels.float(), ("cat", "dog"))


def test_bytes_become_numbers_from_minus_one_to_one():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 1, 3)
    assert to_float(images).flatten().tolist() == pytest.approx([-1, -0.6, 1])
    assert to_float(images)[0, 0, 0, 2] == 1
    assert to_float(images, 0, 1).flatten().tolist() == pytest.approx([0, 0.2, 1])
    assert to_float(images).dtype == torch.float32
    assert images.flatten().tolist() == [0, 51, 255]


def test_each_channel_has_its_own_mean_and_deviation():
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    y = to_float(images, mean, std)
    for channel in range(3):
        expected = (images[:, channel] / 255 - mean[channel]) / std[channel]
        assert torch.allclose(y[:, channel], expected)


def test_to_float_refuses_what_it_cannot_use():
    images = torch.zeros(2, 3, 4, 5, dtype=torch.uint8)
    with pytest.raises(
        TypeError, match=r"images must hold bytes, torch\.uint8, got torch\.float32"
    ):
        to_float(images.float())
    with pytest.raises(ValueError, match="std must be positive, got 0"):
        to_float(images, 0.5, 0)
    with pytest.raises(ValueError, match="mean must be one number or one for each channel"):
        to_float(images, (0.5, 0.5))


def test_what_is_no_tensor_and_numbers_without_meaning_are_refused():
    images = torch.zeros(2, 1, 3, 4, dtype=torch.uint8)
    with pytest.raises(TypeError, match=r"images must be a torch\.Tensor, got list"):
        Pictures([], torch.zeros(0).long(), ("cat",))
    with pytest.raises(TypeError, match=r"images must be a torch\.Tensor of bytes, got ndarray"):
        to_float(images.numpy())
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"mean must be finite, got {bad}"):
            to_float(images, mean=bad)
        with pytest.raises(ValueError, match="std must be"):
            to_float(images, std=bad)


def test_N29_a_class_number_beyond_the_classes_is_named():
    images = torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    assert len(Pictures(images, torch.zeros(3).long(), ("cat",))) == 3
    assert len(Pictures(images[:0], torch.zeros(0).long(), ())) == 0
    for wrong in (torch.tensor([0, -1, 0]), torch.tensor([0, 255, 0], dtype=torch.uint8)):
        with pytest.raises(ValueError, match=r"labels\[1\] is .*, but classes go from 0 to 0"):
            Pictures(images, wrong, ("cat",))


def test_mean_and_deviation_by_hand():
    images = torch.tensor([[0, 255], [51, 51]], dtype=torch.uint8).view(1, 2, 1, 2)
    mean, std = compute_mean_and_std(images)
    assert mean == pytest.approx([0.5, 0.2])
    assert std == pytest.approx([0.5, 1.0])  # a channel that never changes is not divided by 0

"""How files of pictures are written, for the tests that read them.

The official python batches of CIFAR-10 were written by Python 2; `python2_batch` writes the same
instructions.
"""

import json
import struct

import numpy as np
import torch
from PIL import Image

N = 3
TRAIN = [f"data_batch_{i}" for i in range(1, 6)]


def some_pictures(n=N, seed=0):
    chance = np.random.default_rng(seed)
    return chance.integers(0, 256, (n, 3072), np.uint8), chance.integers(0, 10, n).tolist()


def binary_batch(table, labels):
    return b"".join(
        bytes([label]) + row.tobytes() for row, label in zip(table, labels, strict=True)
    )


def text(words):
    """Python 2's instruction for a string of bytes."""
    if len(words) < 256:
        return b"U" + bytes([len(words)]) + words
    return b"T" + struct.pack("<i", len(words)) + words


def small(number):
    return b"K" + bytes([number]) if number < 256 else b"M" + struct.pack("<H", number)


class Notes:
    """Python 2 puts aside every string, list and tuple as soon as it has written it."""

    def __init__(self):
        self.count = 0

    def __call__(self, instruction):
        self.count += 1
        if self.count < 256:
            return instruction + b"q" + bytes([self.count])
        return instruction + b"r" + struct.pack("<I", self.count)


def python2_batch(table, labels, n_names=N):
    keep = Notes()
    names = [b"leptodactylus_s_%06d.png" % i for i in range(n_names)]
    parts = [b"\x80\x02", keep(b"}"), b"("]
    parts += [keep(text(b"batch_label")), keep(text(b"training batch 1 of 5"))]
    parts += [keep(text(b"labels")), keep(b"]"), b"(", *map(small, labels), b"e"]
    parts += [keep(text(b"data")), *array_parts(table, keep)]
    parts += [keep(text(b"filenames")), keep(b"]")]
    for first in range(0, n_names, 1000):
        parts += [b"(", *(keep(text(name)) for name in names[first : first + 1000]), b"e"]
    return b"".join([*parts, b"u."])


def array_parts(table, keep, module=b"numpy.core.multiarray", kind=b"u1"):
    rows, columns = table.shape
    return [
        keep(b"c" + module + b"\n_reconstruct\n") + keep(b"cnumpy\nndarray\n"),
        keep(b"K\x00\x85") + keep(text(b"b")) + keep(b"\x87") + keep(b"R"),
        b"(K\x01" + small(rows) + small(columns) + keep(b"\x86"),
        keep(b"cnumpy\ndtype\n") + keep(text(kind)) + keep(b"K\x00K\x01\x87") + keep(b"R"),
        b"(K\x03" + keep(text(b"|")) + b"NNN" + 2 * b"J\xff\xff\xff\xff" + keep(b"K\x00t") + b"b",
        b"\x89" + keep(text(table.tobytes())) + keep(b"t") + b"b",
    ]


def write_sprite(path, table):
    rows = table.reshape(-1, 3, 1024).transpose(0, 2, 1)  # (N, 1024 pixels, 3)
    Image.fromarray(rows).save(path)


def write_cifar10(folder, form):
    """Five training batches and a test batch of different sizes; returns what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = {name: some_pictures(N + i, i) for i, name in enumerate([*TRAIN, "test_batch"])}
    for name, (table, labels) in batches.items():
        if form == "binary":
            (folder / f"{name}.bin").write_bytes(binary_batch(table, labels))
        elif form == "python":
            (folder / name).write_bytes(python2_batch(table, labels))
        else:
            write_sprite(folder / f"{name}.png", table)
    if form == "sprites":
        train = [label for name in TRAIN for label in batches[name][1]]
        (folder / "train_lables.json").write_text(json.dumps(train))
        (folder / "test_lables.json").write_text(json.dumps(batches["test_batch"][1]))
    return batches


def idx(array, kind=8):
    header = bytes((0, 0, kind, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def write_mnist(folder, pack=lambda data: data, ending=""):
    images = np.arange(N * 5 * 4, dtype=np.uint8).reshape(N, 5, 4)
    labels = np.array([7, 0, 9], np.uint8)
    for stem, shown in (("train", images), ("t10k", images[:, ::-1].copy())):
        (folder / f"{stem}-images-idx3-ubyte{ending}").write_bytes(pack(idx(shown)))
        (folder / f"{stem}-labels-idx1-ubyte{ending}").write_bytes(pack(idx(labels)))
    return torch.from_numpy(images), labels.tolist()

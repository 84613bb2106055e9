"""Models of llama2.c (Karpathy 2023), in the first of its file formats.

    7 × int32     dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
    float32 …     the tensors in the order of the table below, each for all layers

A negative vocab_size means that the head has its own weights, at the end. The file has no magic
number, so its size is the check: it must be exactly what the header says, before anything is
allocated.

llama2.c rotates neighbouring columns 2i and 2i + 1 of a head; we rotate i and i + Dh/2. The rows of
W_q and W_k are reordered to match: q·k is a sum over columns and does not depend on their order.
"""

import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch
from torch import Tensor

from clearhead.files import BadFile
from clearhead.files.reading import open_regular, quote
from clearhead.interop.fill import cast_to, check_dtype, fill_model, get_shapes
from clearhead.interop.report import Report
from clearhead.models import GPT, GPTConfig
from clearhead.models.registry import build_on_meta

MAX_BYTES = 8 << 30
MAX_LAYERS = 1000
NAMES = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
HEADER = struct.Struct("<7i")
LATER_FORMAT = 0x616B3432  # "ak42", the first number of the later formats

# Our names in the order of the file; # is the layer, None the table of rotary angles.
TENSORS = (
    "embedding.weight",
    "stack.blocks.#.norm_attention.gain",
    "stack.blocks.#.attention.proj_q.weight",
    "stack.blocks.#.attention.proj_k.weight",
    "stack.blocks.#.attention.proj_v.weight",
    "stack.blocks.#.attention.proj_out.weight",
    "stack.blocks.#.norm_feed_forward.gain",
    "stack.blocks.#.feed_forward.proj_gate.weight",  # w1
    "stack.blocks.#.feed_forward.proj_out.weight",  # w2
    "stack.blocks.#.feed_forward.proj_in.weight",  # w3
    "stack.norm.gain",
    None,
    "head.weight",
)


def read_llama2c(path: Path, dtype: torch.dtype = torch.float32) -> tuple[GPT, Report]:
    """Read the model of a llama2.c file; returns it with a report of what was loaded."""
    check_dtype(dtype)
    with open_regular(path, MAX_BYTES) as file:
        config = _read_config(file, quote(path))
        model = cast(GPT, build_on_meta(GPT, config))
        n_angles = config.max_len * (config.d_model // config.n_heads)  # cosines and sines
        shapes, tensors = get_shapes(model), {}
        for name in _list_names(config):
            if name is None:
                file.seek(4 * n_angles, os.SEEK_CUR)
            else:
                words = f"{quote(path)}: tensor {name}"
                tensor = cast_to(dtype, _read_tensor(file, shapes[name], words), words)
                if name.endswith(("proj_q.weight", "proj_k.weight")):
                    tensor = _reorder_rows(tensor, config.d_model // config.n_heads)
                tensors[name] = tensor
    return fill_model(model, tensors), Report(
        kind="llama2.c",
        source=quote(path),
        dtypes=("float32",),
        n_tensors=len(tensors),
        n_bytes=4 * sum(tensor.numel() for tensor in tensors.values()),
        n_parameters=model.n_parameters,
        ignored={"freq_cis": f"{n_angles:,} rotary angles, computed from the positions"},
    )


def _read_config(file: BinaryIO, name: str) -> GPTConfig:
    """Read the header and compare it with the size of the file."""
    size = os.fstat(file.fileno()).st_size
    if size < HEADER.size:
        raise BadFile(f"{name} has {size} bytes, too few for a llama2.c model")
    values = dict(zip(NAMES, HEADER.unpack(file.read(HEADER.size)), strict=True))
    if values["dim"] == LATER_FORMAT:
        raise BadFile(f"{name} is in a later format of llama2.c; export it with version 0")
    tied, values["vocab_size"] = values["vocab_size"] > 0, abs(values["vocab_size"])
    for key, value in values.items():
        if not 1 <= value <= (MAX_LAYERS if key == "n_layers" else 1 << 24):
            raise BadFile(f"{name} is not a llama2.c model: its {key} would be {value:,}")
    expected = HEADER.size + 4 * _count_numbers(values, tied)
    if size != expected:
        raise BadFile(
            f"{name} has {size:,} bytes, but its header ({', '.join(map(str, values.values()))}) "
            f"is that of a file of {expected:,}; it is cut short or not a llama2.c model"
        )
    try:
        return GPTConfig(
            vocab_size=values["vocab_size"],
            max_len=values["seq_len"],
            d_model=values["dim"],
            n_layers=values["n_layers"],
            n_heads=values["n_heads"],
            n_kv_heads=values["n_kv_heads"],
            d_ff=values["hidden_dim"],
            positions="rotary",
            norm="rms",
            activation="swiglu",
            bias=False,
            tied=tied,
        )
    except ValueError as reason:
        raise BadFile(f"{name} is not a llama2.c model: {reason}") from None


def _count_numbers(values: dict[str, int], tied: bool) -> int:
    """Count the numbers after a header."""
    D, F, n_layers, H, G, V, T = (values[name] for name in NAMES)
    Dh = D // H
    layer = 2 * D + 2 * D * H * Dh + 2 * D * G * Dh + 3 * D * F
    return V * D * (1 if tied else 2) + n_layers * layer + D + T * Dh


def _list_names(config: GPTConfig) -> Iterator[str | None]:
    """Our names in the order of the file."""
    for name in TENSORS[:-1] if config.tied else TENSORS:
        if name is not None and "#" in name:
            yield from (name.replace("#", str(n)) for n in range(config.n_layers))
        else:
            yield name


def _read_tensor(file: BinaryIO, shape: tuple[int, ...], name: str) -> Tensor:
    numbers = np.fromfile(file, "<f4", math.prod(shape))
    if numbers.size != math.prod(shape):
        raise BadFile(f"{name} ended early: the file was cut while it was read")
    if not np.isfinite(numbers).all():
        raise BadFile(f"{name} holds NaN or an infinity")
    return torch.from_numpy(numbers.astype(np.float32, copy=False)).reshape(shape)


def _reorder_rows(weight: Tensor, d_head: int) -> Tensor:
    """Put rows 0 1 2 3 4 5 of each head into the order 0 2 4 1 3 5."""
    pairs = weight.unflatten(0, (-1, d_head // 2, 2))  # (heads, Dh/2, 2, D)
    return pairs.transpose(1, 2).flatten(0, 2).contiguous()

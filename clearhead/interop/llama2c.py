"""Models of llama2.c (Karpathy 2023), the first of its file formats.

    7 × int32     dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
    float32 …     the tensors in the order of the table below, all layers of one after another

A negative vocab_size says that the head has numbers of its own, at the end. The file has no magic
number, so its size is the check: it must be exactly what the header says, which is compared before
anything is allocated.

llama2.c turns neighbouring columns 2i and 2i + 1 of a head together; ours are i and i + Dh/2. The
rows of W_q and W_k are put in that order: q·k is a sum over columns and does not see it.
"""

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import torch
from torch import Tensor

from clearhead.files import BadFile
from clearhead.files.reading import open_regular, quote
from clearhead.interop.loading import Report, check_dtype, fill
from clearhead.interop.mapping import cast_to
from clearhead.models import GPT, GPTConfig
from clearhead.models.model import empty_model

MAX_BYTES = 8 << 30
MAX_LAYERS = 1000
NAMES = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
HEADER = struct.Struct("<7i")
NEWER = 0x616B3432  # "ak42", the first number of the formats that came later

# In the order of the file: our name, None for the tables of the rotary angles; # is the layer.
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
TURNED = ("proj_q.weight", "proj_k.weight")


def read_llama2c(path: Path, dtype: torch.dtype = torch.float32) -> tuple[GPT, Report]:
    """The model in a llama2.c file, and what was loaded."""
    check_dtype(dtype)
    with open_regular(path, MAX_BYTES) as file:
        config = _config(file, quote(path))
        model = empty_model(GPT, config)
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        n_angles = config.max_len * (config.d_model // config.n_heads)  # a cosine and a sine table
        state = {}
        for name in _order(config):
            if name is None:
                file.seek(4 * n_angles, os.SEEK_CUR)
            else:
                words = f"{quote(path)}: tensor {name}"
                tensor = cast_to(dtype, _read(file, shapes[name], words), words)
                state[name] = _turned(name, tensor, config)
    report = Report(
        kind="llama2.c",
        source=quote(path),
        dtypes=("float32",),
        n_tensors=len(state),
        n_bytes=4 * sum(tensor.numel() for tensor in state.values()),
        n_parameters=model.n_parameters,
        ignored={"freq_cis": f"{n_angles:,} rotary angles, which follow from the positions"},
    )
    return cast(GPT, fill(model, state)), report


def _config(file: BinaryIO, name: str) -> GPTConfig:
    size = os.fstat(file.fileno()).st_size
    if size < HEADER.size:
        raise BadFile(f"{name} has {size} bytes, too few for a llama2.c model")
    values = dict(zip(NAMES, HEADER.unpack(file.read(HEADER.size)), strict=True))
    if values["dim"] == NEWER:
        raise BadFile(f"{name} is in a later format of llama2.c; export it with version 0")
    tied, values["vocab_size"] = values["vocab_size"] > 0, abs(values["vocab_size"])
    for key, value in values.items():
        if not 1 <= value <= (MAX_LAYERS if key == "n_layers" else 1 << 24):
            raise BadFile(f"{name} is no llama2.c model: its {key} would be {value:,}")
    expected = HEADER.size + 4 * _count(values, tied)
    if size != expected:
        raise BadFile(
            f"{name} has {size:,} bytes, but its header ({', '.join(map(str, values.values()))}) "
            f"is that of a file of {expected:,}; it is cut short or no llama2.c model"
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
        raise BadFile(f"{name} is no llama2.c model: {reason}") from None


def _count(values: dict[str, int], tied: bool) -> int:
    """How many numbers follow a header."""
    D, F, n_layers, H, G, V, T = (values[name] for name in NAMES)
    Dh = D // H
    layer = 2 * D + 2 * D * H * Dh + 2 * D * G * Dh + 3 * D * F
    return V * D * (1 if tied else 2) + n_layers * layer + D + T * Dh


def _order(config: GPTConfig) -> Iterator[str | None]:
    """Our names in the order of the file."""
    for name in TENSORS:
        if name is None or "#" not in name:
            if name != "head.weight" or not config.tied:
                yield name
        else:
            yield from (name.replace("#", str(n)) for n in range(config.n_layers))


def _read(file: BinaryIO, shape: tuple[int, ...], name: str) -> Tensor:
    if sys.byteorder != "little":
        raise BadFile(f"{name} is little-endian, and this machine is not")
    tensor = torch.empty(shape)
    memory = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    if file.readinto(memory) != len(memory):  # type: ignore[attr-defined]
        raise BadFile(f"{name} ended early: the file was cut while it was read")
    if not bool(tensor.isfinite().all()):
        raise BadFile(f"{name} holds NaN or an infinity")
    return tensor


def _turned(name: str, weight: Tensor, config: GPTConfig) -> Tensor:
    """Rows 0 1 2 3 4 5 of each head's queries and keys in the order 0 2 4 1 3 5."""
    if not name.endswith(TURNED):
        return weight
    pairs = weight.unflatten(
        0, (-1, config.d_model // config.n_heads // 2, 2)
    )  # (heads, Dh/2, 2, D)
    return pairs.transpose(1, 2).flatten(0, 2).contiguous()

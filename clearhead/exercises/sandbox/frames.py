"""Messages between the supervisor and the worker: no pickle, and nothing is trusted.

A frame is 4 bytes of length, a JSON head of that length, and the raw bytes of the tensors that the
head lists. Values are None, bool, int, float, str, list, tuple, dict, tensors and NumPy arrays;
everything else is sent as the name of its type. The zygote reads this file, so it imports nothing
of clearhead.
"""

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

MAX_HEAD = 1 << 19  # bytes of JSON; in memory it may take a hundred times as much
MAX_DATA = 64 << 20  # bytes of tensors in one frame
MAX_DEPTH = 12
MAX_RANK = 8
FLOATS = (torch.float16, torch.float32, torch.float64)
WHOLES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (*FLOATS, *WHOLES)}


class BadFrame(ValueError):
    """The bytes are not a message of this protocol."""


def pack(value: Any) -> bytes:
    """Write a value as a frame."""
    data: list[bytes] = []
    tree = _to_tree(value, data, 0)
    sizes = [len(part) for part in data]
    head = json.dumps({"value": tree, "sizes": sizes}, allow_nan=False).encode()
    if len(head) > MAX_HEAD or sum(sizes) > MAX_DATA:
        raise BadFrame("the answer is too large to send")
    return b"".join([struct.pack(">I", len(head)), head, *data])


def read(take: Callable[[int], bytes]) -> Any:
    """Read the value of the next frame; `take(n)` reads exactly n bytes."""
    (length,) = struct.unpack(">I", take(4))
    if length > MAX_HEAD:
        raise BadFrame(f"the head has {length:,} bytes, more than {MAX_HEAD:,}")
    try:
        head = json.loads(take(length), parse_constant=_refuse_constant)
        tree, sizes = head["value"], head["sizes"]
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        raise BadFrame("the head is not the JSON object of a frame") from fault
    if not isinstance(sizes, list) or not all(type(n) is int and n >= 0 for n in sizes):
        raise BadFrame("the sizes of a frame must be whole numbers")
    if sum(sizes) > MAX_DATA:
        raise BadFrame(f"the tensors have {sum(sizes):,} bytes, more than {MAX_DATA:,}")
    return _from_tree(tree, [take(n) for n in sizes], 0)


def _refuse_constant(name: str) -> None:
    raise BadFrame(f"{name} is not JSON")


def _to_tree(value: Any, data: list[bytes], depth: int) -> Any:
    if depth > MAX_DEPTH:
        return {"type": "a deeply nested " + type(value).__name__}
    if value is None or type(value) is bool:
        return value
    if type(value) is str:
        return value.encode(errors="replace").decode()  # half of a surrogate pair is no text
    if type(value) is int:
        return value if abs(value) < 1 << 63 else {"type": "a huge int"}
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Tensor):
        return _tensor_to_tree(value, data)
    if isinstance(value, np.ndarray | np.generic):
        return {"array": _tensor_to_tree(torch.from_numpy(np.array(value)), data)}
    if type(value) is list:
        return [_to_tree(each, data, depth + 1) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [_to_tree(each, data, depth + 1) for each in value]}
    if isinstance(value, dict):
        items = [[_to_tree(part, data, depth + 1) for part in item] for item in list(value.items())]
        return {"dict": items}
    return {"type": type(value).__name__}


def _tensor_to_tree(x: Tensor, data: list[bytes]) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        x = x.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
        name = str(x.dtype).removeprefix("torch.")
        if name not in DTYPES:
            return {"type": f"a tensor of {name}"}
        data.append(x.reshape(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b"")
    return {"tensor": len(data) - 1, "dtype": name, "shape": list(x.shape)}


def _from_tree(tree: Any, data: list[bytes], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise BadFrame("a value is nested too deeply")
    if isinstance(tree, list):
        return [_from_tree(each, data, depth + 1) for each in tree]
    if isinstance(tree, str):
        return tree.encode(errors="replace").decode()
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        return _to_tensor(tree, data)
    kind, content = next(iter(tree.items()), ("nothing", None))
    if kind == "array" and isinstance(content, dict):
        return _to_tensor(content, data).numpy()
    if kind == "float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if kind == "tuple" and isinstance(content, list):
        return tuple(_from_tree(each, data, depth + 1) for each in content)
    if kind == "dict" and isinstance(content, list):
        return _to_dict(content, data, depth)
    if kind == "type" and isinstance(content, str):
        return Unreadable(content[:80])
    raise BadFrame(f"a value of the unknown kind {kind!r:.40}")


def _to_dict(items: list[Any], data: list[bytes], depth: int) -> dict[Any, Any]:
    if not all(isinstance(item, list) and len(item) == 2 for item in items):
        raise BadFrame("a dict must be a list of pairs")
    try:
        return {
            _from_tree(key, data, depth + 1): _from_tree(each, data, depth + 1)
            for key, each in items
        }
    except TypeError as fault:
        raise BadFrame("a key of a dict cannot be hashed") from fault


def _to_tensor(tree: dict[str, Any], data: list[bytes]) -> Tensor:
    number, shape, dtype = tree.get("tensor"), tree.get("shape"), DTYPES.get(str(tree.get("dtype")))
    is_shape = isinstance(shape, list) and len(shape) <= MAX_RANK
    if not is_shape or not all(type(n) is int and 0 <= n <= MAX_DATA for n in shape or ()):
        raise BadFrame(f"a tensor of the shape {shape!r:.40}")
    if math.prod(n or 1 for n in shape or ()) > MAX_DATA:  # torch multiplies them all
        raise BadFrame(f"a tensor of the shape {shape!r:.40}")
    if dtype is None or type(number) is not int or not 0 <= number < len(data):
        raise BadFrame("a tensor without data, or of an unknown dtype")
    assert isinstance(shape, list)
    if math.prod(shape) * dtype.itemsize != len(data[number]):
        raise BadFrame(f"a tensor of shape {shape} with {len(data[number])} bytes")
    if not data[number]:
        return torch.empty(shape, dtype=dtype)
    x = torch.frombuffer(bytearray(data[number]), dtype=torch.uint8)
    if dtype == torch.bool:
        return (x != 0).view(shape)
    return x.view(dtype).view(shape)


class Unreadable:
    """Stands for a value that cannot be sent, such as a module; `name` is its type."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"

"""Keys and values kept between generation steps.

Token t needs the keys and values of all tokens before it. Without a cache they are computed again
at each step, T² projections for T tokens; with a cache each is computed once.
"""

import torch
from torch import Tensor

from clearhead.shapes import check_int_tensor, check_kv, check_positive, format_shape


class KVCache:
    """The keys and values of one attention layer so far, in buffers that grow a block at a time.

    No gradient flows through the cache. Tensors that `append` has returned never change: later
    tokens are written after them, and a grown, reordered or cleared cache is a new buffer.
    """

    def __init__(self, block_size: int = 256) -> None:
        check_positive(block_size=block_size)
        self.block_size = block_size
        self.clear()

    def clear(self) -> None:
        """Remove all keys and values."""
        self._k: Tensor | None = None
        self._v: Tensor | None = None
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k (B, G, T, Dh) and v (B, G, T, Dv); returns all S keys and values so far."""
        check_kv(k, v)
        start, end = self._length, self._length + k.size(-2)
        self._k = self._grow(self._k, k, end, "k")
        self._v = self._grow(self._v, v, end, "v")
        # By .data, which autograd does not track: the rows returned before do not change.
        self._k.data[..., start:end, :] = k.detach()
        self._v.data[..., start:end, :] = v.detach()
        self._length = end
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """All S keys and values so far, as the last `append` returned them."""
        if self._k is None or self._v is None:
            raise ValueError("the cache is empty; append keys and values first")
        return self._k[..., : self._length, :], self._v[..., : self._length, :]

    def reorder(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order; a row may occur twice, as in beam search."""
        check_int_tensor("rows", rows)
        if rows.ndim != 1:
            raise ValueError(f"rows must have shape (B,), got {format_shape(rows)}")
        rows = rows.long()
        if self._k is not None and self._v is not None:
            with torch.inference_mode(False):
                self._k, self._v = self._k.index_select(0, rows), self._v.index_select(0, rows)

    def _grow(self, buffer: Tensor | None, x: Tensor, length: int, name: str) -> Tensor:
        """The buffer with room for this length: itself, or a longer copy."""
        if buffer is not None:
            if buffer.shape[:-2] != x.shape[:-2] or buffer.size(-1) != x.size(-1):
                raise ValueError(
                    f"{name} has shape {format_shape(x)} but the cache holds (B, G, S, width) = "
                    f"{(*buffer.shape[:-2], self._length, buffer.size(-1))}; "
                    f"clear() it for a new batch"
                )
            if (buffer.dtype, buffer.device) != (x.dtype, x.device):
                raise TypeError(
                    f"{name} is {x.dtype} on {x.device} but the cache holds {buffer.dtype} on "
                    f"{buffer.device}; clear() it before the model changes"
                )
            if buffer.size(-2) >= length:
                return buffer
        blocks = -(-length // self.block_size)
        with torch.inference_mode(False):  # an inference tensor could not be written to later
            shape = (*x.shape[:-2], blocks * self.block_size, x.size(-1))
            grown = torch.zeros(shape, dtype=x.dtype, device=x.device)
        if buffer is not None:
            grown[..., : self._length, :] = buffer[..., : self._length, :]
        return grown

"""Inputs drawn at check time from a secret seed, so that no answer can be prepared."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Draw:
    """Draws random inputs; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers of mean 0 and standard deviation `scale`."""
        return scale * torch.randn(shape, generator=self.generator)

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low to high, both included."""
        return torch.randint(low, high + 1, shape, generator=self.generator)

    def small(self, *shape: int) -> Tensor:
        """Floats that are whole numbers from −2 to 2, easy to read and to compute with."""
        return self.whole(-2, 2, *shape).float()

    def number(self, low: int, high: int) -> int:
        """One whole number from low to high, both included."""
        return int(self.whole(low, high))

    def choose(self, values: Sequence[Any]) -> Any:
        """One of the values."""
        return values[self.number(0, len(values) - 1)]

    def text(self, letters: str, length: int) -> str:
        """A random text of this length, made of these letters."""
        return "".join(self.choose(letters) for _ in range(length))

    def mask(self, *shape: int) -> Tensor:
        """A boolean mask: True for each key that may be attended to, at least one in each row."""
        mask = torch.rand(shape, generator=self.generator) < 0.6
        keep = torch.randint(shape[-1], (*shape[:-1], 1), generator=self.generator)
        return mask.scatter(-1, keep, True)

"""Reading on when the context is full.

    tokens read       1 … max_len            by the reader, as ever
    one more          the last half of all   by a new reader, positions from 0 on

A model reads max_len tokens and no more. To write a longer text it must let go of the beginning:
when a token would be one too many, the last max_len // 2 tokens, that one included, are read anew,
and the text goes on from there. What is older is forgotten. Half, because reading anew costs as
much as reading a prompt: this way it happens once in max_len / 2 tokens and not for each of them.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Reading(Protocol):
    """What generating needs of a reader: those of step.py, step_fast.py and this file."""

    def hidden(self, tokens: Tensor) -> Tensor: ...

    def read(self, tokens: Tensor) -> Tensor: ...

    def best(self, tokens: Tensor) -> Tensor: ...


class Reader:
    """As Reader in step.py, without an end; make(token_mask) gives a reader of max_len tokens."""

    def __init__(
        self, make: Callable[[Tensor | None], Reading], max_len: int, token_mask: Tensor | None
    ) -> None:
        self.make, self.max_len, self.real = make, max_len, token_mask
        self.reader = make(token_mask)
        self.known: Tensor | None = None  # what this reader has read, (B, ·)

    def hidden(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → (B, ·, D), of which the last row belongs to the last."""
        tokens = self._to_read(tokens)
        return self.reader.hidden(tokens)

    def read(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → logits (B, V) of the one that follows."""
        tokens = self._to_read(tokens)
        return self.reader.read(tokens)

    def best(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → the most likely one that follows, (B,)."""
        tokens = self._to_read(tokens)
        return self.reader.best(tokens)

    def _to_read(self, tokens: Tensor) -> Tensor:
        """The next tokens if they fit; else the last half of all, for a new reader."""
        known = tokens if self.known is None else torch.cat((self.known, tokens), dim=1)
        if known.size(1) > self.max_len:
            tokens = known = known[:, -max(1, self.max_len // 2) :]
            if self.real is not None:  # what came after the prompt is real
                missing = self.max_len + 1 - self.real.size(1)
                real = torch.nn.functional.pad(self.real, (0, missing), value=True)
                self.real = real[:, -known.size(1) :]
            self.reader = self.make(self.real)
        self.known = known
        return tokens

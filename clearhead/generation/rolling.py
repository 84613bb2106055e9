"""Reading past the context length.

    up to max_len tokens    one reader reads them all
    one token more          a new reader starts with the last max_len // 2 tokens, at position 0

Padding does not count: a row of a padded batch is continued as if it were alone. Rows of unequal
length are full at different times, and a new reader reads them all again each time.

A model reads at most max_len tokens. To continue a longer text, the oldest tokens must be dropped.
Half of the context is dropped at a time because reading the other half again costs as much as
reading a prompt: so it happens once in max_len / 2 tokens and not at every token.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.generation import reader


class RollingReader:
    """A Reader without a limit; start(token_mask) gives a new reader of up to max_len tokens."""

    def __init__(
        self,
        start: Callable[[Tensor | None], reader.Reader],
        max_len: int,
        token_mask: Tensor | None,
    ) -> None:
        self.start, self.max_len, self.token_mask = start, max_len, token_mask
        self.reader = start(token_mask)
        self.tokens: Tensor | None = None  # (B, ·), what the current reader has read

    def hidden(self, tokens: Tensor) -> Tensor:
        tokens = self._roll(tokens)  # in a line of its own, since it may replace self.reader
        return self.reader.hidden(tokens)

    def read(self, tokens: Tensor) -> Tensor:
        tokens = self._roll(tokens)
        return self.reader.read(tokens)

    def best(self, tokens: Tensor, forbidden: Tensor | None = None) -> Tensor:
        tokens = self._roll(tokens)
        return self.reader.best(tokens, forbidden)

    def _roll(self, tokens: Tensor) -> Tensor:
        """The tokens to read next: these, or if they do not fit, the last half for a new reader."""
        known = tokens if self.tokens is None else torch.cat((self.tokens, tokens), dim=1)
        if known.size(1) > self.max_len:
            tokens = known = self._drop_oldest(known)
            self.reader = self.start(self.token_mask)
        self.tokens = known
        return tokens

    def _drop_oldest(self, known: Tensor) -> Tensor:
        """The last half of every full row, and all tokens of the others: (B, at most max_len)."""
        half = max(1, self.max_len // 2)
        token_mask = reader.extend_mask(self.token_mask, known.size(1))
        if token_mask is None:
            return known[:, -half:]
        lengths = token_mask.sum(dim=1)  # (B,)
        kept = torch.where(lengths > self.max_len, half, lengths)
        width = int(kept.max())
        column = torch.arange(width, device=known.device)
        self.token_mask = column >= width - kept[:, None]
        return known[:, -width:]

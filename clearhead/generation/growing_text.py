"""The text of a row as its tokens come.

A token need not be a whole character: byte-level tokenizers cut é or 😀 into several. So all ids
are decoded each time, and a text that ends inside a character waits for the rest of it. The pieces
joined are the text of all tokens together.
"""

from typing import Protocol

import torch
from torch import Tensor

HALF = "\ufffd"  # what a decoder writes for bytes that are no character yet


class Decoder(Protocol):
    """What is needed of a tokenizer."""

    def decode(self, ids: list[int]) -> str: ...


class GrowingText:
    """One row: its ids and the part of its text that was shown."""

    def __init__(self, tokenizer: Decoder, prompt: list[int]) -> None:
        self.tokenizer, self.ids = tokenizer, prompt
        self.shown = tokenizer.decode(prompt).rstrip(HALF)

    def add(self, token: int, going_on: bool) -> str:
        """What the text has more with this token; the last, going_on=False, holds nothing back."""
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        if going_on and text.endswith(HALF):
            return ""
        new, self.shown = text[len(self.shown) :], text
        return new


def growing_texts(
    tokenizer: Decoder, tokens: Tensor, token_mask: Tensor | None
) -> list[GrowingText]:
    """A text for each prompt of tokens (B, T), without its padding."""
    real = torch.ones_like(tokens, dtype=torch.bool) if token_mask is None else token_mask
    rows = zip(tokens, real, strict=True)
    return [GrowingText(tokenizer, row[on].tolist()) for row, on in rows]

"""The text that each new token adds to its row.

A token need not be a whole character: byte-level tokenizers split é or 😀 into several tokens. So
all ids of a row are decoded each time, and text that ends inside a character is held back until the
character is complete. The pieces joined are the text of all tokens together.
"""

from typing import Protocol

import torch
from torch import Tensor

INCOMPLETE = "\ufffd"  # what a decoder writes for bytes that are not a character yet


class Decoder(Protocol):
    """A tokenizer that turns ids into text."""

    def decode(self, ids: list[int]) -> str: ...


class RowText:
    """One row: its ids, and the text given out so far."""

    def __init__(self, tokenizer: Decoder, prompt: list[int]) -> None:
        self.tokenizer, self.ids = tokenizer, prompt
        self.text = tokenizer.decode(prompt).rstrip(INCOMPLETE)

    def add(self, token: int, is_last: bool) -> str:
        """The text this token adds; the last one also gives out what was held back."""
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        if text.endswith(INCOMPLETE) and not is_last:
            return ""
        new, self.text = text[len(self.text) :], text
        return new


def start_texts(tokenizer: Decoder, tokens: Tensor, token_mask: Tensor | None) -> list[RowText]:
    """One text for each prompt of tokens (B, T), without its padding."""
    is_real = torch.ones_like(tokens, dtype=torch.bool) if token_mask is None else token_mask
    rows = zip(tokens, is_real, strict=True)
    return [RowText(tokenizer, row[mask].tolist()) for row, mask in rows]

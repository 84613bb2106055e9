"""A language model read token by token, with a cache or without.

    reader = ModelReader(model)
    logits = reader.read(prompt)            # (B, V): logits of the token after the prompt
    logits = reader.read(next_tokens)       # … and of the one after next_tokens

A reader keeps the tokens read so far. With a cache it computes only the new ones; without one it
computes all of them again. fast/packed_reader.py does the same on packed weights.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from clearhead.models import GPT
from clearhead.models.checks import check_finite
from clearhead.models.forbidden import rule_out
from clearhead.models.model import evaluation_mode


class Reader(Protocol):
    """Reads the next tokens of every row, (B, T) at a time; rows are padded on the left."""

    def hidden(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → (B, ·, D); [:, -1] belongs to the last token."""
        ...

    def read(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → logits (B, V) of the token that follows."""
        ...

    def best(self, tokens: Tensor, forbidden: Tensor | None = None) -> Tensor:
        """tokens (B, T), the next ones → the most likely token that follows, (B,).

        forbidden (n,): ids that do not count.
        """
        ...


class ModelReader:
    """A Reader that runs the model's own modules with dropout off, so hooks see every token."""

    def __init__(self, model: GPT, token_mask: Tensor | None = None, *, cache: bool = True) -> None:
        """token_mask (B, T): True = real, for the prompt. cache=False computes all tokens again."""
        self.model, self.token_mask = model, token_mask
        self.caches = model.make_caches() if cache else None
        self.tokens: Tensor | None = None  # (B, ·), all tokens read so far

    def hidden(self, tokens: Tensor) -> Tensor:
        self.tokens = tokens if self.tokens is None else torch.cat((self.tokens, tokens), dim=1)
        token_mask = extend_mask(self.token_mask, self.tokens.size(1))
        with evaluation_mode(self.model):
            if self.caches is None:
                return self.model.hidden(self.tokens, token_mask=token_mask)
            return self.model.hidden(tokens, token_mask=token_mask, caches=self.caches)

    def read(self, tokens: Tensor) -> Tensor:
        return check_finite(self.model.logits(check_finite(self.hidden(tokens)[:, -1])))

    def best(self, tokens: Tensor, forbidden: Tensor | None = None) -> Tensor:
        return rule_out(self.read(tokens), forbidden).argmax(-1)


def extend_mask(token_mask: Tensor | None, length: int) -> Tensor | None:
    """The mask (B, T) of a prompt → (B, length): cut, or extended by generated tokens, all real."""
    if token_mask is None:
        return None
    return pad(token_mask, (0, length - token_mask.size(1)), value=True)  # a negative pad cuts

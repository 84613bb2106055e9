"""A language model run token by token: what has been read is kept, or read again each time.

    reader = Reader(model)
    logits = reader.read(prompt)            # (B, V): what may come after the prompt
    logits = reader.read(next_tokens)       # … and after one more token

The same in few, large operations is in step_fast.py.
"""

import torch
from torch import Tensor

from clearhead.models import GPT
from clearhead.models.checks import numbers
from clearhead.models.model import at_rest


class Reader:
    """Reads tokens by the model's own modules, dropout off; rows are equally long, padded left."""

    def __init__(self, model: GPT, token_mask: Tensor | None = None, *, cache: bool = True) -> None:
        """token_mask (B, T): True = real, of the prompt; cache=False reads everything again."""
        self.model, self.token_mask = model, token_mask
        self.caches = model.make_caches() if cache else None
        self.tokens: Tensor | None = None

    def read(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → logits (B, V) of the one that follows."""
        return numbers(self.model.logits(numbers(self.hidden(tokens)[:, -1])))

    def best(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → the most likely one that follows, (B,)."""
        return self.read(tokens).argmax(-1)

    def hidden(self, tokens: Tensor) -> Tensor:
        """tokens (B, T), the next ones → (B, ·, D), of which the last row belongs to the last."""
        known = tokens if self.tokens is None else torch.cat((self.tokens, tokens), dim=1)
        real = self._real(known)
        self.tokens = known
        with at_rest(self.model):
            if self.caches is None:
                return self.model.hidden(known, token_mask=real)
            return self.model.hidden(tokens, token_mask=real, caches=self.caches)

    def _real(self, known: Tensor) -> Tensor | None:
        """The token mask of all that is known; what is not in the given one is real."""
        if self.token_mask is None:
            return None
        missing = known.size(1) - self.token_mask.size(1)
        if missing <= 0:
            return self.token_mask[:, : known.size(1)]
        return torch.nn.functional.pad(self.token_mask, (0, missing), value=True)

"""The models that the exercises on generation give to the student's function.

Each is written twice: as source that runs beside the student's file, and as the same formula for
the reference. A logit depends on all tokens before it and on the position.
"""

import torch
from torch import Tensor

VOCAB = 11
MAX_LEN = 40

# The model that the student's function is given: each logit depends on all tokens before it and on
# the position. The same formula is in `next_logits`. returns: logits, (logits, None), or an object
# with an attribute logits.
PLAIN_MODEL = f'''
import types as _types
import torch as _torch

class _LanguageModel(_torch.nn.Module):
    """model(tokens) → logits (B, T, {VOCAB})"""

    def __init__(self, table, mix, returns="logits"):
        super().__init__()
        self.table = _torch.nn.Parameter(table, requires_grad=False)
        self.mix = _torch.nn.Parameter(mix, requires_grad=False)
        self.returns = returns
        sizes = ("block_size", "max_len", "max_seq_len", "context_length", "context_size")
        self.config = _types.SimpleNamespace(**dict.fromkeys(sizes, {MAX_LEN}))
        vars(self).update(vars(self.config))

    def forward(self, tokens=None, *rest, **more):
        tokens = more["input_ids"] if tokens is None else tokens
        T = tokens.shape[1]
        age = _torch.arange(T)[:, None] - _torch.arange(T)[None]
        decay = _torch.where(age >= 0, 0.8 ** age, 0.0)
        wave = _torch.sin(1.7 * _torch.arange(T)[:, None] * (1 + _torch.arange({VOCAB})))
        logits = self.table[tokens] + decay @ self.mix[tokens] + wave
        if self.returns == "object":
            return _types.SimpleNamespace(logits=logits)
        return (logits, None) if self.returns == "pair" else logits
'''


def next_logits(tokens: Tensor, table: Tensor, mix: Tensor) -> Tensor:
    """tokens (B, T) → logits (B, T, V): the formula of the model."""
    T = tokens.size(1)
    age = torch.arange(T)[:, None] - torch.arange(T)
    decay = torch.where(age >= 0, 0.8**age, 0.0)
    wave = torch.sin(1.7 * torch.arange(T)[:, None] * (1 + torch.arange(VOCAB)))
    return table[tokens] + decay @ mix[tokens] + wave


# logits, cache = model(new tokens, cache, start): the same formula is in `cached_logits`. _READ
# counts the tokens that the model reads.
CACHED_MODEL = f'''
import torch as _torch

_READ = [0]

class _CachedModel(_torch.nn.Module):
    """logits, cache = model(tokens, cache=None, start=None)"""

    def __init__(self, table, mix, returns="pair"):
        super().__init__()
        self.table = _torch.nn.Parameter(table, requires_grad=False)
        self.mix = _torch.nn.Parameter(mix, requires_grad=False)
        self.block_size = self.max_len = self.context_length = {MAX_LEN}
        _READ[0] = 0

    def forward(self, tokens, cache=None, start=None, **more):
        for name, value in more.items():  # such as past_key_values= and start_pos=
            if "past" in name or "cache" in name and name != "use_cache":
                cache = value
            elif "pos" in name or name == "offset":
                start = value
        _READ[0] += tokens.shape[1]
        seen = tokens if cache is None else _torch.cat([cache, tokens], 1)
        S, T = seen.shape[1], tokens.shape[1]
        start = S - T if start is None else int(start)
        age = _torch.arange(S - T, S)[:, None] - _torch.arange(S)[None]
        decay = _torch.where(age >= 0, 0.8 ** age, 0.0)
        wave = _torch.sin(1.7 * (start + _torch.arange(T))[:, None] * (1 + _torch.arange({VOCAB})))
        return self.table[tokens] + decay @ self.mix[seen] + wave, seen
'''

Feed = tuple[Tensor, Tensor | None, int]  # tokens to read, cache, position of the first of them


def cached_logits(feed: Feed, table: Tensor, mix: Tensor) -> tuple[Tensor, Tensor]:
    """Compute logits (B, T, V) and the new cache, which holds all tokens so far."""
    tokens, cache, start = feed
    seen = tokens if cache is None else torch.cat([cache, tokens], 1)
    S, T = seen.size(1), tokens.size(1)
    age = torch.arange(S - T, S)[:, None] - torch.arange(S)
    decay = torch.where(age >= 0, 0.8**age, 0.0)
    wave = torch.sin(1.7 * (start + torch.arange(T))[:, None] * (1 + torch.arange(VOCAB)))
    return table[tokens] + decay @ mix[seen] + wave, seen

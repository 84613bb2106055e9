"""Token ids that a model never produces, such as <unk>.

    logits[forbidden] = −∞

so that their probability is 0 and no way of choosing takes them.
"""

import math
from collections.abc import Collection

import torch
from torch import Tensor


def make_ids(name: str, ids: Collection[int], vocab_size: int, device: torch.device) -> Tensor:
    """Ids such as those that end a row, checked, as a tensor (n,)."""
    if not isinstance(ids, Collection):
        raise TypeError(f"{name} must be a list or set of ids, got {ids!r}; write {name}=[{ids!r}]")
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise ValueError(f"{name} must hold ids from 0 to {vocab_size - 1}, got {token!r}")
    return torch.tensor(sorted(set(ids)), device=device, dtype=torch.long)


def make_forbidden(forbid: Collection[int], vocab_size: int, device: torch.device) -> Tensor | None:
    """The ids that are never produced, (n,); None if there are none."""
    ids = make_ids("forbid", forbid, vocab_size, device)
    if len(ids) == vocab_size:
        raise ValueError(f"forbid holds all {vocab_size} ids, so none is left; leave one out")
    return ids if len(ids) else None


def rule_out(logits: Tensor, forbidden: Tensor | None) -> Tensor:
    """logits (..., V) with −∞ at the forbidden ids (n,), whose probability is then 0."""
    return logits if forbidden is None else logits.index_fill(-1, forbidden, -math.inf)

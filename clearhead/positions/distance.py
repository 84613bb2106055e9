"""How far apart a query and a key stand: the one place that says where queries stand.

Queries are the last T of the S positions, so query t stands at position t + S − T. In training T =
S; with cached keys T is the number of new tokens.
"""

import torch
from torch import Tensor


def offsets(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """How far key s stands behind query t, (T, S): negative for the future."""
    queries = torch.arange(S - T, S, device=device)
    return queries[:, None] - torch.arange(S, device=device)

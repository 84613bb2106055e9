"""How far apart a query and a key are, and which positions the queries have.

Queries are the last T of the S positions, so query t has position t + S − T. In training T = S;
with cached keys T is the number of new tokens.
"""

import torch
from torch import Tensor


def offsets(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Position of query t minus position of key s, (T, S): negative for the future."""
    queries = torch.arange(S - T, S, device=device)
    return queries[:, None] - torch.arange(S, device=device)

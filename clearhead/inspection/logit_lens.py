"""The logit lens (nostalgebraist 2020): the output layer applied after each block.

    lens[l] = norm(x_l) Wᵀ        x_l is the residual stream after l blocks

lens[0] comes from the embedding alone; lens[L] is the output of the model.
"""

import torch
from torch import Tensor, nn

from clearhead.inspection.residual import Arguments, read_stream


def logit_lens(model: nn.Module, tokens: Arguments) -> Tensor:
    """Logits before the first block and after each block: (L + 1, B, T, V).

    tokens: the input of the model, or a tuple of inputs, as for a translator. For a
    VisionTransformer the input is a batch of pictures, and the result is (L + 1, B, C).
    """
    stream, states = read_stream(model, tokens)
    with torch.no_grad():
        return torch.stack([stream.read_logits(x) for x in states])

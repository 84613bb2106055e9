"""The logit lens (nostalgebraist 2020): what would the model say after each of its layers?

    lens[l] = norm(x_l) W_headᵀ        x_l is the residual stream after l blocks

The first row is read before any block, the last one is the model's own output.
"""

import torch
from torch import Tensor, nn

from clearhead.inspection.residual import Arguments, read_stream


def logit_lens(model: nn.Module, tokens: Arguments) -> Tensor:
    """Logits before the first block and after each: (L + 1, B, T, V).

    tokens: the input of the model, pictures of a VisionTransformer for instance, whose lens is
    (L + 1, B, C); or a tuple of inputs, as a translator has.
    """
    stream, states = read_stream(model, tokens)
    with torch.no_grad():
        return torch.stack([stream.read_logits(x) for x in states])

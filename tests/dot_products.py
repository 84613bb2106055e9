"""What the tests of dot-product attention share: its forms, inputs, masks, and one whole run."""

import torch

from clearhead.attention import dot_product, dot_product_fast
from clearhead.attention.masks import Mask
from clearhead.attention.mechanisms import DotProductAttention

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
B, H, T, S, DH = 2, 3, 5, 7, 4

FUNCTIONS = {"reference": dot_product.attend, "fast": dot_product_fast.attend}
FORMS = FUNCTIONS | {"module": lambda *qkv, **options: DotProductAttention()(*qkv, **options)}


def inputs(*leading, T=T, S=S, Dh=DH, Dv=None, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((T, Dh), (S, Dh), (S, Dh if Dv is None else Dv))
    numbers = (torch.randn(*leading, *s, generator=generator, dtype=torch.float64) for s in sizes)
    return [x.to(dtype).requires_grad_() for x in numbers]


def tolerance(dtype, scale=1.0):
    """Ten units in the last place of numbers of this size."""
    return {"atol": 10 * scale * torch.finfo(dtype).eps, "rtol": 10 * torch.finfo(dtype).eps}


def run(attend, q, k, v, mask, bias):
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    bias = None if bias is None else bias.detach().clone().requires_grad_()
    output = attend(q, k, v, mask=mask, bias=bias)
    output.backward(torch.arange(1.0, output.numel() + 1).reshape(output.shape).to(q.dtype))
    return [output.detach(), q.grad, k.grad, v.grad, *([] if bias is None else [bias.grad])]


MASKS = {
    "none": lambda T, S: None,
    "causal": lambda T, S: Mask.causal(),
    "window": lambda T, S: Mask.window(2),
    "causal window": lambda T, S: Mask.causal() & Mask.window(3),
    "padding": lambda T, S: Mask.padding(torch.tensor([S, S // 2])),
    "padding 0": lambda T, S: Mask.padding(torch.tensor([0, 1])),
    "padding (B, T)": lambda T, S: Mask.padding((torch.arange(2 * T) * 3 % (S + 1)).reshape(2, T)),
    "causal padding": lambda T, S: Mask.causal() & Mask.padding(torch.tensor([2, S])),
    "segments": lambda T, S: Mask.segments(torch.arange(2 * S).reshape(2, S) % 3 - int(S > 6)),
    "tokens": lambda T, S: Mask.tokens(torch.arange(2 * S).reshape(2, S) % 3 != 1),
    "nothing": lambda T, S: Mask.of(torch.zeros(T, S, dtype=torch.bool)),
}

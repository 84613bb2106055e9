"""Every form of every mechanism behind one call, with inputs and masks that tests share.

FORMS[name](q, k, v, mask=None, bias=None) → output
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from clearhead.attention import (
    AdditiveAttention,
    ArgmaxAttention,
    DotProductAttention,
    EluFeatures,
    FourierFeatures,
    Mask,
    PositiveFeatures,
    QuadraticFeatures,
    dot_product,
    dot_product_fast,
    linear,
    linear_fast,
)

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
B, H, T, S, DH = 2, 3, 5, 7, 4

Attend = Callable[..., Tensor]


@cache
def additive(d_query: int, d_key: int, dtype: torch.dtype) -> AdditiveAttention:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return AdditiveAttention(d_query, d_key, 3).to(dtype)


def width(x: Any) -> int:
    """Of a tensor; what is no tensor, or has no width, is refused later."""
    return max(1, x.size(-1)) if isinstance(x, Tensor) else DH


def attend_additively(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    dtype = q.dtype if isinstance(q, Tensor) and q.is_floating_point() else torch.float32
    return additive(width(q), width(k), dtype)(q, k, v, **options)


def attend_by_kernel(form: Any, features: Any, **settings: Any) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return form.attend(q, k, v, features(width(q)), **settings, **options)

    return attend


FEATURES = {
    "elu": lambda d_head: EluFeatures(),
    "quadratic": lambda d_head: QuadraticFeatures(),
    "fourier": lambda d_head: FourierFeatures(d_head, 64, seed=3),
    "positive": lambda d_head: PositiveFeatures(d_head, 32, seed=3),
}
DOT_PRODUCT: dict[str, Attend] = {
    "reference": dot_product.attend,
    "fast": dot_product_fast.attend,
}
MODULE: dict[str, Attend] = {
    "module": lambda *qkv, **options: DotProductAttention()(*qkv, **options)
}
SCORES = DOT_PRODUCT | {"additive": attend_additively, "argmax": ArgmaxAttention()}
LINEAR = {f"linear {name}": attend_by_kernel(linear, phi) for name, phi in FEATURES.items()}
# Chunks of 2, so that a short sequence crosses the borders of chunks.
LINEAR_FAST = {
    f"linear_fast {name}": attend_by_kernel(linear_fast, phi, chunk=2)
    for name, phi in FEATURES.items()
}
FORMS = SCORES | LINEAR | LINEAR_FAST


def takes_bias(form: str) -> bool:
    return form in SCORES


def takes_any_mask(form: str) -> bool:
    return form not in LINEAR_FAST


def inputs(*leading, T=T, S=S, Dh=DH, Dv=None, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((T, Dh), (S, Dh), (S, Dh if Dv is None else Dv))
    numbers = (torch.randn(*leading, *s, generator=generator, dtype=torch.float64) for s in sizes)
    return [x.to(dtype).requires_grad_() for x in numbers]


def tolerance(dtype, scale=1.0):
    """Ten units in the last place of numbers of this size."""
    return {"atol": 10 * scale * torch.finfo(dtype).eps, "rtol": 10 * torch.finfo(dtype).eps}


def run(attend, q, k, v, mask, bias=None):
    """The output and the gradients of q, k, v and, if there is one, of the bias."""
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    bias = None if bias is None else bias.detach().clone().requires_grad_()
    output = attend(q, k, v, mask=mask, bias=bias)
    output.backward(torch.arange(1.0, output.numel() + 1).reshape(output.shape).to(q.dtype))
    return [output.detach(), q.grad, k.grad, v.grad, *([] if bias is None else [bias.grad])]


# Masks that every form serves, and those that only forms with a T × S matrix do; for B = 2.
SERVED = {
    "none": lambda T, S: None,
    "causal": lambda T, S: Mask.causal(),
    "padding": lambda T, S: Mask.padding(torch.tensor([S, S // 2])),
    "padding 0": lambda T, S: Mask.padding(torch.tensor([0, 1])),
    "causal padding": lambda T, S: Mask.causal() & Mask.padding(torch.tensor([2, S])),
    "segments": lambda T, S: Mask.segments(torch.arange(2 * S).reshape(2, S) % 3 - int(S > 6)),
    "causal segments": lambda T, S: (
        Mask.causal() & Mask.segments(torch.arange(2 * S).reshape(2, S) % 3 - 1)
    ),
    "tokens": lambda T, S: Mask.tokens(torch.arange(2 * S).reshape(2, S) % 3 != 1),
}
MASKS = SERVED | {
    "window": lambda T, S: Mask.window(2),
    "causal window": lambda T, S: Mask.causal() & Mask.window(3),
    "padding (B, T)": lambda T, S: Mask.padding((torch.arange(2 * T) * 3 % (S + 1)).reshape(2, T)),
    "matrix": lambda T, S: Mask.of((torch.arange(S) % 3 != 0).expand(T, S)),
    "nothing": lambda T, S: Mask.of(torch.zeros(T, S, dtype=torch.bool)),
}


def masks_of(form: str) -> dict:
    return MASKS if takes_any_mask(form) else SERVED


def pairs(mask: Mask | None, *shape: int) -> Tensor:
    """The mask written out for scores of this shape, (..., T, S)."""
    if mask is None:
        return torch.ones(shape, dtype=torch.bool)
    return mask.broadcastable(*shape[-2:], axes=len(shape)).expand(shape)

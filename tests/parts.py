"""The parts that tests put together: every mechanism, every scheme of positions, all small.

from parts import MECHANISMS, SCHEMES, build
attention = build("elu", "rotary", n_kv_heads=3)
"""

import itertools
from collections.abc import Callable

import torch
from torch import nn

from clearhead.attention import (
    AdditiveAttention,
    ArgmaxAttention,
    DotProductAttention,
    EluFeatures,
    FourierFeatures,
    LinearAttention,
    MultiHeadAttention,
    PositiveFeatures,
    QuadraticFeatures,
)
from clearhead.layers import Block
from clearhead.positions import AlibiBias, RotaryPositions, ToeplitzBias

B, H, G, T, S, Dh = 2, 6, 3, 5, 7, 4
D = H * Dh
LONGEST = 32  # what a Toeplitz bias is built for

SCORES: dict[str, Callable[[], nn.Module]] = {
    "dot product": DotProductAttention,
    "additive": lambda: AdditiveAttention(Dh, Dh, 3),
    "argmax": ArgmaxAttention,
}
KERNELS: dict[str, Callable[[], nn.Module]] = {
    "elu": lambda: LinearAttention(EluFeatures()),
    "quadratic": lambda: LinearAttention(QuadraticFeatures()),
    "fourier": lambda: LinearAttention(FourierFeatures(Dh, 64)),
    "positive": lambda: LinearAttention(PositiveFeatures(Dh, 32)),
}
MECHANISMS = SCORES | KERNELS

BIASES: dict[str, Callable[[], nn.Module]] = {
    "toeplitz": lambda: ToeplitzBias(H, LONGEST),
    "alibi": lambda: AlibiBias(H),
}
SCHEMES: dict[str, Callable[[], nn.Module | None]] = {
    "none": lambda: None,
    "rotary": lambda: RotaryPositions(Dh),
    **BIASES,
}

# One kernel stands for all; a kernel has no scores to which a bias could be added.
ONE_OF_EACH = [*SCORES, "elu"]
PAIRS = [
    (mechanism, scheme)
    for mechanism, scheme in itertools.product(ONE_OF_EACH, SCHEMES)
    if not (mechanism in KERNELS and scheme in BIASES)
]


def build(
    mechanism: str = "dot product", scheme: str = "none", **options: object
) -> MultiHeadAttention:
    """The same at every call, and every parameter random, a Toeplitz bias too."""
    torch.manual_seed(0)
    positions = SCHEMES[scheme]()
    if isinstance(positions, ToeplitzBias):
        nn.init.normal_(positions.weight)
    return MultiHeadAttention(
        D, H, mechanism=MECHANISMS[mechanism](), positions=positions, **options
    )


def build_block(scheme: str = "none", **options: object) -> Block:
    torch.manual_seed(0)
    return Block(D, H, positions=SCHEMES[scheme](), **options).eval()

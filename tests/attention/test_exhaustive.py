"""All small sizes, every mask alone and joined: forward and gradients against the loops.

Quick are the masks alone, each with causal, and the triples people use; slow is every other pair.
"""

import itertools

import oracle
import pytest
import torch

from clearhead.attention import dot_product, dot_product_fast
from clearhead.attention.masks import Mask

B, H, DH = 2, 2, 2
NAMES = ["output", "dq", "dk", "dv", "dbias"]
TOLERANCE = {"atol": 1e-10, "rtol": 0}


def numbers(n, T, S):
    """Whole numbers with no pattern in them, the same at each run."""
    return [(7 * i + 3 * i * i + 2 * T + S) % 11 for i in range(n)]


def kinds(T, S):
    """Each kind of mask for these sizes; some rows of some of them are empty."""
    flags = torch.tensor(numbers(B * H * T * S, T, S)) % 3 > 0
    full = flags.reshape(B, H, T, S)
    lens = torch.tensor(numbers(B * T, T, S)) % (S + 1)
    return {
        "causal": Mask.causal(),
        "window 1": Mask.window(1),
        "window 2": Mask.window(2),
        "padding": Mask.padding(torch.tensor([S, S // 2])),
        "padding 0": Mask.padding(torch.tensor([0, S])),
        "padding of each query": Mask.padding(lens.reshape(B, T)),
        "tokens": Mask.tokens(torch.tensor(numbers(B * S, T, S)).reshape(B, S) % 4 > 0),
        "segments": Mask.segments(torch.tensor(numbers(B * S, S, T)).reshape(B, S) % 3 - 1),
        "of (T, S)": Mask.of(full[0, 0]),
        "of (B, 1, T, S)": Mask.of(full[:, :1]),
        "of (B, H, T, S)": Mask.of(full),
        "of (B, T, S)": Mask.of(full[:, 1]),
    }


TRIPLES = [
    ("causal", "window 2", "padding"),
    ("causal", "segments", "tokens"),
    ("causal", "padding of each query", "of (B, H, T, S)"),
    ("window 2", "padding 0", "of (B, T, S)"),
]
KINDS = list(kinds(1, 1))
SIZES = list(itertools.product(range(1, 6), repeat=2))
PAIRS = list(itertools.combinations(KINDS, 2))
WITH_CAUSAL = [pair for pair in PAIRS if "causal" in pair]
QUICK = [(), *((name,) for name in KINDS), *WITH_CAUSAL, *TRIPLES]


def joined(names, T, S):
    """The mask of each tuple of names, with its name and whether it is for scores with heads."""
    masks = kinds(T, S)
    for parts in names:
        if {"of (B, H, T, S)", "of (B, T, S)"} <= set(parts):
            continue  # one is for scores with heads, the other for scores without
        mask = None
        for name in parts:
            mask = masks[name] if mask is None else mask & masks[name]
        yield " & ".join(parts) or "none", mask, "of (B, T, S)" not in parts


def inputs(T, S, heads):
    generator = torch.Generator().manual_seed(10 * T + S)
    leading = (B, H) if heads else (B,)
    sizes = ((T, DH), (S, DH), (S, DH), (T, DH))
    return [torch.randn(*leading, *s, dtype=torch.float64, generator=generator) for s in sizes]


@pytest.mark.parametrize(("T", "S"), SIZES)
def test_every_mask_alone_and_with_causal_agrees_with_the_loops(T, S):
    check(QUICK, T, S)


@pytest.mark.slow
@pytest.mark.parametrize(("T", "S"), SIZES)
def test_every_pair_of_masks_agrees_with_the_loops(T, S):
    check([pair for pair in PAIRS if pair not in WITH_CAUSAL], T, S)


def check(names, T, S):
    for name, mask, heads in joined(names, T, S):
        q, k, v, grad = inputs(T, S, heads)
        allowed = None if mask is None else mask.broadcastable(T, S, axes=q.ndim)
        bias = torch.randn(H, T, S, dtype=torch.float64) if heads else torch.randn(B, T, S).double()
        for added in (None, bias):
            output, weights = oracle.dot_product(q, k, v, allowed, added)
            grads = oracle.dot_product_gradients(q, k, v, grad, allowed, added)
            expected = [output, *grads[: 3 if added is None else 4]]
            for form in (dot_product, dot_product_fast):
                leaves = [x.clone().requires_grad_() for x in (q, k, v)]
                learned = None if added is None else added.clone().requires_grad_()
                got = form.attend(*leaves, mask=mask, bias=learned)
                got.backward(grad)
                everything = [got, *(x.grad for x in leaves)]
                everything += [] if learned is None else [learned.grad]
                for what, ours, theirs in zip(NAMES, everything, expected, strict=False):
                    where = f"{what} of {form.__name__}, {name}, bias {added is not None}"
                    torch.testing.assert_close(
                        ours, theirs, **TOLERANCE, msg=lambda text, where=where: f"{where}\n{text}"
                    )
                empty = weights.sum(-1) == 0
                assert got[empty].eq(0).all(), name
                assert leaves[0].grad[empty].eq(0).all(), name

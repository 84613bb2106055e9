"""Random numbers as a function of (seed, purpose, index), without any state.

    x ← x ⊕ (x >> 30);  x ← x · c₁;  x ← x ⊕ (x >> 27);  x ← x · c₂;  x ← x ⊕ (x >> 31)     mod 2⁶⁴

turns a counter into random bits (the last step of SplitMix64: Steele, Lea & Flood 2014, "Fast
splittable pseudorandom number generators"). So there is no generator to save or restore: example 17
is the same whether or not 0 … 16 were drawn before it, on every machine.
"""

import hashlib
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from clearhead.shapes import check_whole

Words = NDArray[np.uint64]
Item = TypeVar("Item")

STEP = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio
FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ONE_IN = 10  # one example in ten of a generated task is kept for validation


def draw_bits(seed: int, purpose: str, *counters: int | NDArray[Any]) -> Words:
    """64 random bits for each combination of the counters, which broadcast.

    The purpose keeps two uses of one seed independent.
    """
    start = _hash_text(f"{check_integer('seed', seed)} {purpose}")
    state = _mix(np.atleast_1d(np.uint64(start)))
    for counter in counters:
        numbers = np.atleast_1d(counter)
        if numbers.dtype.kind not in "iu":  # a cast would give 0.2 and 0.7 the same bits
            raise TypeError(f"counters must be whole numbers of 64 bits, got {counter!r:.80}")
        state = _mix(state ^ _mix(numbers.astype(np.uint64)))
    return state


def choose_below(limit: int | NDArray[Any], bits: Words) -> NDArray[np.int64]:
    """Random bits → numbers from 0 to limit − 1, equally likely; limit is at most 2³²."""
    scaled = (bits >> np.uint64(32)) * np.asarray(limit, dtype=np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def hash_rows(codes: NDArray[np.int64]) -> Words:
    """64 bits for each row of codes, (N, L) → (N,); negative codes are padding and do not count."""
    keys = np.zeros(codes.shape[0], dtype=np.uint64)
    for column in codes.T:
        keys = np.where(column < 0, keys, _mix(keys ^ column.astype(np.uint64)))
    return keys


def is_validation(keys: Words) -> NDArray[np.bool_]:
    """Whether examples with these keys are for validation: one in ten, whatever the seed.

    So no setting of a generated task can bring a validation example into a training set.
    """
    return choose_below(ONE_IN, draw_bits(0, "validation", keys)) == 0


def split(
    items: Sequence[Item], *, seed: int = 0, share: float = 0.1, key: Callable[[Item], str] = str
) -> tuple[list[Item], list[Item]]:
    """Split into a training and a validation list, in the given order, with no key in common.

    The validation list gets this share of the different keys, rounded, but at least one.
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must be between 0 and 1, got {share}")
    keys = [key(item) for item in items]
    start = f"{check_integer('seed', seed)} split"
    ranked = sorted(set(keys), key=lambda text: (_hash_text(f"{start} {text}"), text))
    if len(ranked) < 2:
        raise ValueError(
            f"items must hold at least 2 different ones to split, got {len(ranked)}; "
            f"use all for training"
        )
    n_kept = min(max(1, round(share * len(ranked))), len(ranked) - 1)
    kept = set(ranked[:n_kept])
    train = [item for item, name in zip(items, keys, strict=True) if name not in kept]
    return train, [item for item, name in zip(items, keys, strict=True) if name in kept]


# Whole numbers of Python, NumPy or PyTorch


def check_integer(name: str, value: Any) -> int:
    """A whole number as a plain int; a bool or a float is refused, even 1.0."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    check_whole(name, plain)
    return operator.index(plain)


def check_index(name: str, value: Any) -> int:
    """A whole number from 0 to 2⁶³ − 1: an index, a length, an epoch."""
    number = check_integer(name, value)
    if not 0 <= number < 1 << 63:
        rule = "not be negative" if number < 0 else "be below 2⁶³"
        raise ValueError(f"{name} must {rule}, got {number}")
    return number


def check_indices(name: str, values: Any) -> list[int]:
    """Indices from a list, a range, an array or a tensor with one axis."""
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, str) or not isinstance(plain, Iterable):
        raise TypeError(f"{name} must be a list of whole numbers, got {values!r:.80}")
    return [check_index(f"{name}[{i}]", value) for i, value in enumerate(plain)]


def _hash_text(text: str) -> int:
    """64 bits for a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _mix(x: Words) -> Words:
    x = x + STEP
    for shift, factor in zip((30, 27), FACTORS, strict=True):
        x = (x ^ (x >> np.uint64(shift))) * factor
    return x ^ (x >> np.uint64(31))

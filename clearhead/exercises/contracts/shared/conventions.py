"""Conventions in which correct answers differ: how a mask is given, batch axes, NumPy arrays."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case

MASKS = (
    "mask attn_mask attention_mask src_mask tgt_mask causal_mask inp_mask "
    "bias attn_bias attention_bias additive additive_mask"
)
ADDITIVE = ("bias", "attn_bias", "attention_bias", "additive", "additive_mask")  # 0 or −∞
LENGTHS = "valid_lens valid_len valid_lengths valid_length lens lengths seq_lens"


def draw_mask(draw: Draw, *shape: int) -> Tensor:
    """A boolean mask in which every row allows at least one key and hides at least one."""
    mask = draw.mask(*shape)
    order = draw.normal(*shape).argsort(-1)
    return mask.scatter(-1, order[..., :1], True).scatter(-1, order[..., 1:2], False)


def to_additive(mask: Tensor) -> Tensor:
    """A 0/1 mask as numbers to add to the scores: 0 = may attend, −∞ = hidden."""
    return torch.zeros(mask.shape).masked_fill(mask == 0, -math.inf)


def list_mask_forms(case: Case) -> Iterable[Case]:
    """The mask (B, T, S) as bool, 0/1 int or float; with a head axis; (T, S) for the whole batch.

    A case without a mask is also tried with one, or with lengths, that allow everything, for code
    that needs one.
    """
    mask = case.inputs.get("mask")
    if mask is None:
        yield case
    if mask is None and "valid_lens" in case.inputs:
        return
    if mask is None:
        mask = torch.ones(_find_scores_shape(case.inputs), dtype=torch.bool)
        lengths = torch.full(mask.shape[:1], mask.size(-1))
        yield replace(case, inputs={**case.inputs, "valid_lens": lengths})
    shapes = [mask, mask[:, None], mask[0]] if mask.dim() == 3 else [mask]
    for each in shapes:
        inputs = {**case.inputs, "mask": each}
        for dtype in (torch.bool, torch.int64, torch.float32):
            yield replace(case, inputs=inputs, given={**inputs, "mask": each.to(dtype)})


def _find_scores_shape(inputs: Mapping[str, Any]) -> tuple[int, ...]:
    """(…, T, S) of the scores of these inputs."""
    queries = inputs["q"] if "q" in inputs else inputs["x"]
    keys = inputs.get("k", inputs.get("y", queries))
    return (*queries.shape[:-1], keys.size(-2))


def to_array_form(case: Case) -> Case:
    """The case with NumPy arrays, which have no gradient."""
    given = case.inputs if case.given is None else case.given
    arrays = {n: x.numpy() if isinstance(x, Tensor) else x for n, x in given.items()}
    return replace(case, given=arrays, gradient=False)


def list_layout_forms(case: Case) -> Iterable[Case]:
    """The case as it is (B, T, d), with a head axis (1, B, T, d), and without a batch (T, d)."""
    yield case
    tensors = {name: x for name, x in case.inputs.items() if x.dim() == 3}
    if len(tensors) == len(case.inputs):
        yield replace(case, inputs={name: x.unsqueeze(0) for name, x in tensors.items()})
        yield replace(case, inputs={name: x[0] for name, x in tensors.items()})

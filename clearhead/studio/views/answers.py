"""The answer of a model: the most likely next tokens at each position, or the class at [CLS].

probs = softmax(logits / temperature)          of a GPT, and of several classes
probs = σ(± logit / temperature)               of a classifier with one logit: yes and no
"""

from typing import Any

import torch
from torch import Tensor

from clearhead.shapes import check_number
from clearhead.studio.sources import Opened
from clearhead.studio.views.tokens import spell_tokens

N_BEST = 10  # tokens
N_LARGEST = 3  # answers whose probability changed most
CLASS_TOKEN = 0  # the position at which a classifier answers


def check_temperature(temperature: float) -> None:
    """Raise ValueError unless logits can be divided by this temperature."""
    check_number("temperature", temperature, low=0.01, high=100)


def rank_answers(opened: Opened, logits: Tensor, temperature: float) -> dict[str, Any] | None:
    """The most likely answers. logits: the output of the model, (..., T, ·).

    Of a GPT: "ids", "texts", "logits" and "probs" of the best tokens at each position, (..., T, K).
    Of a classifier: "texts" of the classes (C,), their "logits" and "probs", (..., C).
    A TextEncoder has no answer: None.
    """
    if opened.kind == "TextEncoder":
        return None
    if opened.kind == "SequenceClassifier":
        names, logits, probs = read_classes(logits, temperature)
        return {"kind": "class", "texts": names, "logits": logits, "probs": probs}
    probs = (logits / temperature).softmax(-1)
    best, ids = probs.topk(min(N_BEST, probs.size(-1)))
    return {
        "kind": "token",
        "ids": ids,
        "texts": _spell_all(opened, ids),
        "logits": logits.gather(-1, ids),
        "probs": best,
    }


def compare_answers(
    opened: Opened, before: Tensor, after: Tensor, temperature: float
) -> dict[str, Any] | None:
    """The answers before and after a change, beside each other.

    before, after: outputs of the model, (T, ·). The temperature is for `after`; `before` has 1. For
    a GPT: the tokens that are most likely before or after, (T, K). "largest": the indices of the
    answers whose probability changed most.
    """
    if opened.kind == "TextEncoder":
        return None
    if opened.kind == "SequenceClassifier":
        names, old, old_probs = read_classes(before, 1.0)
        _, new, new_probs = read_classes(after, temperature)
        found: dict[str, Any] = {"texts": names}
    else:
        old_probs, new_probs = before.softmax(-1), (after / temperature).softmax(-1)
        ids = torch.maximum(old_probs, new_probs).topk(min(N_BEST, after.size(-1))).indices
        old, new = before.gather(-1, ids), after.gather(-1, ids)
        old_probs, new_probs = old_probs.gather(-1, ids), new_probs.gather(-1, ids)
        found = {"texts": _spell_all(opened, ids), "ids": ids}
    order = (new_probs - old_probs).abs().argsort(dim=-1, descending=True, stable=True)
    return found | {
        "logits_before": old,
        "logits": new,
        "probs_before": old_probs,
        "probs": new_probs,
        "largest": order[..., :N_LARGEST],
    }


def read_classes(logits: Tensor, temperature: float) -> tuple[list[str], Tensor, Tensor]:
    """(..., T, C) → names, logits and probabilities of the classes at [CLS].

    A single logit is the logit of yes; the logit of no is its negative.
    """
    logits = logits[..., CLASS_TOKEN, :]
    if logits.size(-1) > 1:
        names = [f"class {i}" for i in range(logits.size(-1))]
        return names, logits, (logits / temperature).softmax(-1)
    logits = torch.cat((logits, -logits), dim=-1)
    return ["yes", "no"], logits, (logits / temperature).sigmoid()


def write_probs(opened: Opened, temperature: float) -> list[str]:
    """The Python line that computes "probs" from logits (1, T, ·)."""
    if opened.kind == "TextEncoder":
        return []
    logits = "logits[0]" if opened.kind == "GPT" else f"logits[0, {CLASS_TOKEN}]"
    scaled = logits if temperature == 1 else f"({logits} / {temperature!r})"
    if opened.kind == "GPT":
        return [f"probs = {scaled}.softmax(-1)  # (T, V): of each next token"]
    if opened.model.config.d_output > 1:
        return [f"probs = {scaled}.softmax(-1)  # (C,)"]
    return [f"probs = {scaled}.sigmoid()  # (1,): of yes"]


def _spell_all(opened: Opened, ids: Tensor) -> Any:
    """The names of ids (..., K) as nested lists."""
    known = ids.unique().tolist()  # the same few tokens repeat: spell each once
    names = dict(zip(known, spell_tokens(opened, known), strict=True))

    def spell(value: Any) -> Any:
        return [spell(each) for each in value] if isinstance(value, list) else names[value]

    return spell(ids.tolist())

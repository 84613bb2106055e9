"""The attention of a model on one text, with everything that explains each of its cells.

    weights[h, t, s] = softmax over s of (q[h, t] · k[h, s] + bias[h, t, s]) / √Dh
    output[h, t]     = Σ_s weights[h, t, s] v[h, s]

One recorded pass gives all numbers, so the page explains any cell without another question.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from clearhead.attention.inputs import dense_mask
from clearhead.attention.mechanisms import (
    AdditiveAttention,
    ArgmaxAttention,
    DotProductAttention,
    LinearAttention,
)
from clearhead.inspection import AttentionCall, Trace, record
from clearhead.inspection.report.attention import name_by_number
from clearhead.models.model import evaluation_mode
from clearhead.studio.sources import Opened, Sources
from clearhead.studio.views.answers import (
    check_temperature,
    compare_answers,
    rank_answers,
    write_probs,
)
from clearhead.studio.views.changes import (
    Change,
    change_model,
    name_imports,
    write_python,
    write_with,
)
from clearhead.studio.views.tokens import (
    open_text_model,
    read_tokens,
    spell_tokens,
    write_tokens,
)

MECHANISMS = {
    DotProductAttention: "dot product",
    AdditiveAttention: "additive",
    ArgmaxAttention: "argmax",
    LinearAttention: "linear",
}


def attend(
    sources: Sources,
    model: str,
    text: str,
    tokens: list[int] | None = None,
    changes: list[Change] | None = None,
    temperature: float = 1.0,
) -> dict[str, Any]:
    """All attention layers on a text, and the answer of the model.

    tokens: the ids to read instead of those of the text, for instance after a token was swapped.
    "before" is the answer of the unchanged model to the text as typed, at temperature 1; None if
    nothing was changed, or if tokens and text differ in length.
    """
    check_temperature(temperature)
    opened, changes = open_text_model(sources, model), changes or []
    ids = read_tokens(opened, text, tokens)
    typed = ids if tokens is None or not text else read_tokens(opened, text)
    logits, trace = _run(opened, ids, changes)
    answer = {
        "model": model,
        "kind": opened.kind,
        "text": text,
        "tokens": ids,
        "typed": typed,
        "names": spell_tokens(opened, ids),
        "temperature": temperature,
        "layers": _describe_layers(trace),
        "blocks": list(trace.blocks),
        "answer": rank_answers(opened, logits[0], temperature),
        "before": None,
        "compared": None,
        "note": _describe_unfamiliar(opened, text) if tokens is None else None,
        "python": _write(opened, text, ids, changes, temperature),
    }
    is_changed = bool(changes) or ids != typed or temperature != 1
    if is_changed and len(typed) == len(ids):
        old = _run_unchanged(opened, tuple(typed))
        answer["before"] = rank_answers(opened, old, 1.0)
        answer["compared"] = compare_answers(opened, old, logits[0], temperature)
    return answer


def _run(opened: Opened, ids: list[int], changes: list[Change]) -> tuple[Tensor, Trace]:
    """The output of the model, (1, T, ·), and what was recorded."""
    model = opened.model
    with evaluation_mode(model), change_model(opened, ids, changes), record(model) as trace:
        logits: Tensor = model(torch.tensor([ids], device=model.device))
    return logits.float(), trace


@lru_cache(maxsize=1)  # one change after the other is compared with the same unchanged text
def _run_unchanged(opened: Opened, ids: tuple[int, ...]) -> Tensor:
    """The output of the model as it is, (T, ·)."""
    return _run(opened, list(ids), [])[0][0]


def _describe_layers(trace: Trace) -> list[dict[str, Any]]:
    names = list(trace.attention)
    titles = name_by_number(names)
    calls = trace.attention.values()
    return [
        {"name": name, "title": title, **_describe_call(call)}
        for name, title, call in zip(names, titles, calls, strict=True)
    ]


def _describe_call(call: AttentionCall) -> dict[str, Any]:
    """One attention call: weights (H, T, S); q, output (H, T, ·); k, v (H, S, ·).

    bias and allowed are (H, T, S), or (1, T, S) if all heads share them. q, k, bias and scale are
    None unless the mechanism is a dot product.
    """
    q, k, v, output = (_split_heads(x) for x in (call.q, call.k, call.v, call.output))
    shape = (*call.q.shape[:-1], call.k.size(-2))  # of the scores
    allowed = dense_mask(call.mask, shape, call.q.device)
    found = {
        "mechanism": MECHANISMS.get(type(call.mechanism), type(call.mechanism).__name__),
        "heads": len(q),
        "weights": _split_heads(call.weights),
        "v": v,
        "output": output,
        "allowed": None if allowed is None else _broadcast(allowed, shape),
        "q": None,
        "k": None,
        "bias": None,
        "scale": None,
    }
    if isinstance(call.mechanism, DotProductAttention):
        found |= {"q": q, "k": k, "scale": math.sqrt(q.size(-1))}
        found["bias"] = None if call.bias is None else _broadcast(call.bias.float(), shape)
    return found


def _split_heads(x: Tensor) -> Tensor:
    """The only row of a batch, (1, H, T, ·) or (1, T, ·) → (H, T, ·), as float32."""
    row = x[0].float()
    return row if row.ndim == 3 else row[None]


def _broadcast(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor that broadcasts to the scores as (H, T, S), or (1, T, S) if all heads share it."""
    x = x.reshape((1,) * (len(shape) - x.ndim) + tuple(x.shape))
    x = x.expand(*x.shape[:-2], *shape[-2:])[0]
    return x if x.ndim == 3 else x[None]


def _describe_unfamiliar(opened: Opened, text: str) -> str | None:
    """How the text differs from the training data, in one sentence; None if it does not."""
    if opened.run is None:
        return None
    return opened.run.recipe.data.describe_unfamiliar(opened.predictor, opened.model, text)


def _write(
    opened: Opened, text: str, ids: list[int], changes: list[Change], temperature: float
) -> str:
    """The lines that compute the same in a notebook."""
    prepare, calls = write_python(opened, changes)
    return "\n".join(
        [
            *opened.lines,
            name_imports(changes, "record"),
            f"tokens = {write_tokens(opened, text, ids)}",
            *prepare,
            *write_with(
                ["torch.no_grad()", *calls, "record(model) as trace"], "logits = model(tokens)"
            ),
            *write_probs(opened, temperature),
            "weights = trace.layers  # name of each attention → (B, H, T, S)",
            "calls = trace.attention  # its .q, .k, .v, .bias and .output",
        ]
    )

"""What an answer depends on: heads, activations of another text, layers, parts.

    measure_heads     the metric without each head, (L, H)                    head_importance
    sweep_patches     the metric with one activation from another text        patch_sweep
    read_layers       the answer if the model ended after each layer          logit_lens
    attribute         the logit of the answer as a sum over all parts         attribution

metrics.py defines the metric.
"""

import math
from typing import Any, Literal

import torch

from clearhead.inspection import (
    Sweep,
    attribution,
    head_importance,
    logit_lens,
    patch_sweep,
)
from clearhead.inspection.report.attention import name_by_number
from clearhead.inspection.sites import count_heads, find_layers
from clearhead.studio.sources import Sources
from clearhead.studio.views.answers import check_temperature, rank_answers, read_classes
from clearhead.studio.views.changes import Change, change_model
from clearhead.studio.views.metrics import (
    Measure,
    TextInput,
    check_target,
    choose_measure,
    read_input,
)
from clearhead.studio.views.tokens import spell_tokens, write_tokens

MAX_WORK = 10**12  # operations of a sweep: about 20 s on one core, a third of the time limit
MAX_BATCH_WORK = 5 * 10**10  # of one batch of it: a sweep can end between two layers of a batch
MAX_ROWS = 512  # of one batch, even of a small model


def measure_heads(
    sources: Sources,
    model: str,
    text: str,
    tokens: list[int] | None = None,
    changes: list[Change] | None = None,
    target: int | None = None,
    position: int | None = None,
) -> dict[str, Any]:
    """How much silencing one more head changes the metric, for each head: "effect" (L, H)."""
    given = read_input(sources, model, text, tokens, changes, position)
    _check_work(given, "head")
    measure = choose_measure(given, given.compute_logits(), target)
    with change_model(given.opened, given.ids, given.changes):
        sweep = head_importance(
            given.opened.model, given.tokens, measure.metric, max_rows=_choose_rows(given)
        )
    call = "sweep = head_importance(model, tokens, metric)"
    names = ("logit_difference",) if measure.against is not None else ()
    python = given.write("head_importance", call, f"metric = {measure.python}", imports=names)
    return {**_describe_sweep(sweep, measure), "python": python}


def sweep_patches(
    sources: Sources,
    model: str,
    text: str,
    other: str,
    tokens: list[int] | None = None,
    other_tokens: list[int] | None = None,
    over: Literal["head", "position"] = "head",
) -> dict[str, Any]:
    """How far one activation of the other text turns this answer into the other one.

    over="head": (L, H), the output of each head at all positions. over="position": (L, T), the
    output of each block at one position. The metric is the logit of the other answer minus that of
    this one, or the metric of the other text if both answers are the same (metrics.py); "recovered"
    is 0 for this answer and 1 for the other, None if the two do not differ.
    """
    given = read_input(sources, model, text, tokens)
    source = read_input(sources, model, other, other_tokens)
    if len(source.ids) != len(given.ids):
        raise ValueError(
            f"the other text has {len(source.ids)} tokens and this one {len(given.ids)}; make "
            f"them equally long, so that each position has a counterpart"
        )
    _check_work(given, over)
    answer = int(given.compute_logits()[given.position].argmax())
    logits = source.compute_logits()
    measure = choose_measure(source, logits, None)
    if measure.against is not None and measure.target != answer:
        measure = choose_measure(source, logits, measure.target, answer)
    sweep = patch_sweep(
        given.opened.model,
        source.tokens,
        given.tokens,
        measure.metric,
        over=over,
        max_rows=_choose_rows(given),
    )
    call = f"sweep = patch_sweep(model, others, tokens, metric, over={over!r})"
    names = ("logit_difference",) if measure.against is not None else ()
    python = given.write(
        "patch_sweep",
        call,
        f"others = {write_tokens(given.opened, other, source.ids)}",
        f"metric = {measure.python}",
        imports=names,
    )
    return {**_describe_sweep(sweep, measure), "python": python}


def _check_work(given: TextInput, over: Literal["head", "position"]) -> None:
    """Refuse a sweep that would take longer than the studio waits for an answer."""
    model, n_tokens = given.opened.model, len(given.ids)
    layers = find_layers(model).values()
    # Each head, and each block at each position, is one more text of n_tokens to read.
    if over == "head":
        n_heads = sum(count_heads(sites, model) or 1 for sites in layers)
        most = MAX_WORK // (2 * model.n_parameters * n_heads)
        words = f"the {n_heads} heads of this model can be measured on at most {most} tokens here"
        way_out = "shorten it"
    else:
        most = math.isqrt(MAX_WORK // (2 * model.n_parameters * len(layers)))
        words = f"this model can be swept over at most {most} positions here"
        way_out = "shorten both texts, or sweep over heads"
    if n_tokens > most:
        raise ValueError(f"the text has {n_tokens} tokens, but {words}; {way_out}")


def _choose_rows(given: TextInput) -> int:
    """The rows of a batch, so few that one batch takes about a second on one core."""
    work = 2 * given.opened.model.n_parameters * len(given.ids)  # of one row
    return max(1, min(MAX_ROWS, MAX_BATCH_WORK // work))


def _describe_sweep(sweep: Sweep, measure: Measure) -> dict[str, Any]:
    is_equal = sweep.goal is None or abs(sweep.goal - sweep.unchanged) < 1e-6
    return {
        "effect": sweep.effect,
        "values": sweep.values,
        "unchanged": sweep.unchanged,
        "goal": sweep.goal,
        "recovered": None if is_equal else sweep.recovered,
        "layers": sweep.layers,
        "titles": name_by_number(sweep.layers),
        "over": sweep.over,
        "metric": measure.words,
        "target": measure.target,
        "against": measure.against,
    }


def read_layers(
    sources: Sources,
    model: str,
    text: str,
    tokens: list[int] | None = None,
    changes: list[Change] | None = None,
    temperature: float = 1.0,
) -> dict[str, Any]:
    """The answers before the first block and after each, as in rank_answers, (L + 1, T, …)."""
    check_temperature(temperature)
    given = read_input(sources, model, text, tokens, changes)
    with change_model(given.opened, given.ids, given.changes):
        lens = logit_lens(given.opened.model, given.tokens)[:, 0].float()  # (L + 1, T, ·)
    n = len(lens) - 1
    return {
        "answer": rank_answers(given.opened, lens, temperature),
        "titles": ["embedding", *(f"after layer {i}" for i in range(n))],
        "python": given.write("logit_lens", "lens = logit_lens(model, tokens)"),
    }


def attribute(
    sources: Sources,
    model: str,
    text: str,
    tokens: list[int] | None = None,
    changes: list[Change] | None = None,
    target: int | None = None,
    position: int | None = None,
) -> dict[str, Any]:
    """The logit of the answer as a sum of the contributions of all parts.

    For a classifier with one logit, this is the logit of yes.
    """
    given = read_input(sources, model, text, tokens, changes, position)
    opened, at = given.opened, given.position
    row = given.compute_logits()[at]
    target = check_target(int(row.argmax()) if target is None else target, len(row))
    with change_model(opened, given.ids, given.changes):
        found = attribution(opened.model, given.tokens, target, position=at)
    classes = [] if opened.kind == "GPT" else read_classes(row[None], 1.0)[0]
    name = classes[target] if classes else spell_tokens(opened, [target])[0]
    call = f"found = attribution(model, tokens, {target}, position={at})"
    return {
        "names": list(found.terms),
        "values": torch.cat(list(found.terms.values())).float(),
        "heads": found.heads[0],
        "total": float(found.total),
        "logit": float(row[target]),
        "target": target,
        "target_name": name,
        "position": at,
        "python": given.write("attribution", call),
    }

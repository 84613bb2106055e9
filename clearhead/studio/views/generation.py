"""The Generate view: the next token, other branches, a whole text, and the cache that it fills.

Every question contains its text as token ids, so the worker keeps no state. The random number for a
token depends only on the seed and on how many tokens follow the prompt. So appending `chosen` each
time gives the same tokens as this call:

    generate(model, prompt, n_tokens, temperature=…, top_k=…, top_p=…, seed=…)

Another branch uses the same random numbers with other probabilities.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.attention import KVCache
from clearhead.generation.prompt import count_new_tokens
from clearhead.generation.prose import find_stop_ids
from clearhead.generation.reader import ModelReader
from clearhead.generation.row_sampler import RowSampler, make_generators
from clearhead.generation.sampling import Sampling, choose, likely
from clearhead.inspection.measures import entropy
from clearhead.shapes import check_whole
from clearhead.studio.sources import Opened, Sources
from clearhead.studio.views.changes import Change, change_model
from clearhead.studio.views.generation_lines import (
    write_cache,
    write_expand,
    write_next,
    write_text,
)
from clearhead.studio.views.writers import encode_prompt, name_tokens, open_writer, read_ids

N_SHOWN = 12  # the likeliest tokens that are shown
MAX_SHOWN = 50
MAX_BRANCHES = 6
BITS = 1 / math.log(2)  # from nats


def start_text(sources: Sources, model: str, text: str) -> dict[str, Any]:
    """The token ids of a prompt."""
    opened = open_writer(sources, model)
    ids = encode_prompt(opened, text)
    return {"tokens": ids, "names": name_tokens(opened.tokenizer, ids)}


def show_next(
    sources: Sources,
    model: str,
    tokens: list[int],
    n_prompt: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    n_shown: int = N_SHOWN,
    changes: list[Change] | None = None,
) -> dict[str, Any]:
    """What may follow these tokens, how surprising each of them was, and what the cache holds.

    n_prompt: how many of the tokens are the prompt; None: all. "probs" are the probabilities of the
    model, "likely" those after temperature and filters. "chosen" is the token for which "draw" lies
    from "before", the sum of "likely" over smaller ids, to "before" plus its own. Surprise and
    entropy are in bits.
    """
    opened, changes = open_writer(sources, model), changes or []
    text, n_new = read_ids(opened, tokens), _count_new(tokens, n_prompt)
    sampling = Sampling(temperature, top_k, top_p)
    check_whole("n_shown", n_shown, least=1, most=MAX_SHOWN)
    logits, caches = _read(opened, text, changes)
    probs, after = logits[-1].softmax(-1), likely(logits[-1:], sampling)[0]
    log_probs, draw = _read_log_probs(logits, text[0]), _draw(seed, n_new)
    (chosen,) = choose(logits[-1:], sampling, torch.tensor([draw])).tolist()
    best, ids = probs.topk(min(n_shown, len(probs)))
    return {
        "names": name_tokens(opened.tokenizer, tokens),
        "log_probs": log_probs,
        "surprise": -BITS * log_probs,
        "ids": ids.tolist(),
        "labels": name_tokens(opened.tokenizer, ids.tolist()),
        "logits": logits[-1][ids],
        "probs": best,
        "likely": after[ids],
        "entropy": _measure_entropy(probs),
        "likely_entropy": _measure_entropy(after),
        "n_possible": int(after.count_nonzero()),
        "chosen": {
            **_describe(opened, chosen, logits[-1]),
            "likely": float(after[chosen]),
            "before": float(after[:chosen].double().sum()),
        },
        "draw": draw if temperature > 0 else None,
        "cache": {
            **_measure_cache(caches, len(tokens), n_new),
            "python": write_cache(opened, tokens, n_new, changes),
        },
        "max_len": opened.model.config.max_len,
        "vocab_size": len(probs),
        "python": write_next(opened, tokens, sampling, seed, n_new, changes),
    }


def expand(
    sources: Sources,
    model: str,
    tokens: list[int],
    n_branches: int = 3,
    changes: list[Change] | None = None,
) -> dict[str, Any]:
    """The likeliest next tokens, and the likeliest tokens after each of them."""
    opened, changes = open_writer(sources, model), changes or []
    text = read_ids(opened, tokens)
    check_whole("n_branches", n_branches, least=1, most=MAX_BRANCHES)
    with change_model(opened, tokens, changes, grows=True):
        (branches,) = _find_likeliest(opened, text, n_branches)
        if len(tokens) < opened.model.config.max_len:
            first = torch.tensor([branch["id"] for branch in branches])
            texts = torch.cat((text.expand(len(first), -1), first[:, None]), dim=1)
            second = _find_likeliest(opened, texts, n_branches)
            for branch, following in zip(branches, second, strict=True):
                branch["branches"] = following
    return {"branches": branches, "python": write_expand(opened, tokens, n_branches, changes)}


def write(
    sources: Sources,
    model: str,
    tokens: list[int],
    n_tokens: int,
    n_prompt: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    changes: list[Change] | None = None,
) -> Iterator[dict[str, Any]]:
    """Write tokens, one per answer: those that show_next would choose, one after the other."""
    opened, changes = open_writer(sources, model), changes or []
    text, n_new = read_ids(opened, tokens), _count_new(tokens, n_prompt)
    n_tokens = count_new_tokens(len(tokens), n_tokens, opened.model.config.max_len, roll=False)
    sampling = Sampling(temperature, top_k, top_p)
    sampler = RowSampler(sampling, seed, text, None, opened.model.config.vocab_size)
    for _ in range(n_new):  # skip the random numbers of the tokens after the prompt
        for generator in sampler.generators:
            torch.rand((), generator=generator)
    python = write_text(opened, tokens, n_tokens, sampling, seed, n_new, changes)
    return _make_steps(opened, text, n_tokens, sampler, changes, python)


def _make_steps(
    opened: Opened,
    text: Tensor,
    n_tokens: int,
    sampler: RowSampler,
    changes: Sequence[Change],
    python: str,
) -> Iterator[dict[str, Any]]:
    # A change may apply to any position, so with changes the whole text is read for each token.
    reader = ModelReader(opened.model, cache=not changes)
    stop = set() if opened.tokenizer is None else find_stop_ids(opened.tokenizer)
    unread, known = text, text[0].tolist()
    for i in range(n_tokens):
        with torch.inference_mode(), change_model(opened, known, changes, grows=True):
            logits = reader.read(unread)
        chosen = sampler.choose(logits)
        unread = chosen[:, None]
        known.append(int(chosen))
        is_last = known[-1] in stop or i == n_tokens - 1
        entry = {"token": _describe(opened, known[-1], logits[0]), "n_tokens": len(known)}
        yield entry | {"is_last": is_last} | ({"python": python} if i == 0 else {})
        if is_last:
            return


# Reading


def _read(
    opened: Opened, tokens: Tensor, changes: Sequence[Change]
) -> tuple[Tensor, list[KVCache]]:
    """tokens (1, T) → logits (T, V) after each token, and the caches that reading fills."""
    reader = ModelReader(opened.model)
    assert reader.caches is not None
    ids = tokens[0].tolist()
    with torch.inference_mode(), change_model(opened, ids, changes, grows=True):
        hidden = reader.hidden(tokens)
        logits: Tensor = opened.model.logits(hidden[0]).float()
    return logits, reader.caches


def _find_likeliest(opened: Opened, texts: Tensor, n: int) -> list[list[dict[str, Any]]]:
    """texts (B, T) → for each the n likeliest next tokens."""
    with torch.inference_mode():
        logits = ModelReader(opened.model, cache=False).read(texts).float()
    best = logits.topk(min(n, logits.size(-1))).indices.tolist()
    rows = zip(best, logits, strict=True)
    return [[_describe(opened, id, row) for id in ids] for ids, row in rows]


def _draw(seed: int, n: int) -> float:
    """The random number for the token after n new ones, as generate draws it."""
    (generator,) = make_generators(seed, 1)
    return [float(torch.rand((), generator=generator)) for _ in range(n + 1)][-1]


def _count_new(tokens: list[int], n_prompt: int | None) -> int:
    """How many tokens follow the prompt."""
    if n_prompt is None:
        return 0
    check_whole("n_prompt", n_prompt, least=1, most=len(tokens))
    return len(tokens) - n_prompt


# Numbers


def _describe(opened: Opened, id: int, logits: Tensor) -> dict[str, Any]:
    """A token and its probability. logits (V,): of the model, before temperature."""
    log_prob = float(logits.float().log_softmax(-1)[id])
    (name,) = name_tokens(opened.tokenizer, [id])
    return {
        "id": id,
        "name": name,
        "prob": math.exp(log_prob),
        "log_prob": log_prob,
        "surprise": -log_prob * BITS,
    }


def _read_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """ln p of each token (T,), by the logits (T, V) at the token before; NaN for the first."""
    found = logits[:-1].log_softmax(-1).gather(-1, tokens[1:, None])[:, 0]
    return torch.cat((torch.full((1,), math.nan), found))


def _measure_entropy(probs: Tensor) -> float:
    """The entropy of probs (V,), in bits."""
    return float(entropy(probs[None])[0]) * BITS


def _measure_cache(caches: Sequence[KVCache], length: int, n_new: int) -> dict[str, Any]:
    """The size of the caches, and how many numbers are computed with and without them.

    Without a cache, the keys and values of all tokens are computed again for each new token.
    """
    layers = [cache.read() for cache in caches]
    per_token = sum(k[0, :, 0].numel() + v[0, :, 0].numel() for k, v in layers)
    lengths = range(length - n_new, length + 1)  # of the texts read so far
    return {
        "bytes": [k.nbytes + v.nbytes for k, v in layers],  # of each layer
        "heads": layers[0][0].size(1),
        "d_head": layers[0][0].size(-1),
        "bytes_per_number": layers[0][0].element_size(),
        "per_token": per_token,  # numbers, in all layers
        "with": per_token * length,
        "without": per_token * sum(lengths),
    }

"""The Generate view as Python: the lines that compute the same numbers in a notebook."""

from collections.abc import Sequence

from clearhead.generation.prose import find_stop_ids
from clearhead.generation.sampling import Sampling
from clearhead.studio.sources import Opened
from clearhead.studio.views.changes import Change, name_imports, write_python, write_with


def write_next(
    opened: Opened,
    tokens: Sequence[int],
    sampling: Sampling,
    seed: int,
    n_new: int,
    changes: Sequence[Change],
) -> str:
    """The lines for show_next."""
    return _join(
        opened,
        changes,
        ["import math", "from clearhead.generation import Sampling, choose, likely"],
        tokens,
        _write_read(opened, changes, "logits = model(tokens)[0]  # (T, V)"),
        [
            "probs = logits[-1].softmax(-1)  # of each token that may come next",
            f"sampling = {_write_sampling(sampling)}",
            "after = likely(logits[-1:], sampling)[0]  # what is drawn from",
            "bits = -logits.log_softmax(-1) / math.log(2)",
            "surprise = bits[:-1].gather(-1, tokens[0, 1:, None])[:, 0]  # of tokens 1, 2, …",
            "entropy = (probs * bits[-1]).sum()",
            *_write_draws(seed, n_new + 1),
            "chosen = choose(logits[-1:], sampling, torch.stack(draws[-1:]))",
        ],
    )


def write_cache(
    opened: Opened, tokens: Sequence[int], n_new: int, changes: Sequence[Change]
) -> str:
    """The lines for the cache that show_next describes."""
    return _join(
        opened,
        changes,
        [],
        tokens,
        ["caches = model.make_caches()  # one for each layer"],
        _write_read(opened, changes, "model.hidden(tokens, caches=caches)"),
        [
            "layers = [cache.read() for cache in caches]  # keys, values: (B, G, T, Dh)",
            "kept = [k.nbytes + v.nbytes for k, v in layers]  # bytes, in each layer",
            "per_token = sum(k[0, :, 0].numel() + v[0, :, 0].numel() for k, v in layers)",
            "computed = per_token * tokens.size(1)",
            f"lengths = range(tokens.size(1) - {n_new}, tokens.size(1) + 1)",
            "without = per_token * sum(lengths)  # each new token would compute all tokens again",
        ],
    )


def write_expand(
    opened: Opened, tokens: Sequence[int], n_branches: int, changes: Sequence[Change]
) -> str:
    """The lines for expand."""
    _, calls = write_python(opened, changes, grows=True)
    lines = [
        f"first = logits[0].softmax(-1).topk({n_branches})",
        "texts = torch.cat((tokens.expand(len(first.indices), -1), first.indices[:, None]), dim=1)",
        *write_with(["torch.no_grad()", *calls], "logits = model(texts)[:, -1]"),
        f"second = logits.softmax(-1).topk({n_branches})  # after each of the first",
    ]
    start = _write_read(opened, changes, "logits = model(tokens)[:, -1]")
    is_full = len(tokens) == opened.model.config.max_len
    return _join(opened, changes, [], tokens, start, lines[:1] if is_full else lines)


def write_text(
    opened: Opened,
    tokens: Sequence[int],
    n_tokens: int,
    sampling: Sampling,
    seed: int,
    n_new: int,
    changes: Sequence[Change],
) -> str:
    """The lines for write."""
    stop = [] if opened.tokenizer is None else sorted(find_stop_ids(opened.tokenizer))
    if not changes and not n_new:
        names = ("temperature", "top_k", "top_p")
        options = [f"{name}={getattr(sampling, name)!r}" for name in names]
        options += [f"stop={stop}"] if stop else []
        call = f"generate(model, tokens, {n_tokens}, {', '.join(options)}, seed={seed})"
        imports = ["from clearhead.generation import generate"]
        return _join(opened, changes, imports, tokens, [f"tokens = {call}"])
    body = [
        *_write_read(opened, changes, "logits = model(tokens)[:, -1]"),
        "chosen = choose(logits, sampling, draw[None])",
        "tokens = torch.cat((tokens, chosen[:, None]), dim=1)",
    ]
    if stop:
        body += [f"if int(chosen) in {stop}:", "    break"]
    return _join(
        opened,
        changes,
        ["from clearhead.generation import Sampling, choose"],
        tokens,
        [f"sampling = {_write_sampling(sampling)}"],
        _write_draws(seed, n_new + n_tokens),
        [f"for draw in draws[{n_new}:]:", *(f"    {line}" for line in body)],
    )


def write_lens(
    opened: Opened, tokens: Sequence[int], position: int, n_shown: int, changes: Sequence[Change]
) -> str:
    """The lines for read_lens."""
    call = f"lens = logit_lens(model, tokens)[:, 0, {position}]  # (L + 1, V)"
    lines = [f"best = lens.softmax(-1).topk({n_shown})  # of each layer"]
    read = _write_read(opened, changes, call)
    return _join(opened, changes, [], tokens, read, lines, others=["logit_lens"])


def _join(
    opened: Opened,
    changes: Sequence[Change],
    imports: Sequence[str],
    tokens: Sequence[int],
    *parts: Sequence[str],
    others: Sequence[str] = (),
) -> str:
    """Imports, the tokens, then the parts. others: further names of inspection."""
    inspection = [name_imports(changes, *others)] if changes or others else []
    start = f"tokens = torch.tensor([{list(tokens)}], device=model.device)"
    lines = [*opened.lines, *imports, *inspection, start]
    return "\n".join([*lines, *(line for part in parts for line in part)])


def _write_read(opened: Opened, changes: Sequence[Change], line: str) -> list[str]:
    """The lines that the changes need, and the one that reads the tokens with the changed model."""
    prepare, calls = write_python(opened, changes, grows=True)
    return [*prepare, *write_with(["torch.no_grad()", *calls], line)]


def _write_sampling(sampling: Sampling) -> str:
    values = f"temperature={sampling.temperature!r}, top_k={sampling.top_k}, top_p={sampling.top_p}"
    return f"Sampling({values})"


def _write_draws(seed: int, n: int) -> list[str]:
    return [
        f"generator = torch.Generator().manual_seed({seed})",
        f"draws = [torch.rand((), generator=generator) for _ in range({n})]",
    ]

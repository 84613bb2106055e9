"""Text from a language model: read the prompt, choose a token, read it, choose the next.

    generate(model, tokens, n_tokens)                 the most likely token each time
    generate(model, tokens, n_tokens, temperature=0.8, top_p=0.9, seed=7)
    generate(pack(model), tokens, n_tokens)           the same tokens, faster on a CPU (fast/)
    for step in stream(model, tokens, n_tokens, tokenizer=tokenizer):
        print(step.texts[0], end="")

Prompts of unequal length are padded on the left (data.pad_left) and come with their token_mask;
each row then gives the same tokens as alone. Row r of a batch draws with seed + r. Prompt and new
tokens together must fit the model's max_len, unless roll=True drops the oldest ones (rolling.py).
"""

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from clearhead.generation.fast import PackedGPT, PackedReader, pack
from clearhead.generation.prompt import count_new_tokens, read_prompt
from clearhead.generation.reader import ModelReader, Reader
from clearhead.generation.rolling import RollingReader
from clearhead.generation.row_sampler import RowSampler
from clearhead.generation.row_text import Decoder, RowText, start_texts
from clearhead.generation.sampling import Sampling
from clearhead.models import GPT
from clearhead.models.forbidden import make_forbidden, make_ids
from clearhead.shapes import check_choice, check_positive


@dataclass(frozen=True, eq=False)
class Step:
    """One new token for each row.

    tokens (B,); running (B,): False once a row has stopped, its tokens then only fill the row;
    texts: the text the token adds to each row, if a tokenizer was given; logits (B, V) of the
    model, before any temperature, None if they were neither needed nor asked for.
    """

    tokens: Tensor
    running: Tensor
    texts: list[str] | None
    logits: Tensor | None

    @property
    def probs(self) -> Tensor:
        """The model's own probability of every token at this position, (B, V)."""
        if self.logits is None:
            raise ValueError("this step kept no logits; ask for them with keep_logits=True")
        return self.logits.softmax(-1)


def generate(
    model: GPT | PackedGPT,
    tokens: Tensor,
    n_tokens: int | None,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Collection[int] = (),
    forbid: Collection[int] = (),
    seed: int | None = None,
    token_mask: Tensor | None = None,
    cache: bool = True,
    prefill: int | None = None,
    weights: str = "float",
    roll: bool = False,
) -> Tensor:
    """tokens (B, T) → (B, T + n_tokens): the prompts and what follows.

    n_tokens None: up to the context length. stop: ids that end a row; the row is then filled with
    the id that ended it, and when all rows have ended, no more columns follow. forbid: ids that are
    never generated, such as <unk>; the others share their probability. token_mask (B, T):
    True = real, padding on the left. cache=False computes all tokens again at each step. prefill:
    read the prompt this many tokens at a time, for less memory. roll: n_tokens may exceed the
    context length; when the context is full, its older half is dropped. Dropout is off, whatever
    mode the model is in. weights="int8" is deprecated: use pack(model, weights="int8").
    """
    new = stream(
        _pack_deprecated(model, weights),
        tokens,
        n_tokens,
        sampling=Sampling(temperature, top_k, top_p, min_p, repetition_penalty),
        stop=stop,
        forbid=forbid,
        seed=seed,
        token_mask=token_mask,
        cache=cache,
        prefill=prefill,
        roll=roll,
    )
    return torch.cat((tokens.long(), *(step.tokens[:, None] for step in new)), dim=1)


def stream(
    model: GPT | PackedGPT,
    tokens: Tensor,
    n_tokens: int | None,
    *,
    sampling: Sampling | None = None,
    stop: Collection[int] = (),
    forbid: Collection[int] = (),
    seed: int | None = None,
    token_mask: Tensor | None = None,
    cache: bool = True,
    prefill: int | None = None,
    weights: str = "float",
    tokenizer: Decoder | None = None,
    keep_logits: bool = False,
    roll: bool = False,
) -> Iterator[Step]:
    """The new tokens one step at a time; arguments as in generate, all checked before the first.

    tokenizer: fills `texts`. keep_logits: fills `logits` and so `probs` at every step. Do not
    change a model while a stream of it is open: later steps would mix old and new weights.
    """
    model = _pack_deprecated(model, weights)
    _check_model(model, cache)
    config = model.config
    tokens, token_mask = read_prompt(config, tokens, token_mask)
    n_tokens = count_new_tokens(tokens.size(1), n_tokens, config.max_len, roll)
    stop_ids = make_ids("stop", stop, config.vocab_size, tokens.device)
    forbidden = make_forbidden(forbid, config.vocab_size, tokens.device)
    if prefill is not None:
        check_positive(prefill=prefill)
    sampling = Sampling() if sampling is None else sampling
    sampler = RowSampler(sampling, seed, tokens, token_mask, config.vocab_size, forbidden)
    reader = _make_reader(model, tokens, n_tokens, token_mask, cache)
    texts = None if tokenizer is None else start_texts(tokenizer, tokens, token_mask)
    # Everything is checked and set up now; each step is computed when it is asked for.
    choose_next = partial(_choose_next, reader, sampler, prefill, keep_logits)
    return _make_steps(choose_next, tokens, n_tokens, stop_ids, texts)


def _make_steps(
    choose_next: Callable[[Tensor], tuple[Tensor, Tensor | None]],
    tokens: Tensor,
    n_tokens: int,
    stop_ids: Tensor,
    texts: list[RowText] | None,
) -> Iterator[Step]:
    """Choose n_tokens tokens after the prompts (B, T), fewer if all rows stop earlier."""
    unread = tokens
    running = torch.ones(tokens.size(0), dtype=torch.bool, device=tokens.device)
    for i in range(n_tokens):
        if len(stop_ids) and not running.any():
            return
        chosen, logits = choose_next(unread)
        chosen = torch.where(running, chosen, unread[:, -1])
        still_running = running & ~torch.isin(chosen, stop_ids) & (i < n_tokens - 1)
        added = None if texts is None else _add_texts(texts, chosen, running, still_running)
        # A copy, made outside inference mode: gradients may use it.
        yield Step(chosen, running, added, None if logits is None else logits.clone())
        running, unread = still_running, chosen[:, None]


@torch.inference_mode()
def _choose_next(
    reader: Reader, sampler: RowSampler, prefill: int | None, keep_logits: bool, unread: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Read tokens (B, T) and choose the next ones (B,), with their logits (B, V) if computed."""
    *first, last = unread.split(prefill or unread.size(1), dim=1)
    for part in first:  # only to fill the cache; a part may end in padding, without valid logits
        reader.hidden(part)
    if not (sampler.sampling.needs_logits or keep_logits):
        return reader.best(last, sampler.forbidden), None
    logits = reader.read(last)
    return sampler.choose(logits), logits


def _make_reader(
    model: GPT | PackedGPT, tokens: Tensor, n_tokens: int, token_mask: Tensor | None, cache: bool
) -> Reader:
    """A reader of the prompt and of n_tokens new tokens."""
    (B, T), max_len = tokens.shape, model.config.max_len
    start: Callable[[Tensor | None], Reader]
    if isinstance(model, PackedGPT):
        start = partial(PackedReader, model, B, min(T + n_tokens, max_len))
    else:
        start = partial(ModelReader, model, cache=cache)
    if T + n_tokens > max_len:
        return RollingReader(start, max_len, token_mask)
    return start(token_mask)


def _check_model(model: GPT | PackedGPT, cache: bool) -> None:
    if not isinstance(model, GPT | PackedGPT):
        raise TypeError(
            f"model must be a GPT or pack(model), got {type(model).__name__}; "
            f"a translator has its own generate"
        )
    if isinstance(model, PackedGPT) and not cache:
        raise ValueError("cache=False needs the model itself; a packed one always has a cache")


def _pack_deprecated(model: GPT | PackedGPT, weights: str) -> GPT | PackedGPT:
    """The model, or for the old argument weights="int8" its packed form."""
    check_choice("weights", weights, ("float", "int8"))
    if weights == "float":
        return model
    words = 'weights="int8" is now generate(pack(model, weights="int8"), …)'
    warnings.warn(f"{words}; it goes with the next release", DeprecationWarning, stacklevel=3)
    return pack(model, weights="int8")  # type: ignore[arg-type]


def _add_texts(
    texts: list[RowText], chosen: Tensor, running: Tensor, still_running: Tensor
) -> list[str]:
    """The text each row's token adds; a row that has stopped adds none."""
    rows = zip(texts, chosen.tolist(), running.tolist(), still_running.tolist(), strict=True)
    return [text.add(token, not more) if on else "" for text, token, on, more in rows]

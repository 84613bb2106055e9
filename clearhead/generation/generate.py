"""Text from a language model: read the prompt, choose a token, read it, choose the next.

    generate(model, tokens, n_tokens)                 the most likely token each time
    generate(model, tokens, n_tokens, temperature=0.8, top_p=0.9, seed=7)
    for step in stream(model, tokens, n_tokens, tokenizer=tokenizer):
        print(step.texts[0], end="")

Prompts of unequal length stand at the right, padded on the left (data.pad_left), with their
token_mask; each row then gives what it gives alone. Row r of a batch draws with seed + r. Nothing
is ever forgotten: prompt and new tokens together must fit the model's max_len – unless roll=True
lets the text go on from the last half of a full context (rolling.py).
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from clearhead.generation import packed_gpt, rolling, step, step_fast
from clearhead.generation.growing_text import Decoder, GrowingText, growing_texts
from clearhead.generation.rolling import Reading
from clearhead.generation.sampling import Sampling, choose
from clearhead.models import GPT
from clearhead.models.checks import check_tokens
from clearhead.shapes import check_choice, check_count, check_positive, check_token_mask

# Packing costs about as much as this many tokens; a packed model is remembered.
WORTH_PACKING = 16


@dataclass(frozen=True, eq=False)
class Step:
    """One new token for each row.

    tokens (B,); running (B,): False once a row has stopped, its tokens are then filling; texts:
    what the token adds to each row's text, if a tokenizer was given; logits (B, V) of the model,
    before any temperature, None when they were not needed or asked for.
    """

    tokens: Tensor
    running: Tensor
    texts: list[str] | None
    logits: Tensor | None

    @property
    def probs(self) -> Tensor:
        """The model's own probability of every token at this place, (B, V)."""
        if self.logits is None:
            raise ValueError("this step kept no logits; ask for them with keep_logits=True")
        return self.logits.softmax(-1)


def generate(
    model: GPT,
    tokens: Tensor,
    n_tokens: int | None,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Collection[int] = (),
    seed: int | None = None,
    token_mask: Tensor | None = None,
    cache: bool = True,
    prefill: int | None = None,
    weights: str = "float",
    roll: bool = False,
) -> Tensor:
    """tokens (B, T) → (B, T + n_tokens): the prompts and what follows.

    n_tokens None: as many as the model has room for. stop: ids that end a row; it is filled up with
    the one that ended it, and when all rows have ended, no more columns follow. token_mask (B, T):
    True = real, padding on the left. cache=False reads everything again at each step. prefill: read
    the prompt so many tokens at a time, for less memory. weights: "float", or "int8" for a faster
    and slightly less exact model. roll: n_tokens may exceed the room; when the context is full the
    text goes on from its last half, and what is older is forgotten. Dropout is off, whatever mode
    the model is in.
    """
    new = stream(
        model,
        tokens,
        n_tokens,
        sampling=Sampling(temperature, top_k, top_p, min_p, repetition_penalty),
        stop=stop,
        seed=seed,
        token_mask=token_mask,
        cache=cache,
        prefill=prefill,
        weights=weights,
        roll=roll,
    )
    return torch.cat((tokens.long(), *(each.tokens[:, None] for each in new)), dim=1)


def stream(
    model: GPT,
    tokens: Tensor,
    n_tokens: int | None,
    *,
    sampling: Sampling | None = None,
    stop: Collection[int] = (),
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

    tokenizer: fills `texts`. keep_logits: fills `logits` and so `probs` at every step. Change the
    model only between streams: an open one goes on with some or all of the weights it began with.
    """
    sampling = Sampling() if sampling is None else sampling
    n_tokens = _room(model, tokens, n_tokens, roll)
    _check_left_padding(token_mask, tokens)
    tokens = tokens.long().clone()  # an open stream does not follow the caller's tensors
    token_mask = None if token_mask is None else token_mask.clone()
    ends = _ends(stop, model.config.vocab_size, tokens.device)
    if prefill is not None:
        check_positive(prefill=prefill)
    reader = _reader(model, tokens, n_tokens, token_mask, cache, weights)
    texts = None if tokenizer is None else growing_texts(tokenizer, tokens, token_mask)
    dice = _dice(seed, tokens.size(0) if sampling.temperature > 0 else 0)
    penalised = sampling.repetition_penalty != 1.0
    seen = _seen(tokens, token_mask, model.config.vocab_size) if penalised else None

    @torch.inference_mode()
    def read_and_choose(fresh: Tensor) -> tuple[Tensor, Tensor | None]:
        """Read the fresh tokens (B, ·) and choose what follows, (B,)."""
        *first, last = fresh.split(prefill or fresh.size(1), dim=1)
        for part in first:  # its logits are nobody's, and its last token may be padding
            reader.hidden(part)
        if not (sampling.needs_logits or keep_logits):
            return reader.best(last), None
        logits = reader.read(last)
        draws = torch.tensor([float(torch.rand((), generator=die)) for die in dice])
        chosen = choose(logits, sampling, draws, seen)
        if seen is not None:
            seen.scatter_(1, chosen[:, None], True)
        return chosen, logits

    def steps() -> Iterator[Step]:
        fresh = tokens
        running = torch.ones(tokens.size(0), dtype=torch.bool, device=tokens.device)
        for place in range(n_tokens):
            if len(ends) and not running.any():
                return
            chosen, logits = read_and_choose(fresh)
            chosen = torch.where(running, chosen, fresh[:, -1])
            going_on = running & ~torch.isin(chosen, ends) & (place < n_tokens - 1)
            words = None if texts is None else _added(texts, chosen, running, going_on)
            yield Step(chosen, running, words, None if logits is None else logits.clone())
            running, fresh = going_on, chosen[:, None]

    return steps()


def _reader(
    model: GPT,
    tokens: Tensor,
    n_tokens: int,
    token_mask: Tensor | None,
    cache: bool,
    weights: str,
) -> Reading:
    """The fast reader where it serves and pays, else the model itself; on and on if they roll."""
    check_choice("weights", weights, ("float", "int8"))
    (B, T), max_len = tokens.shape, model.config.max_len
    pays = weights == "int8" or n_tokens >= WORTH_PACKING
    fast = cache and B > 0 and pays and packed_gpt.can_pack(model)
    if weights == "int8" and B > 0 and not fast:
        raise ValueError(
            "weights='int8' needs a GPT as its config built it, in float32 or float64 on the CPU, "
            "cache=True and nobody who records it; leave weights out"
        )
    make: Callable[[Tensor | None], Reading] = partial(step.Reader, model, cache=cache)
    if fast:
        packed = packed_gpt.packed(model, weights, B)
        make = partial(step_fast.Reader, packed, B, min(T + n_tokens, max_len))
    if T + n_tokens > max_len:
        return rolling.Reader(make, max_len, token_mask)
    return make(token_mask)


def _room(model: GPT, tokens: Tensor, n_tokens: int | None, roll: bool) -> int:
    """How many tokens to make, after checking that they fit, unless they may roll."""
    if not isinstance(model, GPT):
        raise TypeError(
            f"model must be a GPT, got {type(model).__name__}; a translator has its own generate"
        )
    check_tokens("tokens", tokens, model.config.vocab_size, model.config.max_len)
    if tokens.size(1) == 0:
        raise ValueError("tokens is empty; begin with at least one, such as the start token")
    room = model.config.max_len - tokens.size(1)
    if n_tokens is None:
        return room
    check_count(n_tokens=n_tokens)
    if n_tokens > room and not roll:
        raise ValueError(
            f"tokens has length {tokens.size(1)} and n_tokens is {n_tokens}, but max_len is "
            f"{model.config.max_len}; ask for at most {room}, for None, which is as many as fit, "
            f"or for roll=True, which forgets what is older"
        )
    return n_tokens


def _check_left_padding(token_mask: Tensor | None, tokens: Tensor) -> None:
    if token_mask is None:
        return
    check_token_mask(token_mask, tokens.shape)
    if bool((token_mask[:, :-1] & ~token_mask[:, 1:]).any()) or not bool(token_mask[:, -1].all()):
        raise ValueError(
            "token_mask must be padded on the left, so that new tokens stand next to the prompt; "
            "use pad_left of clearhead.data"
        )


def _ends(stop: Collection[int], vocab_size: int, device: torch.device) -> Tensor:
    if not isinstance(stop, Collection):
        raise TypeError(f"stop must be a list or set of ids, got {stop!r}; write stop=[{stop!r}]")
    for token in stop:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise ValueError(f"stop must hold ids from 0 to {vocab_size - 1}, got {token!r}")
    return torch.tensor(sorted(stop), device=device, dtype=torch.long)


def _dice(seed: int | None, n_rows: int) -> list[torch.Generator]:
    """A generator for each row, so that a row draws the same alone and in a batch."""
    if seed is None:
        return [_unseeded() for _ in range(n_rows)]
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    if not -(2**63) <= seed < 2**63 - n_rows:
        raise ValueError(f"seed must fit 64 bits, got {seed}; take one below 2**63")
    return [torch.Generator().manual_seed(seed + row) for row in range(n_rows)]


def _unseeded() -> torch.Generator:
    generator = torch.Generator()
    generator.seed()
    return generator


def _seen(tokens: Tensor, token_mask: Tensor | None, vocab_size: int) -> Tensor:
    """Which tokens each row has, (B, V); padding counts as the row's last token."""
    if token_mask is not None:
        tokens = torch.where(token_mask, tokens, tokens[:, -1:])
    seen = torch.zeros(tokens.size(0), vocab_size, dtype=torch.bool, device=tokens.device)
    return seen.scatter_(1, tokens.long(), True)


def _added(
    texts: list[GrowingText], chosen: Tensor, running: Tensor, going_on: Tensor
) -> list[str]:
    """What each row's token adds to its text; a row that has stopped adds nothing."""
    rows = zip(texts, chosen.tolist(), running.tolist(), going_on.tolist(), strict=True)
    return [text.add(token, more) if on else "" for text, token, on, more in rows]

"""The texts of /v1/completions and /v1/chat/completions, as a stream of pieces.

    {"choices": [{"index": 0, "text": "…", "logprobs": {…}, "finish_reason": None}, …]}
    …
    {"choices": []}                 during long work, so that other questions are answered
    {"usage": {"prompt_tokens": 5, "completion_tokens": 16, "total_tokens": 21}}

All texts of a request are one batch: text n·p + i is the i-th for prompt p, and is sampled with
seed + n·p + i. Requests are not batched together, so other requests cannot change a result. The log
probabilities are those of the model, before temperature.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.data import Tokenizer, pad_left
from clearhead.generation import Sampling, Step, stream
from clearhead.generation.prose import find_stop_ids, find_unknown
from clearhead.models.model import evaluation_mode
from clearhead.studio.completion_requests import MAX_NEW_TOKENS, check_limits
from clearhead.studio.sources import Opened, Sources
from clearhead.studio.views.chats import Message, NotServed, find_chat_format
from clearhead.studio.views.completion_text import (
    CompletionText,
    Entry,
    format_content,
    format_entries,
    name_candidates,
)
from clearhead.studio.views.writers import encode_prompt, read_ids

N_TOKENS = 16  # if the request does not say how many, as in OpenAI's interface
N_AT_ONCE = 32  # tokens of an echoed prompt that are described before other questions are answered


def list_writers(sources: Sources) -> dict[str, Any]:
    """The models that can complete a text, by id."""
    found = []
    for id in sources.listed:
        try:
            found.append(_open(sources, id).source.id)
        except (NotServed, ValueError, OSError):  # another kind, or its file cannot be read
            continue
    return {"models": found}


def complete(
    sources: Sources,
    model: str,
    prompts: list[str | list[int]],
    max_tokens: int | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    n: int = 1,
    stop: list[str] | None = None,
    seed: int | None = None,
    logprobs: int | None = None,
    echo: bool = False,
) -> Iterator[dict[str, Any]]:
    """Continue each prompt n times. max_tokens: None means 16, or fewer if they do not fit."""
    limited = {"max_tokens": max_tokens, "n": n, "stop": stop, "seed": seed, "logprobs": logprobs}
    check_limits({"prompts": prompts, **limited})
    opened = _open(sources, model)
    names = ["prompt"] if len(prompts) == 1 else [f"prompt[{i}]" for i in range(len(prompts))]
    rows = [
        encode_prompt(opened, prompt, name)
        if isinstance(prompt, str)
        else read_ids(opened, prompt, name)[0].tolist()
        for prompt, name in zip(prompts, names, strict=True)
    ]
    n_tokens = _count_tokens(opened, max(map(len, rows)), max_tokens, N_TOKENS)
    batch = _Completions(opened, rows, n, n_tokens, stop or [], logprobs)
    return batch.make_pieces(Sampling(temperature, None, top_p), seed, echo=echo)


def complete_chat(
    sources: Sources,
    model: str,
    messages: list[Message],
    max_tokens: int | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    n: int = 1,
    stop: list[str] | None = None,
    seed: int | None = None,
    logprobs: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Answer a conversation n times; only models with a chat format can."""
    limited = {"max_tokens": max_tokens, "n": n, "stop": stop, "seed": seed, "logprobs": logprobs}
    check_limits({"messages": messages, **limited})
    opened = _open(sources, model)
    chat = find_chat_format(opened)
    ids = read_ids(opened, chat.encode(messages), "messages")[0].tolist()
    n_tokens = _count_tokens(opened, len(ids), max_tokens, MAX_NEW_TOKENS, "messages")
    batch = _Completions(opened, [ids], n, n_tokens, stop or [], logprobs, chat.stop_ids)
    return batch.make_pieces(Sampling(temperature, None, top_p), seed)


def _open(sources: Sources, id: str) -> Opened:
    try:
        sources.find(id)
    except ValueError as fault:
        raise NotServed(str(fault)) from None
    opened = sources.open(id)
    if opened.kind != "GPT" or opened.tokenizer is None:
        words = "has no tokenizer" if opened.kind == "GPT" else f"is a {opened.kind}"
        raise NotServed(f"model {id!r} {words}, so it cannot complete a text; choose a GPT")
    return opened


def _count_tokens(
    opened: Opened, length: int, max_tokens: int | None, default: int, name: str = "prompt"
) -> int:
    """How many tokens to write after a prompt of this length."""
    max_len = opened.model.config.max_len
    room = max_len - length
    n_tokens = min(default, room) if max_tokens is None else max_tokens
    if n_tokens > room or (max_tokens is None and not room):
        raise ValueError(
            f"{name} and max_tokens are {length} + {max_tokens or default} tokens, but the model "
            f"reads at most {max_len} in all; shorten {name} or ask for at most {room}"
        )
    return n_tokens


class _Completions:
    """The texts of one request."""

    def __init__(
        self,
        opened: Opened,
        prompts: Sequence[list[int]],
        n: int,
        n_tokens: int,
        stop: Sequence[str],
        logprobs: int | None,
        message_end: set[int] | None = None,
    ) -> None:
        """message_end: the tokens that end an answer of a conversation; None for a plain text."""
        assert opened.tokenizer is not None
        self.model, self.n_tokens, self.logprobs = opened.model, n_tokens, logprobs
        self.tokenizer: Tokenizer = opened.tokenizer
        self.prompts = [prompt for prompt in prompts for _ in range(n)]
        form = format_entries if message_end is None else format_content
        self.texts = [CompletionText(self.tokenizer, each, stop, form) for each in self.prompts]
        self.stop_ids = find_stop_ids(self.tokenizer) | (message_end or set())
        # Ids that have no text: <unk>, and those that the tokenizer does not have.
        more = range(self.tokenizer.vocab_size, self.model.config.vocab_size)
        self.forbidden = find_unknown(self.tokenizer) | set(more)
        self.usage = {"prompt_tokens": sum(map(len, prompts)), "completion_tokens": 0}

    def make_pieces(
        self, sampling: Sampling, seed: int | None, *, echo: bool = False
    ) -> Iterator[dict[str, Any]]:
        """All pieces. The arguments of sampling are checked at once, before the first piece."""
        same_length = len(set(map(len, self.prompts))) == 1
        tokens, token_mask = pad_left(self.prompts, pad_id=0)
        steps = stream(
            self.model,
            tokens,
            self.n_tokens,
            sampling=sampling,
            stop=self.stop_ids,
            forbid=self.forbidden,
            seed=seed,
            token_mask=None if same_length else token_mask,
            keep_logits=self.logprobs is not None,
        )
        return self._make_pieces(steps, echo)

    def _make_pieces(self, steps: Iterator[Step], echo: bool) -> Iterator[dict[str, Any]]:
        if echo:
            for i in range(len(self.texts)):
                yield from self._echo_prompt(i)
        for i, step in enumerate(steps):
            yield {"choices": self._add(step, is_last=i == self.n_tokens - 1)}
            if all(text.finish_reason for text in self.texts):
                break
        total = sum(self.usage.values())
        yield {"usage": self.usage | {"total_tokens": total}}

    def _add(self, step: Step, *, is_last: bool) -> list[dict[str, Any]]:
        """Add one token to each text that is not finished; returns the pieces to send."""
        pieces = []
        for i, (text, token) in enumerate(zip(self.texts, step.tokens.tolist(), strict=True)):
            if text.finish_reason is None:
                self.usage["completion_tokens"] += 1
                entry = None if step.logits is None else self._describe(token, step.logits[i])
                is_end = token in self.stop_ids
                piece = text.add(token, entry, is_end=is_end, is_last=is_last)
                pieces.append(self._make_choice(i, piece, text.finish_reason))
        return pieces

    def _make_choice(
        self, index: int, piece: dict[str, Any], finish_reason: str | None
    ) -> dict[str, Any]:
        logprobs = None if self.logprobs is None else piece["logprobs"]
        return {**piece, "index": index, "logprobs": logprobs, "finish_reason": finish_reason}

    def _echo_prompt(self, index: int) -> Iterator[dict[str, Any]]:
        """The prompt as the first piece of a text; without further tokens also the last piece."""
        text, ids = self.texts[index], self.prompts[index]
        finish_reason = None if self.n_tokens else "length"
        piece: dict[str, Any] = {"text": text.prompt, "logprobs": None}
        if self.logprobs is not None:
            with evaluation_mode(self.model):
                logits = self.model(torch.tensor([ids]))[0]
            (first,) = name_candidates(self.tokenizer, ids[:1], [None])
            entries = [(0, Entry(first, None))]
            for i in range(1, len(ids)):
                if i % N_AT_ONCE == 0:
                    yield {"choices": []}
                place = len(text.writer.decode(ids[:i]))
                entries.append((place, self._describe(ids[i], logits[i - 1])))
            piece["logprobs"] = format_entries(entries)
        yield {"choices": [self._make_choice(index, piece, finish_reason)]}

    def _describe(self, token: int, logits: Tensor) -> Entry:
        """The log probabilities of a token and of the likeliest ones; logits (V,)."""
        log_probs = logits.float().log_softmax(-1)
        best, ids = log_probs.topk(min(self.logprobs or 0, len(log_probs)))
        values = [*best.tolist(), float(log_probs[token])]
        *top, chosen = name_candidates(self.tokenizer, [*ids.tolist(), token], values)
        return Entry(chosen, top)

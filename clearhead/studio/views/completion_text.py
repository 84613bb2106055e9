"""One text that is being written for /v1/completions: up to a stop string, with log probabilities.

A stop string may begin in one token and end in another. So text that may be the beginning of one is
held back until later tokens decide, and no part of a stop string is ever sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.data.tokenizers import Tokenizer
from clearhead.generation.prose import Prose, make_writer
from clearhead.generation.row_text import RowText


@dataclass(frozen=True)
class Entry:
    """A token, its log probability, and those of the likeliest tokens; None for the first token."""

    token: str
    logprob: float | None
    top: dict[str, float] | None


class CompletionText:
    """The text after one prompt. finish_reason: None while it is written, then stop or length."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self.writer = make_writer(tokenizer, len(prompt))
        self.text, self.stop = RowText(self.writer, list(prompt)), stop
        self.prompt = self.text.text
        self.finish_reason: str | None = None
        self._start = len(self.prompt)  # of the text that is held back, in characters
        self._held = ""
        self._entries: list[tuple[int, Entry]] = []  # tokens that begin in it, and where

    def add(
        self, token: int, entry: Entry | None = None, *, is_end: bool, is_last: bool
    ) -> dict[str, Any]:
        """Add a token; returns the "text" that can be sent now, and the "logprobs" of its tokens.

        is_end: this is an end token, which is not part of the text; is_last: no token follows.
        """
        if entry is not None and not is_end:
            self._entries.append((self._start + len(self._held), entry))
        self._held += self.text.add(token, is_end or is_last)
        if (is_end or is_last) and isinstance(self.writer, Prose):
            self._held += self.writer.waiting
        found = find_stop(self._held, self.stop)
        if found is not None:
            self.finish_reason = "stop"
            return self._release(found)
        if is_end or is_last:
            self.finish_reason = "stop" if is_end else "length"
            return self._release(len(self._held), rest=True)
        return self._release(len(self._held) - count_held(self._held, self.stop))

    def _release(self, n: int, *, rest: bool = False) -> dict[str, Any]:
        """The first n characters of the text held back, with the tokens that begin in them.

        rest: release all tokens.
        """
        text, self._held = self._held[:n], self._held[n:]
        self._start += n
        ready = [(at, entry) for at, entry in self._entries if rest or at < self._start]
        self._entries = self._entries[len(ready) :]
        return {"text": text, "logprobs": format_entries(ready)}


def find_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop string begins; None if there is none."""
    return min((place for each in stop if (place := text.find(each)) >= 0), default=None)


def count_held(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end of a text may be the beginning of a stop string."""
    longest = max((len(each) - 1 for each in stop), default=0)
    for n in range(min(longest, len(text)), 0, -1):
        if any(each.startswith(text[-n:]) for each in stop):
            return n
    return 0


def format_entries(entries: Sequence[tuple[int, Entry]]) -> dict[str, list[Any]]:
    """Tokens and where they begin, under the names of OpenAI."""
    return {
        "tokens": [entry.token for _, entry in entries],
        "token_logprobs": [entry.logprob for _, entry in entries],
        "top_logprobs": [entry.top for _, entry in entries],
        "text_offset": [at for at, _ in entries],
    }

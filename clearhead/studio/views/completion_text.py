"""One text that is being written for /v1/…: up to a stop string, with log probabilities.

A stop string may begin in one token and end in another. So text that may be the beginning of one is
held back until later tokens decide, and no part of a stop string is ever sent.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.data.tokenizers import Tokenizer
from clearhead.data.tokenizers.byte_pairs import BYTES
from clearhead.generation.prose import Prose, make_writer
from clearhead.generation.row_text import RowText
from clearhead.studio.views.writers import INCOMPLETE, name_tokens

BYTE = re.compile("<0x([0-9A-F]{2})>")  # a token of one byte, in vocabularies of SentencePiece


@dataclass(frozen=True)
class Candidate:
    """A token that could be next, with its log probability; None for the first of a text.

    bytes: those of its text, which may be a part of a character; None if it has no text.
    """

    id: int
    name: str
    bytes: list[int] | None
    logprob: float | None


@dataclass(frozen=True)
class Entry:
    """A token of the text, and the likeliest tokens at its place; None for the first token."""

    token: Candidate
    top: list[Candidate] | None


def name_candidates(
    tokenizer: Tokenizer, ids: Sequence[int], logprobs: Sequence[float | None]
) -> list[Candidate]:
    """The tokens with these ids and log probabilities."""
    rows = zip(ids, name_tokens(tokenizer, ids), logprobs, strict=True)
    return [Candidate(id, name, _find_bytes(tokenizer, id, name), p) for id, name, p in rows]


def _find_bytes(tokenizer: Tokenizer, id: int, name: str) -> list[int] | None:
    """The bytes of a token. A part of a character has no name, but its spelling shows them."""
    if id >= tokenizer.vocab_size:
        return None
    if (byte := BYTE.fullmatch(name)) is not None:
        return [int(byte[1], 16)]
    if INCOMPLETE in tokenizer.decode([id], specials=True) and BYTES.keys() >= set(name):
        return [BYTES[character] for character in name]
    return list(name.encode())


# The "logprobs" of the two routes


Columns = dict[str, list[Any]]  # a table by its columns


def format_entries(entries: Sequence[tuple[int, Entry]]) -> Columns:
    """For /v1/completions: tokens, where they begin, and the likeliest ones, the token included."""
    return {
        "tokens": [entry.token.name for _, entry in entries],
        "token_logprobs": [entry.token.logprob for _, entry in entries],
        "top_logprobs": [_list_by_name(entry) for _, entry in entries],
        "text_offset": [at for at, _ in entries],
    }


def _list_by_name(entry: Entry) -> dict[str, float | None] | None:
    """Log probabilities by name; the id is added to the name of another token of the same name."""
    if entry.top is None:
        return None
    found: dict[str, float | None] = {}
    for each in {each.id: each for each in (*entry.top, entry.token)}.values():
        found[f"{each.name} #{each.id}" if each.name in found else each.name] = each.logprob
    return found


def format_content(entries: Sequence[tuple[int, Entry]]) -> Columns:
    """For /v1/chat/completions: each token, with the likeliest ones at its place."""
    return {
        "content": [
            {**_format_candidate(entry.token), "top_logprobs": list(map(_format_candidate, top))}
            for _, entry in entries
            if (top := entry.top) is not None
        ]
    }


def _format_candidate(token: Candidate) -> dict[str, Any]:
    return {"token": token.name, "logprob": token.logprob, "bytes": token.bytes}


# The text


class CompletionText:
    """The text after one prompt. finish_reason: None while it is written, then stop or length."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        stop: Sequence[str],
        form: Callable[[Sequence[tuple[int, Entry]]], Columns] = format_entries,
    ) -> None:
        """form: how "logprobs" lists tokens, each with the place in the text where it begins."""
        self.writer, self.form = make_writer(tokenizer, len(prompt)), form
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
        return {"text": text, "logprobs": self.form(ready)}


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

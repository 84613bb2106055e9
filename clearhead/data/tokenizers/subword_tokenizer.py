"""The base of the tokenizers that come with pretrained weights.

Their vocabularies are lists of pieces of words, with special tokens anywhere among them. No text
can spell a special token, as in our other tokenizers: a text that says "<s>" or "[SEP]" is split
into pieces like any other.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clearhead.data.tokenizers.tokenizer import MAX_TOKENS, Tokenizer, check_texts


def sort_by_id(ids: Any) -> list[str]:
    """List the tokens of {token: id, …} by id; the ids must be 0, 1, 2, … without a gap."""
    if not isinstance(ids, Mapping):
        raise TypeError(f"a vocabulary must hold tokens and their ids, got {ids!r:.40}")
    if len(ids) > MAX_TOKENS:
        raise ValueError(f"a vocabulary has 1 to {MAX_TOKENS:,} tokens, got {len(ids):,}")
    tokens: dict[int, str] = {}
    for token, i in ids.items():
        if type(i) is not int:
            raise ValueError(f"the id of {token!r:.40} must be a whole number, got {i!r:.40}")
        if i in tokens:
            raise ValueError(f"{tokens[i]!r:.40} and {token!r:.40} have the same id, {i}")
        tokens[i] = token
    for i in range(len(tokens)):
        if i not in tokens:
            raise ValueError(f"no token has the id {i}, but ids go up to {max(tokens)}")
    return [tokens[i] for i in range(len(tokens))]


def check_vocabulary(tokens: Any) -> None:
    """A list of 1 to MAX_TOKENS strings."""
    if not isinstance(tokens, list | tuple) or not all(isinstance(t, str) for t in tokens):
        raise TypeError(f"tokens must be a list of strings, got {tokens!r:.60}")
    if not 0 < len(tokens) <= MAX_TOKENS:
        raise ValueError(f"a vocabulary has 1 to {MAX_TOKENS:,} tokens, got {len(tokens):,}")


class CharacterTable(dict[int, str]):
    """A rule for single characters as a table for `str.translate`, filled as it is used."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        self.rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = self.rule(chr(code))
        return self[code]


class SubwordTokenizer(Tokenizer):
    """Text ⇄ ids of pieces of words. A subclass splits one text, `_split`, and decodes."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as `encode` gives them."""
        check_texts(texts)
        return [self._split(text) for text in texts]

    @abstractmethod
    def _split(self, text: str) -> list[int]:
        """The ids of one text."""

"""What the tokenizers that come with other people's weights have in common.

Their vocabularies are lists of pieces of words, whose places are the ids; specials may stand
anywhere among them. As with our own tokenizers, no text can spell a special: a text that says
"<s>" or "[SEP]" is cut into pieces like any other.

Two of them build their tokens by joining neighbours, the best pair first (Sennrich et al. 2016).
`join_pairs` does it in n log n steps, so that a long text without blanks is no trap.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from clearhead.data.tokenizers.tokenizer import (
    FORMAT,
    MAX_TOKENS,
    Tokenizer,
    check_text,
    check_texts,
)


def sort_by_id(ids: Any) -> list[str]:
    """The tokens of {token: id, …} in the order of their ids: 0, 1, 2, … without a gap."""
    if not isinstance(ids, Mapping):
        raise TypeError(f"a vocabulary must hold tokens and their ids, got {ids!a:.40}")
    if len(ids) > MAX_TOKENS:
        raise ValueError(f"a vocabulary of {len(ids):,} tokens is too large, {MAX_TOKENS:,} go")
    tokens: dict[int, str] = {}
    for token, i in ids.items():
        if type(i) is not int:
            raise ValueError(f"the id of {token!a:.40} must be a whole number, got {i!a:.40}")
        if i in tokens:
            raise ValueError(f"{tokens[i]!a:.40} and {token!a:.40} have the same id, {i}")
        tokens[i] = token
    for i in range(len(tokens)):
        if i not in tokens:
            raise ValueError(f"no token has the id {i}, but ids go up to {max(tokens)}")
    return [tokens[i] for i in range(len(tokens))]


def check_vocabulary(tokens: Any) -> None:
    """A list of strings, not too many."""
    if not isinstance(tokens, list | tuple) or not all(isinstance(t, str) for t in tokens):
        raise TypeError(f"tokens must be a list of strings, got {tokens!r:.60}")
    if not 0 < len(tokens) <= MAX_TOKENS:
        raise ValueError(f"a vocabulary has 1 to {MAX_TOKENS:,} tokens, got {len(tokens):,}")
    check_text("".join(tokens), "the vocabulary")


class SubwordTokenizer(Tokenizer):
    """Text ⇄ ids of pieces of words. A subclass cuts one text, `_cut`, and decodes."""

    options = ()
    fields: ClassVar[tuple[str, ...]]  # what its file tells beside the tokens

    def __init__(self, tokens: Sequence[str], specials: Mapping[str, int]) -> None:
        """specials: role ("start", "end", "pad", "unk" or another word) → id."""
        check_vocabulary(tokens)
        self._spelling = list(tokens)
        self._special_ids = dict(specials)
        hidden = set(self._special_ids.values())
        self._ids: dict[str, int] = {}
        for i, token in enumerate(tokens):
            if i not in hidden and self._ids.setdefault(token, i) != i:
                raise ValueError(
                    f"token {token!a:.40} stands twice, as {self._ids[token]} and as {i}"
                )

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as `encode` gives them."""
        check_texts(texts)
        return [self._cut(text) for text in texts]

    def _cut(self, text: str) -> list[int]:
        """The ids of one text."""
        raise NotImplementedError

    # The file

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        told = {name: getattr(self, name) for name in self.fields}
        return {"tokenizer": self.kind, "format": FORMAT, **told, "tokens": self._content()}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The tokenizer of these values; anything missing, unknown or wrong is refused."""
        wanted = {"tokenizer", "format", "tokens", *cls.fields}
        if not isinstance(values, Mapping) or values.keys() != wanted:
            raise ValueError(f"it must tell {', '.join(sorted(wanted))} and nothing else")
        if values["tokenizer"] != cls.kind or values["format"] != FORMAT:
            raise ValueError(f"it must be a tokenizer of {cls.kind}, in format {FORMAT}")
        return cls(
            cls._read_content(values["tokens"]), **{name: values[name] for name in cls.fields}
        )

    def _content(self) -> list[str]:
        return self._spelling

    @classmethod
    def _read_content(cls, content: Any) -> Any:
        return content  # the constructor checks it

"""Text as words and punctuation.

    tokenizer = WordTokenizer.of("We know't, we know't.", min_count=1)
    tokenizer.tokenize("We know't.")        We know't .             by the rules of word_rules.py
    tokenizer.encode("We know't.")          <start> We know't .     as ids
    tokenizer.decode(ids)                   "We know't ."           joined with spaces
    tokenizer.detokenize(ids)               "We know't."            as people write: detokenize.py

Spaces are not kept; line breaks only with keep_newlines=True, as the token "\\n". A word that is
not in the vocabulary becomes <unk>.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Self

from clearhead.data.tokenizers.detokenize import detokenize
from clearhead.data.tokenizers.tokenizer import (
    Ids,
    Tokenizer,
    add_specials,
    check_size,
    check_switches,
    check_text,
    check_texts,
)
from clearhead.data.tokenizers.word_rules import VERSION, split_lines
from clearhead.shapes import check_positive

NEWLINE = "\n"


class WordTokenizer(Tokenizer):
    """Words and punctuation ⇄ ids, with <start>, <pad> and <unk>."""

    kind = "words"
    options = ("keep_newlines", "end")

    def __init__(
        self, words: Sequence[str], *, keep_newlines: bool = False, end: bool = False
    ) -> None:
        check_switches(keep_newlines=keep_newlines, end=end)
        self.keep_newlines, self.end = keep_newlines, end
        if isinstance(words, str | Mapping) or not isinstance(words, Collection):
            raise TypeError(
                f"words must be a list of words, got {words!r:.40}; "
                "for the words of a text use WordTokenizer.of(text)"
            )
        check_size(words)
        for index, word in enumerate(words):
            if not isinstance(word, str) or word.split() != [word]:
                raise ValueError(
                    f"words[{index}] is {word!a:.80}, but a word is a string without spaces"
                )
        roles = ["start", "pad", "unk", *(["end"] if end else [])]
        tokens = [*([NEWLINE] if keep_newlines else []), *words]
        super().__init__(*add_specials(roles, tokens))

    @classmethod
    def of(
        cls,
        text: str | Iterable[str],
        *,
        min_count: int = 1,
        keep_newlines: bool = False,
        end: bool = False,
    ) -> Self:
        """Build the vocabulary of words that occur at least min_count times, frequent first."""
        check_positive(min_count=min_count)
        texts = [text] if isinstance(text, str) else list(text)
        check_texts(texts)
        counts = Counter(chain.from_iterable(_split_texts(texts, keep_newlines=False)))
        frequent = [(word, count) for word, count in counts.items() if count >= min_count]
        words = [word for word, _ in sorted(frequent, key=lambda pair: (-pair[1], pair[0]))]
        return cls(words, keep_newlines=keep_newlines, end=end)

    def tokenize(self, text: str) -> list[str]:
        """The words and punctuation of a text; "\\n" between lines with keep_newlines=True."""
        check_text(text)
        return _split_texts([text], self.keep_newlines)[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as `encode` gives them; many texts at once are faster."""
        check_texts(texts)
        return [
            self._add_specials(self.ids_of(tokens))
            for tokens in _split_texts(texts, self.keep_newlines)
        ]

    def ids_of(self, tokens: Iterable[str]) -> list[int]:
        """The id of each token of a text, <unk> for an unknown one."""
        known, unknown = self._ids, self._special_ids["unk"]
        return [known.get(token, unknown) for token in tokens]

    def decode(self, ids: Ids, *, specials: bool = False) -> str:
        """The tokens of these ids joined with spaces; all special ones only with specials=True.

        <unk> stands for a word of the text and is always kept.
        """
        return " ".join(self.spell(ids, specials=specials))

    def detokenize(self, ids: Ids) -> str:
        """The text of these ids as people write it, with natural spaces and quotes."""
        return detokenize(self.spell(ids))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON, with the version of the rules that split the words."""
        values = super().to_dict()
        tokens = values.pop("tokens")
        return {**values, "rules": VERSION, "tokens": tokens}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Build the tokenizer these values describe; files without "rules" are older."""
        if isinstance(values, Mapping):
            rules = values.get("rules", VERSION)
            if type(rules) is not int or rules != VERSION:
                raise ValueError(
                    f"its words were split by rules of version {rules!a:.40}, but this clearhead "
                    f"has version {VERSION}: its ids would mean other words"
                )
            values = {name: value for name, value in values.items() if name != "rules"}
        return super().from_dict(values)

    def _get_vocabulary(self) -> list[str]:
        first = self._special_ids["unk"] + 1 + self.end + self.keep_newlines
        return self._spelling[first:]


def _split_texts(texts: Sequence[str], keep_newlines: bool) -> list[list[str]]:
    """The tokens of each text. Each line is split by itself; \\n, \\r\\n and \\r end a line."""
    lines = [text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in texts]
    rows = iter(split_lines(list(chain.from_iterable(lines))))
    return [_join_lines(list(islice(rows, len(own))), keep_newlines) for own in lines]


def _join_lines(rows: list[list[str]], keep_newlines: bool) -> list[str]:
    tokens = rows[0]  # a text has at least one line
    for row in rows[1:]:
        if keep_newlines:
            tokens.append(NEWLINE)
        tokens += row
    return tokens

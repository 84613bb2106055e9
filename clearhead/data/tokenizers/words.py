"""Text as words and punctuation.

    tokenizer = WordTokenizer.of("We know't, we know't.", min_count=1)
    tokenizer.tokenize("We know't.")        We know't .             by the rules of word_rules.py
    tokenizer.encode("We know't.")          <start> We know't .     as ids
    tokenizer.decode(ids)                   "We know't ."           joined with spaces
    tokenizer.detokenize(ids)               "We know't."            as people write: detokenize.py

A text is split into sentences first, across its line breaks, so `tokenize` gives what NLTK's
word_tokenize gives for the whole text. Spaces are not kept; line breaks only with
keep_newlines=True, as the token "\\n", which is our own extension: without it the other tokens are
the same. A word that is not in the vocabulary becomes <unk>.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
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
from clearhead.data.tokenizers.word_rules import NEWLINE, VERSION, check_version, split_texts
from clearhead.shapes import check_positive


class WordTokenizer(Tokenizer):
    """Words and punctuation ⇄ ids, with <start>, <pad> and <unk>.

    rules: the version of word_rules.py; 1 for tokenizers of earlier releases, which split each line
    by itself.
    """

    kind = "words"
    options = ("keep_newlines", "end", "rules")

    def __init__(
        self,
        words: Sequence[str],
        *,
        keep_newlines: bool = False,
        end: bool = False,
        rules: int = VERSION,
    ) -> None:
        check_switches(keep_newlines=keep_newlines, end=end)
        check_version("rules", rules)
        self.keep_newlines, self.end, self.rules = keep_newlines, end, rules
        if isinstance(words, str | Mapping) or not isinstance(words, Collection):
            raise TypeError(
                f"words must be a list of words, got {words!r:.40}; "
                "for the words of a text use WordTokenizer.of(text)"
            )
        check_size(words)
        for index, word in enumerate(words):
            if not isinstance(word, str) or word.split() != [word]:
                raise ValueError(
                    f"words[{index}] is {word!r:.80}, but a word is a string without spaces"
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
        rules: int = VERSION,
    ) -> Self:
        """Build the vocabulary of words that occur at least min_count times, frequent first."""
        check_positive(min_count=min_count)
        check_version("rules", rules)
        texts = [text] if isinstance(text, str) else list(text)
        check_texts(texts)
        counts = Counter(chain.from_iterable(split_texts(texts, version=rules)))
        frequent = [(word, count) for word, count in counts.items() if count >= min_count]
        words = [word for word, _ in sorted(frequent, key=lambda pair: (-pair[1], pair[0]))]
        return cls(words, keep_newlines=keep_newlines, end=end, rules=rules)

    def tokenize(self, text: str) -> list[str]:
        """The words and punctuation of a text; "\\n" between lines with keep_newlines=True."""
        check_text(text)
        return self._split([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as `encode` gives them; many texts at once are faster."""
        check_texts(texts)
        return [self._add_specials(self.ids_of(tokens)) for tokens in self._split(texts)]

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

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Build the tokenizer these values describe; older files say no rules: those of 1."""
        return super().from_dict({"rules": 1, **values} if isinstance(values, Mapping) else values)

    def _split(self, texts: Sequence[str]) -> list[list[str]]:
        return split_texts(texts, keep_newlines=self.keep_newlines, version=self.rules)

    def _get_vocabulary(self) -> list[str]:
        first = self._special_ids["unk"] + 1 + self.end + self.keep_newlines
        return self._spelling[first:]

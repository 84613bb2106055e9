"""Text as characters.

    CharTokenizer()                     [CLS] a b c |           for the substring task: 5 ids
    CharTokenizer(cls=False)            the same 5 ids, but texts begin without [CLS]
    CharTokenizer.of(text, cls=None)    each character of a text, sorted, and no [CLS]

Nothing is lost: `decode(encode(text)) == text`. A character that is not in the alphabet is an error
that names it, not an <unk>: an alphabet is small, so a missing character is a mistake.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.data.tokenizers.tokenizer import (
    Ids,
    Tokenizer,
    add_specials,
    check_size,
    check_switches,
    check_text,
    check_texts,
)

UNUSED = "unused"  # in a file: [CLS] is in the vocabulary, but texts begin without it


class CharTokenizer(Tokenizer):
    """Characters ⇄ ids, with [CLS] first, or with any of <start>, <pad> and <end>.

    cls=False leaves [CLS] out of the texts, but not out of the vocabulary, so all ids stay the
    same. cls=None leaves it out of both, as <start> needs it: only one token can come first.
    """

    kind = "characters"
    options = ("cls", "start", "pad", "end")

    def __init__(
        self,
        alphabet: str = "abc|",
        *,
        cls: bool | None = True,
        start: bool = False,
        pad: bool = False,
        end: bool = False,
    ) -> None:
        if not isinstance(alphabet, str):
            raise TypeError(f"alphabet must be a string of characters, got {alphabet!r:.80}")
        if not alphabet:
            raise ValueError("alphabet must have at least one character, got ''")
        check_size(alphabet)
        if cls and start:
            raise ValueError("cls and start both come first; choose one of them")
        check_switches(cls=cls is None or cls, start=start, pad=pad, end=end)
        self.cls = None if start else cls
        self.alphabet, self.start, self.pad, self.end = alphabet, start, pad, end
        switches = {"cls": self.cls is not None, "start": start, "pad": pad, "end": end}
        roles = [role for role, is_on in switches.items() if is_on]
        super().__init__(*add_specials(roles, alphabet))

    @staticmethod
    def of(
        text: str,
        *,
        cls: bool | None = True,
        start: bool = False,
        pad: bool = False,
        end: bool = False,
    ) -> "CharTokenizer":
        """Build a tokenizer whose alphabet is every character of a text, sorted."""
        check_text(text)
        return CharTokenizer("".join(sorted(set(text))), cls=cls, start=start, pad=pad, end=end)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as `encode` gives them."""
        check_texts(texts)
        return [self._add_specials(self._look_up(text)) for text in texts]

    def decode(self, ids: Ids, *, specials: bool = False) -> str:
        """The characters of these ids; special tokens only with specials=True."""
        return "".join(self.spell(ids, specials=specials))

    def one_hot(self, text: str) -> Tensor:
        """A row for each id of the text, 1.0 at the id: (n + 1, vocab_size) with [CLS] first.

        With cls=False (n, vocab_size), as wide as with [CLS].
        """
        ids = torch.tensor(self.encode(text), dtype=torch.long)
        return torch.nn.functional.one_hot(ids, self.vocab_size).float()

    def _look_up(self, text: str) -> list[int]:
        try:
            return [self._ids[character] for character in text]
        except KeyError as unknown:
            character = unknown.args[0]
            raise ValueError(
                f"text has {character!r} at index {text.index(character)}, which is not in the "
                f"alphabet {self.alphabet!r:.100}; change the text or build the tokenizer with it"
            ) from None

    def _add_specials(self, ids: list[int]) -> list[int]:
        added = super()._add_specials(ids)
        return added[1:] if self.cls is False else added

    def _get_vocabulary(self) -> str:
        return self.alphabet

    # A file says true, "unused" for cls=False, and false for None, as earlier releases wrote it.

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**super().to_dict(), "cls": UNUSED if self.cls is False else bool(self.cls)}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Build the tokenizer these values describe."""
        if isinstance(values, Mapping) and "cls" in values:
            is_unused = values["cls"] == UNUSED
            check_switches(cls=is_unused or values["cls"])
            values = {**values, "cls": False if is_unused else (values["cls"] or None)}
        return super().from_dict(values)

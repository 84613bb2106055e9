"""The base of every tokenizer: a list of tokens whose indices are the ids, batches, and a file.

    special tokens first    <start> <pad> <unk>         ids 0 1 2
    then those of the text  , . the And …               ids 3 4 5 6 …

A special token stands for something that is not in the text, so no text can spell it: `encode`
looks up the other tokens only, and a text that says "<pad>" never becomes the padding. Each special
token has a role: cls, start, pad, unk or end; the tokenizers of pretrained models have others too.
"""

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from torch import Tensor

from clearhead.files.reading import prefix_errors, quote
from clearhead.files.strict_json import read_json, write_json

Ids = Sequence[int] | Tensor
SPELLING = {
    "cls": "[CLS]",
    "start": "<start>",
    "pad": "<pad>",
    "unk": "<unk>",
    "end": "<end>",
}
MAX_TOKENS = 1_000_000
MAX_BYTES = 32 << 20  # of a tokenizer's file
FORMAT = 1


class Tokenizer(ABC):
    """Text ⇄ ids. A subclass splits a text into tokens and names the options of its constructor."""

    kind: ClassVar[str]  # as its file names it
    options: ClassVar[tuple[str, ...]]  # arguments of the constructor that its file keeps

    def __init__(self, tokens: Sequence[str], specials: Mapping[str, int]) -> None:
        """tokens: all of them, in the order of their ids; specials: role → id."""
        self._spelling, self._special_ids = list(tokens), dict(specials)
        self._ids: dict[str, int] = {}  # of the tokens that a text can have
        hidden = set(specials.values())
        for i, token in enumerate(tokens):
            if i not in hidden and self._ids.setdefault(token, i) != i:
                raise ValueError(
                    f"token {token!r:.40} occurs twice, as {self._ids[token]} and as {i}"
                )
        check_text("".join(tokens), "the vocabulary")
        # The ids of the special tokens; None where a tokenizer has none.
        self.cls_id = specials.get("cls")  # its output represents the whole text
        self.start_id = specials.get("start")  # where a text starts
        self.end_id = specials.get("end")  # where it ends
        self.pad_id = specials.get("pad")
        self.unk_id = specials.get("unk")  # every unknown token

    @property
    def vocab_size(self) -> int:
        """How many ids there are: 0 … vocab_size − 1."""
        return len(self._spelling)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The token of each id, as it is written."""
        return tuple(self._spelling)

    # Text to ids and back

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as `encode` gives them."""

    @abstractmethod
    def decode(self, ids: Ids, *, specials: bool = False) -> str:
        """The text of these ids. Special tokens except <unk> are left out unless specials=True."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text: [CLS] or <start> first, <end> last, if the tokenizer has them."""
        return self.encode_batch([text])[0]

    def decode_batch(self, rows: Sequence[Ids] | Tensor, *, specials: bool = False) -> list[str]:
        """The text of each row of ids."""
        return [self.decode(row, specials=specials) for row in rows]

    def spell(self, ids: Ids, *, specials: bool = False) -> list[str]:
        """The tokens of these ids (a list or a 1-D tensor)."""
        hidden = set() if specials else set(self._special_ids.values()) - {self.unk_id}
        return [self._spelling[i] for i in self._check_ids(ids) if i not in hidden]

    def _add_specials(self, ids: list[int]) -> list[int]:
        """Put [CLS] or <start> before the ids of a text, <end> after them, if there are any."""
        first = self.cls_id if self.start_id is None else self.start_id
        before = [] if first is None else [first]
        return before + ids + ([] if self.end_id is None else [self.end_id])

    def _check_ids(self, ids: Any) -> list[int]:
        values = ids.tolist() if hasattr(ids, "tolist") else ids
        if not isinstance(values, Iterable) or isinstance(values, str):
            raise TypeError(f"ids must be a list or a 1-D tensor of ids, got {ids!r:.80}")
        return [self._check_id(value, index) for index, value in enumerate(values)]

    def _check_id(self, value: Any, index: int) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            way_out = "; for several rows use decode_batch" if isinstance(value, list) else ""
            raise TypeError(f"ids[{index}] must be a whole number, got {value!r:.40}{way_out}")
        i = operator.index(value)
        if not 0 <= i < self.vocab_size:
            raise ValueError(
                f"ids[{index}] is {i}, but the ids of this tokenizer go from 0 to "
                f"{self.vocab_size - 1}; decode with the tokenizer that encoded"
            )
        return i

    # The file

    def _get_vocabulary(self) -> list[str] | str:
        """The first argument of the constructor, as the file keeps it under "tokens"."""
        return self._spelling

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        options = {name: getattr(self, name) for name in self.options}
        head = {"tokenizer": self.kind, "format": FORMAT}
        return {**head, **options, "tokens": self._get_vocabulary()}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Build the tokenizer these values describe; anything missing or unknown is refused."""
        kind = values.get("tokenizer") if isinstance(values, Mapping) else values
        if not isinstance(values, Mapping) or kind != cls.kind:
            raise ValueError(f"its kind must be {cls.kind!r}, got {kind!r:.80}")
        wanted = {"tokenizer", "format", "tokens", *cls.options}
        if values.keys() != wanted:
            odd = ", ".join(map(ascii, sorted(values.keys() ^ wanted)))
            raise ValueError(
                f"it must hold {', '.join(sorted(wanted))}; missing or unknown: {odd:.200}"
            )
        if type(values["format"]) is not int or values["format"] != FORMAT:
            raise ValueError(f"format must be {FORMAT}, got {values['format']!r:.40}")
        return cls(values["tokens"], **{name: values[name] for name in cls.options})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer as JSON; the file is replaced whole or not at all."""
        write_json(path, self.to_dict(), max_bytes=MAX_BYTES)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote."""
        values = read_json(path, max_bytes=MAX_BYTES)
        with prefix_errors(f"{quote(path)} is not a tokenizer of {cls.kind}"):
            return cls.from_dict(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.kind, self.tokens))


def check_text(text: Any, name: str = "text") -> None:
    """A string of whole characters: half a surrogate pair cannot be written to a file."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a string, got {text!r:.80} of type {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise ValueError(
            f"{name} has half a surrogate pair at index {fault.start}, which is not a character"
        ) from None


def check_size(tokens: Sequence[str]) -> None:
    """At most MAX_TOKENS tokens, so that they fit a file."""
    if len(tokens) > MAX_TOKENS:
        raise ValueError(
            f"a vocabulary has at most {MAX_TOKENS:,} tokens, got {len(tokens):,}; "
            f"keep the more frequent ones"
        )


def add_specials(roles: Sequence[str], tokens: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """Put the special tokens with these roles first: all tokens, and role → id."""
    spelled = [SPELLING[role] for role in roles]
    for word in set(spelled) & set(tokens):
        raise ValueError(f"token {word!r} occurs twice, as a special token and in the vocabulary")
    return [*spelled, *tokens], {role: i for i, role in enumerate(roles)}


def check_switches(**switches: Any) -> None:
    """Each is True or False."""
    for name, switch in switches.items():
        if type(switch) is not bool:
            raise TypeError(f"{name} must be true or false, got {switch!r:.40}")


def check_texts(texts: Any) -> None:
    """A list of texts. A single string is a common mistake: it is a sequence of strings too."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise TypeError(f"texts must be a list of strings, got {texts!r:.80}; for one use encode")
    for index, text in enumerate(texts):
        check_text(text, f"texts[{index}]")

"""A tokenizer.json that our own classes cannot read, run by the `tokenizers` library.

    tokenizer = LibraryTokenizer.read_json(text)        the content of a tokenizer.json

The library is optional: `pip install "clearhead[hf]"`. It is imported when a tokenizer is built. As
in our own tokenizers, no text can spell a special token.
"""

from collections.abc import Sequence
from typing import Any, Self

from clearhead.data.tokenizers.subword_tokenizer import SubwordTokenizer, sort_by_id
from clearhead.data.tokenizers.tokenizer import Ids

# The names that published models give to the special tokens before and after a text.
STARTS = ("<|begin_of_text|>", "<s>", "<bos>", "[CLS]", "<|endoftext|>")
ENDS = ("<|end_of_text|>", "</s>", "<eos>", "[SEP]", "<|endoftext|>")


class LibraryTokenizer(SubwordTokenizer):
    """A tokenizer of the `tokenizers` library; `encode` adds the special tokens its file names."""

    kind = "tokenizers library"
    options = ("pipeline",)

    def __init__(self, tokens: Sequence[str], pipeline: str) -> None:
        """tokens: in the order of their ids; pipeline: the content of a tokenizer.json."""
        self.pipeline = pipeline
        self._library = _build(pipeline)
        if list(tokens) != _list_tokens(self._library):
            raise ValueError("tokens are not those of the pipeline")
        added = self._library.get_added_tokens_decoder()
        roles = {token.content: i for i, token in added.items() if token.special}
        for role, names in (("start", STARTS), ("end", ENDS)):
            if (name := next((name for name in names if name in roles), None)) is not None:
                roles[role] = roles[name]
        super().__init__(tokens, roles)

    @classmethod
    def read_json(cls, text: str) -> Self:
        """Build the tokenizer that the content of a tokenizer.json describes."""
        return cls(_list_tokens(_build(text)), text)

    def _split(self, text: str) -> list[int]:
        ids: list[int] = self._library.encode(text).ids
        return ids

    def decode(self, ids: Ids, *, specials: bool = False) -> str:
        """The text of these ids as the library decodes it; specials only with specials=True."""
        text: str = self._library.decode(self._check_ids(ids), skip_special_tokens=not specials)
        return text


def _build(pipeline: str) -> Any:
    """The library's tokenizer, without padding and truncation, which are left to the caller."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ValueError(
            "the tokenizers library, which may read it, is not installed; "
            'install it: pip install "clearhead[hf]"'
        ) from None
    try:
        library = Tokenizer.from_str(pipeline)
    except Exception as fault:  # the library raises Exception itself
        raise ValueError(f"the tokenizers library cannot read it: {fault!s:.200}") from None
    library.no_padding()
    library.no_truncation()
    library.encode_special_tokens = True  # a text that spells one is split like any other
    return library


def _list_tokens(library: Any) -> list[str]:
    return sort_by_id(library.get_vocab(with_added_tokens=True))

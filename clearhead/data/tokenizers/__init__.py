"""Text ⇄ ids. Read in this order:

tokenizer.py            the base of every tokenizer: a vocabulary, batches, a file
characters.py           characters
sentences.py            where sentences end
word_rules.py           words and punctuation by the conventions of the Penn Treebank
words.py                words and punctuation as ids
detokenize.py           tokens back to running text
subword_tokenizer.py    the base of the tokenizers below, of pieces of words
merges.py               byte-pair merging
byte_pairs.py           the tokenizer of GPT-2
sentence_pieces.py      the tokenizer of Llama
word_pieces.py          the tokenizer of BERT
library.py              any other, by the `tokenizers` library, which is optional
"""

import os
from collections.abc import Mapping

from clearhead.data.tokenizers.byte_pairs import BytePairTokenizer
from clearhead.data.tokenizers.characters import CharTokenizer
from clearhead.data.tokenizers.library import LibraryTokenizer
from clearhead.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from clearhead.data.tokenizers.tokenizer import MAX_BYTES, Tokenizer
from clearhead.data.tokenizers.word_pieces import WordPieceTokenizer
from clearhead.data.tokenizers.words import WordTokenizer
from clearhead.files.reading import BadFile, quote
from clearhead.files.strict_json import read_json

__all__ = [
    "BytePairTokenizer",
    "CharTokenizer",
    "LibraryTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "WordTokenizer",
    "load_tokenizer",
]

KINDS: dict[str, type[Tokenizer]] = {
    kind.kind: kind
    for kind in (
        CharTokenizer,
        WordTokenizer,
        BytePairTokenizer,
        SentencePieceTokenizer,
        WordPieceTokenizer,
        LibraryTokenizer,
    )
}


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Read a file that `save` wrote, of any kind of tokenizer."""
    values = read_json(path, max_bytes=MAX_BYTES)
    kind = values.get("tokenizer") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadFile(f"{quote(path)} is not a tokenizer: its kind is {kind!r:.80}")
    return KINDS[kind].load(path)

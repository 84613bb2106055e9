"""Text ⇄ ids. Read in this order:

tokenizer.py       what every tokenizer has: a vocabulary, batches, a file
characters.py      characters
word_rules.py      words and punctuation by NLTK's rules, line by line
words.py           words and punctuation
prose.py           tokens as people write them
subwords.py        pieces of words: what the three below have in common
byte_pairs.py      those of GPT-2
scored_pairs.py    those of Llama
word_pieces.py     those of BERT
"""

import os
from collections.abc import Mapping

from clearhead.data.tokenizers.byte_pairs import BytePairTokenizer
from clearhead.data.tokenizers.characters import CharTokenizer
from clearhead.data.tokenizers.scored_pairs import ScoredPairTokenizer
from clearhead.data.tokenizers.tokenizer import MAX_BYTES, Tokenizer
from clearhead.data.tokenizers.word_pieces import WordPieceTokenizer
from clearhead.data.tokenizers.words import WordTokenizer
from clearhead.files.regular import BadFile, shown
from clearhead.files.strict_json import read_json

__all__ = [
    "BytePairTokenizer",
    "CharTokenizer",
    "ScoredPairTokenizer",
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
        ScoredPairTokenizer,
        WordPieceTokenizer,
    )
}


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer in a file that `save` wrote, of whichever kind it is."""
    values = read_json(path, max_bytes=MAX_BYTES)
    kind = values.get("tokenizer") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadFile(f"{shown(path)} is no tokenizer: its kind is {kind!a:.80}")
    return KINDS[kind].load(path)

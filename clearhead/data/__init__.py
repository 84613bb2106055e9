"""From raw data to batches. Read in this order:

randomness.py      random numbers as a function of (seed, index); training and validation parts
tokenizers/        text ⇄ ids: characters, words, pieces of words
batch.py           Batch(inputs, targets, token_mask); padding, order
shuffling.py       the order of more examples than fit into memory, by arithmetic
packing.py         no work on padding: buckets of similar length, several documents in a row
token_file.py      tokens on a disk, more than fit into memory: read
token_header.py    what a token file says about itself
token_writing.py   write a token file
token_encoders.py  text → ids, piece by piece
encoding_workers.py    the same by several processes
pack_tokens.py     text files of any size → a token file
substrings.py      haystack|needle → does it occur?
dialogue.py        speeches of a play
number_words.py    numbers, years and days in words
pairs.py           sentence pairs, from a file or a generated language
images.py          labelled pictures
cifar10.py         CIFAR-10, in three forms
mnist.py           MNIST
digits.py          small drawn digits that need no download
augmentation.py    pictures changed in ways that keep their meaning
fetching/          data sets from the package registries, checked and kept

Names are imported when they are first used, so that the command line lists the data sets at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.data.batch import IGNORE, Batch, next_tokens, order, pad_left, pad_right
    from clearhead.data.cifar10 import read_cifar10
    from clearhead.data.dialogue import Dialogue, read_speeches, split_speeches
    from clearhead.data.digits import draw_digits
    from clearhead.data.fetching.catalogue import find_data
    from clearhead.data.images import Pictures, to_float
    from clearhead.data.mnist import read_mnist
    from clearhead.data.pack_tokens import pack_texts
    from clearhead.data.packing import bucket, join_documents, pack
    from clearhead.data.pairs import GeneratedPairs, Pairs, pair_tokenizers, read_pairs
    from clearhead.data.randomness import split
    from clearhead.data.substrings import Substrings
    from clearhead.data.token_file import TokenFile
    from clearhead.data.token_writing import write_token_file
    from clearhead.data.tokenizers import (
        BytePairTokenizer,
        CharTokenizer,
        Tokenizer,
        WordTokenizer,
        load_tokenizer,
    )

__all__ = [
    "IGNORE",
    "Batch",
    "BytePairTokenizer",
    "CharTokenizer",
    "Dialogue",
    "GeneratedPairs",
    "Pairs",
    "Pictures",
    "Substrings",
    "TokenFile",
    "Tokenizer",
    "WordTokenizer",
    "bucket",
    "draw_digits",
    "find_data",
    "join_documents",
    "load_tokenizer",
    "next_tokens",
    "order",
    "pack",
    "pack_texts",
    "pad_left",
    "pad_right",
    "pair_tokenizers",
    "read_cifar10",
    "read_mnist",
    "read_pairs",
    "read_speeches",
    "split",
    "split_speeches",
    "to_float",
    "write_token_file",
]

_HOMES = ["fetching.catalogue", "randomness", "tokenizers", "batch", "packing", "substrings"]
_HOMES += [
    "token_file",
    "token_writing",
    "pack_tokens",
    "dialogue",
    "pairs",
    "images",
    "cifar10",
    "mnist",
    "digits",
]


def __getattr__(name: str) -> Any:
    for home in _HOMES if name in __all__ else ():
        names = vars(import_module(f"clearhead.data.{home}"))
        if name in names:
            return names[name]
    raise AttributeError(f"clearhead.data has no {name!r}")

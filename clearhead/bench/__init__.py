"""How fast, as ratios measured in one run.

timing.py    how we measure: competitors take turns, the best round counts
cases.py     what we measure: one function per claim
language.py  … of language models: decoding, batches, the vocabulary loss, words
training.py  … of training: the loop, its data, the start
peers.py     other libraries, imported only there
"""

from clearhead.bench.timing import Row, best_seconds

__all__ = ["Row", "best_seconds"]

"""How fast, as ratios measured in one run.

row.py       a line of the table; clearhead/timing.py says how we measure
cases.py     what we measure: one function per claim
language.py  … of language models: decoding, batches, the vocabulary loss, words
training.py  … of training: the loop, its data, the start
peers.py     other libraries, imported only there
"""

from clearhead.bench.row import Row
from clearhead.timing import best_seconds

__all__ = ["Row", "best_seconds"]

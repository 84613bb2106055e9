"""How fast, as ratios measured in one run.

row.py         a line of the table; clearhead/timing.py says how we measure
cases.py       attention, memory and threads; the list of all cases
language.py    language models: decoding, batches, the vocabulary loss, words
inspection.py  what recording, silencing and patching cost
training.py    training: the loop, its data, the start of a command
peers.py       other libraries, imported only there
"""

from clearhead.bench.row import Row
from clearhead.timing import best_seconds

__all__ = ["CASE_NAMES", "Row", "best_seconds"]

# The keys of cases.CASES, for the command line, which names them without importing torch.
CASE_NAMES = (
    *("attention", "heads", "toeplitz", "linear", "memory", "crossover", "threads"),
    *("decode", "int8", "batch32", "dialogue", "vocabulary", "words", "loop", "start"),
    "inspection",
)

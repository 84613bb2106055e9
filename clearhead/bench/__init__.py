"""How fast, as ratios measured in one run.

row.py         a line of the table; clearhead/timing.py says how we measure
cases.py       attention, memory and threads; the list of all cases
language.py    language models: decoding, batches, the vocabulary loss, words
inspection.py  what recording, silencing and patching cost
studio.py      what the studio computes before its page can draw
studio_load.py  a studio that many clients ask at once
studio_page.py  the page of the studio in a browser
training.py    training: the loop, its data, the start of a command
saving.py      what a checkpoint costs a training
group.py       how a comparison starts several processes, and how it reads their memory
processes.py   training on two processes
sharding.py    the memory of a process that trains a part of a model
plan.py        the memory that clearhead plan computes, against the measured one
peers.py       other libraries, imported only there
"""

from clearhead.bench.row import Row
from clearhead.timing import best_seconds

__all__ = ["CASE_NAMES", "Row", "best_seconds"]

# The keys of cases.CASES, for the command line, which names them without importing torch.
CASE_NAMES = (
    *("attention", "heads", "toeplitz", "linear", "memory", "crossover", "threads"),
    *("decode", "int8", "batch32", "dialogue", "vocabulary", "words", "loop", "start"),
    *("inspection", "studio", "saving", "processes", "sharding", "plan"),
)

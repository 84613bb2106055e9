"""How fast, as ratios measured in one run.

timing.py    how we measure: competitors take turns, the best round counts
cases.py     what we measure: one function per claim
"""

from clearhead.bench.timing import Row, best_seconds

__all__ = ["Row", "best_seconds"]

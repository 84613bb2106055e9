"""The smallest transformer, trained and with weights set by hand.

comparison.py       the experiment: train three rules and compare with the designs
shared_basis.py     both transformers written in the same basis
all_sequences.py    what each does on all sequences of a rule
"""

from clearhead.lab.learned_vs_designed.comparison import experiment

__all__ = ["experiment"]

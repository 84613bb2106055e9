"""Does a trained model do what a program does? The substring model beside three programs.

programs.py      three ways to find a needle in a haystack, as programs
texts.py         texts that differ in the needle or in the haystack
subjects.py      a trained and a compiled model, asked in the same way
comparison.py    the experiment: exchange values within each model and between them
report.py        the tables, the sentences and the picture
"""

from clearhead.lab.algorithm.comparison import experiment

__all__ = ["experiment"]

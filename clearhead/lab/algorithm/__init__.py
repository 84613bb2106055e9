"""Does a trained model do what a program does? The substring model beside three programs.

programs.py      three ways to find a needle in a haystack, as programs
texts.py         pairs of texts that differ in the needle or in the haystack
subjects.py      trained and compiled models behind one interface
comparison.py    the experiment: patch activations within each model and between models
report.py        the tables, the summary and the picture
"""

from clearhead.lab.algorithm.comparison import experiment

__all__ = ["experiment"]

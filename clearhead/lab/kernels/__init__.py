"""Kernel attention: linear in T, with feature maps that are exact, approximate or wrong.

features.py    the experiment: what feature maps get right and where they fail
cost.py        what softmax and linear attention cost over the length T
report.py      the tables, the sentences and the picture
"""

from clearhead.lab.kernels.features import experiment

__all__ = ["experiment"]

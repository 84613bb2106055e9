"""Five ways to tell attention where a token stands, and how far each of them reaches.

schemes.py    the experiment: what attention knows with each scheme
rule.py       a rule that needs the order of tokens, and small models that learn it
report.py     the tables, the sentences and the picture
"""

from clearhead.lab.positions.schemes import experiment

__all__ = ["experiment"]

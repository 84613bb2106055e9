"""Five ways to give attention the order of tokens, and what happens beyond the trained length.

schemes.py    the experiment: what each scheme tells attention
rule.py       a rule that needs the order of tokens, and small models that learn it
report.py     the tables, the sentences and the picture
"""

from clearhead.lab.positions.schemes import experiment

__all__ = ["experiment"]

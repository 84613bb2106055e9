"""The memory and the time of a training step, computed in advance. Read in this order:

steps.py        the formulas: memory and time of a step in each mode
sizes.py        the sizes of a recipe's model
stand_ins.py    made-up examples for a recipe whose data are not here
cards.py        memory and speed of graphics cards, from data sheets

../plan.py puts them together: the costs of every mode, and which one to take.
"""

__all__: list[str] = []

"""Checking the code of others: what is wrong, in which term of the formula, on which line.

exercise.py      what an exercise is: a formula in terms, named mistakes, cases
draw.py          inputs drawn from a secret seed
weights.py       which parameter of a module plays which role
student.py       a student's function or class, called with the arguments it expects
comparison.py    whether two results are the same
diagnosis.py     from a wrong answer to its mistake
intake.py        files, notebooks and folders as students hand them in
corpus.py        submissions with known verdicts
contracts/       the exercises, one file each
sandbox/         running code that nobody trusts
"""

__all__: list[str] = []

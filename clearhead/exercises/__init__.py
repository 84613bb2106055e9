"""Checking the code of others: what is wrong, in which term of the formula, on which line.

exercise.py      what an exercise is: a formula in terms, named mistakes, cases
draw.py          inputs drawn from a secret seed
weights.py       which parameter of a module plays which role
student.py       a student's function or class, called with the arguments it expects
forms.py         inputs as NumPy arrays, or as transposed matrices
comparison.py    whether two results are the same
diagnosis.py     from a wrong answer to its mistake
properties.py    what a right answer has, without a reference
self_test.py     the score of check itself on the corpus
intake.py        files, notebooks and folders as students hand them in
catalogue.py     the exercises and their mistakes, without importing torch
lines.py         the line where a mistake probably stands
report.py        what a check found, as text, JSON and HTML
judge.py         one part: run, diagnose, put into words
check.py         a whole submission
pages.py         the page of each exercise in docs/exercises
template.py      a file to start from, and a sheet of all exercises
corpus.py        submissions with known verdicts
contracts/       the exercises, one file each
sandbox/         running code that nobody trusts
"""

__all__: list[str] = []

"""Checking code: what is wrong, in which term of the formula, on which line.

exercise.py      what an exercise is: a formula in terms, named mistakes, cases
draw.py          inputs drawn from a secret seed
weights.py       linear layers, norms and tables: the parts of a formula that have weights
pieces.py        the pieces of a module's parameters that fit such a part
readings.py      which piece plays which role
stacks.py        the layers of a whole model, found among its parameters
constructors.py  how a student's class gets its sizes
student.py       a student's function or class, called with the arguments it expects
forms.py         inputs as NumPy arrays, or as transposed matrices
comparison.py    whether an answer equals the result of a formula
diagnosis.py     find the mistake behind a wrong answer
naming.py        find the named mistake that explains every answer
terms.py         find the term of a mistake that has no name
disturbances.py  generic wrong forms of any term
properties.py    properties of a right answer that need no reference
self_test.py     the score of check itself on the corpus
intake.py        files, notebooks and folders as students hand them in
magics.py        the cells of a notebook as Python
definitions.py   what a file defines, and which definition an exercise means
categories.py    the categories of DEFault++ that the mistakes belong to
catalogue.py     the exercises and their mistakes, without importing torch
lines.py         the line that probably has the mistake
report.py        what a check found, as text, JSON and HTML
judge.py         run one part, diagnose it, and report the result
check.py         a whole submission
pages.py         the page of each exercise in docs/exercises
testing.py       a check that raises, for otter, nbgrader and pytest
pytest_plugin.py the fixture clearhead_check
assignment.py    which exercises are graded, for how many points
gradebook.py     the grades of a class on a disk
grading.py       grade the submissions of a class
gradescope.py    a grade as Gradescope reads it
gradescope_zip.py  an autograder for Gradescope
grade_tables.py  the grades as CSV and as JUnit's XML
class_report.py  which mistakes a class makes, as an HTML page
template.py      a file to start from, and a sheet of all exercises
corpus.py        submissions with known verdicts
audit/           check the claims, numbers and tests of a handout
contracts/       the exercises, one file each
sandbox/         running untrusted code
"""

from clearhead.exercises.testing import assert_passed

__all__ = ["assert_passed"]

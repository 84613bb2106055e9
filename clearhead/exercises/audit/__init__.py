"""Check a handout: claims that cannot be right, and tests that a wrong answer passes.

handout.py       a Markdown, text or notebook file as blocks of text, code and output
findings.py      what an audit found, as text and JSON
rules.py         claims that are not true: their wording, and a proof that runs
formulas.py      the rules, applied to the text of a handout
code_rules.py    wrong lines of code that are recognised by their syntax
mask_rules.py    the rules about masks
instrument.py    code blocks as cells that record what they print, make and compare
probe.py         the recording side, sent to the sandbox
digits.py        compare printed numbers with computed ones
rerun.py         run the handout, and compare printed numbers and shapes
trial.py         run it with one of our answers in place of the student's
answers.py       find wrong answers that pass its tests, or that give its printed numbers
audit.py         the whole audit
"""

__all__: list[str] = []

"""A run on one page: settings, curves, answers, attention.

page.py         write_report: the page, section by section; its style is style.css
html.py         the pieces of HTML it is made of
curves.py       metrics and learning rates over steps; the confusion matrix
answers.py      which classes are confused, or the worst answers
attention.py    what a model attends to, in its examples or in an input of yours
"""

from clearhead.inspection.report.attention import Look, look_at
from clearhead.inspection.report.page import collect_series, write_report

__all__ = ["Look", "collect_series", "look_at", "write_report"]

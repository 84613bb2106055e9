"""What the experiments share.

finding.py      what an experiment returns: claim, tables, sentences, numbers, picture
drawing.py      panels, and lines that differ in colour, dashes and marker
measuring.py    what a computation costs, and how the cost grows
training.py     train a recipe and keep only the model
page.py         all findings on one HTML page
"""

from clearhead.lab.tools.finding import Finding, Table
from clearhead.lab.tools.page import write_page

__all__ = ["Finding", "Table", "write_page"]

"""What a model answers: a confusion matrix, or a table of its worst answers."""

from collections.abc import Iterator
from typing import NamedTuple

from clearhead.inspection.report import html
from clearhead.inspection.report.curves import confusion_picture
from clearhead.runs import Run

N_ASKED = 40  # examples to predict
N_SHOWN = 12  # the worst of them are shown
SHORT = 24  # characters; answers up to this length, such as dates, are not wrapped


class Answer(NamedTuple):
    """What the model answers to an input."""

    text: str
    given: str
    right: str
    probability: float | None

    @classmethod
    def of(cls, run: Run, text: str, right: str) -> "Answer":
        """Ask the model of a run."""
        found = run.predict(text)
        return cls(text, str(found["answer"]), right, found.get("probability"))

    @property
    def is_wrong(self) -> bool:
        """Whether the answer is not the right one."""
        return self.given != self.right

    def rank(self) -> float:
        """The key for sorting: confident wrong answers first, confident right answers last."""
        sure = self.probability or 0.0
        return -1 - sure if self.is_wrong else sure

    def format_row(self) -> str:
        """The answer as a row of the table."""
        sure = "" if self.probability is None else f"{self.probability:.3f}"
        cells = (html.text(cell) for cell in (self.text, self.given, self.right, sure))
        kind = ' class="wrong"' if self.is_wrong else ""
        return f"<tr{kind}>{''.join(f'<td>{cell}' for cell in cells)}</tr>"


def show_answers(run: Run) -> Iterator[str]:
    """The section of the report: which classes are confused, or the worst answers first."""
    if (table := run.task.confusion(run.model)) is not None:
        yield "<h2>Which classes it confuses</h2>"
        yield html.embed(
            confusion_picture(table, run.task.class_names),
            "The number of pictures of each true class (row) with each predicted class "
            "(column). The diagonal holds the right answers.",
        )
    elif examples := run.task.hardest(run.model, N_ASKED):
        answers = sorted((Answer.of(run, *example) for example in examples), key=Answer.rank)
        yield "<h2>What it answers</h2>"
        yield "<p>Validation examples, the worst first: wrong answers are coloured and marked.</p>"
        longest = max(len(words) for answer in answers for words in (answer.given, answer.right))
        kind = ' class="short"' if longest <= SHORT else ""
        yield f'<div class="scroll"><table{kind}>'
        yield "<tr><th>input<th>its answer<th>right answer<th>its probability</tr>"
        for answer in answers[:N_SHOWN]:
            yield answer.format_row()
        yield "</table></div>"

"""The metric of an answer: one number, which a change of the model raises or lowers.

a GPT                the logit of its answer minus that of the second best, at one position
several classes      the same at [CLS]
one logit            the logit of its answer, yes or no, at [CLS]
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.inspection import logit_difference
from clearhead.inspection.sweep_rows import Metric
from clearhead.models.model import evaluation_mode
from clearhead.studio.sources import Opened, Sources
from clearhead.studio.views.answers import CLASS_TOKEN
from clearhead.studio.views.changes import (
    Change,
    change_model,
    name_imports,
    write_python,
    write_with,
)
from clearhead.studio.views.tokens import (
    open_text_model,
    read_tokens,
    spell_tokens,
    write_tokens,
)


@dataclass(frozen=True)
class TextInput:
    """A text, the model that reads it, the changes in it, and the position of the answer."""

    opened: Opened
    text: str
    ids: list[int]
    changes: list[Change]
    position: int

    @property
    def tokens(self) -> Tensor:
        return torch.tensor([self.ids], device=self.opened.model.device)

    def compute_logits(self) -> Tensor:
        """The output of the changed model at all positions, (T, ·)."""
        with (
            evaluation_mode(self.opened.model),
            change_model(self.opened, self.ids, self.changes),
        ):
            logits: Tensor = self.opened.model(self.tokens)
        return logits[0].float()

    def write(self, name: str, call: str, *lines: str, imports: tuple[str, ...] = ()) -> str:
        """The Python lines that load the model and run `call` with all changes.

        name, imports: the names of inspection that `call` uses; lines: those before it.
        """
        prepare, calls = write_python(self.opened, self.changes)
        body = write_with(calls, call) if calls else [call]
        return "\n".join(
            [
                *self.opened.lines,
                name_imports(self.changes, name, *imports),
                f"tokens = {write_tokens(self.opened, self.text, self.ids)}",
                *prepare,
                *lines,
                *body,
            ]
        )


def read_input(
    sources: Sources,
    model: str,
    text: str,
    tokens: list[int] | None = None,
    changes: list[Change] | None = None,
    position: int | None = None,
) -> TextInput:
    """Check the arguments that the questions of effects.py share. position: None means the last."""
    opened = open_text_model(sources, model)
    if opened.kind == "TextEncoder":
        raise ValueError(
            f"{model} is a TextEncoder: it gives vectors, no answer; choose a GPT or a classifier"
        )
    ids = read_tokens(opened, text, tokens)
    last = len(ids) - 1
    if opened.kind == "SequenceClassifier":
        position = CLASS_TOKEN
    elif position is None:
        position = last
    if not 0 <= position <= last:
        raise IndexError(f"position must be from 0 to {last}, got {position}")
    return TextInput(opened, text, ids, changes or [], position)


@dataclass(frozen=True)
class Measure:
    """A metric as a function, as Python, and in words.

    target and against: ids of tokens, or numbers of classes. A classifier with one logit has the
    classes 0 (yes) and 1 (no); then against is None.
    """

    metric: Metric
    python: str
    words: str
    target: int
    against: int | None


def choose_measure(
    given: TextInput, logits: Tensor, target: int | None, against: int | None = None
) -> Measure:
    """The logit of `target` minus that of `against`. logits: the output of the model, (T, ·).

    target: by default the most likely answer; against: by default the most likely of the others.
    """
    opened, at = given.opened, given.position
    row = logits[at]
    if len(row) == 1:
        return _choose_sign(row, target)
    target = check_target(int(row.argmax()) if target is None else target, len(row))
    if against is None:
        against = next(i for i in row.topk(2).indices.tolist() if i != target)
    is_token = opened.kind == "GPT"
    name, other = (
        repr(spell_tokens(opened, [i])[0]) if is_token else f"class {i}" for i in (target, against)
    )
    return Measure(
        logit_difference(target, against, at),
        f"logit_difference({target}, {against}, {at})",
        f"the logit of {name} minus that of {other}",
        target,
        against,
    )


def _choose_sign(row: Tensor, target: int | None) -> Measure:
    """The logit of yes or of no; row (1,)."""
    is_no = row.item() <= 0 if target is None else bool(check_target(target, 2))
    sign, word = ("-", "no") if is_no else ("", "yes")
    factor = -1 if is_no else 1

    def read(logits: Tensor) -> Tensor:
        return factor * logits[:, CLASS_TOKEN, 0]

    python = f"lambda logits: {sign}logits[:, {CLASS_TOKEN}, 0]"
    return Measure(read, python, f"the logit of {word} at [CLS]", int(is_no), None)


def check_target(target: int, n: int) -> int:
    """The target, if it is one of n tokens or classes."""
    if not 0 <= target < n:
        raise ValueError(f"target must be from 0 to {n - 1}, got {target}")
    return target

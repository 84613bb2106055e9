"""Weights set by hand that tell which tokens occur once: +1 for these, −1 for repeated ones."""

from clearhead.exercises.contracts.shared.hand_design import HandDesign
from clearhead.exercises.exercise import mistake


class HandUnique(HandDesign):
    name = "hand_unique"
    title = "Weights set by hand: unique"
    formula = "[CLS, A, B, B] → [+1, +1, −1, −1], by content and position"
    signature = "arrays Km, Qm (4 + d_pos, d_qk), Vm (4 + d_pos, 1), pos; one-hot rows A, B, C, CLS"
    names = ("hand_unique", "design_unique", "unique_design", "Km_unique", "Km + pos + CLS")
    terms = {
        "task": "the output, +1 for a token that occurs once and −1 for a repeated one",
        "scores": "the scores x Qm (x Km)ᵀ: a letter must attend to equal letters, not to itself",
        "sharpness": "the size of the scores, which makes the softmax sharp",
        "values": "Vm, +1 for CLS and −1 for letters",
        "layout": "the layout, a row for each number of the input",
        "positions": "the positions: one row of pos for CLS and one for each letter",
    }
    start = "S"  # CLS
    Vm = [[-1.0], [-1.0], [-1.0], [1.0]]

    def task(self, text: str) -> list[list[float]]:
        return [[1.0 if text.count(letter) == 1 else -1.0] for letter in text]

    @mistake(
        "task",
        "every letter gets −1 because it attends to itself; a letter's own position must "
        "lower its score",
        line=("pos", "Qm", "Km"),
    )
    def finds_itself(self, text: str) -> list[list[float]]:
        return [[1.0 if letter == "S" else -1.0] for letter in text]

    @mistake(
        "task",
        "every token gets +1 because all attend to CLS; an equal letter must score higher than CLS",
        line=("Qm", "Km"),
    )
    def only_cls(self, text: str) -> list[list[float]]:
        return [[1.0]] * len(text)

    @mistake(
        "task",
        "the letters are right, but CLS gets −1: it occurs once, so it must attend to itself",
        line=("Qm", "Km"),
    )
    def cls_is_repeated(self, text: str) -> list[list[float]]:
        return [[-1.0], *HandUnique.task(self, text)[1:]]

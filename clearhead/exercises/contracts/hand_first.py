"""Weights set by hand that copy the first token to every position."""

from clearhead.exercises.contracts.shared.hand_design import HandDesign
from clearhead.exercises.exercise import mistake


class HandFirst(HandDesign):
    name = "hand_first"
    title = "Weights set by hand: first"
    formula = "[C, A, C] → [C, C, C], by position"
    signature = "arrays Km, Qm (3 + d_pos, d_qk), Vm (3 + d_pos, 3), pos (max_len, d_pos)"
    names = ("hand_first", "design_first", "first_design", "Km_first", "Km + pos - CLS")
    terms = {
        "task": "the output, the first token everywhere",
        "scores": "the scores x Qm (x Km)ᵀ: every token must attend to position 0",
        "sharpness": "the size of the scores, which makes the softmax sharp",
        "values": "Vm, the value that an attended token contributes",
        "layout": "the layout, a row for each number of the input",
        "positions": "the positions: one row of pos for each position",
    }
    Vm = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]

    def task(self, text: str) -> list[list[float]]:
        return [self.Vm["ABC".index(text[0])]] * len(text)

    @mistake(
        "task",
        "each token comes out as it went in: it attends by content, not by position",
        line=("Km", "Qm"),
    )
    def own_token(self, text: str) -> list[list[float]]:
        return [self.Vm["ABC".index(letter)] for letter in text]

    @mistake(
        "task",
        "each token comes out as the last one, not the first",
        line=("pos", "Km"),
    )
    def last_token(self, text: str) -> list[list[float]]:
        return [self.Vm["ABC".index(text[-1])]] * len(text)

    @mistake(
        "task",
        "each token comes out as the second one: positions count from 0",
        line=("pos", "Km"),
    )
    def second_token(self, text: str) -> list[list[float]]:
        return [self.Vm["ABC".index(text[min(1, len(text) - 1)])]] * len(text)

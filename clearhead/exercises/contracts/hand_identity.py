"""Weights set by hand that leave every token as it is."""

from clearhead.exercises.contracts.shared.hand_design import HandDesign
from clearhead.exercises.exercise import mistake


class HandIdentity(HandDesign):
    name = "hand_identity"
    title = "Weights set by hand: identity"
    formula = "[A, B, C, C] → [A, B, C, C], by content"
    signature = "arrays Km, Qm (3, d_qk), Vm (3, 3), no pos; tokens are one-hot rows A, B, C"
    names = ("hand_identity", "design_identity", "identity_design", "Km_identity", "Km - pos")
    terms = {
        "task": "the output, each token as it came in",
        "scores": "the scores x Qm (x Km)ᵀ: each letter must attend to equal letters",
        "sharpness": "the size of the scores, which makes the softmax sharp",
        "values": "Vm, the value that an attended token contributes",
        "layout": "the layout, a row for each number of the input",
        "positions": "the positions, which are not needed here",
    }
    Vm = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    impossible = ("keys_and_queries_swapped",)

    def task(self, text: str) -> list[list[float]]:
        return [self.Vm["ABC".index(letter)] for letter in text]

    @mistake(
        "task",
        "each token comes out as the first one: that is the task `first`; here it attends by "
        "content, not by position",
        line=("pos", "Km"),
    )
    def first_token(self, text: str) -> list[list[float]]:
        return [self.Vm["ABC".index(text[0])]] * len(text)

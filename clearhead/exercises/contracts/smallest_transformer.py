"""The smallest transformer, in NumPy and PyTorch: one layer, one head, concatenated positions."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.forms import drop_axes, to_array, to_tensor
from clearhead.exercises.sandbox.supervisor import StudentError
from clearhead.exercises.student import MODULE, Student
from clearhead.exercises.weights import Linear, Role

ARRAYS = "NumpyTransformer"
MADE = {"make": MODULE}  # the object built from a class
Sizes = tuple[tuple[Any, ...], ...]

# n, then d_input, d_qk, d_v, d_pos, max_len
CASES: Sizes = (
    ("a single token keeps its own value", "project", 1, 3, 4, 2, None, 6),
    ("the scores are divided by √d_qk", "scale", 5, 3, 4, 2, None, 8),
    ("the positions are concatenated to the tokens", "place", 4, 3, 5, 2, 6, 9),
    ("the positions are concatenated to the tokens", "place", 7, 4, 3, 6, 1, 8),
)
SMALL: Sizes = ((1, 1, 2, 1, None, 3), (2, 1, 2, 3, None, 3), (2, 1, 3, 2, 1, 4))


class SmallestTransformer(Exercise):
    name = "smallest_transformer"
    title = "The smallest transformer, in NumPy and in PyTorch"
    formula = "x = [seq, pos]; K, Q, V = x Km, x Qm, x Vm; softmax(Q Kᵀ / √d_qk) V"
    signature = (
        "PytorchTransformer(input_dim, qk_dim, v_dim, pos_dim, max_seq_len).forward(seq) and "
        "NumpyTransformer(Km, Qm, Vm, pos).forward(seq): (n, d_input) → (n, d_v)"
    )
    page = "models.md#the-smallest-transformer"
    names = (
        "PytorchTransformer",
        "NumpyTransformer",
        "TorchTransformer",
        "PyTorchTransformer",
        "SmallestTransformer",
    )
    terms = {
        "place": "the positions, concatenated to the tokens",
        "project": "keys, queries and values, x Km, x Qm and x Vm",
        "scale": "the division of the scores by √d_qk",
        "weigh": "the softmax over the keys",
        "mix": "the output, the mixture of the values",
    }
    parameters = {"seq": "seq x sequence inputs tokens input X"}
    constructor = {
        "d_input": "input_dim d_input d_in d_model dim",
        "d_qk": "qk_dim d_qk d_k key_dim",
        "d_v": "v_dim d_v value_dim d_out output_dim",
        "d_pos": "pos_dim d_pos",
        "max_len": "max_seq_len max_len max_length seq_len",
    }
    helpers = "def _forward(model, x):\n    return getattr(model, 'forward', model)(x)"
    forbidden = ("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention")

    def roles(
        self, d_input: int, d_qk: int, d_v: int, d_pos: int | None, max_len: int
    ) -> dict[str, Role]:
        width = d_input + (d_pos or 0)
        found = {
            "Km": Role("linear", (d_qk, width), "km k key keys w_k wk"),
            "Qm": Role("linear", (d_qk, width), "qm q query queries w_q wq"),
            "Vm": Role("linear", (d_v, width), "vm v value values w_v wv"),
        }
        return {**found, "pos": Role("table", (max_len, d_pos), "pos position")} if d_pos else found

    # The formula: seq (n, d_input) → (n, d_v)

    def answer(
        self, seq: Tensor, Km: Linear, Qm: Linear, Vm: Linear, pos: Tensor | None = None
    ) -> Tensor:
        x = seq if pos is None else self.place(seq, pos)
        K, Q, V = self.project(x, Km, Qm, Vm)
        return self.mix(self.weigh(Q @ K.mT * self.scale(x, Q, V)), V)

    def place(self, seq: Tensor, pos: Tensor) -> Tensor:
        return torch.cat((seq, pos[: len(seq)]), dim=-1)

    def project(
        self, x: Tensor, Km: Linear, Qm: Linear, Vm: Linear
    ) -> tuple[Tensor, Tensor, Tensor]:
        return Km(x), Qm(x), Vm(x)

    def scale(self, x: Tensor, Q: Tensor, V: Tensor) -> float:
        return 1 / math.sqrt(Q.size(-1))

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def mix(self, weights: Tensor, V: Tensor) -> Tensor:
        return weights @ V

    # Mistakes

    @mistake("scale", "the scores are not divided by √d_qk", line=("@", "matmul", "dot", "*"))
    def no_scaling(self, x: Tensor, Q: Tensor, V: Tensor) -> float:
        return 1.0

    @mistake("scale", "the scores are divided by d_qk instead of √d_qk", line=("/",))
    def scaled_by_d(self, x: Tensor, Q: Tensor, V: Tensor) -> float:
        return 1 / Q.size(-1)

    @mistake(
        "scale",
        "the scores are divided by √n, the number of tokens, instead of √d_qk",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_by_length(self, x: Tensor, Q: Tensor, V: Tensor) -> float:
        return 1 / math.sqrt(Q.size(-2))

    @mistake(
        "scale",
        "the scores are divided by the square root of the input's width instead of √d_qk",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_by_input(self, x: Tensor, Q: Tensor, V: Tensor) -> float:
        return 1 / math.sqrt(x.size(-1))

    @mistake(
        "scale",
        "the scores are divided by √d_v, the width of the values, instead of √d_qk",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_by_values(self, x: Tensor, Q: Tensor, V: Tensor) -> float:
        return 1 / math.sqrt(V.size(-1))

    @mistake("weigh", "the softmax runs over the queries instead of the keys", line=("softmax",))
    def softmax_over_queries(self, scores: Tensor) -> Tensor:
        return scores.softmax(-2)

    @mistake("weigh", "the softmax runs over all pairs at once, not row by row", line=("softmax",))
    def softmax_over_all(self, scores: Tensor) -> Tensor:
        return scores.flatten().softmax(0).view_as(scores)

    @mistake("weigh", "there is no softmax", line=("@", "matmul", "dot"))
    def no_softmax(self, scores: Tensor) -> Tensor:
        return scores

    @mistake(
        "place",
        "the positions come before the token: [pos, seq] instead of [seq, pos]",
        line=("cat", "concatenate", "hstack"),
    )
    def positions_first(self, seq: Tensor, pos: Tensor) -> Tensor:
        return torch.cat((pos[: len(seq)], seq), dim=-1)

    @mistake(
        "place",
        "the positions are counted from 1: the first token gets the second position",
        line=("arange", "range", "1:"),
    )
    def positions_from_one(self, seq: Tensor, pos: Tensor) -> Tensor:
        return torch.cat((seq, pos[1 : len(seq) + 1]), dim=-1)

    @mistake(
        "place",
        "every token gets the same position, the first one",
        line=("[0]", "zeros"),
    )
    def same_position(self, seq: Tensor, pos: Tensor) -> Tensor:
        return torch.cat((seq, pos[:1].expand(len(seq), -1)), dim=-1)

    @mistake(
        "place",
        "the last positions of the table are used instead of the first",
        line=("-len", "-n:", "flip"),
    )
    def last_positions(self, seq: Tensor, pos: Tensor) -> Tensor:
        return torch.cat((seq, pos[-len(seq) :]), dim=-1)

    @mistake(
        "project",
        "Km and Qm are swapped: the queries are computed with the matrix of the keys",
        line=("Qm", "Km"),
    )
    def keys_and_queries_swapped(
        self, x: Tensor, Km: Linear, Qm: Linear, Vm: Linear
    ) -> tuple[Tensor, Tensor, Tensor]:
        return Qm(x), Km(x), Vm(x)

    @mistake("project", "the keys are also used as queries; Qm is not used", line=("Km", "K"))
    def queries_are_keys(
        self, x: Tensor, Km: Linear, Qm: Linear, Vm: Linear
    ) -> tuple[Tensor, Tensor, Tensor]:
        return Km(x), Km(x), Vm(x)

    @mistake(
        "mix", "the weights are transposed before they mix the values", line=("T @", "@", "mT")
    )
    def transposed_weights(self, weights: Tensor, V: Tensor) -> Tensor:
        return weights.mT @ V

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Ask the class for the case's library; give a batch of one if it raises otherwise."""
        library = case.inputs["library"]
        case = replace(case, inputs={"seq": case.inputs["seq"]})
        if library == "numpy":
            return self._ask_numpy(_find_class(student, (ARRAYS,)), case)
        torch_form = _find_class(student, tuple(n for n in self.names if n != ARRAYS))
        if torch_form is None:
            return None
        torch_form.seed = student.seed
        answer = torch_form.ask_form(self, case)
        batched = replace(case, given={"seq": case.inputs["seq"].unsqueeze(0)})
        if answer is not None and answer.error is not None:
            return torch_form.ask_form(self, batched) or answer
        return answer

    def _ask_numpy(self, student: Student | None, case: Case) -> Answer | None:
        """Build it from arrays of our own, and call forward."""
        if student is None:
            return None
        draw, sizes = Draw(case.inputs["seq"].numel() + 7), case.sizes
        width = sizes["d_input"] + (sizes["d_pos"] or 0)
        Km, Qm = draw.normal(width, sizes["d_qk"]), draw.normal(width, sizes["d_qk"])
        Vm = draw.normal(width, sizes["d_v"])
        pos = draw.normal(sizes["max_len"], sizes["d_pos"]) if sizes["d_pos"] else None
        layers = {n: Linear(m.mT) for n, m in (("Km", Km), ("Qm", Qm), ("Vm", Vm))}
        choices = [{**case.inputs, **layers, "pos": pos}]
        args = [to_array(each) for each in (Km, Qm, Vm, pos)]
        try:
            student.session.request("build", name=ARRAYS, args=args, kwargs={}, label=MODULE)
            seq = to_array(case.inputs["seq"])
            reply = student.session.request("call", target="_forward", args=[MADE, seq], kwargs={})
        except StudentError as error:
            return Answer(choices, error=error)
        output = reply.get("output") if isinstance(reply, dict) else None
        return Answer(choices, dict(self.read(output, case.inputs)))

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        first = output[0] if isinstance(output, tuple) else output
        return {"output": drop_axes(to_tensor(first), 2)}

    def cases(self, draw: Draw) -> Iterable[Case]:
        names = ("d_input", "d_qk", "d_v", "d_pos", "max_len")
        for library in ("torch", "numpy"):
            for says, term, n, *sizes in CASES:
                inputs = {"seq": draw.normal(n, sizes[0]), "library": library}
                yield Case(says, term, inputs, dict(zip(names, sizes, strict=True)))

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        names = ("d_input", "d_qk", "d_v", "d_pos", "max_len")
        for n, *sizes in SMALL:
            for library in ("torch", "numpy"):
                inputs = {"seq": draw.small(n, sizes[0]), "library": library}
                yield Case(
                    "a small example", "project", inputs, dict(zip(names, sizes, strict=True))
                )
        yield from self.cases(draw)


def _find_class(student: Student, names: tuple[str, ...]) -> Student | None:
    """The student's own class if it has one of the names, or another one of the file."""
    if student.name in names or (ARRAYS not in names and student.name != ARRAYS):
        return student
    for name in names:
        try:
            student.session.request("describe", name=name)
        except StudentError:
            continue
        return replace(student, name=name, is_class=True, notes=[], _signatures={})
    return None

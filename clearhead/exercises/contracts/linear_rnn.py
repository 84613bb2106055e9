"""A linear recurrent network, step by step and as one sum."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.twins import ask_twin
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.forms import ask_in_forms, change, drop_axes, with_arrays
from clearhead.exercises.student import Student

CLOSED = (
    "linear_rnn_closed_form",
    "closed_form",
    "linear_rnn_closed",
    "linear_rnn_parallel",
    "rnn_closed_form",
    "closed_form_rnn",
)


class LinearRNN(Exercise):
    name = "linear_rnn"
    title = "A linear recurrent network"
    formula = "h_t = W_h h_{t−1} + W_x x_t with h_0 = 0, y_t = W_y h_t; h_T = Σ_k W_h^{T−k} W_x x_k"
    signature = (
        "linear_rnn(x, W_x, W_h, W_y): (B, T, d) → (B, T, d_y); "
        "closed_form(x, W_x, W_h[, W_y]) → h_T, y_T or all y"
    )
    page = "layers.md#the-linear-rnn-written-out"
    names = ("linear_rnn", "linear_rnn_forward", "rnn", "rnn_forward", "simple_rnn", "run_rnn")
    terms = {
        "start": "the state before the first step, h_0 = 0",
        "update": "the new state W_h h_{t−1} + W_x x_t",
        "walk": "the steps, in the order of time",
        "emit": "the output y_t = W_y h_t of each step",
        "power": "the power of W_h in the closed form, T − k for the input k",
    }
    parameters = {
        "x": "x inputs xs input seq X",
        "W_x": "w_x wx w_xh w_in u w_ih",
        "W_h": "w_h wh w_hh w a",
        "W_y": "w_y wy w_hy w_out c w_o v",
    }
    optional = ("W_y",)

    # The formula: x (B, T, d), W_x (d_h, d), W_h (d_h, d_h), W_y (d_y, d_h) → y (B, T, d_y)

    def answer(self, x: Tensor, W_x: Tensor, W_h: Tensor, W_y: Tensor) -> dict[str, Tensor]:
        states = self.walk(x, W_x, W_h)  # (B, T, d_h)
        last = self._sum_up(x, W_x, W_h)  # (B, d_h)
        return {
            "output": self.emit(states, W_y),
            "closed_state": last,
            "closed_output": last @ W_y.mT,
        }

    def walk(self, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        state, states = self.start(x, W_h), []
        for t in range(x.size(1)):
            state = self.update(state, x[:, t], W_x, W_h)
            states.append(state)
        return torch.stack(states, dim=1)

    def start(self, x: Tensor, W_h: Tensor) -> Tensor:
        return x.new_zeros(x.size(0), len(W_h))

    def update(self, state: Tensor, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return state @ W_h.mT + x @ W_x.mT

    def emit(self, states: Tensor, W_y: Tensor) -> Tensor:
        return states @ W_y.mT

    def _sum_up(self, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        T = x.size(1)
        return sum(
            (x[:, k - 1] @ W_x.mT) @ torch.linalg.matrix_power(W_h, self.power(k, T)).mT
            for k in range(1, T + 1)
        )

    def power(self, k: int, T: int) -> int:
        return T - k

    # Mistakes

    @mistake(
        "start",
        "the first state is 1 instead of 0",
        line=("ones(", "ones_like"),
    )
    def starts_with_ones(self, x: Tensor, W_h: Tensor) -> Tensor:
        return x.new_ones(x.size(0), len(W_h))

    @mistake(
        "update",
        "W_h is transposed: h @ W_h is W_hᵀ h; write h @ W_h.T, or W_h @ h for one column",
        line=("W_h", "W_hh", "h @"),
    )
    def transposed_state_matrix(self, state: Tensor, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return state @ W_h + x @ W_x.mT

    @mistake(
        "update",
        "W_h is missing: the old state is added as it is, so nothing fades",
        line=("h +", "+ h", "+="),
    )
    def no_state_matrix(self, state: Tensor, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return state + x @ W_x.mT

    @mistake(
        "update",
        "the old state is not used: h_t = W_x x_t has no memory",
        line=("h =", "W_x"),
    )
    def no_memory(self, state: Tensor, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return x @ W_x.mT

    @mistake(
        "update",
        "W_h also multiplies the new input: h_t = W_h (h_{t−1} + W_x x_t), one power too many",
        line=("W_h", "h ="),
    )
    def state_matrix_on_input(self, state: Tensor, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return (state + x @ W_x.mT) @ W_h.mT

    @mistake(
        "update",
        "a tanh is applied to the state; φ is the identity here",
        line=("tanh",),
    )
    def tanh_applied(self, state: Tensor, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return (state @ W_h.mT + x @ W_x.mT).tanh()

    @mistake("update", "a ReLU is applied to the state; φ is the identity here", line=("relu",))
    def relu_applied(self, state: Tensor, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return (state @ W_h.mT + x @ W_x.mT).relu()

    @mistake(
        "walk",
        "the steps run over the batch (axis 0) instead of time (axis 1)",
        line=("range(", "for "),
    )
    def steps_over_batch(self, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return LinearRNN.walk(self, x.transpose(0, 1), W_x, W_h).transpose(0, 1)

    @mistake(
        "walk",
        "the steps run backwards in time, from the last input to the first",
        line=("reversed", "flip", "::-1", "range("),
        variants=("reversed_time_and_outputs",),
    )
    def reversed_time(self, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return LinearRNN.walk(self, x.flip(1), W_x, W_h).flip(1)

    def reversed_time_and_outputs(self, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        return LinearRNN.walk(self, x.flip(1), W_x, W_h)

    @mistake(
        "walk",
        "the output is computed before the update, from the state of the step before",
        line=("append", "y[", "W_y"),
    )
    def delayed_output(self, x: Tensor, W_x: Tensor, W_h: Tensor) -> Tensor:
        states = LinearRNN.walk(self, x, W_x, W_h)
        return torch.cat((self.start(x, W_h).unsqueeze(1), states[:, :-1]), dim=1)

    @mistake("emit", "only the last output is returned instead of all T", line=("return",))
    def last_step_only(self, states: Tensor, W_y: Tensor) -> Tensor:
        return states[:, -1] @ W_y.mT

    @mistake("emit", "the states h are returned instead of the outputs W_y h", line=("return",))
    def states_returned(self, states: Tensor, W_y: Tensor) -> Tensor:
        return states

    @mistake(
        "power",
        "the power of W_h in the closed form is one too high: the last input has W_h⁰",
        line=("matrix_power", "**", "T -"),
    )
    def power_too_high(self, k: int, T: int) -> int:
        return T - k + 1

    @mistake(
        "power",
        "the powers of W_h are reversed in the closed form: W_h^{k−1} fades the last inputs, "
        "not the first",
        line=("matrix_power", "**"),
    )
    def powers_reversed(self, k: int, T: int) -> int:
        return k - 1

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Ask for the recurrence, with W x or x W, and for the closed form if the file has one."""
        turned = change(case, lambda x: x.mT, "W_x", "W_h", "W_y")
        answer = ask_in_forms(self, student, with_arrays(student, case, turned))
        if answer is None or answer.results is None:
            return answer
        closed = ask_twin(self, student, case, CLOSED, _read_closed, turned)
        answer.results = {**answer.results, **closed}
        return answer

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the outputs, with or without the states beside them."""
        width = len(inputs["W_y"])
        several = output if isinstance(output, tuple) else (output,)
        fitting = [each for each in several if getattr(each, "shape", (0,))[-1:] == (width,)]
        first = (fitting or list(several))[0]
        if isinstance(first, list) and all(isinstance(y, Tensor) for y in first) and first:
            first = torch.stack(first, dim=1)
        return {"output": drop_axes(first, 3) if inputs["x"].size(0) > 1 else first}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, d: int, d_h: int, d_y: int) -> Case:
            x, W_x = draw.normal(B, T, d), draw.normal(d_h, d)
            W_h, W_y = 0.8 * draw.normal(d_h, d_h) / d_h**0.5, draw.normal(d_y, d_h)
            return Case(says, term, {"x": x, "W_x": W_x, "W_h": W_h, "W_y": W_y})

        yield case("after one step y_1 = W_y W_x x_1", "emit", 3, 1, 4, 2, 5)
        yield case("the second state is W_h h_1 + W_x x_2", "update", 4, 2, 3, 5, 6)
        yield case("each step starts from the previous state", "walk", 3, 6, 2, 4, 5)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, d, d_h, d_y in ((1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 2, 1), (3, 1, 2, 3)):
            for _ in range(3):
                names, shapes = ("W_x", "W_h", "W_y"), ((d_h, d), (d_h, d_h), (d_y, d_h))
                weights = {n: draw.small(*shape) for n, shape in zip(names, shapes, strict=True)}
                yield Case("a small example", "update", {"x": draw.small(2, T, d), **weights})
        yield from self.cases(draw)


def _read_closed(output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """h_T (B, d_h), y_T (B, d_y) or all outputs (B, T, d_y), by its width."""
    output = output[0] if isinstance(output, tuple) else output
    width = getattr(output, "shape", (0,))[-1]
    if len(getattr(output, "shape", ())) == 3:
        output = output[:, -1]
    return {"closed_state" if width == len(inputs["W_h"]) else "closed_output": output}

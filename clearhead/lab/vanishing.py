"""How much the first input still matters after T inputs.

    linear RNN    ∂y_T/∂x_k = W_y W_h^{T−k} W_x                           T−k factors W_h
    attention     ∂y_T/∂x_k = weight_k (W_v + (v_k − y_T) ∂score_k/∂x_k)  k < T: one weight

What is left of x_1 is ‖∂y_T/∂x_1‖ (Frobenius norm) divided by the same at T = 1. Its share is
‖∂y_T/∂x_1‖ / Σ_k ‖∂y_T/∂x_k‖. W_h is a random matrix, scaled so that its largest eigenvalue has a
given modulus. Attention gives all inputs the same score, or its query asks for a mark that only x_1
has.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.attention import SelfAttention
from clearhead.inspection.picture import Picture
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.drawing import NOTE, Axes, line_style, panels
from clearhead.lab.tools.finding import Finding, Table, wrap
from clearhead.layers import LinearRNN

D = 16  # width of inputs, state and outputs
RADII = {"rnn_0.9": 0.9, "rnn_1.0": 1.0, "rnn_1.1": 1.1}  # |largest eigenvalue| of W_h
NAMES = {model: f"RNN, eigenvalue {radius}" for model, radius in RADII.items()} | {
    "attention_even": "attention, even scores",
    "attention_asked": "attention, asks for x₁",
}
STRENGTH = 10.0  # the score of the marked key; all others have the score 0
MARK = 0  # the feature that only x_1 has

Curves = Mapping[str, Mapping[int, float]]  # model → T → a number


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Differentiate an RNN and attention by their inputs; in float64, so on the CPU."""
    longest = 1000 if full else 200
    shown = [longest // 20, longest // 4, longest // 2, longest]
    lengths = sorted({1, 2, 4, 7, *range(longest // 20, longest + 1, longest // 20)})
    generator = torch.Generator().manual_seed(seed)
    x, matrices = _random_inputs(longest, generator), _random(3, D, D, generator=generator)
    rnns = {model: linear_rnn(radius, matrices) for model, radius in RADII.items()}
    models = {model: _last_output(rnn) for model, rnn in rnns.items()}
    models["attention_even"] = attention(0.0, matrices[0])
    models["attention_asked"] = attention(STRENGTH, matrices[0])
    left: dict[str, dict[int, float]] = {model: {} for model in models}
    share: dict[str, dict[int, float]] = {model: {} for model in models}
    for model, read in models.items():
        alone = influences(read, x[:1])[0]
        for T in lengths:
            norms = influences(read, x[:T])  # (T,)
            left[model][T] = (norms[0] / alone).item()
            share[model][T] = (norms[0] / norms.sum()).item()
    numbers = {
        **{f"left_{model}": [left[model][T] for T in shown] for model in models},
        **{f"share_{model}": [share[model][T] for T in shown] for model in models},
        "growth_per_step": [_growth(left[model]) for model in rnns],
        "steps_minus_closed_form": [_difference(rnn, x) for rnn in rnns.values()],
    }
    return Finding(
        claim=EXPERIMENTS["vanishing"],
        tables=_tabulate(numbers, shown),
        seen=_describe(numbers, longest),
        numbers=numbers,
        picture=_draw(left, share),
    )


# The models


def _random(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _random_inputs(T: int, generator: torch.Generator) -> Tensor:
    """x (T, D); only the first input has the mark."""
    x = _random(T, D, generator=generator)
    x[:, MARK] = 0.0
    x[0, MARK] = 1.0
    return x


def linear_rnn(radius: float, matrices: Tensor) -> LinearRNN:
    """An RNN with W_x, W_y and, scaled to this largest eigenvalue, W_h from matrices (3, D, D)."""
    w_x, w_y, w_h = matrices
    w_h = w_h * radius / torch.linalg.eigvals(w_h).abs().max()
    rnn = LinearRNN(D, D, D, bias=False)
    for layer, weight in ((rnn.input, w_x), (rnn.output, w_y), (rnn.hidden, w_h)):
        layer.weight = nn.Parameter(weight, requires_grad=False)
    return rnn


def _last_output(rnn: LinearRNN) -> Callable[[Tensor], Tensor]:
    return lambda x: rnn(x[None])[0][0, -1]


def attention(strength: float, w_v: Tensor) -> Callable[[Tensor], Tensor]:
    """x (T, D) → y_T (D,) by one head. A key with the mark has the score `strength`, others 0."""
    head = SelfAttention(D, 1, D).double().requires_grad_(False)
    for parameter in head.parameters():
        parameter.zero_()
    head.proj_q.bias[0] = strength
    head.proj_k.weight[0, MARK] = 1.0
    head.proj_v.weight.copy_(w_v)
    return lambda x: head(x[None])[0, -1]


# The measures


def influences(read: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """‖∂y_T/∂x_k‖ for every k: x (T, D) → (T,), by differentiation through the model."""
    jacobian: Tensor = torch.func.jacrev(read)(x)  # (D, T, D)
    return torch.linalg.vector_norm(jacobian, dim=(0, 2))


def _growth(left: Mapping[int, float]) -> float:
    """The factor by which each step multiplies, fitted over the second half of the lengths."""
    lengths = [T for T in left if max(left) / 2 <= T]
    slope: float = np.polyfit(lengths, np.log([left[T] for T in lengths]), 1)[0]
    return float(np.exp(slope))


def _difference(rnn: LinearRNN, x: Tensor) -> float:
    """Of the last state, step by step minus in closed form, relative to its largest entry."""
    steps, closed = rnn(x[None])[1][:, -1], rnn.closed_form(x[None])
    return ((steps - closed).abs().max() / closed.abs().max()).item()


# Tables and sentences


def _tabulate(numbers: Mapping[str, list[float]], shown: list[int]) -> list[Table]:
    columns = ["", *(f"T = {T}" for T in shown)]
    captions = {
        "left": "What is left of x₁: ‖∂y_T/∂x₁‖ divided by the same at T = 1.",
        "share": "The share of x₁: ‖∂y_T/∂x₁‖ / Σ_k ‖∂y_T/∂x_k‖.",
    }
    return [
        *(
            Table(caption, columns, [[name, *numbers[f"{what}_{m}"]] for m, name in NAMES.items()])
            for what, caption in captions.items()
        ),
        Table.from_columns(
            f"The RNN: growth of ‖∂y_T/∂x₁‖ with each step from T = {shown[-2]} on; h_T step by "
            f"step against\nthe closed form Σ_k W_h^(T−k) W_x x_k at T = {shown[-1]} (float64, "
            f"largest difference / largest entry).",
            ("largest eigenvalue", map(str, RADII.values())),
            ("growth per step", map("{:.4f}".format, numbers["growth_per_step"])),
            ("steps − closed form", map("{:.1e}".format, numbers["steps_minus_closed_form"])),
        ),
    ]


def _describe(numbers: Mapping[str, list[float]], longest: int) -> str:
    small, one, large = (numbers[f"left_{model}"][-1] for model in RADII)
    even, asked = numbers["share_attention_even"][-1], numbers["share_attention_asked"][-1]
    return wrap(
        f"After {longest} inputs the first has {small:.1e} of its influence on the RNN's output "
        f"with the eigenvalue 0.9, {one:.2f} with 1.0 and {large:.1e} with 1.1.",
        f"In attention its share is 1/{1 / even:.0f} when all scores are even, and {asked:.2f} "
        f"when it is what the query asks for.",
    )


# The picture


def _draw(left: Curves, share: Curves) -> Picture:
    with panels(9.6, 3.9, 2) as (figure, (first, second)):
        _draw_curves(first, left)
        _draw_curves(second, share)
        first.set(title="In an RNN the first input vanishes or explodes")
        first.set(ylabel="‖∂y$_T$/∂x$_1$‖, 1 at T = 1")
        second.set(title="In attention its share depends on the content")
        second.set(ylabel="share of x$_1$ in y$_T$")
        _annotate(first, left["rnn_1.1"], "× 1.1 each step", (-6, 6))
        _annotate(first, left["rnn_0.9"], "× 0.9 each step", (6, 6))
        _annotate(second, share["attention_even"], "1/T", (0, -16))
        second.legend(loc="lower left", frameon=False)
    return Picture(
        figure,
        "What is left of the first input and its share among all inputs, over the number of inputs "
        "read, for a linear RNN of three largest eigenvalues and for attention",
    )


def _draw_curves(axes: Axes, curves: Curves) -> None:
    for order, (model, curve) in enumerate(curves.items()):
        marks = slice(4 + order, None, 5)  # at different T, since some lines coincide
        look = line_style(order, markevery=marks, label=NAMES[model])
        axes.plot(list(curve), list(curve.values()), **look)
    axes.set(yscale="log", xlabel="T (inputs read)")
    axes.margins(x=0.01)


def _annotate(
    axes: Axes, curve: Mapping[int, float], words: str, offset: tuple[float, float]
) -> None:
    """Words beside the curve, at two thirds of its length; offset in points from there."""
    T = list(curve)[2 * len(curve) // 3]
    side = "right" if offset[0] < 0 else "left"
    axes.annotate(words, (T, curve[T]), offset, textcoords="offset points", ha=side, **NOTE)

"""The linear recurrent network: a state that is multiplied by the same matrix at every step.

    h_t = φ(W_h h_{t−1} + W_x x_t + b_h)        the state
    y_t = φ_y(W_y h_t + b_y)                    the output

With φ the identity the steps can be multiplied out:

    h_T = Σ_k W_h^{T−k} (W_x x_k + b_h)

The first input reaches the last state through T−1 factors W_h, so its influence vanishes or
explodes with the largest eigenvalue.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.shapes import (
    check_float_tensor,
    check_last_axis,
    check_positive,
    format_shape,
)

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}


def matrix_powers(matrix: Tensor, n: int) -> Tensor:
    """(D, D) → (n, D, D): the powers 0 … n−1, in log₂ n products of whole stacks."""
    powers = torch.eye(matrix.size(0), dtype=matrix.dtype, device=matrix.device)[None]
    square = matrix  # matrix to the power len(powers)
    while powers.size(0) < n:
        powers = torch.cat((powers, powers @ square))
        square = square @ square
    return powers[:n]


class LinearRNN(nn.Module):
    """`input` holds W_x and b_h, `hidden` W_h alone, `output` W_y and b_y."""

    def __init__(
        self,
        d_input: int,
        d_hidden: int,
        d_output: int,
        *,
        activation: str | Activation | None = None,
        output_activation: str | Activation | None = None,
        bias: bool = True,
    ) -> None:
        """activation φ and output_activation φ_y: None for the identity, "tanh", "relu", "sigmoid",
        or any element-wise function of a tensor, such as torch.sin or a module."""
        super().__init__()
        check_positive(d_input=d_input, d_hidden=d_hidden, d_output=d_output)
        _check_activation("activation", activation)
        _check_activation("output_activation", output_activation)
        self.d_input, self.d_hidden = d_input, d_hidden
        self.activation, self.output_activation = activation, output_activation
        # b_h belongs to the input layer, which serves all steps in one product.
        self.input = nn.Linear(d_input, d_hidden, bias=bias)
        self.hidden = nn.Linear(d_hidden, d_hidden, bias=False)
        self.output = nn.Linear(d_hidden, d_output, bias=bias)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (B, T, d_input), state h_0 (B, d_hidden) or None = zeros, step by step.

        Returns outputs (B, T, d_output) and states (B, T, d_hidden); states[:, -1] is the state
        from which a next call continues.
        """
        inputs = self._project_inputs(x)  # (B, T, d_hidden)
        if state is None:
            state = inputs.new_zeros(x.size(0), self.d_hidden)
        self._check_state(state, x)
        states = []
        for step in inputs.unbind(1):
            state = _activate(self.activation, torch.addmm(step, state, self.hidden.weight.mT))
            states.append(state)
        h = torch.stack(states, dim=1) if states else inputs
        return _activate(self.output_activation, self.output(h)), h

    def closed_form(self, x: Tensor) -> Tensor:
        """x (B, T, d_input) → the last state h_T (B, d_hidden), h_0 = 0, as one sum."""
        if self.activation is not None:
            raise ValueError(
                f"the closed form needs the identity between steps, but activation is "
                f"{self.activation!r}; build LinearRNN(..., activation=None) or call forward"
            )
        inputs = self._project_inputs(x)
        powers = matrix_powers(self.hidden.weight, x.size(1)).flip(0)  # W_h^{T−1} … W_h^0
        return (powers @ inputs.permute(1, 2, 0)).sum(0).mT  # (T, D, D) @ (T, D, B), summed over T

    def _project_inputs(self, x: Tensor) -> Tensor:
        """W_x x_t + b_h for every step."""
        check_last_axis("x", x, "d_input", self.d_input, min_axes=3, like=self.input.weight)
        return self.input(x)

    def _check_state(self, state: Tensor, x: Tensor) -> None:
        check_float_tensor("state", state)
        if state.shape != (x.size(0), self.d_hidden):
            raise ValueError(
                f"state must have shape (B, d_hidden) = {(x.size(0), self.d_hidden)}, "
                f"got {format_shape(state)}"
            )


def _check_activation(name: str, activation: str | Activation | None) -> None:
    if isinstance(activation, type):
        raise TypeError(
            f"{name} must be a function of a tensor, got the class {activation.__name__}; "
            f"give an instance: {activation.__name__}()"
        )
    if activation in (None, *ACTIVATIONS) or callable(activation):
        return
    names = ", ".join(map(repr, ACTIVATIONS))
    raise ValueError(f"{name} must be one of {names} or a function, got {activation!r}")


def _activate(activation: str | Activation | None, x: Tensor) -> Tensor:
    if activation is None:
        return x
    if isinstance(activation, str):
        return ACTIVATIONS[activation](x)
    y = activation(x)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        given = f"shape {format_shape(y)}" if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(
            f"an activation must be element-wise, a tensor of shape {format_shape(x)} from one of "
            f"that shape, but this function gave {given}"
        )
    return y

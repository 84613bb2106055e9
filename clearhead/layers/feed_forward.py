"""The feed-forward layer: each token by itself, through a wider space.

    y = φ(x W₁ + b₁) W₂ + b₂                    φ: ReLU, GELU, or ReLU² (So et al. 2021)
    y = (SiLU(x W_g) ⊙ (x W₁)) W₂               "swiglu", a gate beside the layer (Shazeer 2020)

With bias=False it is φ(x W₁) W₂ and nothing else. GELU is x Φ(x), Φ the normal distribution;
"gelu_tanh" is the approximation by tanh that GPT-2 was trained with.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, relu, silu

from clearhead.shapes import check_choice, check_dropout, check_last_axis, check_positive


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)²."""
    return relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
    "squared_relu": squared_relu,
    "swiglu": silu,
}


class FeedForward(nn.Module):
    """Two linear layers around an activation; "swiglu" has a third, the gate."""

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        *,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """d_ff: the inner width, 4·d_model unless given; dropout: on the inner values."""
        super().__init__()
        d_ff = 4 * d_model if d_ff is None else d_ff
        check_positive(d_model=d_model, d_ff=d_ff)
        check_choice("activation", activation, tuple(ACTIVATIONS))
        check_dropout(dropout)
        self.d_model, self.activation, self.dropout = d_model, activation, dropout
        self.proj_in = nn.Linear(d_model, d_ff, bias=bias)
        self.proj_gate = nn.Linear(d_model, d_ff, bias=bias) if activation == "swiglu" else None
        self.proj_out = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) → (..., D), token by token."""
        check_last_axis("x", x, "d_model", self.d_model, like=self.proj_in.weight)
        activate = ACTIVATIONS[self.activation]
        inner = self.proj_in(x)  # (..., F)
        inner = activate(inner) if self.proj_gate is None else activate(self.proj_gate(x)) * inner
        return self.proj_out(dropout(inner, self.dropout, self.training))

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}" + (
            f", dropout={self.dropout}" if self.dropout else ""
        )

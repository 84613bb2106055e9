"""The protocol of position schemes: each does one of three things, and nothing else."""

import pytest
import torch
from torch import nn

from clearhead.attention import MultiHeadAttention
from clearhead.positions import (
    AlibiBias,
    LearnedPositions,
    PositionScheme,
    RotaryPositions,
    SinusoidalPositions,
    ToeplitzBias,
)
from clearhead.positions.rotary import rotations

H, D, T, S = 3, 12, 5, 7
Dh = D // H
SCHEMES = {
    "learned": LearnedPositions(T, D),
    "sinusoidal": SinusoidalPositions(D),
    "rotary": RotaryPositions(Dh),
    "toeplitz": ToeplitzBias(H, S),
    "alibi": AlibiBias(H),
    "none": PositionScheme(),
}
ACTS_ON = {"learned": "x", "sinusoidal": "x", "rotary": "q and k"}
ACTS_ON |= {"toeplitz": "scores", "alibi": "scores", "none": "nothing"}


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_does_one_thing_and_nothing_else(name):
    scheme, x, q = SCHEMES[name], torch.randn(2, T, D), torch.randn(2, H, T, Dh)
    assert scheme.acts_on == ACTS_ON[name]
    for value, does, same in (
        ("x", scheme.add(x), x),
        ("q and k", scheme.rotate(q), q),
        ("scores", scheme.bias(T, S), None),
    ):
        if scheme.acts_on != value:
            assert does is same
        elif value == "scores":
            assert torch.equal(does, scheme(T, S))
        else:
            assert torch.equal(does, scheme(same))
            assert not torch.equal(does, same)


@pytest.mark.parametrize("name", ["learned", "sinusoidal", "rotary"])
def test_positions_reach_the_scheme(name):
    scheme, where = SCHEMES[name], torch.tensor([3, 1, 4, 0, 2])
    x = torch.randn(2, T, D) if scheme.acts_on == "x" else torch.randn(2, H, T, Dh)
    act = scheme.add if scheme.acts_on == "x" else scheme.rotate
    assert torch.equal(act(x, where), scheme(x, positions=where))
    assert not torch.equal(act(x, where), scheme(x))


@pytest.mark.parametrize("name", SCHEMES)
def test_only_rotary_positions_have_a_rotation_table(name):
    table = SCHEMES[name].rotation_table(S, torch.float32, torch.device("cpu"))
    if name == "rotary":
        assert torch.equal(table, rotations(torch.arange(S), Dh, 10000.0).float())
    else:
        assert table is None


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_knows_whether_it_has_a_limit(name):
    assert SCHEMES[name].has_limit == (name in ("learned", "toeplitz"))


class Recency(PositionScheme):
    """A scheme of somebody else: a learned penalty for every step back, the same for all heads."""

    acts_on = "scores"

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(-0.5))

    def forward(self, T, S=None):
        S = T if S is None else S
        steps = torch.arange(S - T, S)[:, None] - torch.arange(S)
        return self.rate * steps.expand(H, T, S)


def test_a_new_scheme_is_one_class():
    attention, x = MultiHeadAttention(D, H, positions=Recency()), torch.randn(2, T, D)
    output = attention(x)
    output.sum().backward()
    assert attention.positions.rate.grad.abs() > 0
    plain = MultiHeadAttention(D, H)
    plain.load_state_dict(attention.state_dict(), strict=False)
    assert torch.allclose(output, plain(x, bias=attention.positions(T)), atol=1e-6)

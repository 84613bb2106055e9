"""RotaryPositions: turns that keep lengths and tell scores only how far apart two tokens stand."""

import math

import pytest
import torch
from llama_loops import slow_as_llama3

from clearhead.attention.masks import Mask
from clearhead.positions import RotaryPositions

B, H, T, DH = 2, 3, 5, 8
LLAMA3 = (8.0, 1.0, 4.0, 30)  # factor, low, high, length


def loop(x, positions, base=10000.0, scale=lambda frequency: frequency):
    """The definition for x (B, H, T, Dh), pair by pair; positions is a nested list (B, T)."""
    y = torch.empty_like(x)
    half = x.size(-1) // 2
    for b in range(x.size(0)):
        for h in range(x.size(1)):
            for t in range(x.size(2)):
                for i in range(half):
                    angle = positions[b][t] * scale(base ** (-2 * i / x.size(-1)))
                    first, second = x[b, h, t, i], x[b, h, t, i + half]
                    y[b, h, t, i] = first * math.cos(angle) - second * math.sin(angle)
                    y[b, h, t, i + half] = second * math.cos(angle) + first * math.sin(angle)
    return y


def heads(dtype=torch.float64):
    return torch.randn(B, H, T, DH, dtype=dtype)


def test_a_quarter_turn_by_hand():
    rotary = RotaryPositions(2, base=1.0)
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    expected = torch.tensor([[1.0, 0.0], [math.cos(1), math.sin(1)]])
    assert torch.allclose(rotary(x), expected)


@pytest.mark.parametrize("base", [10000.0, 50.0])
def test_every_pair_is_turned_by_its_own_angle(base):
    x = heads()
    expected = loop(x, [list(range(T))] * B, base)
    assert torch.allclose(RotaryPositions(DH, base=base)(x), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("positions", [[[3, 0, 300, 7, 7]] * B, [[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]])
def test_given_positions_choose_the_angles(positions):
    x, rotary, given = heads(), RotaryPositions(DH), torch.tensor(positions)
    expected = loop(x, positions)
    assert torch.allclose(rotary(x, positions=given), expected, rtol=0, atol=1e-13)
    one = rotary(x[:1], positions=given[0])
    assert torch.allclose(one, expected[:1], rtol=0, atol=1e-13)
    without_heads = rotary(x[:, 1], positions=given)
    assert torch.allclose(without_heads, expected[:, 1], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("scaling", "scale"),
    [
        (4.0, lambda frequency: frequency / 4.0),
        (LLAMA3, lambda frequency: slow_as_llama3(frequency, *LLAMA3)),
    ],
    ids=["linear", "llama3"],
)
def test_scaled_angles_are_those_of_the_definition(scaling, scale):
    width = 16
    slowed = [scale(7.0 ** (-2 * i / width)) / 7.0 ** (-2 * i / width) for i in range(width // 2)]
    assert isinstance(scaling, float) or {1, 1 / 8} < {round(ratio, 9) for ratio in slowed}
    x, rotary = (
        torch.randn(B, H, T, width).double(),
        RotaryPositions(width, base=7, scaling=scaling),
    )
    plain = [list(range(T))] * B
    assert torch.allclose(rotary(x), loop(x, plain, 7.0, scale), rtol=0, atol=1e-13)
    for positions in ([[3, 0, 300, 7, 7]] * B, [[5000, 0, 4, 9, 1]] * B):  # a table, and none
        given = torch.tensor(positions)
        expected = loop(x, positions, 7.0, scale)
        assert torch.allclose(rotary(x, positions=given), expected, rtol=0, atol=1e-11)


def test_a_scaling_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"scaling must be a finite number above 0, got -1"):
        RotaryPositions(DH, scaling=-1)
    with pytest.raises(ValueError, match=r"\(factor, low, high, length\), got 2 numbers"):
        RotaryPositions(DH, scaling=(8.0, 1.0))
    with pytest.raises(ValueError, match=r"high must be above low, got high=1.0 and low=4.0"):
        RotaryPositions(DH, scaling=(8.0, 4.0, 1.0, 8192))
    with pytest.raises(ValueError, match=r"length must be at least 1, got 0"):
        RotaryPositions(DH, scaling=(8.0, 1.0, 4.0, 0))
    assert "scaling=2.0" in repr(RotaryPositions(DH, scaling=2.0))


def test_lengths_stay():
    x = heads()
    y = RotaryPositions(DH)(x, positions=torch.tensor([9, 0, 4, 1000, 2]))
    assert torch.allclose(y.norm(dim=-1), x.norm(dim=-1))


def test_position_0_changes_nothing():
    x = heads()
    assert torch.equal(RotaryPositions(DH)(x)[..., 0, :], x[..., 0, :])
    assert torch.equal(RotaryPositions(DH)(x, positions=torch.zeros(T).long()), x)


def test_scores_depend_on_the_difference_of_positions_only():
    rotary, q, k = RotaryPositions(DH), heads(), heads()
    here = torch.arange(T)

    def scores(shift):
        moved = here + shift
        return rotary(q, positions=moved) @ rotary(k, positions=moved).mT

    assert torch.allclose(scores(0), scores(17), rtol=0, atol=1e-12)
    assert not torch.allclose(scores(0), q @ k.mT, atol=0.1)


def test_left_padded_and_cached_tokens_are_turned_as_if_alone():
    rotary, x = RotaryPositions(DH), heads()
    real = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]).bool()
    y = rotary(x, positions=Mask.tokens(real).positions(T))
    assert torch.equal(y[1, :, 2:], rotary(x[1, :, 2:]))
    for t in range(T):
        step = rotary(x[:, :, t : t + 1], positions=torch.tensor([t]))
        assert torch.equal(step, rotary(x)[:, :, t : t + 1])


def test_gradients_are_those_of_the_definition():
    rotary = RotaryPositions(4)
    x = torch.randn(2, 1, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(rotary, x)
    positions = [[5, 1, 0], [2, 2, 9]]
    given, seen = torch.tensor(positions), torch.randn(2, 1, 3, 4, dtype=torch.float64)
    (ours,) = torch.autograd.grad(rotary(x, positions=given), x, seen)
    (reference,) = torch.autograd.grad(loop(x, positions), x, seen)
    assert torch.allclose(ours, reference)


@pytest.mark.parametrize("width", range(1, 10))
def test_odd_widths_are_refused_and_even_ones_turn(width):
    if width % 2:
        with pytest.raises(
            ValueError, match=f"d_head must be even.* got {width}; take d_head={width + 1}"
        ):
            RotaryPositions(width)
    else:
        assert RotaryPositions(width)(torch.ones(T, width)).shape == (T, width)


def test_other_mistakes_are_refused():
    rotary = RotaryPositions(DH)
    with pytest.raises(ValueError, match=r"x has width 6 .* but d_head is 8"):
        rotary(torch.zeros(T, 6))
    with pytest.raises(ValueError, match="base must be a finite number above 0, got 0"):
        RotaryPositions(DH, base=0)
    with pytest.raises(ValueError, match="positions must not be negative, got -2"):
        rotary(heads(), positions=torch.arange(-2, 3))
    with pytest.raises(TypeError, match="positions must hold integers"):
        rotary(heads(), positions=torch.arange(5.0))
    with pytest.raises(ValueError, match=r"shape \(5,\) for x \(5, 8\), got \(2, 5\)"):
        rotary(torch.zeros(T, DH), positions=torch.zeros(B, T).long())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_turned_in_float32_and_rounded_once(dtype):
    x = heads(dtype)
    y = RotaryPositions(DH)(x, positions=torch.tensor([0, 900, 3, 70, 5]))
    exact = RotaryPositions(DH)(x.double(), positions=torch.tensor([0, 900, 3, 70, 5]))
    assert y.dtype == dtype
    rounding = torch.finfo(dtype).eps / 2
    assert ((y.double() - exact).abs() <= rounding * exact.abs() + 1e-6).all()


def test_strided_inputs_give_the_same_and_stay_unchanged():
    x = heads(torch.float32)
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(RotaryPositions(DH)(strided), RotaryPositions(DH)(x))
    expanded = torch.randn(1, 1, T, DH).expand(B, H, T, DH)
    y = RotaryPositions(DH)(expanded)
    assert torch.equal(y, RotaryPositions(DH)(expanded.contiguous()))
    assert x._version == expanded._version == 0


@pytest.mark.parametrize("shape", [(0, H, T, DH), (B, H, 0, DH), (0, DH)])
def test_empty_sizes_keep_their_shape(shape):
    rotary, x = RotaryPositions(DH), torch.zeros(shape)
    assert rotary(x).shape == shape
    assert rotary(x, positions=torch.arange(shape[-2])).shape == shape


def test_a_table_made_in_inference_or_by_a_tracer_does_not_spoil_training():
    rotary, x = RotaryPositions(DH, base=31.0), heads()
    with torch.inference_mode():
        rotary(x)
    x.requires_grad_()
    rotary(x).sum().backward()
    traced = RotaryPositions(DH, base=32.0)
    program = torch.export.export(traced, (x.detach(),))
    traced(x).sum().backward()
    assert torch.allclose(program.module()(x), traced(x))


def test_a_compiled_module_says_the_same():
    torch._dynamo.reset()
    rotary, x, positions = RotaryPositions(DH), heads(), torch.tensor([[4, 0, 2, 2, 9]] * B)
    compiled = torch.compile(rotary, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(x), rotary(x))
    assert torch.allclose(compiled(x, positions=positions), rotary(x, positions=positions))


def test_the_module_has_nothing_to_save():
    assert not RotaryPositions(DH).state_dict()


def test_a_few_positions_far_away_need_no_table() -> None:
    from clearhead.positions.tables import count_rows

    assert count_rows(torch.tensor([3, 100])) == 101
    assert count_rows(torch.tensor([2_000_000])) is None
    x = torch.randn(1, 2, 1, 6, dtype=torch.float64)
    far, near = (RotaryPositions(6)(x, positions=torch.tensor([p])) for p in (2_000_000, 0))
    torch.testing.assert_close(far.norm(dim=-1), near.norm(dim=-1))


def test_what_a_tracer_makes_is_not_kept_for_others() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    rotary = RotaryPositions(26)
    with FakeTensorMode():
        rotary(torch.randn(1, 3, 26))
    assert rotary(torch.randn(1, 3, 26)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_positions_may_be_any_whole_numbers(dtype: torch.dtype) -> None:
    x, positions = torch.randn(2, 3, 6), torch.tensor([4, 0, 2])
    expected = RotaryPositions(6)(x, positions=positions)
    assert torch.equal(RotaryPositions(6)(x, positions=positions.to(dtype)), expected)

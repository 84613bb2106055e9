"""SinusoidalPositions: the published numbers, the formula by a loop, no limit on the length."""

import math

import pytest
import torch

from clearhead.attention.masks import Mask
from clearhead.positions import SinusoidalPositions, sinusoid_table

B, T, D = 2, 5, 6


def pe(pos, column, d):
    """The definition of one number."""
    angle = pos / 10000 ** (2 * (column // 2) / d)
    return math.cos(angle) if column % 2 else math.sin(angle)


def loop(n, d):
    return torch.tensor([[pe(p, c, d) for c in range(d)] for p in range(n)], dtype=torch.float64)


def digits(numbers):
    return [f"{number:.4f}" for number in numbers.tolist()]


def published_input():
    return (0.01 * torch.arange(1, 513.0)).expand(1, 4, 512)


def test_the_published_numbers_come_out_to_the_printed_digit():
    y = SinusoidalPositions(512, scale_input=True)(published_input())
    assert digits(y[0, 0, :5]) == ["0.2263", "1.4525", "0.6788", "1.9051", "1.1314"]
    assert digits(y[0, 1, :5]) == ["1.0677", "0.9929", "1.5007", "1.4748", "1.9333"]
    assert digits(y[0, 2, -5:]) == ["115.9473", "115.1738", "116.3998", "115.6263", "116.8524"]


def test_another_base_gives_waves_of_other_lengths():
    table = sinusoid_table(T, D, torch.float64, base=50.0)
    angle = torch.arange(T)[:, None] / 50 ** (torch.arange(0, D, 2).double() / D)
    torch.testing.assert_close(table[:, ::2], angle.sin())
    torch.testing.assert_close(table[:, 1::2], angle.cos())


def test_the_well_known_wrong_version_gives_other_numbers():
    def wrong(pos, column):
        angle = pos / 10000 ** (2 * column / 512)
        return math.cos(angle) if column % 2 else math.sin(angle)

    x = published_input()[0, 1, :5] * math.sqrt(512)
    y = x + torch.tensor([wrong(1, column) for column in range(5)])
    assert digits(y) == ["1.0677", "1.0222", "1.4808", "1.5285", "1.8931"]
    ours = SinusoidalPositions(512, scale_input=True)(published_input())[0, 1, :5]
    assert digits(y)[1:] != digits(ours)[1:]


@pytest.mark.parametrize("d", range(1, 10))
def test_every_width_follows_the_formula_odd_ones_too(d):
    table = sinusoid_table(T, d, dtype=torch.float64)
    assert table.shape == (T, d)
    assert torch.allclose(table, loop(T, d), rtol=0, atol=1e-14)
    y = SinusoidalPositions(d)(torch.zeros(B, T, d, dtype=torch.float64))
    assert torch.equal(y, table.expand(B, T, d))


def test_far_positions_are_exact_to_the_last_bit_of_float32():
    x = torch.zeros(1, 1, D)
    y = SinusoidalPositions(D)(x, positions=torch.tensor([100_003]))
    expected = torch.tensor([pe(100_003, column, D) for column in range(D)])
    assert torch.allclose(y[0, 0], expected, rtol=0, atol=6e-8)


def test_the_table_grows_and_says_the_same():
    sinusoidal, x = SinusoidalPositions(D), torch.randn(1, 1000, D)
    short = sinusoidal(x[:, :3])
    assert torch.equal(sinusoidal(x)[:, :3], short)
    assert torch.allclose(sinusoidal(x) - x, loop(1000, D).float(), rtol=0, atol=1e-6)


def test_the_input_is_scaled_only_when_asked():
    x = torch.randn(B, T, D)
    assert torch.equal(SinusoidalPositions(D)(x), x + sinusoid_table(T, D))
    scaled = SinusoidalPositions(D, scale_input=True)(x)
    assert torch.equal(scaled, x * math.sqrt(D) + sinusoid_table(T, D))


def test_dropout_acts_on_the_sum_in_training_only():
    x = torch.randn(B, 200, D)
    sinusoidal = SinusoidalPositions(D, dropout=0.4)
    whole = sinusoidal.eval()(x)
    assert torch.equal(whole, SinusoidalPositions(D)(x))
    dropped = sinusoidal.train()(x)
    kept = dropped != 0
    assert torch.allclose(dropped[kept], whole[kept] / 0.6)
    assert kept.float().mean().item() == pytest.approx(0.6, abs=0.06)
    assert not SinusoidalPositions(D, dropout=1.0)(x).any()


def test_max_len_is_a_limit_only_when_given():
    assert SinusoidalPositions(D)(torch.zeros(1, 9, D)).shape == (1, 9, D)
    limited = SinusoidalPositions(D, max_len=8)
    assert limited(torch.zeros(1, 8, D)).shape == (1, 8, D)
    with pytest.raises(ValueError, match="x has length 9 but max_len is 8"):
        limited(torch.zeros(1, 9, D))
    with pytest.raises(ValueError, match=r"positions reach 8, .* but max_len is 8"):
        limited(torch.zeros(1, 1, D), positions=torch.tensor([8]))


def test_left_padded_tokens_stand_where_they_would_stand_alone():
    sinusoidal, x = SinusoidalPositions(D), torch.randn(B, T, D)
    real = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]).bool()
    y = sinusoidal(x, positions=Mask.tokens(real).positions(T))
    assert torch.equal(y[1, 2:], sinusoidal(x[1:, 2:])[0])
    assert torch.equal(y[0], sinusoidal(x[:1])[0])


def test_a_token_after_a_cache_gets_what_it_would_get_in_the_whole():
    sinusoidal, x = SinusoidalPositions(D), torch.randn(B, T, D)
    for t in range(T):
        step = sinusoidal(x[:, t : t + 1], positions=torch.tensor([t]))
        assert torch.equal(step, sinusoidal(x)[:, t : t + 1])


@pytest.mark.parametrize("positions", [torch.arange(5.0), torch.arange(4), torch.arange(-1, 4)])
def test_wrong_positions_are_refused(positions):
    with pytest.raises((TypeError, ValueError), match="positions must"):
        SinusoidalPositions(D)(torch.zeros(B, T, D), positions=positions)


def test_what_is_wrong_at_construction_is_refused():
    with pytest.raises(ValueError, match="d_model must be at least 1, got 0"):
        SinusoidalPositions(0)
    with pytest.raises(ValueError, match="max_len must be at least 1, got 0"):
        SinusoidalPositions(D, max_len=0)
    with pytest.raises(ValueError, match=r"dropout must be a finite number from 0 to 1, got 1\.5"):
        SinusoidalPositions(D, dropout=1.5)
    with pytest.raises(ValueError, match=r"x has width 5 .* but d_model is 6"):
        SinusoidalPositions(D)(torch.zeros(B, T, 5))


def test_a_table_made_in_inference_serves_training_later():
    sinusoidal = SinusoidalPositions(11)  # a width of its own, so that this call makes the table
    with torch.inference_mode():
        sinusoidal(torch.zeros(1, 3, 11))
    x = torch.zeros(1, 3, 11, requires_grad=True)
    (sinusoidal(x) * x.detach()).sum().backward()
    assert x.grad is not None


def test_nobody_can_write_into_the_cached_table():
    first = SinusoidalPositions(D)(torch.zeros(1, 3, D))
    first.fill_(9.0)
    sinusoid_table(3, D).fill_(9.0)
    y = SinusoidalPositions(D)(torch.zeros(1, 3, D))
    assert torch.allclose(y[0], loop(3, D).float())


def test_a_compiled_module_says_the_same_and_leaves_no_traces():
    torch._dynamo.reset()
    sinusoidal, x = SinusoidalPositions(13), torch.randn(B, T, 13)
    compiled = torch.compile(sinusoidal, backend="eager", fullgraph=True)
    positions = torch.tensor([4, 0, 2, 2, 9])
    assert torch.allclose(compiled(x), sinusoidal(x))
    assert torch.allclose(compiled(x, positions=positions), sinusoidal(x, positions=positions))


def test_the_module_has_nothing_to_save():
    assert not SinusoidalPositions(D).state_dict()


@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D)])
def test_empty_sizes_keep_their_shape(shape):
    x = torch.zeros(shape)
    assert SinusoidalPositions(D)(x).shape == shape
    assert SinusoidalPositions(D)(x, positions=torch.zeros(shape[:2]).long()).shape == shape


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_input_s_dtype_is_kept_and_the_input_unchanged(dtype):
    x = torch.ones(B, T, D, dtype=dtype)
    y = SinusoidalPositions(D, scale_input=True)(x)
    assert y.dtype == dtype
    assert torch.equal(x, torch.ones_like(x))
    exact = math.sqrt(D) + loop(T, D)
    assert torch.allclose(y[0].double(), exact, atol=4 * torch.finfo(dtype).eps)

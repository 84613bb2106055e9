"""LearnedPositions: a row for each position, and no position without a row."""

import pytest
import torch

from clearhead.positions import LearnedPositions

B, T, D, MAX_LEN = 2, 5, 4, 7


def loop(x, weight, positions):
    """The definition, one number at a time; positions is a nested list (B, T)."""
    y = torch.empty_like(x)
    for b in range(x.size(0)):
        for t in range(x.size(1)):
            for d in range(x.size(2)):
                y[b, t, d] = x[b, t, d] + weight[positions[b][t], d]
    return y


def test_each_token_gets_the_row_of_its_place():
    learned, x = LearnedPositions(MAX_LEN, D), torch.randn(B, T, D)
    expected = loop(x, learned.weight.detach(), [list(range(T))] * B)
    assert torch.equal(learned(x), expected)


@pytest.mark.parametrize("positions", [[[3, 0, 6, 6, 1]] * B, [[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]])
def test_given_positions_choose_the_rows(positions):
    learned, x = LearnedPositions(MAX_LEN, D), torch.randn(B, T, D)
    given = torch.tensor(positions)
    expected = loop(x, learned.weight.detach(), positions)
    assert torch.equal(learned(x, positions=given), expected)
    assert torch.equal(learned(x[:1], positions=given[0]), expected[:1])


def test_a_token_after_a_cache_gets_what_it_would_get_in_the_whole():
    learned, x = LearnedPositions(MAX_LEN, D), torch.randn(B, MAX_LEN, D)
    for t in range(MAX_LEN):
        step = learned(x[:, t : t + 1], positions=torch.tensor([t]))
        assert torch.equal(step, learned(x)[:, t : t + 1])


def test_the_table_starts_small_and_different_in_every_row():
    torch.manual_seed(0)
    weight = LearnedPositions(300, 64).weight
    assert weight.shape == (300, 64)
    assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert weight.mean().item() == pytest.approx(0.0, abs=1e-3)


def test_the_gradient_of_a_row_counts_its_uses():
    learned = LearnedPositions(MAX_LEN, D).double()
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]])
    learned(x, positions=positions).sum().backward()
    uses = torch.bincount(positions.flatten(), minlength=MAX_LEN).double()
    assert torch.equal(learned.weight.grad, uses[:, None].expand(-1, D))
    assert torch.equal(x.grad, torch.ones_like(x))


def test_the_longest_input_is_max_len_and_one_more_is_refused():
    learned = LearnedPositions(MAX_LEN, D)
    assert learned(torch.zeros(B, MAX_LEN, D)).shape == (B, MAX_LEN, D)
    with pytest.raises(ValueError, match=r"x has length 8 but max_len is 7; .* max_len=8"):
        learned(torch.zeros(B, MAX_LEN + 1, D))


def test_a_position_without_a_row_is_refused_by_name():
    learned, x = LearnedPositions(MAX_LEN, D), torch.zeros(1, 2, D)
    assert learned(x, positions=torch.tensor([0, 6])).shape == x.shape
    with pytest.raises(ValueError, match=r"positions reach 7, .* length of 8, but max_len is 7"):
        learned(x, positions=torch.tensor([0, 7]))
    with pytest.raises(ValueError, match="positions must not be negative, got -1"):
        learned(x, positions=torch.tensor([-1, 0]))


@pytest.mark.parametrize(
    ("positions", "error", "words"),
    [
        (torch.arange(5.0), TypeError, "positions must hold integers, got torch.float32"),
        (torch.ones(5, dtype=torch.bool), TypeError, "positions must hold integers"),
        (list(range(5)), TypeError, "positions must be a torch.Tensor of integers, got list"),
        (torch.arange(4), ValueError, r"shape \(5,\) or \(2, 5\) .* got \(4,\)"),
        (torch.zeros(3, 5).long(), ValueError, r"shape \(5,\) or \(2, 5\) .* got \(3, 5\)"),
        (torch.arange(5, device="meta"), ValueError, "positions must be on the device of x"),
    ],
)
def test_wrong_positions_are_refused(positions, error, words):
    with pytest.raises(error, match=words):
        LearnedPositions(MAX_LEN, D)(torch.zeros(B, T, D), positions=positions)


def test_a_wrong_width_is_refused():
    with pytest.raises(ValueError, match=r"x has width 3 .* but d_model is 4"):
        LearnedPositions(MAX_LEN, D)(torch.zeros(B, T, 3))
    with pytest.raises(ValueError, match="max_len must be at least 1, got 0"):
        LearnedPositions(0, D)


@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D)])
def test_empty_sizes_keep_their_shape(shape):
    learned, x = LearnedPositions(MAX_LEN, D), torch.zeros(shape)
    assert learned(x).shape == shape
    assert learned(x, positions=torch.zeros(shape[:2]).long()).shape == shape


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_input_s_dtype_is_kept_and_the_input_unchanged(dtype):
    learned, x = LearnedPositions(MAX_LEN, D).to(dtype), torch.ones(B, T, D, dtype=dtype)
    assert learned(x).dtype == dtype
    assert torch.equal(x, torch.ones_like(x))
    assert x._version == 0

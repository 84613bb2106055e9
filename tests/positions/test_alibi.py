"""AlibiBias: the paper's slopes, and a penalty that grows with the distance."""

import pytest
import torch

from clearhead.positions import AlibiBias
from clearhead.positions.alibi import alibi_slopes


def test_the_slopes_of_eight_heads_are_the_paper_s():
    assert alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_sixteen_heads_interpolate_between_them():
    assert alibi_slopes(16)[:3] == pytest.approx([2**-0.5, 2**-1, 2**-1.5])
    assert alibi_slopes(16)[1::2] == alibi_slopes(8)


def test_other_numbers_of_heads_take_every_second_slope_of_the_next_power():
    assert alibi_slopes(1) == [2**-8]
    assert alibi_slopes(3) == pytest.approx([2**-4, 2**-8, 2**-2])
    assert alibi_slopes(6) == pytest.approx([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])
    for n_heads in range(1, 40):
        assert len(set(alibi_slopes(n_heads))) == n_heads


@pytest.mark.parametrize(("T", "S"), [(5, 5), (1, 7), (3, 7), (6, 2)])
def test_every_entry_is_minus_slope_times_distance(T, S):
    bias = AlibiBias(3)(T, S)
    assert bias.shape == (3, T, S)
    for h, slope in enumerate(alibi_slopes(3)):
        for t in range(T):
            for j in range(S):
                assert bias[h, t, j].item() == pytest.approx(-slope * abs(t + S - T - j))


def test_the_last_queries_have_the_last_rows_of_the_whole():
    alibi = AlibiBias(3)
    for T in range(1, 7):
        assert torch.equal(alibi(T, 6), alibi(6)[:, -T:])
    assert torch.equal(alibi(7)[:, 2:, 2:], alibi(5))


def test_its_numbers_are_added_after_the_division():
    assert AlibiBias.has_unscaled_bias is True


def test_nothing_is_learned_and_nothing_saved():
    alibi = AlibiBias(3)
    assert not list(alibi.parameters())
    assert not alibi.state_dict()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_bias_follows_the_module_s_dtype(dtype):
    assert AlibiBias(3).to(dtype)(4).dtype == dtype


@pytest.mark.parametrize(("T", "S"), [(0, 0), (0, 3), (3, 0)])
def test_empty_sizes_keep_their_shape(T, S):
    assert AlibiBias(3)(T, S).shape == (3, T, S)


def test_no_heads_are_refused():
    with pytest.raises(ValueError, match="n_heads must be at least 1, got 0"):
        AlibiBias(0)

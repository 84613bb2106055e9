"""Entropy, distance, rollout and class-token maps, worked by hand."""

import math

import numpy as np
import pytest
import torch

from clearhead.attention import MultiHeadAttention
from clearhead.inspection import class_token_map, distance, entropy, record, rollout
from clearhead.inspection.measures import name_layers

B, H, T, S = 2, 3, 5, 7


def weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1)


def test_entropy_is_zero_for_one_key_and_ln_s_for_all_alike() -> None:
    rows = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0]])
    expected = torch.tensor([0.0, math.log(4), math.log(2)])
    torch.testing.assert_close(entropy(rows), expected)


def test_entropy_of_an_empty_row_is_zero() -> None:
    assert torch.equal(entropy(torch.zeros(B, H, T, S)), torch.zeros(B, H, T))


def test_entropy_of_half_precision_is_summed_in_float32() -> None:
    half = torch.full((1, 4096), 1 / 4096, dtype=torch.bfloat16)
    torch.testing.assert_close(entropy(half), torch.tensor([math.log(4096)]))


def test_entropy_refuses_what_is_no_float_tensor() -> None:
    with pytest.raises(TypeError, match="weights must hold floating-point numbers"):
        entropy(torch.ones(2, 3, dtype=torch.long))


def test_distance_counts_from_the_last_positions() -> None:
    # Two queries at positions 2 and 3 of four.
    rows = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.25, 0.25, 0.5]])
    torch.testing.assert_close(distance(rows), torch.tensor([2.0, 0.25 * 2 + 0.25 * 1]))


def test_distance_of_a_token_that_sees_itself_is_zero() -> None:
    assert torch.equal(distance(torch.eye(T)), torch.zeros(T))


def test_rollout_of_two_layers_by_hand() -> None:
    # One layer in which token 1 looks at token 0 only, another in which both look at token 1.
    first = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    second = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    # Half of each, half the token itself: [[1, 0], [½, ½]] and [[½, ½], [0, 1]].
    expected = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    result = rollout([first[None, None], second[None, None]])
    torch.testing.assert_close(result, expected[None])


def test_rollout_takes_the_mean_of_heads() -> None:
    one = weights(B, H, T, T)
    torch.testing.assert_close(rollout([one]), (one.mean(1) + torch.eye(T)) / 2)


def test_rollout_rows_sum_to_one_even_where_a_row_is_empty() -> None:
    layers = [weights(B, H, T, T) for _ in range(3)]
    layers[1] = layers[1].clone()
    layers[1][:, :, 2] = 0.0
    torch.testing.assert_close(rollout(layers).sum(-1), torch.ones(B, T))


def test_rollout_depends_on_the_order_of_layers() -> None:
    layers = [weights(1, 1, T, T), weights(2, 1, T, T)[1:]]
    assert not torch.allclose(rollout(layers), rollout(layers[::-1]))


def test_rollout_carries_gradients() -> None:
    one = weights(B, H, T, T).requires_grad_()
    rollout([one, one])[:, 0, 1].sum().backward()
    assert one.grad is not None
    assert one.grad.abs().sum() > 0


def test_class_token_map_is_row_zero_without_the_class_token() -> None:
    layer = torch.zeros(1, 2, 7, 7)
    layer[0, 0, 0] = torch.tensor([0.4, 0.1, 0.0, 0.2, 0.0, 0.3, 0.0])
    layer[0, 1, 0] = torch.tensor([0.0, 0.1, 0.2, 0.0, 0.4, 0.3, 0.0])
    expected = torch.tensor([[[0.1, 0.1, 0.1], [0.2, 0.3, 0.0]]])
    torch.testing.assert_close(class_token_map([layer, layer], (2, 3)), expected)


def test_class_token_map_averages_layers() -> None:
    layers = [weights(B, H, 7, 7), weights(B, 2, 7, 7)]
    expected = sum(layer[:, :, 0, 1:].mean(1) for layer in layers) / 2
    torch.testing.assert_close(class_token_map(layers, (3, 2)).flatten(1), expected)


def test_class_token_map_by_rollout_is_its_first_row() -> None:
    layers = [weights(B, H, 7, 7), weights(B, H, 7, 7) ** 2]
    result = class_token_map(layers, (2, 3), method="rollout")
    assert result.shape == (B, 2, 3)
    torch.testing.assert_close(result.flatten(1), rollout(layers)[:, 0, 1:])


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"grid is 2 × 2 = 4 patches but layers have 7 tokens"):
        class_token_map([weights(B, H, 7, 7)], (2, 2))
    with pytest.raises(ValueError, match="method must be one of 'mean', 'rollout', got 'max'"):
        class_token_map([weights(B, H, 7, 7)], (2, 3), method="max")
    with pytest.raises(
        ValueError, match="layers must be self-attention, T × T, got 5 queries and 7"
    ):
        rollout([weights(B, H, T, S)])
    with pytest.raises(ValueError, match="one size, got 5 × 5 in 'layer 0' and 7 × 7 in 'layer 1'"):
        rollout([weights(B, H, T, T), weights(B, H, S, S)])


def test_layers_may_be_a_trace_a_mapping_or_arrays_of_any_library() -> None:
    attention = MultiHeadAttention(12, H)
    with record(attention) as trace:
        attention(torch.randn(B, T, 12))
    expected = rollout([trace[""].weights])
    torch.testing.assert_close(rollout(trace), expected)
    torch.testing.assert_close(rollout({"one": trace[""].weights}), expected)
    torch.testing.assert_close(rollout((trace[""].weights.numpy(),)), expected)
    assert list(name_layers(trace)) == [""]
    assert list(name_layers([np.ones((1, 1, 2, 2))] * 2)) == ["layer 0", "layer 1"]
    assert list(name_layers([np.ones((1, 1, 2, 2))], names=["mine"])) == ["mine"]


def test_layers_of_other_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match=r"put a single layer into a list: \[weights\]"):
        rollout(weights(B, H, T, T))  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"layers\[0\] must have shape \(B, H, T, S\), got \(5, 5\)"
    ):
        rollout([weights(T, T)])
    with pytest.raises(ValueError, match="layers is empty"):
        rollout([])
    with pytest.raises(ValueError, match="names has 2 entries but there are 1 layers"):
        name_layers([weights(B, H, T, T)], names=["a", "b"])


def test_layers_of_one_name_or_of_two_batches_are_refused() -> None:
    one, two = torch.rand(1, 2, 3, 3), torch.rand(2, 2, 3, 3)
    with pytest.raises(ValueError, match="names must differ"):
        name_layers([one, one], names=["a", "a"])
    with pytest.raises(ValueError, match=r"one batch size, got \[1, 2\]"):
        rollout([one, two])

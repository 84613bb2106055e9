"""SelfAttention, CrossAttention and JoinedHeads: the published digits, their laws, their errors."""

import pytest
import torch

from clearhead.attention import CrossAttention, JoinedHeads, Mask, SelfAttention, attend

B, T, S = 2, 5, 7


def close_to_print(x, digits, places):
    """The numbers as they were printed: equal when rounded to that many decimal places."""
    torch.testing.assert_close(x, torch.tensor(digits), rtol=0, atol=0.5000001 * 10**-places)


# The published digits


def test_self_attention_gives_the_published_digits():
    """MISSION B3."""
    torch.manual_seed(48)
    attention = SelfAttention(512, 64, 512)
    output = attention(torch.randn(4, 10, 512))
    assert output.shape == (4, 10, 512)
    close_to_print(output[0, 0, :4], [0.086836, -0.041725, -0.25798, -0.096712], places=5)
    close_to_print(output[0, 0, :2], [0.086836, -0.041725], places=6)
    close_to_print(output[-1, -1, :5], [0.1849, 0.3706, 0.1488, 0.0898, 0.2528], places=4)


def test_cross_attention_gives_the_published_digits():
    """MISSION B4."""
    torch.manual_seed(14)
    attention = CrossAttention(512, 256, 64, 128)
    output = attention(torch.randn(3, 10, 512), torch.randn(3, 10, 256))
    assert output.shape == (3, 10, 128)
    digits = [-0.1544, 0.0847, 0.2329, 0.0549, -0.1424, 0.0711, 0.0105, -0.2139, -0.0208, -0.1942]
    close_to_print(output[0, 0, :10], digits, places=4)


def test_joined_heads_give_the_published_digits():
    """MISSION B5."""
    torch.manual_seed(10)
    joined = JoinedHeads([SelfAttention(256, 128, 8) for _ in range(8)], 32)
    output = joined(torch.randn(3, 10, 256))
    assert output.shape == (3, 10, 32)
    digits = [0.2290, -0.0350, 0.0918, -0.1069, -0.1679, -0.1939, -0.2167, 0.1841, 0.0546, 0.1668]
    close_to_print(output[0, 0, :10], digits, places=4)


# Laws


def test_self_attention_is_three_linear_layers_and_one_attention():
    torch.manual_seed(0)
    attention, x = SelfAttention(6, 4, 3), torch.randn(B, T, 6)
    q, k, v = attention.proj_q(x), attention.proj_k(x), attention.proj_v(x)
    weights = ((q @ k.mT) / 4**0.5).softmax(-1)
    torch.testing.assert_close(attention(x), weights @ v)


def test_the_layers_are_made_in_the_order_query_key_value():
    torch.manual_seed(0)
    attention = SelfAttention(6, 4, 3)
    torch.manual_seed(0)
    for name, width in (("proj_q", 4), ("proj_k", 4), ("proj_v", 3)):
        expected = torch.nn.Linear(6, width)
        assert torch.equal(getattr(attention, name).weight, expected.weight)
        assert torch.equal(getattr(attention, name).bias, expected.bias)


def test_heads_without_a_bias_are_products_alone():
    torch.manual_seed(3)
    x, y = torch.randn(2, 5, 6).double(), torch.randn(2, 4, 7).double()
    own, other = SelfAttention(6, 3, 8, bias=False), CrossAttention(6, 7, 3, 9, bias=False)
    joined = JoinedHeads([own, other], 10, bias=False).double()
    assert not any("bias" in name for name in joined.state_dict())
    outputs = []
    for head, source in ((own, x), (other, y)):
        q, k, v = (
            x @ head.proj_q.weight.mT,
            source @ head.proj_k.weight.mT,
            source @ head.proj_v.weight.mT,
        )
        outputs.append(torch.softmax(q @ k.mT / 3**0.5, dim=-1) @ v)
    expected = torch.cat(outputs, dim=-1) @ joined.proj_out.weight.mT
    assert (joined(x, y) - expected).abs().max() <= 1e-12


def test_self_attention_without_positions_is_permutation_equivariant():
    torch.manual_seed(0)
    attention, x = SelfAttention(6, 4, 3).double(), torch.randn(B, T, 6, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(attention(x[:, order]), attention(x)[:, order], rtol=0, atol=1e-14)
    assert not torch.allclose(attention(x[:, order]), attention(x))


def test_cross_attention_does_not_mind_the_order_of_what_it_listens_to():
    torch.manual_seed(0)
    attention = CrossAttention(6, 5, 4, 3)
    x, y = torch.randn(B, T, 6), torch.randn(B, S, 5)
    order = torch.randperm(S)
    torch.testing.assert_close(attention(x, y[:, order]), attention(x, y))
    assert attention(x, y).shape == (B, T, 3)


def test_cross_attention_to_itself_is_self_attention():
    torch.manual_seed(0)
    own, cross = SelfAttention(6, 4, 3), CrossAttention(6, 6, 4, 3)
    cross.load_state_dict(own.state_dict())
    x = torch.randn(B, T, 6)
    assert torch.equal(own(x), cross(x, x))


def test_a_causal_head_does_not_see_the_future():
    torch.manual_seed(0)
    attention, x = SelfAttention(6, 4, 3), torch.randn(B, T, 6, requires_grad=True)
    output = attention(x, mask=Mask.causal())
    for t in range(T):
        (grad,) = torch.autograd.grad(output[:, t].sum(), x, retain_graph=True)
        assert grad[:, t + 1 :].eq(0).all()
        assert grad[:, : t + 1].ne(0).any(dim=-1).all()


def test_padding_of_the_other_sequence_is_not_heard():
    torch.manual_seed(0)
    attention = CrossAttention(6, 5, 4, 3)
    x, y = torch.randn(B, T, 6), torch.randn(B, S, 5)
    output = attention(x, y, mask=Mask.padding(torch.tensor([0, 3])))
    assert output[0].eq(0).all()
    torch.testing.assert_close(output[1:], attention(x[1:], y[1:, :3]))


def test_a_head_works_without_a_batch_axis():
    torch.manual_seed(0)
    attention, x = SelfAttention(6, 4, 3), torch.randn(T, 6)
    torch.testing.assert_close(attention(x), attention(x[None])[0])


# Joined heads


def test_the_output_layer_sizes_itself_from_heads_of_different_widths():
    torch.manual_seed(0)
    heads = [SelfAttention(6, 4, 3), SelfAttention(6, 2, 5), SelfAttention(6, 1, 1)]
    joined, x = JoinedHeads(heads, 7), torch.randn(B, T, 6)
    assert joined.proj_out.in_features == 3 + 5 + 1
    outputs = torch.cat([head(x, mask=Mask.causal()) for head in heads], dim=-1)
    torch.testing.assert_close(joined(x, mask=Mask.causal()), joined.proj_out(outputs))


def test_cross_attention_heads_join_too():
    torch.manual_seed(0)
    heads = [CrossAttention(6, 5, 4, 3), CrossAttention(6, 5, 2, 4)]
    joined = JoinedHeads(heads, 8)
    x, y, mask = torch.randn(B, T, 6), torch.randn(B, S, 5), Mask.padding(torch.tensor([3, 7]))
    outputs = torch.cat([head(x, y, mask=mask) for head in heads], dim=-1)
    torch.testing.assert_close(joined(x, y, mask=mask), joined.proj_out(outputs))


def test_heads_of_different_kinds_join():
    """The file says that joined heads may differ in kind: each takes the inputs it knows."""
    torch.manual_seed(0)
    own, cross = SelfAttention(6, 4, 3), CrossAttention(6, 5, 2, 4)
    joined, x, y = JoinedHeads([own, cross], 8), torch.randn(B, T, 6), torch.randn(B, T, 5)
    torch.testing.assert_close(
        joined(x, y), joined.proj_out(torch.cat([own(x), cross(x, y)], dim=-1))
    )


def test_joined_heads_train_every_head():
    torch.manual_seed(0)
    joined = JoinedHeads((SelfAttention(6, 4, 3) for _ in range(2)), 7)
    joined(torch.randn(B, T, 6)).square().sum().backward()
    assert len(list(joined.parameters())) == 2 * 6 + 2
    # A bias on all keys shifts every score of a row alike, which softmax does not see.
    silent = {f"heads.{n}.proj_k.bias" for n in range(2)}
    for name, parameter in joined.named_parameters():
        assert name in silent or parameter.grad.ne(0).any(), name


def test_attend_returns_what_a_head_computes():
    torch.manual_seed(0)
    head, x = SelfAttention(6, 4, 3), torch.randn(B, T, 6)
    output, weights = attend(head.proj_q(x), head.proj_k(x), head.proj_v(x), return_weights=True)
    torch.testing.assert_close(head(x), output)
    torch.testing.assert_close(head.mechanism.weights(head.proj_q(x), head.proj_k(x)), weights)


# Errors


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: SelfAttention(0, 4, 3), ValueError, "d_input must be at least 1, got 0"),
        (lambda: SelfAttention(6, 0, 3), ValueError, "d_key must be at least 1, got 0"),
        (lambda: SelfAttention(6, 4, -1), ValueError, "d_output must be at least 1, got -1"),
        (lambda: SelfAttention(6, 4.0, 3), TypeError, "d_key must be a whole number, got 4.0"),
        (lambda: CrossAttention(0, 5, 4, 3), ValueError, "d_x must be at least 1"),
        (lambda: CrossAttention(6, 0, 4, 3), ValueError, "d_y must be at least 1"),
        (lambda: JoinedHeads([], 7), ValueError, "heads must hold at least one attention module"),
        (lambda: JoinedHeads([SelfAttention(6, 4, 3)], 0), ValueError, "d_output must be at least"),
        (lambda: JoinedHeads([torch.nn.Linear(6, 3)], 7), TypeError, "heads must .*Linear"),
    ],
)
def test_a_wrong_size_is_refused_at_construction(build, error, words):
    with pytest.raises(error, match=words):
        build()


def test_wrong_widths_are_refused_by_name():
    attention = CrossAttention(6, 5, 4, 3)
    with pytest.raises(ValueError, match=r"x has width 5 .* but d_x is 6"):
        attention(torch.randn(B, T, 5), torch.randn(B, S, 5))
    with pytest.raises(ValueError, match=r"y has width 6 .* but d_y is 5"):
        attention(torch.randn(B, T, 6), torch.randn(B, S, 6))
    with pytest.raises(ValueError, match=r"x has width 7 .* but d_input is 6"):
        SelfAttention(6, 4, 3)(torch.randn(B, T, 7))


def test_other_types_and_batches_are_refused():
    attention = CrossAttention(6, 5, 4, 3)
    with pytest.raises(TypeError, match=r"x must be a torch.Tensor, got list"):
        attention([1.0], torch.randn(B, S, 5))
    with pytest.raises(TypeError, match=r"y must hold floating-point numbers, got torch.int64"):
        attention(torch.randn(B, T, 6), torch.ones(B, S, 5, dtype=torch.long))
    with pytest.raises(ValueError, match=r"leading axes"):
        attention(torch.randn(B, T, 6), torch.randn(3, S, 5))
    with pytest.raises(ValueError, match=r"\(T, S\) = \(5, 7\)"):
        attention(torch.randn(B, T, 6), torch.randn(B, S, 5), mask=torch.ones(S, T).bool())


def test_a_second_sequence_that_no_head_hears_is_refused():
    joined = JoinedHeads([SelfAttention(6, 4, 5)], 7)
    with pytest.raises(ValueError, match="y is for cross-attention heads"):
        joined(torch.randn(2, 3, 6), torch.randn(2, 4, 6))

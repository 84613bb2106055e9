"""The references of the exercises give the numbers of clearhead's own modules."""

import torch

from clearhead.attention import (
    Mask,
    MultiHeadAttention,
    SelfAttention,
    attend,
    masked_softmax,
    merge_heads,
    split_heads,
)
from clearhead.attention.additive import weights as additive_weights
from clearhead.attention.argmax import weights as argmax_weights
from clearhead.exercises.contracts import find_exercise
from clearhead.exercises.weights import Linear
from clearhead.positions import ToeplitzBias


def read_layer(layer):
    return Linear(layer.weight.detach(), None if layer.bias is None else layer.bias.detach())


def test_attention_with_a_mask_is_attend():
    q, k, v = torch.randn(2, 5, 4), torch.randn(2, 7, 4), torch.randn(2, 7, 3)
    mask = torch.rand(2, 5, 7) < 0.6
    mask[..., 0] = True
    expected = attend(q, k, v, mask=mask)
    found = find_exercise("attention").answer(q, k, v, mask=mask)["output"]
    torch.testing.assert_close(found, expected)


def test_masked_softmax_is_that_of_the_library():
    x, lengths = torch.randn(3, 4, 6), torch.tensor([2, 6, 3])
    found = find_exercise("masked_softmax").answer(x, lengths)
    expected = masked_softmax(x, Mask.padding(lengths))
    torch.testing.assert_close(found, expected)


def test_splitting_and_merging_are_those_of_the_library():
    x = torch.randn(2, 5, 12)
    heads = find_exercise("split_heads").answer(x, 3)
    assert torch.equal(heads, split_heads(x, 3))
    assert torch.equal(find_exercise("merge_heads").answer(heads, 3), merge_heads(heads))


def test_self_attention_is_the_module():
    module, x = SelfAttention(5, 4, 3), torch.randn(2, 6, 5)
    layers = [read_layer(each) for each in (module.proj_q, module.proj_k, module.proj_v)]
    found = find_exercise("self_attention").answer(x, *layers)["output"]
    torch.testing.assert_close(found, module(x).detach())


def test_multi_head_attention_is_the_module():
    module, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
    layers = (module.proj_q, module.proj_k, module.proj_v, module.proj_out)
    found = find_exercise("multi_head_attention").answer(3, *map(read_layer, layers), x=x)
    torch.testing.assert_close(found, module(x).detach())


def test_the_toeplitz_bias_is_the_scheme():
    module = ToeplitzBias(2, 6)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    (m,) = (p.detach().reshape(2, -1) for p in module.parameters())
    found = find_exercise("toeplitz_bias").answer(5, m)
    torch.testing.assert_close(found, module(5).detach().reshape(2, 5, 5))


def test_argmax_and_additive_attention_are_those_of_the_library():
    q, k, v = torch.randn(2, 5, 4), torch.randn(2, 7, 4), torch.randn(2, 7, 3)
    found = find_exercise("argmax_attention").answer(q, k, v)
    torch.testing.assert_close(found, argmax_weights(q, k) @ v)
    w_q, w_k, w = torch.randn(4, 6), torch.randn(4, 6), torch.randn(6)
    found = find_exercise("additive_attention").answer(q, k, v, query=w_q, key=w_k, w=w)
    expected = additive_weights(q, k, w_q.mT, w_k.mT, w) @ v
    torch.testing.assert_close(found["output"], expected)

"""The formulas of the exercises and clearhead's own parts give the same numbers."""

import pytest
import torch

from clearhead.exercises.contracts import find_exercise
from clearhead.exercises.weights import Linear, Norm
from clearhead.layers import Block, FeedForward
from clearhead.positions import sinusoid_table
from clearhead.training.losses import next_token_loss
from clearhead.training.schedule import WarmupLinear


def test_sinusoidal_positions():
    found = find_exercise("sinusoidal_positions").answer(7, 5)
    assert torch.allclose(found, sinusoid_table(7, 5), atol=1e-6)


def test_language_model_loss():
    logits, tokens = torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    found = find_exercise("language_model_loss").answer(logits, tokens, mask)
    assert torch.allclose(found, next_token_loss(logits, tokens, mask))


@pytest.mark.parametrize("step", [0, 400, 800, 2900, 5000, 6000])
def test_warmup_schedule(step):
    found = find_exercise("warmup_schedule").answer(step, 800, 5000)
    assert found == pytest.approx(WarmupLinear(800, 5000)(step))


@pytest.mark.parametrize("is_pre", [True, False])
def test_transformer_layer(is_pre):
    block = Block(6, 3, 24, pre_norm=is_pre, activation="relu").eval()
    x = torch.randn(2, 5, 6)
    attention, norm1, norm2 = block.attention, block.norm_attention, block.norm_feed_forward
    first, second = _find(block.feed_forward, torch.nn.Linear)
    parts = {
        "query": _linear(attention.proj_q),
        "key": _linear(attention.proj_k),
        "value": _linear(attention.proj_v),
        "out": _linear(attention.proj_out),
        "first": _linear(first),
        "second": _linear(second),
        "norm1": Norm(norm1.gain, norm1.shift),
        "norm2": Norm(norm2.gain, norm2.shift),
    }
    found = find_exercise("transformer_layer").answer(x, 3, is_pre, "relu", **parts)
    assert torch.allclose(found, block(x), atol=1e-5)


def test_feed_forward():
    layer = FeedForward(6, 24, activation="gelu").eval()
    first, second = _find(layer, torch.nn.Linear)
    x = torch.randn(2, 5, 6)
    found = find_exercise("feed_forward").answer(x, _linear(first), _linear(second), phi="gelu")
    assert torch.allclose(found, layer(x), atol=1e-6)


def _linear(layer):
    return Linear(layer.weight, layer.bias)


def _find(module, kind):
    return [each for each in module.modules() if isinstance(each, kind)]

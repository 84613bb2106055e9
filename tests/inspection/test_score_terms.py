"""The score of one query and one key: its terms add up to the weights of the recorded call."""

import math

import pytest
import torch
from model_cases import H, build_case
from torch import nn
from translators import build, sentences

from clearhead.attention import AdditiveAttention, ArgmaxAttention, Mask, MultiHeadAttention
from clearhead.inspection import record, score_terms

B, T, S, D = 2, 5, 7, 12


def recorded(mechanism, mask=None, bias=None):
    """The call of a mechanism in a model of nothing else."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = MultiHeadAttention(D, 3, mechanism=mechanism)

        def forward(self, x, source):
            return self.attention(x, source, mask=mask, bias=bias)

    model = Model().double()
    generator = torch.Generator().manual_seed(0)
    x, source = (torch.randn(B, n, D, dtype=torch.float64, generator=generator) for n in (T, S))
    with record(model) as trace:
        model(x, source)
    return trace["attention"]


def check(call, row, column, head, place):
    found = score_terms(call, row, column, head)
    score = (float(found.terms.sum()) + found.bias) * found.scale
    assert float(found.scores[column]) == pytest.approx(score, abs=1e-12)
    assert torch.allclose(found.scores.softmax(-1), call.weights[place], atol=1e-12)
    assert torch.allclose(found.weights, call.weights[place], atol=1e-12)
    return found


@pytest.mark.parametrize(("row", "column", "head"), [(0, 0, 0), (4, 6, 2), (2, 5, 1)])
def test_terms_of_a_dot_product_are_products_of_q_and_k(row, column, head):
    call = recorded(None)
    found = check(call, row, column, head, (0, head, row))
    assert torch.equal(found.terms, call.q[0, head, row] * call.k[0, head, column])
    assert found.scale == 1 / math.sqrt(D / 3)


def test_a_bias_is_added_and_a_forbidden_key_has_no_score():
    bias = torch.randn(3, T, S, dtype=torch.float64)
    call = recorded(None, mask=Mask.padding([4, 6]), bias=bias)
    found = check(call, 3, 2, 1, (0, 1, 3))
    assert found.bias == float(bias[1, 3, 2])
    assert found.scores.isfinite().tolist() == [True] * 4 + [False] * 3


def test_terms_of_additive_attention_are_those_of_its_hidden_layer():
    mechanism = AdditiveAttention(4, 4, 9)
    found = check(recorded(mechanism.double()), 1, 3, 2, (0, 2, 1))
    assert found.terms.shape == (9,)
    assert found.scale == 1


def test_the_keys_of_a_recurrent_translator_are_already_projected():
    model = build("gru")
    source, _, target = sentences()
    with record(model) as trace:
        model(source, target)
    for row, call in enumerate(trace.calls("decoder.attention")):
        check(call, 0, row, 0, (0, 0))


def test_every_head_of_a_vision_transformer_is_explained():
    model, (images,) = build_case("vit")
    with record(model) as trace:
        model(images)
    for call in trace.attention.values():
        for head in range(H):
            check(call, 0, 2, head, (0, head, 0))


def test_wrong_places_and_other_mechanisms_are_refused():
    call = recorded(None)
    with pytest.raises(IndexError, match="row is 5, but this call has 5: 0 to 4"):
        score_terms(call, 5, 0)
    with pytest.raises(IndexError, match="column is -1"):
        score_terms(call, 0, -1)
    with pytest.raises(IndexError, match="head is 3, but this call has 3"):
        score_terms(call, 0, 0, 3)
    with pytest.raises(TypeError, match="ArgmaxAttention are not a sum of terms"):
        score_terms(recorded(ArgmaxAttention()), 0, 0)

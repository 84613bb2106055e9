"""The formulas of the exercises give what clearhead's own modules give."""

import numpy as np
import pytest
import torch
from torch import nn

from clearhead.attention import (
    EluFeatures,
    FourierFeatures,
    LinearAttention,
    QuadraticFeatures,
    summed_attention,
)
from clearhead.data import CharTokenizer
from clearhead.exercises.check import find_parts
from clearhead.exercises.contracts import find_exercise
from clearhead.exercises.contracts.shared.gru_weights import read_gru
from clearhead.exercises.contracts.shared.hand_design import Design
from clearhead.exercises.definitions import find_definition, read_definitions
from clearhead.exercises.draw import Draw
from clearhead.exercises.intake import read_source
from clearhead.exercises.weights import Linear
from clearhead.lab.purification import closed_form
from clearhead.layers import LinearRNN
from clearhead.models.smallest import NumpyTransformer, designs

draw = Draw(5)
q, k, v = draw.normal(4, 5), draw.normal(6, 5), draw.normal(6, 3)


def test_quadratic_features():
    found = find_exercise("quadratic_features").answer(q, k, "all")
    assert torch.allclose(found, QuadraticFeatures().similarity(q, k), atol=1e-4)


def test_fourier_features():
    ours = FourierFeatures(5, 8)
    found = find_exercise("fourier_features").answer(q, k, ours.frequencies, has_norms=True)
    assert torch.allclose(found, ours(q) @ ours(k).mT, atol=1e-5)


def test_kernel_attention():
    found = find_exercise("kernel_attention").answer(q, k, v, "elu")["output"]
    ours = LinearAttention(EluFeatures())(q[None, None], k[None, None], v[None, None])
    assert torch.allclose(found, ours[0, 0], atol=1e-5)


def test_summed_attention():
    matrices = [draw.normal(n, 5) for n in (2, 2, 4)]
    found = find_exercise("summed_attention").answer(q, *matrices)["output"]
    assert torch.allclose(found, summed_attention(q, *matrices), atol=1e-5)


def test_linear_rnn():
    x, ours = draw.normal(2, 4, 3), LinearRNN(3, 5, 2, bias=False)
    weights = [layer.weight for layer in (ours.input, ours.hidden, ours.output)]
    found = find_exercise("linear_rnn").answer(x, *weights)
    assert torch.allclose(found["output"], ours(x)[0], atol=1e-5)
    assert torch.allclose(found["closed_state"], ours.closed_form(x), atol=1e-5)


def test_purification():
    X = draw.normal(3, 6).double()
    assert torch.allclose(find_exercise("purification").answer(X, 0.7), closed_form(X, 0.7))


def test_char_tokenizer():
    rows = find_exercise("char_tokenizer").answer("cab|b")
    assert torch.equal(rows, CharTokenizer().one_hot("cab|b"))


def test_smallest_transformer():
    Km, Qm, Vm, pos = (draw.normal(*shape) for shape in ((5, 4), (5, 4), (5, 2), (7, 2)))
    seq = draw.normal(6, 3)
    layers = [Linear(matrix.mT) for matrix in (Km, Qm, Vm)]
    found = find_exercise("smallest_transformer").answer(seq, *layers, pos)
    ours = NumpyTransformer(*(x.numpy() for x in (Km, Qm, Vm, pos))).forward(seq.numpy())
    assert np.allclose(found.numpy(), ours, atol=1e-5)


@pytest.mark.parametrize("name", ["identity", "first", "unique"])
def test_our_own_designs_are_right(name):
    ours = designs.identity() if name == "identity" else getattr(designs, name)(5)
    parts = (ours.Km, ours.Qm, ours.Vm, ours.pos)
    design = Design(*(None if x is None else torch.from_numpy(x.copy()) for x in parts))
    assert find_exercise(f"hand_{name}").is_right(design)


def test_a_step_of_the_gru():
    gru, x, hidden = nn.GRU(3, 4, 2), draw.normal(5, 3), draw.normal(2, 5, 4)
    with torch.no_grad():
        _, expected = gru(x[None], hidden)
        (reading,) = read_gru([(n, p.shape, "GRU") for n, p in gru.named_parameters()], 3, 4, 2)
        own = reading.take(dict(gru.named_parameters()))
        assert torch.allclose(own(x, hidden), expected, atol=1e-6)


def test_a_name_with_parameters_is_found_by_their_number():
    one = read_definitions("def phi(x): pass")
    two = read_definitions("def phi(x, W): pass")
    assert find_definition(["phi(x)"], one)
    assert not find_definition(["phi(x)"], two)
    assert find_definition(["phi(x)"], two, is_asked=True)


def test_a_name_may_need_another_beside_it():
    alone, beside = read_definitions("Km = 1"), read_definitions("Km = 1\npos = 2")
    assert find_definition(["Km - pos"], alone)
    assert not find_definition(["Km - pos"], beside)
    assert find_definition(["Km + pos"], beside)
    assert not find_definition(["Km + pos"], alone)


def test_a_method_of_any_class_is_found_only_if_its_exercise_is_asked_for():
    model = read_definitions("class GPT:\n    def generate(self, idx, n): pass")
    assert find_definition(("generate", "*.generate"), model) is None
    found = find_definition(("generate", "*.generate"), model, is_asked=True)
    assert found is not None
    assert found.name == "GPT.generate"


@pytest.mark.parametrize(
    ("text", "exercises"),
    [
        ("def linear_rnn(x, A, W): 0\ndef closed_form(x, A, W): 0", ["linear_rnn"]),
        ("def closed_form(X, lam): 0", ["purification"]),
        ("def compute_loss(logits, input_ids, mask): 0", ["language_model_loss"]),
        ("def compute_loss(logits, labels): 0", ["class_token_loss"]),
        ("class Encoder:\n    def __init__(self, layer, N): 0", []),
        ("class Encoder:\n    def __init__(self, n_vocab, emb_dim, hid_dim): 0", ["gru_encoder"]),
    ],
)
def test_a_name_of_several_exercises_is_told_by_its_parameters(text, exercises):
    assert list(find_parts(read_source(text, "a.py"), [], {})) == exercises

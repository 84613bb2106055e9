"""The designs of models/smallest as programs: their weights, in the basis of the residual stream.

A design's input is a one-hot letter beside a one-hot place. In the compiled model the same letter
is a column of the embedding, and its place a row of the positions. In this basis:

    identity, first    scores are those of the design with twice the sharpness, between letters
    unique             scores are those of the design, CLS being the start token

each but for a constant that a query adds to all keys, which no softmax sees. The difference that is
left: identity and first have a start token, which a letter falls back on where nothing is selected.
"""

import numpy as np
import pytest
import torch
from program_answers import list_inputs

from clearhead.inspection import record
from clearhead.models.smallest import designs
from clearhead.programs import compile
from clearhead.programs.catalogue import PROGRAMS

MAX_LEN, SHARPNESS = 4, 5.0
DESIGNS = {
    "identity": designs.identity(2 * SHARPNESS),
    "first": designs.first(MAX_LEN, 2 * SHARPNESS),
    "unique": designs.unique(MAX_LEN, SHARPNESS),
}
NAMES = list(DESIGNS)


def compile_design(name):
    return compile(PROGRAMS[name].build(), "abc", MAX_LEN, sharpness=SHARPNESS)


def ask(name, word):
    """A word as rows of the design, for unique after the CLS row."""
    letters = np.eye(4 if name == "unique" else 3)[["abc".index(letter) for letter in word]]
    return np.concatenate([np.eye(4)[3:], letters]) if name == "unique" else letters


def look_inside(compiled, word):
    """Scores and weights of the one head, with the start token: (1 + T, 1 + T)."""
    model, (ids, _) = compiled.model, compiled.encode([word])
    with torch.no_grad(), record(model) as trace:
        model(ids)
        x = model.embedding.weight.mT[ids[0]] + model.positions.weight[: ids.size(1)]
        attention = model.stack.blocks[0].attention
        q, k = x @ attention.proj_q.weight.mT, x @ attention.proj_k.weight.mT
    scores = (q @ k.mT / attention.d_head**0.5).numpy()
    return scores, trace["stack.blocks.0.attention"].weights[0, 0].numpy()


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_design_but_for_a_constant_of_each_query(name):
    compiled = compile_design(name)
    for word in list_inputs("abc", MAX_LEN):
        scores, _ = look_inside(compiled, word)
        scores = scores if name == "unique" else scores[1:, 1:]
        difference = scores - DESIGNS[name].steps(ask(name, word)).scores
        if name == "unique":  # CLS, at the start token, is asked for its own answer: always +1
            difference = difference[1:]
        assert np.ptp(difference, axis=1).max() < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_the_design_where_the_start_token_is_left_out(name):
    compiled = compile_design(name)
    for word in list_inputs("abc", MAX_LEN):
        weights = look_inside(compiled, word)[1][1:]
        expected = DESIGNS[name].steps(ask(name, word)).attention
        if name == "unique":
            expected = expected[1:]
        else:
            weights = weights[:, 1:] / weights[:, 1:].sum(1, keepdims=True)
        np.testing.assert_allclose(weights, expected, atol=1e-12)


def test_outputs_of_unique_are_those_of_the_design_to_the_last_digits():
    compiled = compile_design("unique")
    for word in list_inputs("abc", MAX_LEN):
        expected = DESIGNS["unique"].forward(ask("unique", word))[1:, 0]
        np.testing.assert_allclose(compiled(word), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["identity", "first"])
def test_what_a_letter_says_is_what_it_says_in_the_design(name):
    compiled = compile_design(name)
    attention = compiled.model.stack.blocks[0].attention
    embedding = compiled.model.embedding.weight[:, 1:]  # (D, 3)
    says = compiled.model.head.weight @ attention.proj_out.weight @ attention.proj_v.weight
    columns = [compiled.values.index(letter) for letter in "abc"]
    expected = DESIGNS[name].Vm[:3].T
    np.testing.assert_array_equal((says @ embedding)[columns].detach().numpy(), expected)

"""What is asked of generate is checked before the first token, and refused by its name."""

import math

import pytest
import torch
from language_models import MAX_LEN, build, counter, ids
from torch import nn

from clearhead.generation import generate, pack, stream
from clearhead.models.gpt import GPT

# How many


def test_none_generates_up_to_the_context_length():
    assert generate(counter(), torch.tensor([[0, 1, 2]]), None).shape == (1, MAX_LEN)
    assert generate(counter(max_len=3), torch.tensor([[0, 1, 2]]), None).tolist() == [[0, 1, 2]]


def test_none_at_all():
    tokens = torch.tensor([[0, 1, 2]])
    made = generate(counter(), tokens, 0)
    assert made.tolist() == [[0, 1, 2]]
    assert made.data_ptr() != tokens.data_ptr()
    assert list(stream(counter(), tokens, 0)) == []


@pytest.mark.parametrize(
    ("n_tokens", "kind", "words"),
    [
        (
            38,
            ValueError,
            "tokens has length 3 and n_tokens is 38, but max_len is 40; .* at most 37",
        ),
        (-1, ValueError, "n_tokens must not be negative, got -1"),
        (True, TypeError, "n_tokens must be a whole number, got True"),
        (2.0, TypeError, r"n_tokens must be a whole number, got 2\.0"),
        (math.nan, TypeError, "n_tokens must be a whole number, got nan"),
        ("5", TypeError, "n_tokens must be a whole number, got '5'"),
    ],
)
def test_N18_a_wrong_number_of_tokens_is_refused(n_tokens, kind, words):
    with pytest.raises(kind, match=words):
        generate(counter(), torch.tensor([[0, 1, 2]]), n_tokens)


def test_N18_the_last_place_is_used():
    model, tokens = build(), ids(1, 10)
    assert generate(model, tokens, MAX_LEN - 10).shape == (1, MAX_LEN)
    with pytest.raises(ValueError, match="ask for at most 30"):
        generate(model, tokens, MAX_LEN - 9)


# Prompts and masks


@pytest.mark.parametrize(
    ("tokens", "kind", "words"),
    [
        (
            torch.zeros(1, 0, dtype=torch.long),
            ValueError,
            "tokens is empty; begin with at least one",
        ),
        (ids(1, 41, high=12), ValueError, "tokens has length 41 but max_len is 40"),
        (torch.tensor([[1, 12]]), ValueError, r"tokens\[0, 1\] is 12, but ids go from 0 to 11"),
        (torch.tensor([[-1, 1]]), ValueError, r"tokens\[0, 0\] is -1, but ids go from 0 to 11"),
        (torch.tensor([1, 2]), ValueError, r"tokens must have shape \(B, T\), got \(2,\)"),
        (torch.tensor([[1.0]]), TypeError, "tokens must hold integers"),
        ([[1, 2]], TypeError, r"tokens must be a torch\.Tensor of integers, got list"),
    ],
    ids=lambda x: str(x)[:30],
)
def test_N27_a_wrong_prompt_is_refused(tokens, kind, words):
    for model in (counter(), pack(counter())):
        with pytest.raises(kind, match=words):
            generate(model, tokens, 2)


@pytest.mark.parametrize(
    ("mask", "kind", "words"),
    [
        ([[True, True, False]], ValueError, "token_mask must be padded on the left.*pad_left"),
        ([[True, False, True]], ValueError, "token_mask must be padded on the left"),
        ([[False, False, False]], ValueError, "token_mask must be padded on the left"),
        ([[0.0, 1.0, 1.0]], TypeError, "token_mask must be a boolean tensor, True = real"),
        ([[0, 1, 2]], ValueError, "token_mask must be boolean or hold only 0 and 1, with 1 = real"),
        ([True, True, True], ValueError, r"the shape of tokens, \(1, 3\), got \(3,\)"),
        ([[True, True]], ValueError, r"the shape of tokens, \(1, 3\), got \(1, 2\)"),
    ],
)
def test_a_wrong_token_mask_is_refused(mask, kind, words):
    with pytest.raises(kind, match=words):
        generate(counter(), torch.tensor([[0, 1, 2]]), 2, token_mask=torch.tensor(mask))
    with pytest.raises(TypeError, match="token_mask must be a boolean tensor"):
        generate(counter(), torch.tensor([[0, 1, 2]]), 2, token_mask=[[True, True, True]])


# Everything else


@pytest.mark.parametrize(
    ("stop", "kind", "words"),
    [
        ([12], ValueError, "stop must hold ids from 0 to 11, got 12"),
        ([3, -1], ValueError, "stop must hold ids from 0 to 11, got -1"),
        ([True], ValueError, "stop must hold ids from 0 to 11, got True"),
        ([2.0], ValueError, r"stop must hold ids from 0 to 11, got 2\.0"),
        (["a"], ValueError, "stop must hold ids from 0 to 11, got 'a'"),
        (5, TypeError, r"stop must be a list or set of ids, got 5; write stop=\[5\]"),
    ],
)
def test_a_wrong_stop_is_refused(stop, kind, words):
    with pytest.raises(kind, match=words):
        generate(counter(), torch.tensor([[0]]), 2, stop=stop)


def test_bad_choices_are_refused_by_their_names():
    for options, words in (
        ({"temperature": -1}, "temperature must be a finite number from 0, got -1"),
        ({"top_p": 2}, "top_p must be a finite number from 0 to 1, got 2"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"prefill": 0}, "prefill must be at least 1, got 0"),
        ({"weights": "int4"}, "weights must be one of 'float', 'int8', got 'int4'"),
    ):
        with pytest.raises(ValueError, match=words):
            generate(counter(), torch.tensor([[0]]), 2, **options)
    with pytest.raises(TypeError, match="prefill must be a whole number, got True"):
        generate(counter(), torch.tensor([[0]]), 2, prefill=True)


@pytest.mark.parametrize("model", [nn.Linear(2, 2), None, GPT])
def test_a_model_of_another_kind_is_refused(model):
    with pytest.raises(TypeError, match=r"model must be a GPT or pack\(model\), got .*; a transl"):
        generate(model, torch.tensor([[0]]), 2)


def test_a_packed_model_has_a_cache_always():
    with pytest.raises(ValueError, match="cache=False needs the model itself"):
        generate(pack(counter()), torch.tensor([[0]]), 2, cache=False)


def test_everything_is_checked_before_the_first_step_is_asked_for():
    for options in ({"stop": [99]}, {"prefill": -1}, {"weights": "x"}, {"n_tokens": 99}):
        with pytest.raises(ValueError, match=r"stop|prefill|weights|n_tokens"):
            stream(counter(), torch.tensor([[0]]), **{"n_tokens": 3} | options)

"""Texts longer than the context: one rule, the same by every reader."""

import itertools

import pytest
import torch
from torch import nn

from clearhead.data import CharTokenizer, pad_left
from clearhead.generation import Sampling, generate, pack, stream
from clearhead.models.gpt import GPT, GPTConfig

V, D, H, L = 13, 12, 3, 2


def build(max_len, positions="learned", seed=0):
    """A model with spread-out random weights, so that its words differ from step to step."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT(GPTConfig(V, max_len, D, L, H, tied=False, positions=positions))
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
        parameter.data.add_(name.endswith("gain"))
    model.embedding.weight.data.mul_(4)
    return model.eval()


def ids(*shape, seed=0):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def by_hand(model, row, n_tokens):
    """The rule, word by word: what is read is all since the last cut, or the last half of it."""
    text, start = list(row), 0
    for _ in range(n_tokens):
        if len(text) - start > model.config.max_len:
            start = len(text) - max(1, model.config.max_len // 2)
        with torch.no_grad():
            text.append(int(model(torch.tensor([text[start:]]))[0, -1].argmax()))
    return text


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
@pytest.mark.parametrize("max_len", [1, 2, 7, 10])
def test_a_full_context_is_left_for_its_last_half(max_len, positions):
    model, prompt = build(max_len, positions), ids(1, 1)
    for n_tokens in (1, max_len, max_len + 1, 4 * max_len + 3, 40):
        expected = by_hand(model, prompt[0].tolist(), n_tokens)
        for form, options in ((model, {}), (model, {"cache": False}), (pack(model), {})):
            made = generate(form, prompt, n_tokens, roll=True, **options)
            assert made[0].tolist() == expected


def test_a_prompt_that_fills_the_context_is_read_whole_once():
    model, prompt = build(8), ids(1, 8)
    assert generate(model, prompt, 30, roll=True)[0].tolist() == by_hand(model, prompt[0], 30)


def test_where_all_fits_rolling_changes_nothing():
    model, prompt = build(20), ids(2, 3)
    assert torch.equal(generate(model, prompt, 17, roll=True), generate(model, prompt, 17))
    assert generate(model, prompt, None, roll=True).shape == (2, 20)


def test_sampling_stops_texts_and_parts_of_the_prompt_work_on():
    model, prompt = build(8), ids(2, 5)
    mixed = {"temperature": 1.0, "top_k": 5, "repetition_penalty": 1.1, "seed": 3, "roll": True}
    expected = generate(model, prompt, 40, **mixed)
    assert torch.equal(generate(model, prompt, 40, prefill=2, cache=False, **mixed), expected)
    assert torch.equal(generate(pack(model), prompt, 40, prefill=2, **mixed), expected)
    tokenizer = CharTokenizer("abcdefghijklm", cls=None)
    options = {"sampling": Sampling(1.0, 5, repetition_penalty=1.1), "seed": 3, "roll": True}
    steps = list(stream(model, prompt, 40, tokenizer=tokenizer, **options))
    for row in range(2):
        text = "".join(step.texts[row] for step in steps)
        assert text == tokenizer.decode(expected[row, 5:])
    first = int(expected[0, 20])
    ended = generate(model, prompt[:1], 40, stop=[first], **mixed)
    assert int(ended[0, -1]) == first


def test_an_open_stream_can_be_read_for_ever():
    for form in (build(6), pack(build(6))):
        steps = stream(form, ids(1, 2), 10**9, roll=True)
        assert len(list(itertools.islice(steps, 50))) == 50


def test_without_roll_too_many_tokens_are_refused_as_before():
    with pytest.raises(ValueError, match=r"ask for at most 3, .* or for roll=True"):
        generate(build(8), ids(1, 5), 4)
    with pytest.raises(ValueError, match="max_len is 8"):  # a prompt is never cut in silence
        generate(build(8), ids(1, 9), 4, roll=True)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
@pytest.mark.parametrize("max_len", [1, 3, 6, 9])
def test_a_padded_row_is_continued_as_if_it_were_alone(max_len, positions):
    """Rows of every length up to the context, each full at another time."""
    model = build(max_len, positions)
    rows = [ids(n, seed=n).tolist() for n in range(1, max_len + 1)]
    tokens, token_mask = pad_left(rows, 0)
    tokens = tokens.masked_fill(~token_mask, 4)  # padding may hold anything
    for form, options in ((model, {}), (model, {"cache": False}), (pack(model), {})):
        made = generate(form, tokens, 25, roll=True, token_mask=token_mask, **options)
        for row, continued in zip(rows, made[:, max_len:].tolist(), strict=True):
            assert continued == by_hand(model, row, 25)[len(row) :]

"""The text of each step: whole characters only, nothing lost, no padding decoded."""

import itertools

import pytest
import torch
from language_models import build, counter, follower

from clearhead.data import CharTokenizer, pad_left
from clearhead.generation import stream


class Bytes:
    """UTF-8 as it is: a character may need several tokens."""

    def decode(self, ids):
        assert isinstance(ids, list)
        return bytes(ids).decode("utf-8", errors="replace")


class Digits:
    def decode(self, ids):
        return " ".join(map(str, ids))


def speller(text):
    """A model that spells this text, byte by byte; no byte may occur twice."""
    spelt = text.encode()
    assert len(set(spelt)) == len(spelt)
    following = list(range(256))
    for one, after in itertools.pairwise(spelt):
        following[one] = after
    return follower(following)


TEXT = "aé€😀!"  # 1, 2, 3, 4 bytes and 1


def test_characters_of_several_tokens_appear_when_they_are_whole():
    tokens = torch.tensor([list(TEXT.encode()[:1])])
    steps = stream(speller(TEXT), tokens, 10, tokenizer=Bytes())
    assert [step.texts[0] for step in steps] == ["", "é", "", "", "€", "", "", "", "😀", "!"]


@pytest.mark.parametrize("cut", range(1, 11))
@pytest.mark.parametrize("n_tokens", range(1, 11))
def test_the_texts_join_to_the_text_of_the_whole(cut, n_tokens):
    """Also where the prompt or the end cuts a character: the last step holds nothing back."""
    tokens = torch.tensor([list(TEXT.encode()[:cut])])
    steps = list(stream(speller(TEXT), tokens, n_tokens, tokenizer=Bytes()))
    whole = tokens[0].tolist() + [int(step.tokens) for step in steps]
    begun = Bytes().decode(tokens[0].tolist()).rstrip("\ufffd")
    assert begun + "".join(step.texts[0] for step in steps) == Bytes().decode(whole)


def test_texts_of_letters_join_to_what_the_tokenizer_says():
    tokenizer = CharTokenizer("abcdefgh", cls=None)
    rows = [tokenizer.encode(text) for text in ("abba", "h", "feed")]
    tokens, real = pad_left(rows, 0)
    steps = list(stream(build(vocab_size=8), tokens, 18, tokenizer=tokenizer, token_mask=real))
    for r, row in enumerate(rows):
        text = "".join(step.texts[r] for step in steps)
        made = [int(step.tokens[r]) for step in steps]
        assert tokenizer.decode(row) + text == tokenizer.decode([*row, *made])
        assert len(text) == 18


def test_the_tokenizer_never_sees_padding():
    class Strict(Digits):
        def decode(self, ids):
            assert 11 not in ids
            return super().decode(ids)

    tokens, real = pad_left([[3], [1, 2, 3]], 11)
    steps = list(stream(counter(), tokens, 3, tokenizer=Strict(), token_mask=real))
    assert [step.texts for step in steps] == [[" 4", " 4"], [" 5", " 5"], [" 6", " 6"]]


def test_a_stopped_row_adds_no_text():
    steps = list(stream(counter(), torch.tensor([[3], [1]]), 9, stop=[5], tokenizer=Digits()))
    assert [step.texts for step in steps] == [[" 4", " 2"], [" 5", " 3"], ["", " 4"], ["", " 5"]]


def test_a_word_without_text_adds_none():
    tokenizer = CharTokenizer("ab", cls=False, start=True, end=True)
    following = [0] * tokenizer.vocab_size
    a, b = tokenizer.encode("ab")[1:3]
    following[tokenizer.start_id], following[a], following[b] = a, b, tokenizer.end_id
    steps = stream(
        follower(following),
        torch.tensor([[tokenizer.start_id]]),
        5,
        stop=[tokenizer.end_id],
        tokenizer=tokenizer,
    )
    assert [step.texts for step in steps] == [["a"], ["b"], [""]]

"""The substring matcher set by hand: right on every haystack and needle, by a margin."""

import itertools

import pytest
import torch

from clearhead.data.tokenizers.characters import CharTokenizer
from clearhead.inspection import record
from clearhead.models.classifier import SequenceClassifier
from clearhead.models.smallest import substring_matcher
from clearhead.models.smallest.matcher import directions

MAX_HAYSTACK, MAX_NEEDLE = 6, 3


def words(n: int) -> list[str]:
    return ["".join(letters) for letters in itertools.product("abc", repeat=n)]


def ids(text: str) -> list[int]:
    return CharTokenizer().encode(text)


def every_question(n: int, m: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All haystacks of length n with all needles of length m, and whether they occur."""
    pairs = list(itertools.product(words(n), words(m)))
    tokens = torch.tensor([ids(f"{haystack}|{needle}") for haystack, needle in pairs])
    return tokens, torch.tensor([needle in haystack for haystack, needle in pairs])


@torch.no_grad()
def logits(model: SequenceClassifier, tokens: torch.Tensor) -> torch.Tensor:
    return torch.cat([model(part)[:, 0, 0] for part in tokens.split(4096)])


@pytest.mark.parametrize("m", range(MAX_NEEDLE + 1))
@pytest.mark.parametrize("n", range(MAX_HAYSTACK + 1))
def test_every_haystack_with_every_needle_is_right_by_a_margin(n: int, m: int) -> None:
    tokens, occurs = every_question(n, m)
    z = logits(substring_matcher(), tokens)
    assert torch.equal(z > 0, occurs)
    torch.testing.assert_close(z, torch.where(occurs, 1.0, -1.0), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "logit"),
    [("abcab|ca", 1), ("aaa|b", -1), ("abab|bb", -1), ("ab|cc", -1), ("ab|bc", -1), ("|a", -1)],
)
def test_examples(text: str, logit: float) -> None:
    z = logits(substring_matcher(), torch.tensor([ids(text)]))
    assert z.item() == pytest.approx(logit, abs=1e-5)


def test_the_empty_needle_occurs_in_every_haystack() -> None:
    for text in ("|", "a|", "cbacba|"):
        assert logits(substring_matcher(), torch.tensor([ids(text)])).item() > 0.999


@pytest.mark.parametrize(("max_haystack", "max_needle"), [(1, 1), (3, 4), (9, 2), (12, 5)])
def test_other_limits_are_right_too(max_haystack: int, max_needle: int) -> None:
    model = substring_matcher(max_haystack, max_needle)
    draw = torch.Generator().manual_seed(max_haystack)
    for n, m in itertools.product({1, max_haystack}, range(max_needle + 1)):
        letters = torch.randint(0, 2 + m % 2, (50, n + m), generator=draw).tolist()
        drawn = ["".join("abc"[i] for i in row) for row in letters]
        tokens = torch.tensor([ids(f"{text[:n]}|{text[n:]}") for text in drawn])
        right = torch.tensor([1.0 if text[n:] in text[:n] else -1.0 for text in drawn])
        torch.testing.assert_close(logits(model, tokens), right, rtol=0, atol=1e-5)


def test_a_sharpness_of_10_still_answers_every_question_of_length_4() -> None:
    model = substring_matcher(sharpness=10)
    for m in range(MAX_NEEDLE + 1):
        tokens, occurs = every_question(4, m)
        z = logits(model, tokens)
        assert torch.equal(z > 0, occurs)
        assert z.abs().min() > 0.9


# An ordinary model of ordinary blocks


def test_it_is_a_classifier_that_its_config_and_weights_build_again() -> None:
    model = substring_matcher()
    assert type(model) is SequenceClassifier
    again = SequenceClassifier.from_config(model.config.to_dict())
    again.load_state_dict(model.state_dict())
    tokens, _ = every_question(3, 2)
    assert torch.equal(logits(again.eval(), tokens), logits(model, tokens))


def test_it_takes_one_hot_rows() -> None:
    tokens, _ = every_question(3, 2)
    rows = torch.nn.functional.one_hot(tokens, 5).float()
    model = substring_matcher()
    torch.testing.assert_close(logits(model, rows), logits(model, tokens))
    one = CharTokenizer().one_hot("abcab|ca")
    assert model(one[None])[0, 0].item() == pytest.approx(1)


def test_padding_on_either_side_changes_nothing() -> None:
    texts = ["abcabc|cab", "b|ab", "|", "ac|c", "cba|ab"]
    model, longest = substring_matcher(), max(map(len, texts)) + 1
    alone = torch.cat([logits(model, torch.tensor([ids(text)])) for text in texts])
    for left in (False, True):
        tokens = torch.zeros(len(texts), longest, dtype=torch.long)
        real = torch.zeros(len(texts), longest, dtype=torch.bool)
        for row, text in enumerate(texts):
            n = len(text) + 1
            where = slice(longest - n, None) if left else slice(0, n)
            tokens[row, where], real[row, where] = torch.tensor(ids(text)), True
        with torch.no_grad():
            z = model(tokens, token_mask=real)[:, :, 0]
        first = real.int().argmax(dim=1)
        torch.testing.assert_close(z[torch.arange(len(texts)), first], alone)


def test_what_the_stream_says_can_be_read_by_name() -> None:
    text, model = "cabab|ab", substring_matcher()
    names = directions(model.config.max_len, MAX_NEEDLE)
    with record(model) as trace, torch.no_grad():
        model(torch.tensor([ids(text)]))

    def said(block: int, name: str) -> list[float]:
        stream = trace.blocks[f"stack.blocks.{block}"].output[0, :, names.index(name)]
        return [round(value, 4) for value in stream.tolist()]

    #                              CLS c  a  b  a  b  |  a  b
    assert said(0, "+1 is a") == [0, 1, 0, 1, 0, 0, 1, 0, 0]
    assert said(0, "+2 is b") == [0, 1, 0, 1, 0, 0, 1, 0, 0]
    assert said(1, "needle 1 is b") == [1] * 9
    assert said(1, "needle 2 is a") == [0] * 9
    assert said(1, "separator's place") == [6] * 9
    assert said(1, "misses") == [2, 2, 0, 2, 0, 2, 2, 1, 4]
    assert said(2, "fewest misses") == [0] * 9
    weights = trace["stack.blocks.2.attention"].weights[0, 0, 0]  # [CLS] finds both places
    torch.testing.assert_close(weights, torch.tensor([0, 0, 0.5, 0, 0.5, 0, 0, 0, 0]))


# What is refused


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="max_needle must be at least 1, got 0"):
        substring_matcher(6, 0)
    with pytest.raises(ValueError, match="max_haystack must be at least 1, got -1"):
        substring_matcher(-1)
    with pytest.raises(ValueError, match="sharpness must be a finite number above 0"):
        substring_matcher(sharpness=0)
    with pytest.raises(ValueError, match="tokens has length 12 but max_len is 11"):
        substring_matcher()(torch.tensor([ids("abcabca|abc")]))

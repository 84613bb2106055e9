"""The worked example: its numbers computed again from the equation, and told in its words."""

import math
from importlib import import_module

import pytest

from clearhead import lab
from clearhead.attention import Mask, merge_heads
from clearhead.inspection import record
from clearhead.lab.attention import FEATURES, KINDS, STRENGTH, WORDS, build, experiment

# One score of 6/√2 among seven, the others 0.
LOUD = math.exp(6 / math.sqrt(2))
TAKEN = LOUD / (LOUD + 6)


@pytest.fixture(scope="module")
def finding():
    return experiment()


def softmax(scores):
    exps = [math.exp(s) for s in scores]
    return [e / sum(exps) for e in exps]


def weights_by_hand(head, query, causal=False):
    """The weights of one word, from what the words ask for and offer – no tensor involved."""
    scores = []
    for place, word in enumerate(WORDS[: query + 1] if causal else WORDS):
        if head == 0:
            asked, offered = KINDS.get(WORDS[query], ""), KINDS.get(word, "")
            score = STRENGTH if offered and asked == f"asks for {offered}" else 0.0
        else:
            score = STRENGTH if place == query - 1 else 0.0
        scores.append(score / math.sqrt(2))
    return softmax(scores) + [0.0] * (len(WORDS) - len(scores))


def close(x):
    return pytest.approx(x, abs=1e-6)


def test_the_sentence_is_the_one_of_the_docstring():
    assert " ".join(WORDS) == "the hungry dog left the crowded park"
    assert STRENGTH == 6.0


def test_every_number_follows_from_the_equation(finding):
    numbers = finding.numbers
    assert round(TAKEN, 6) == 0.920626
    assert numbers["hungry_takes_from_dog"] == close(TAKEN)
    assert numbers["crowded_takes_from_park"] == close(TAKEN)
    assert numbers["left_takes_from_each"] == close(1 / 7)
    assert numbers["causal_hungry_takes_from_the"] == close(1 / 2)
    assert numbers["dog_looks_back_at_hungry"] == close(TAKEN)
    assert 0 <= numbers["fused_minus_written_out"] < 1e-6


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head", [0, 1])
def test_all_weights_are_those_computed_by_hand(head, causal):
    attention, x = build()
    with record(attention) as trace:
        attention(x, mask=Mask.causal() if causal else None)
    weights = trace[""].weights
    for t in range(len(WORDS)):
        assert weights[0, head, t].tolist() == close(weights_by_hand(head, t, causal))


def test_the_output_of_a_word_is_the_weighted_mean_of_the_features():
    """Values are the words' own features: head 1 carries the first two, head 2 the last two."""
    attention, x = build()
    output = attention(x)[0]
    for t in range(len(WORDS)):
        expected = []
        for column in range(len(FEATURES)):
            weights = weights_by_hand(column // 2, t)
            expected.append(sum(w * x[0, s, column].item() for s, w in enumerate(weights)))
        assert output[t].tolist() == close(expected)
    assert output[1, FEATURES.index("living")].item() == close(TAKEN)  # "hungry" now knows of a dog


def test_nothing_is_random(finding):
    again = lab.run("attention", seed=7)
    assert again.numbers == finding.numbers
    assert again.text == finding.text


def test_the_text_contains_the_numbers(finding):
    for words in (
        "its query is (6, 0)",
        'the key of "dog" is (1, 0)',
        'So "hungry" takes 92% of what it gets from "dog"',
        '"crowded" takes 92% from "park"',
        "takes 14% from every word",
        '"hungry" takes 50% from "the"',
        '"dog" takes 92% from "hungry"',
    ):
        assert words in finding.text
    assert max(map(len, finding.text.splitlines())) <= 100


def test_the_table_in_the_text_is_the_computation(finding):
    rows = {line.split()[0]: line.split() for line in finding.text.splitlines() if line.strip()}
    scores = [0.0, 0.0, 6.0, 0.0, 0.0, 0.0, 0.0]
    assert rows["the"] == WORDS
    assert rows["q·k"][1:] == [f"{s:.2f}" for s in scores]
    assert rows["/"][2:] == [f"{s / math.sqrt(2):.2f}" for s in scores]
    shares = softmax([s / math.sqrt(2) for s in scores])
    assert rows["softmax"][1:] == [f"{share:.2f}" for share in shares]


def test_the_picture_shows_both_heads_with_and_without_the_mask(finding, tmp_path):
    path = finding.picture.save(tmp_path / "attention.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert finding.picture.description
    assert finding.claim.endswith(".")


def test_split_and_merged_the_sentence_is_the_same():
    attention, x = build()
    with record(attention) as trace:
        attention(x)
    assert merge_heads(trace[""].v).equal(x)


# The list of experiments


@pytest.mark.parametrize("name", lab.EXPERIMENTS)
def test_every_experiment_in_the_list_is_a_file_or_a_folder(name):
    module = import_module(f"clearhead.lab.{name.replace('-', '_')}")
    assert callable(module.experiment)


@pytest.mark.parametrize("name", ["nothing", "../attention", "attention.build", ""])
def test_an_unknown_experiment_is_refused(name):
    with pytest.raises(ValueError, match="experiment must be one of attention"):
        lab.run(name)

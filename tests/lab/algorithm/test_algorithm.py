"""Does a model do what a program does? Tried on models of which it is known: compiled programs."""

import random
from itertools import product

import pytest
import torch

from clearhead import programs
from clearhead.data.substrings import Substrings
from clearhead.lab.algorithm import comparison, report
from clearhead.lab.algorithm.comparison import compare, fit_linear
from clearhead.lab.algorithm.programs import CANDIDATES, SIDES
from clearhead.lab.algorithm.subjects import make_compiled, make_trained
from clearhead.lab.algorithm.texts import SEPARATOR, draw_pairs, draw_texts, is_found
from clearhead.models import ClassifierConfig, SequenceClassifier
from clearhead.training.tasks.substrings import SubstringData


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(comparison, "N_PAIRS", 12)
    monkeypatch.setattr(comparison, "N_TEXTS", 80)


# The programs


@pytest.mark.parametrize("step", SIDES)
@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda each: each.name)
def test_each_program_finds_needles_in_three_layers(candidate, step):
    compiled = programs.compile(candidate.build(step), "abc|", SEPARATOR + 3)
    letters = ["".join(word) for n in (1, 2, 3) for word in product("abc", repeat=n)]
    haystacks = [*letters, "abcabbca", "cccccccc", "babababa"]
    texts = [f"{haystack}|{needle}" for haystack in haystacks for needle in letters]
    assert compiled.plan.n_layers == 3
    answers = [set(row) for row in compiled.run(texts)]
    assert answers == [{is_found(text)} for text in texts]  # every token answers alike


def test_haystack_compares_is_the_program_of_the_library():
    texts = ["abca|ca", "abca|cb", "aab|aab", "c|cc"]
    own, library = (
        programs.compile(program, "abc|", 12).run(texts)
        for program in (CANDIDATES[0].build(1), programs.PROGRAMS["substring"].build())
    )
    assert [row[0] for row in own] == [row[0] for row in library]


# The texts


def test_pairs_differ_in_one_half_and_in_the_answer():
    for kind, kept in (("needle", 0), ("haystack", 1)):
        for pair in draw_pairs(random.Random(0), 2, kind, 20):
            halves = [text.split("|") for text in pair]
            assert halves[0][kept] == halves[1][kept]
            assert is_found(pair[0]) != is_found(pair[1])
    texts = draw_texts(random.Random(0), 3, 40)
    assert sum(map(is_found, texts)) == len(texts) / 2
    assert {len(text) for text in texts} == {SEPARATOR + 3}


# The measurements, on models that are known


WHO_KNOWS = {  # after layer 1: the group whose exchange changes the answer, by what differs
    "haystack": ("haystack", "haystack"),
    "needle": ("needle", "needle"),
    "answer": ("answer", "haystack"),
}


@pytest.mark.parametrize(
    ("candidate", "step"),
    list(zip(CANDIDATES, (1, -1, 1), strict=True)),
    ids=[each.name for each in CANDIDATES],
)
def test_a_compiled_program_is_recognised(small, candidate, step):
    subject = make_compiled(candidate.build(step), "cpu")
    numbers = compare(subject)
    assert numbers["step"] == step
    assert CANDIDATES[int(numbers["closest"])] is candidate
    assert numbers["accuracy"] == [1, 1, 1]
    assert numbers[f"right_{candidate.name}"] == [1, 1, 1]
    assert numbers[f"right_{SIDES[step]}"] == [1, 1, 1]
    assert max(numbers["right_alone_1"][1:]) < 0.8
    for kind, knows in zip(("needle", "haystack"), WHO_KNOWS[candidate.name], strict=True):
        row = numbers[f"trained_follows_{kind}_layer_1"]
        assert row == [float(group == knows) for group in ("haystack", "needle", "answer")]
        assert row == numbers[f"{candidate.name}_follows_{kind}_layer_1"]
    for part, weight in zip(subject.heads, numbers["aligned_weight"], strict=True):
        if part.kind == "copy":  # its own head selects the same keys
            assert weight == pytest.approx(1)
    assert min(numbers["right_without"]) < 0.7


def test_a_linear_function_is_found_although_inputs_depend_on_each_other():
    torch.manual_seed(0)
    inputs = torch.randn(50, 4, dtype=torch.float64)
    inputs = torch.cat((inputs, inputs[:, :2] + inputs[:, 2:]), dim=1)  # rank 4 of 6
    outputs = inputs @ torch.randn(6, 3, dtype=torch.float64)
    assert torch.allclose(inputs @ fit_linear(inputs, outputs), outputs)


# The finding


@pytest.fixture
def untrained():
    torch.manual_seed(1)
    config = ClassifierConfig(5, 1, d_model=12, n_layers=3, n_heads=2, max_len=16)
    return SequenceClassifier(config)


def test_an_untrained_model_is_like_no_program(monkeypatch, small, untrained, tmp_path):
    asked = []

    def instead(*given):
        asked.append(given)
        return untrained, SubstringData(haystack=(3, 8), needle=(1, 3)).open()

    monkeypatch.setattr(comparison, "train_substring_model", instead)
    finding = comparison.experiment(seed=4, full=True)
    assert asked == [(4, True, "cpu")]
    assert "so the model does something else" in finding.seen
    assert not untrained.training
    exchange, translation, heads = finding.tables
    assert len(exchange.rows), len(translation.rows) == (6, 9)
    assert {row[1][0] for row in heads.rows} <= {"0", "1", "2"}
    assert finding.picture.save(tmp_path / "algorithm.png").stat().st_size > 10_000


def test_a_trained_model_answers_at_the_class_token(untrained):
    tokenizer = Substrings().tokenizer
    subject = make_trained(untrained, tokenizer)
    ids = subject.encode(["abcabcab|cab", "abcabcab|ccc"])
    assert ids.shape == (2, SEPARATOR + 4)
    with torch.no_grad():
        assert torch.equal(subject.answer(ids), untrained(ids)[:, 0, 0] > 0)
    assert subject.find_positions("answer", 13) == [0]
    assert subject.find_positions("needle", 13) == [10, 11, 12]
    assert subject.find_positions("haystack", 13) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("right", "words"),
    [
        ([1.0, 0.95, 0.92], "so this is what the model does."),
        ([1.0, 0.95, 0.6], "with needles of 1 and 2 letters, and with others"),
        ([1.0, 0.5, 0.6], "with needles of 1 letter, and with others"),
        ([0.7, 0.7, 0.7], "something else, or several things"),
    ],
)
def test_the_words_follow_the_numbers(right, words):
    numbers = {"step": -1.0, "closest": 1.0, "right_before": [1.0, 0.9, 0.8], "right_needle": right}
    seen = report.describe(numbers)
    assert words in seen
    assert "the letters before it" in seen
    assert "each letter of the needle looks for a match in the haystack" in seen
    assert "100%, 90% and 80%" in seen

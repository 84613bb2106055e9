"""The substring task: right labels, even classes, and nothing of validation in training."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data import CharTokenizer, GeneratedPairs, Substrings
from clearhead.data.randomness import hash_rows, is_validation

SETTINGS = [
    {},
    {"part": "validation"},
    {"alphabet": "xy", "haystack": 9, "needle": 2, "seed": 4},
    {"alphabet": "abcdefgh", "haystack": (1, 20), "needle": (1, 8)},
    {"haystack": 30, "needle": 1},  # nearly every random haystack would hold the needle
    {"alphabet": "éא😀", "haystack": (3, 3), "needle": (3, 3)},
]


def every_example(alphabet, haystack, needle):
    """All texts with these lengths, of both parts, and their labels."""
    for letters in product(alphabet, repeat=haystack + needle):
        h, m = "".join(letters[:haystack]), "".join(letters[haystack:])
        yield f"{h}|{m}", int(m in h)


def part_of(text):
    keys = hash_rows(np.array([[ord(character) for character in text]]))
    return "validation" if is_validation(keys)[0] else "train"


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_A1_the_label_says_whether_the_needle_occurs(options):
    task = Substrings(**options)
    for text, label in zip(*task.examples(range(400)), strict=True):
        haystack, needle = text.split("|")
        assert label == (needle in haystack)


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_A1_lengths_and_letters_are_as_asked_and_every_length_occurs(options):
    task = Substrings(**options)
    texts, _ = task.examples(range(2000))
    pairs = [tuple(map(len, text.split("|"))) for text in texts]
    (shortest, longest), (least, most) = task.haystack, task.needle
    asked = [(h, m) for h in range(shortest, longest + 1) for m in range(least, most + 1) if m <= h]
    assert set(pairs) == set(asked)
    assert set("".join(texts)) == set(task.alphabet + "|")
    assert max(map(len, texts)) + 1 == task.max_len


@pytest.mark.parametrize("start", [0, 1, 37])
def test_A1_classes_are_balanced_in_any_stretch(start):
    _, labels = Substrings().examples(range(start, start + 100))
    assert sum(labels) == 50


def test_lengths_tell_nothing_about_the_label():
    texts, labels = Substrings(haystack=(3, 6), needle=(1, 3)).examples(range(8000))
    of_length = {}
    for text, label in zip(texts, labels, strict=True):
        of_length.setdefault(tuple(map(len, text.split("|"))), []).append(label)
    assert all(0.42 < sum(found) / len(found) < 0.58 for found in of_length.values())


def test_A1_training_and_validation_never_overlap_whatever_seed_or_setting():
    def texts(**options):
        found = set()
        for seed in range(3):
            found |= set(Substrings(seed=seed, **options).examples(range(1500))[0])
        return found

    train = texts() | texts(haystack=(2, 6)) | texts(alphabet="cabd")
    validation = texts(part="validation") | texts(haystack=(2, 6), part="validation")
    assert not train & validation
    assert {part_of(text) for text in train} == {"train"}
    assert {part_of(text) for text in validation} == {"validation"}


def test_A1_of_all_texts_each_has_one_part_and_one_in_ten_is_for_validation():
    parts = [part_of(text) for text, _ in every_example("abc", 5, 2)]
    assert set(parts) == {"train", "validation"}
    assert 0.07 < parts.count("validation") / len(parts) < 0.13


def test_lengths_of_which_a_part_has_no_text_of_a_label_are_left_out():
    """Of nine texts ab|ab none may be for validation; others of the asked lengths are."""
    task = Substrings(haystack=(2, 6), needle=(1, 3), part="validation")
    texts, labels = task.examples(range(600))
    assert sum(labels) == 300
    assert {part_of(text) for text in texts} == {"validation"}
    two = Substrings("ab", (1, 30), 1, part="validation")  # but two texts of a length are a 0
    assert [t.split("|")[1] in t.split("|")[0] for t in two.examples(range(99))[0]] == [
        index % 2 == 1 for index in range(99)
    ]


def test_both_parts_draw_on_all_of_their_texts():
    every = dict(every_example("ab", 3, 2))
    for part in ("train", "validation"):
        texts, labels = Substrings("ab", 3, 2, part=part).examples(range(4000))
        assert set(texts) == {text for text in every if part_of(text) == part}
        assert all(every[text] == label for text, label in zip(texts, labels, strict=True))


def test_A1_an_example_is_a_function_of_seed_and_index():
    task = Substrings(seed=3)
    texts, labels = task.examples(range(60))
    assert [task[i] for i in (0, 59, 17)] == [(texts[i], labels[i]) for i in (0, 59, 17)]
    assert Substrings(seed=3).examples([40, 2, 40])[0] == [texts[40], texts[2], texts[40]]
    assert Substrings(seed=4).examples(range(60))[0] != texts
    validation = Substrings(seed=3, part="validation")
    assert validation[7] == validation[7] != task[7]
    assert task[10**12] == task[10**12]


def test_examples_stay_what_they_are():
    """Golden values: a saved run and its data belong together."""
    assert Substrings().examples(range(4)) == (GOLDEN, [0, 1, 0, 1])


GOLDEN = ["cccccb|a", "acca|a", "ccbbbacba|bc", "aabcbab|b"]


# Batches


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_A1_a_batch_is_what_the_tokenizer_gives(options):
    task = Substrings(**options)
    indices = [5, 0, 8, 3, 3]
    texts, labels = task.examples(indices)
    batch = task.batch(indices)
    assert task.tokenizer == CharTokenizer(task.alphabet + "|")
    assert [t[m].tolist() for t, m in zip(batch.inputs, batch.token_mask, strict=True)] == [
        task.tokenizer.encode(text) for text in texts
    ]
    assert batch.targets.tolist() == labels
    assert (batch.inputs[~batch.token_mask] == 0).all()
    assert batch.inputs.size(1) == max(map(len, texts)) + 1


def test_A1_one_hot_rows_are_those_of_the_tokenizer_and_padding_is_zero():
    task = Substrings()
    texts, _ = task.examples(range(6))
    batch, ids = task.batch(range(6), one_hot=True), task.batch(range(6))
    assert batch.inputs.shape == (*ids.inputs.shape, 5)
    for text, rows, mask in zip(texts, batch.inputs, batch.token_mask, strict=True):
        assert torch.equal(rows[mask], task.tokenizer.one_hot(text))
        assert (rows[~mask] == 0).all()


def test_N23_no_example_is_an_empty_batch():
    batch = Substrings().batch([])
    assert (len(batch), batch.inputs.shape) == (0, (0, 1))
    assert Substrings().examples([]) == ([], [])
    assert Substrings().batch([], one_hot=True).inputs.shape == (0, 1, 5)


# Bad settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"haystack": 3, "needle": 4}, "a needle longer than its haystack never occurs"),
        ({"haystack": (2, 9), "needle": 3}, "needle lengths 3 to 3 do not go with haystack"),
        ({"haystack": (2, 4), "needle": (1, 5)}, "needle lengths 1 to 5 do not go"),
        ({"haystack": (5, 4)}, r"haystack lengths must be \(shortest, longest\).* got \(5, 4\)"),
        ({"needle": 0}, "the shortest needle must be at least 1, got 0"),
        ({"alphabet": "a"}, "alphabet must have at least 2 different letters"),
        ({"alphabet": ""}, "alphabet must have at least 2 different letters"),
        ({"alphabet": "aab"}, "each once"),
        ({"alphabet": "ab|"}, r"not the separator '\|', got 'ab\|'"),
        ({"alphabet": "a\ud800"}, "half a surrogate pair"),
        ({"part": "test"}, "part must be one of 'train', 'validation', got 'test'"),
        (
            {"alphabet": "ab", "haystack": 1, "needle": 1, "part": "validation"},
            "too few texts of letters 'ab'.* for validation examples of both labels; use longer",
        ),
    ],
)
def test_A1_impossible_settings_are_refused_with_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        Substrings(**options)


@pytest.mark.parametrize("length", [1.5, "3", None, (1, 2, 3), (2,), True])
def test_lengths_of_another_type_are_refused(length):
    with pytest.raises(TypeError, match="haystack"):
        Substrings(haystack=length)


@pytest.mark.parametrize(
    ("indices", "error", "words"),
    [
        ([3, -1], ValueError, r"indices\[1\] must not be negative, got -1"),
        ([2**63], ValueError, r"indices\[0\] must be below 2⁶³, got 9223372036854775808"),
        ([0.5], TypeError, r"indices\[0\] must be a whole number, got 0.5 of type float"),
        ([0, True], TypeError, r"indices\[1\] must be a whole number, got True of type bool"),
        (["1"], TypeError, r"indices\[0\] must be a whole number, got '1'"),
        ([[1, 2]], TypeError, r"indices\[0\] must be a whole number, got \[1, 2\]"),
        ("12", TypeError, "indices must be a list of whole numbers, got '12'"),
        (7, TypeError, "indices must be a list of whole numbers, got 7"),
        (np.array([1.0]), TypeError, r"indices\[0\] must be a whole number, got 1.0"),
        (torch.tensor([True]), TypeError, r"indices\[0\] must be a whole number, got True"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda indices: Substrings().examples(indices),
        lambda indices: Substrings().batch(indices),
        lambda indices: GeneratedPairs().examples(indices),
    ],
    ids=["texts", "batch", "pairs"],
)
def test_indices_are_whole_numbers_from_zero_on(use, indices, error, words):
    with pytest.raises(error, match=words):
        use(indices)


@pytest.mark.parametrize(
    "indices",
    [
        (3, 5),
        range(3, 6, 2),
        np.array([3, 5], dtype=np.uint8),
        [np.int64(3), torch.tensor(5)],
        torch.tensor([3, 5], dtype=torch.int32),
    ],
    ids=str,
)
def test_indices_may_be_of_numpy_and_pytorch(indices):
    assert Substrings().examples(indices) == Substrings().examples([3, 5])
    assert GeneratedPairs().examples(indices) == GeneratedPairs().examples([3, 5])
    assert Substrings()[np.int64(3)] == Substrings()[3]


def test_settings_may_be_of_numpy():
    task = Substrings(haystack=np.int64(9), needle=(np.uint8(2), np.int32(3)), seed=np.int64(4))
    assert (task.haystack, task.needle) == ((9, 9), (2, 3))
    assert task[5] == Substrings(haystack=9, needle=(2, 3), seed=4)[5]
    with pytest.raises(TypeError, match=r"seed must be a whole number, got 1\.5 of type float"):
        Substrings(seed=1.5)


def test_a_very_long_haystack_overflows_nothing():
    text, label = Substrings(haystack=1500, needle=9)[1]
    assert label == 1
    assert len(text) == 1510


@settings(max_examples=40)
@given(st.data())
def test_A1_any_possible_setting_gives_right_labels(data):
    alphabet = data.draw(st.text("abcdefg", min_size=2, max_size=7).map(lambda t: "".join(set(t))))
    low = data.draw(st.integers(3, 8))
    high = data.draw(st.integers(low, 12))
    most = data.draw(st.integers(2, high))
    if len(alphabet) < 2:
        return
    task = Substrings(alphabet, (low, high), (2, most), seed=data.draw(st.integers(-5, 5)))
    texts, labels = task.examples(range(20))
    assert [t.split("|")[1] in t.split("|")[0] for t in texts] == [bool(label) for label in labels]

"""Sentence pairs: read from a file, or generated so that they can be translated."""

import re
from datetime import date

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import (
    CharTokenizer,
    GeneratedPairs,
    Pairs,
    WordTokenizer,
    pair_tokenizers,
    read_pairs,
    split,
)
from clearhead.data.batch import IGNORE
from clearhead.data.number_words import spell_number, spell_ordinal, spell_year
from clearhead.data.pairs import DATES, MONTHS, NUMBERS, WEEKDAYS
from clearhead.files import BadFile

SMALL = [("we know", "wir wissen"), ("go", "geh"), ("who is there ?", "wer da ?")]


@pytest.fixture
def written(tmp_path):
    def written(content):
        (tmp_path / "pairs.tsv").write_bytes(content)
        return read_pairs(tmp_path / "pairs.tsv")

    return written


# From a file


def test_E7_the_first_two_columns_are_a_pair(written):
    content = "# English\tGerman\nGo.\tGeh.\tCC-BY 2.0 (France)\t#1\n\n  We know.\t Wir wissen. \n"
    assert written(content.encode()) == [("Go.", "Geh."), ("We know.", "Wir wissen.")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_F17_lines_may_end_in_any_way(written, end):
    assert written(end.join([b"a\tb", b"c\td", b""])) == [("a", "b"), ("c", "d")]


def test_F17_any_script_comes_back(written):
    text = "שלום\t👩‍❤️‍💋‍👨 e\u0301\n"
    assert written(text.encode()) == [("שלום", "👩‍❤️‍💋‍👨 e\u0301")]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a\tb\nno tab\n", 2),
        (b"# x\n\n\ta\n", 3),
        (b"a\t\n", 1),
        (b"a\t \tb\n", 1),
        (b"a\tb\nc\td\n\n  \t  x\n", 4),
    ],
)
def test_E7_a_bad_line_is_named_by_its_number(written, content, line):
    with pytest.raises(BadFile, match=rf"pairs\.tsv lacks two sentences .* in line {line}:"):
        written(content)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only a comment\tx\n", b" \t \n"])
def test_E7_a_file_without_a_pair_is_refused(written, content):
    with pytest.raises(BadFile, match=r"pairs\.tsv holds no sentence pair"):
        written(content)


@pytest.mark.parametrize("content", [b"a\0\tb", b"a\t\xff", b"\xed\xa0\x80\tb"])
def test_F17_a_file_that_is_no_text_is_refused_with_the_offset(written, content):
    with pytest.raises(BadFile, match=r"pairs\.tsv.*byte \d"):
        written(content)


def test_E7_two_translations_of_a_sentence_stay_in_one_part():
    pairs = [(f"s{i % 20}", f"t{i}") for i in range(60)]
    train, validation = split(pairs, seed=0, share=0.2, key=lambda pair: pair[0])
    assert len(validation) == 12
    assert not {s for s, _ in train} & {s for s, _ in validation}


# Generated: dates


def read_date(words):
    """The date that a text tells, read by other means than it was written."""
    days = {spell_ordinal(n): n for n in range(1, 32)}
    years = {spell_year(n): n for n in range(1500, 2100)}
    words = re.sub(r"(\d)(st|nd|rd|th)\b", r"\1", words)
    if match := re.fullmatch(r"(\d+)/(\d+)/(\d+)", words):
        return date(int(match[3]), int(match[2]), int(match[1]))
    if match := re.fullmatch(r"(?:the )?([a-z-]+) (?:of |the )([a-z-]+), (.*)", words):
        day, month = (match[1], match[2]) if match[2] in MONTHS else (match[2], match[1])
        return date(years[match[3]], MONTHS.index(month) + 1, days[day])
    weekday, comma, rest = words.partition(", ")
    if comma and weekday in WEEKDAYS:
        found = read_date(rest.replace(" of ", " "))
        assert WEEKDAYS[found.weekday()] == weekday
        return found
    day, month, year = re.fullmatch(r"(\w+) (\w+),? (\d+)", words).groups()
    day, month = (day, month) if day.isdigit() else (month, day)
    number = next(i for i, name in enumerate(MONTHS, 1) if month in (name, name[:3]))
    return date(int(year), number, int(day))


def test_E7_the_third_of_march_in_all_its_forms():
    day = date(1984, 3, 3)
    assert [write(day) for write in DATES] == [
        "the third of march, nineteen eighty-four",
        "march the third, nineteen eighty-four",
        "march 3rd 1984",
        "3 march 1984",
        "saturday, 3rd of march 1984",
        "mar 3, 1984",
        "3/3/1984",
    ]


@pytest.mark.parametrize("part", ["train", "validation"])
def test_E7_a_date_and_its_translation_are_the_same_day(part):
    for words, digits in GeneratedPairs("dates", part=part).examples(range(500)):
        assert read_date(words).isoformat() == digits


def test_E7_a_number_and_its_translation_are_the_same_number():
    for words, digits in GeneratedPairs("numbers").examples(range(500)):
        n = int(digits)
        assert words in {write(n) for write in NUMBERS}
        assert digits == str(n)
    lengths = [len(digits) for _, digits in GeneratedPairs("numbers").examples(range(2000))]
    assert set(lengths) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(("kind", "forms"), [("dates", DATES), ("numbers", NUMBERS)])
def test_E7_every_form_occurs_about_as_often(kind, forms):
    pairs = GeneratedPairs(kind).examples(range(1400))
    counts = [0] * len(forms)
    for words, digits in pairs:
        value = date.fromisoformat(digits) if kind == "dates" else int(digits)
        fitting = [i for i, write in enumerate(forms) if write(value) == words]
        counts[fitting[0]] += 1
    assert min(counts) > 0.5 * len(pairs) / len(forms)


@pytest.mark.parametrize("kind", ["dates", "numbers"])
def test_E7_reversed_there_is_one_translation(kind):
    pairs = GeneratedPairs(kind, reverse=True).examples(range(3000))
    known = {}
    for digits, words in pairs:
        assert known.setdefault(digits, words) == words
    there = GeneratedPairs(kind).examples(range(3000))
    assert [digits for digits, _ in pairs] == [digits for _, digits in there]
    if kind == "numbers":
        assert all(words == spell_number(int(digits)) for digits, words in pairs)


@pytest.mark.parametrize("kind", ["dates", "numbers"])
def test_E7_no_meaning_of_validation_is_in_training_in_whatever_form(kind):
    def meanings(part):
        rows = [GeneratedPairs(kind, seed=s, part=part).examples(range(3000)) for s in (0, 1)]
        return {digits for row in rows for _, digits in row}

    assert not meanings("train") & meanings("validation")


def test_E7_an_example_is_a_function_of_seed_and_index():
    pairs = GeneratedPairs(seed=3)
    many = pairs.examples(range(50))
    assert [pairs[i] for i in (0, 49, 17)] == [many[i] for i in (0, 49, 17)]
    assert GeneratedPairs(seed=3).examples([17, 2, 17]) == [many[17], many[2], many[17]]
    assert GeneratedPairs(seed=4).examples(range(50)) != many
    assert pairs.examples([]) == []


def test_examples_stay_what_they_are():
    """Golden values: a saved run and its data belong together."""
    assert GeneratedPairs().examples(range(2)) == [
        ("jan 6, 1905", "1905-01-06"),
        ("january 13th 1859", "1859-01-13"),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "verbs"}, "kind must be one of 'dates', 'numbers', got 'verbs'"),
        ({"part": "test"}, "part must be one of 'train', 'validation', got 'test'"),
    ],
)
def test_wrong_settings_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        GeneratedPairs(**options)


def test_a_seed_is_a_whole_number():
    assert GeneratedPairs(seed=np.int64(4))[2] == GeneratedPairs(seed=4)[2]
    with pytest.raises(TypeError, match="seed must be a whole number, got '0'"):
        GeneratedPairs(seed="0")


# Tokens and batches


@pytest.mark.parametrize("source", ["words", "characters"])
@pytest.mark.parametrize("target", ["words", "characters"])
def test_E7_both_sides_have_tokens_of_the_asked_kind_with_start_and_end(source, target):
    tokenizers = pair_tokenizers(SMALL, source=source, target=target)
    for tokenizer, kind, side in zip(tokenizers, (source, target), (0, 1), strict=True):
        assert tokenizer.kind == kind
        for pair in SMALL:
            ids = tokenizer.encode(pair[side])
            assert (ids[0], ids[-1]) == (tokenizer.start_id, tokenizer.end_id)
            assert tokenizer.decode(ids) == pair[side]
    with pytest.raises(ValueError, match="source must be one of 'words', 'characters'"):
        pair_tokenizers(SMALL, source="bytes")


def test_E7_inputs_go_from_start_and_targets_to_end():
    source, target = pair_tokenizers(SMALL, source="words", target="words")
    batch = Pairs(SMALL, source, target).batch([1, 0])
    assert source.decode_batch(batch.source) == ["go", "we know"]
    assert batch.source_mask.tolist() == [[True] * 3 + [False], [True] * 4]
    assert target.decode_batch(batch.inputs, specials=True) == [
        "<start> geh <pad>",
        "<start> wir wissen",
    ]
    geh, wir, wissen = (target.ids_of([word])[0] for word in ("geh", "wir", "wissen"))
    assert batch.targets.tolist() == [[geh, target.end_id, IGNORE], [wir, wissen, target.end_id]]
    assert batch.token_mask.tolist() == [[True, True, False], [True] * 3]


@given(st.lists(st.tuples(st.text("ab ", max_size=5), st.text("xy", max_size=7)), min_size=1))
def test_E7_each_target_is_the_input_after_it_and_all_are_counted(pairs):
    tokenizer = CharTokenizer("abxy ", cls=False, start=True, pad=True, end=True)
    data = Pairs(pairs, tokenizer, tokenizer)
    batch = data.batch(range(len(pairs)))
    for inputs, targets, mask, (_, text) in zip(
        batch.inputs, batch.targets, batch.token_mask, pairs, strict=True
    ):
        assert [*inputs[mask].tolist(), tokenizer.end_id] == tokenizer.encode(text)
        assert [tokenizer.start_id, *targets[mask].tolist()] == tokenizer.encode(text)
        assert (targets[~mask] == IGNORE).all()
    assert data.max_len == max(len(text) for pair in pairs for text in pair) + 2


@pytest.mark.parametrize("n", range(1, 18))
def test_T26_each_pair_comes_once_in_an_epoch(n):
    pairs = [("a" * (1 + i % 5), "x" * i) for i in range(n)]
    tokenizer = CharTokenizer("ax", cls=False, start=True, pad=True, end=True)
    data = Pairs(pairs, tokenizer, tokenizer)
    assert len(data) == n
    for batches in (
        data.batches(4, seed=1, epoch=2),
        data.bucketed_batches(4, seed=1, epoch=2),
        data.bucketed_batches(max_tokens=64, epoch=1),
    ):
        lengths = [int(m.sum()) - 1 for batch in batches for m in batch.token_mask]
        assert sorted(lengths) == list(range(n))


def test_the_order_is_a_function_of_seed_and_epoch():
    source, target = pair_tokenizers(SMALL * 4)
    data = Pairs(SMALL * 4, source, target)
    first, again, other = (data.batches(3, seed=1, epoch=e) for e in (0, 0, 1))
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again, strict=True))
    assert first.plans != other.plans


def test_a_target_without_start_or_end_is_refused():
    plain = CharTokenizer("go eh", cls=False)
    with pytest.raises(ValueError, match="the target's tokenizer needs start and end"):
        Pairs([("go", "geh")], plain, plain)
    with pytest.raises(ValueError, match="the target's tokenizer needs start and end"):
        Pairs([("go", "geh")], plain, WordTokenizer(["geh"]))
    with pytest.raises(ValueError, match="pairs must hold at least one"):
        Pairs([], plain, WordTokenizer([], end=True))


def test_only_pairs_that_are_there_are_given():
    data = Pairs(SMALL, *pair_tokenizers(SMALL))
    assert data.lengths == [9 + 12, 4 + 5, 16 + 10]
    assert torch.equal(data.batch(np.array([2, 0])).inputs, data.batch([2, 0]).inputs)
    assert len(data.batch([])) == 0
    with pytest.raises(IndexError, match=r"indices\[1\] is 3, but there are 3 examples; the last"):
        data.batch([0, 3])
    with pytest.raises(ValueError, match=r"indices\[0\] must not be negative, got -1"):
        data.batch([-1])
    with pytest.raises(TypeError, match=r"indices\[0\] must be a whole number, got True"):
        data.batch([True])


def test_a_batch_of_pairs_has_at_most_twice_max_tokens_with_its_padding():
    pairs = [("a" * i, "a" * (30 - i)) for i in range(31)]
    data = Pairs(pairs, *pair_tokenizers(pairs))
    sizes = [b.source.numel() + b.inputs.numel() for b in data.bucketed_batches(max_tokens=170)]
    assert 170 < max(sizes) <= 340


@pytest.mark.parametrize("kind", ["dates", "numbers"])
@pytest.mark.parametrize("reverse", [False, True])
def test_every_source_has_a_known_form_whatever_its_seed_and_part(kind, reverse):
    pairs = GeneratedPairs(kind, seed=5, part="validation", reverse=reverse)
    sources = [source for source, _ in pairs.examples(range(3000))]
    assert [source for source in sources if not pairs.has_form_of(source)] == []


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("3 may 1984", True),
        ("the twenty-first of march, nineteen oh five", True),
        ("3/13/1984", True),  # a known form, though no date
        ("1984/03/03", False),
        ("march 3rd, 1984", False),
        ("the third of march nineteen eighty-four", False),
        ("3 mayday 1984", False),
        ("hello", False),
        ("", False),
    ],
)
def test_a_text_in_another_form_is_noticed(text, known):
    assert GeneratedPairs("dates").has_form_of(text) == known

"""The speeches of a play, as batches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from clearhead.attention import Mask
from clearhead.data import CharTokenizer, Dialogue, WordTokenizer, read_speeches, split_speeches
from clearhead.data.batch import IGNORE
from clearhead.files import BadFile

PLAY = """\
First Citizen:
Before we proceed any further, hear me speak.

All:
Speak, speak.

First Citizen:
You are all resolved rather to die
than to famish?
"""

GUTENBERG = """\
HAMLET, PRINCE OF DENMARK

by William Shakespeare

PERSONS REPRESENTED.

Claudius, King of Denmark.
Hamlet, Son to the former.

ACT I.

Scene I. Elsinore.
A platform before the Castle.

[Francisco at his post.
Enter to him Bernardo.]

Ber.
Who's there?

KING HENRY
How now!

2 Clown.
Why, he had none.

And I am sick at heart,
so to say.

[Exit.]
"""


def word_data(**options):
    speeches = split_speeches(PLAY)
    return Dialogue(speeches, WordTokenizer.of(speeches, keep_newlines=True), **options)


def data_of(lengths, **options):
    """Speeches of one letter, so many of them; a row is <start>, then they."""
    tokenizer = CharTokenizer("a", cls=False, start=True, pad=True)
    return Dialogue(["a" * (n - 1) for n in lengths], tokenizer, **options)


# Speeches


def test_D7_speeches_stand_between_blank_lines():
    speeches = split_speeches(PLAY)
    assert len(speeches) == 3
    assert speeches[1] == "All:\nSpeak, speak."
    assert speeches[2].endswith("to die\nthan to famish?")


@pytest.mark.parametrize(
    "text",
    [
        "a\nb\n\nc",
        "\n\na\nb\n\n\n\nc\n\n",
        "a\nb\n \t \nc",
        "a\r\nb\r\n\r\nc\r\n",
        "a\rb\r\rc",
        "\n \na\nb\n\nc",
    ],
)
def test_D7_blank_lines_may_be_many_hold_blanks_or_end_in_another_way(text):
    assert split_speeches(text) == ["a\nb", "c"]


def test_indents_inside_a_speech_are_kept():
    assert split_speeches("A.\n   Go,\n\n   B") == ["A.\n   Go,", "   B"]


@given(st.lists(st.text("ab \n:", min_size=1), max_size=6))
def test_no_letter_of_a_play_is_lost(parts):
    text = "\n\n".join(parts)
    found = split_speeches(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(speech.strip() and "\n\n" not in speech for speech in found)


def test_only_spoken_leaves_out_what_no_name_heads():
    assert split_speeches(GUTENBERG, only_spoken=True) == [
        "Ber.\nWho's there?",
        "KING HENRY\nHow now!",
        "2 Clown.\nWhy, he had none.",
    ]
    assert split_speeches(PLAY, only_spoken=True) == split_speeches(PLAY)


def test_D7_a_play_is_read_from_a_file(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text(PLAY, encoding="utf-8")
    assert read_speeches(path) == split_speeches(PLAY)
    assert read_speeches(str(path), only_spoken=True) == split_speeches(PLAY)


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\t\n \r\n"])
def test_D7_a_file_without_a_speech_is_refused(tmp_path, content):
    (tmp_path / "empty.txt").write_bytes(content)
    with pytest.raises(BadFile, match=r"empty\.txt holds no speech"):
        read_speeches(tmp_path / "empty.txt")


@pytest.mark.parametrize("content", [b"a\0b", b"a\xff", b"\xed\xa0\x80"])
def test_F17_a_file_that_is_no_text_is_refused_with_the_offset(tmp_path, content):
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(BadFile, match=r"bad\.txt.*byte \d"):
        read_speeches(tmp_path / "bad.txt")
    with pytest.raises(BadFile, match="is not there"):
        read_speeches(tmp_path / "none.txt")


def test_no_speech_is_no_data():
    assert split_speeches("") == []
    with pytest.raises(ValueError, match="speeches must hold at least one speech"):
        Dialogue([], WordTokenizer([]))


# Batches


def test_D7_batches_have_right_padded_input_ids_and_input_mask():
    data = word_data()
    batch = data.batch([0, 1])
    assert batch.input_ids.shape == batch.input_mask.shape
    assert batch.input_mask.dtype == torch.bool
    speeches = split_speeches(PLAY)
    for ids, mask, speech in zip(batch.input_ids, batch.input_mask, speeches, strict=False):
        n = int(mask.sum())
        assert mask.tolist() == [True] * n + [False] * (len(mask) - n)
        assert ids[:n].tolist() == data.tokenizer.encode(speech)
        assert (ids[n:] == data.tokenizer.pad_id).all()
        assert data.tokenizer.detokenize(ids) == speech


def test_D7_the_names_of_the_loader_are_attributes_and_keys():
    batch = word_data().batch([0])
    assert batch["input_ids"] is batch.input_ids is batch.inputs
    assert batch["input_mask"] is batch.input_mask is batch.token_mask
    assert set(dict(batch)) == {"input_ids", "input_mask"}
    with pytest.raises(KeyError, match="labels"):
        batch["labels"]
    assert batch.to("meta").input_ids.device.type == "meta"


def test_D9_targets_are_the_next_tokens_and_never_start_or_padding():
    batch = word_data().batch([0, 1, 2])
    ids, targets = batch.input_ids, batch.targets
    known = targets != IGNORE
    assert torch.equal(targets[:, :-1][known[:, :-1]], ids[:, 1:][known[:, :-1]])
    assert torch.equal(known.sum(1), batch.input_mask.sum(1) - 1)
    assert not (targets == word_data().tokenizer.start_id).any()
    assert not (targets == word_data().tokenizer.pad_id).any()


KINDS = {
    "random": lambda data, **place: data.batches(4, **place),
    "bucketed": lambda data, **place: data.bucketed_batches(4, **place),
    "by tokens": lambda data, **place: data.bucketed_batches(max_tokens=40, **place),
    "packed": lambda data, **place: data.packed_batches(32, 3, **place),
}


def speeches_in(batch):
    """Lengths of the speeches of a batch."""
    if batch.segments is None:
        return batch.input_mask.sum(1).tolist()
    rows = [row[row >= 0].unique(return_counts=True)[1].tolist() for row in batch.segments]
    return [n for row in rows for n in row]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("n", range(1, 18))
def test_T26_each_speech_comes_once_in_an_epoch(kind, n):
    lengths = [2 + (i * 7) % 19 for i in range(n)]
    data = data_of(lengths)
    for epoch in (0, 3):
        batches = kind(data, seed=1, epoch=epoch)
        found = [length for batch in batches for length in speeches_in(batch)]
        assert sorted(found) == sorted(lengths)
        assert sum(int((b.targets != IGNORE).sum()) for b in batches) == sum(lengths) - n


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_the_order_is_a_function_of_seed_and_epoch(kind):
    data = data_of([2 + (i * 7) % 19 for i in range(60)])

    def look(**place):
        return [speeches_in(batch) for batch in kind(data, **place)]

    assert look(seed=1, epoch=2) == look(seed=1, epoch=2)
    assert look(seed=1, epoch=2) != look(seed=1, epoch=3)
    assert look(seed=1, epoch=2) != look(seed=2, epoch=2)
    batches = kind(data, seed=1, epoch=2)
    assert [speeches_in(b) for b in batches[2:]] == look(seed=1, epoch=2)[2:]


def test_buckets_and_packing_leave_little_padding():
    data = data_of([2 + (i * i * 13) % 61 for i in range(500)])

    def padding(batches):
        masks = [batch.input_mask for batch in batches]
        return 1 - sum(int(m.sum()) for m in masks) / sum(m.numel() for m in masks)

    assert padding(data.batches(16)) > 0.4
    assert padding(data.bucketed_batches(16)) < 0.05
    assert padding(data.packed_batches(128, 4)) < 0.04


def test_packed_batches_tell_segments_and_positions():
    batch = data_of([3, 5, 2, 6]).packed_batches(8, 2)[0]
    assert batch.input_ids.shape == batch.segments.shape == batch.positions.shape == (2, 8)
    assert torch.equal(batch.segments >= 0, batch.input_mask)
    counted = Mask.segments(batch.segments).positions(8)
    assert torch.equal(counted[batch.input_mask], batch.positions[batch.input_mask])
    starts = batch.input_mask & (batch.positions == 0)
    assert (batch.input_ids[starts] == 0).all()
    assert not (batch.targets == 0).any()


def test_the_epochs_of_a_large_play_differ_in_who_shares_a_row(monkeypatch):
    monkeypatch.setattr("clearhead.data.dialogue.WINDOW", 20)
    data = data_of(range(2, 62))

    def shared(epoch):
        plans = data.packed_batches(64, 4, epoch=epoch).plans
        return {frozenset(row) for rows in plans for row in rows}

    assert shared(0) == shared(0) != shared(1)


def test_a_speech_too_long_for_a_row_is_refused():
    with pytest.raises(ValueError, match=r"lengths\[1\] is 9, more than row_length=8; cut the"):
        data_of([3, 9]).packed_batches(8, 2)


def test_a_speech_that_fits_no_row_is_named_by_its_place_in_the_play(monkeypatch):
    monkeypatch.setattr("clearhead.data.dialogue.WINDOW", 4)
    with pytest.raises(ValueError, match=r"lengths\[17\] is 9, more than row_length=8"):
        data_of([3] * 17 + [9] + [3] * 5).packed_batches(8, 2)
    empty = Dialogue(["a", ""], CharTokenizer("a", cls=False))
    with pytest.raises(ValueError, match=r"lengths\[1\] is 0: a document without a token"):
        empty.packed_batches(8, 2)
    assert empty.batch([1, 0]).input_mask.tolist() == [[False], [True]]


def test_only_speeches_that_are_there_are_given():
    data = data_of([3, 5])
    assert torch.equal(data.batch(torch.tensor([1, 0])).inputs, data.batch([1, 0]).inputs)
    assert data.batch([]).input_ids.shape == (0, 0)
    for use in (data.batch, lambda row: data.packed_batch([row], 8)):
        with pytest.raises(IndexError, match=r"indices\[0\] is 2, but there are 2 examples"):
            use([2])
        with pytest.raises(ValueError, match=r"indices\[1\] must not be negative, got -2"):
            use([0, -2])
        with pytest.raises(TypeError, match=r"indices\[0\] must be a whole number, got 1.0"):
            use([1.0])


# Long speeches


def test_a_long_speech_is_cut_at_max_len():
    data = data_of([3, 9, 4], max_len=4)
    assert [len(row) for row in data.rows] == [3, 4, 4]
    assert data.n_long == 1
    assert data.rows[1] == [0, 2, 2, 2]


def test_a_long_speech_is_split_into_rows_that_each_begin_with_start():
    tokenizer = CharTokenizer("abcdefgh", cls=False, start=True, end=True)
    data = Dialogue(["abcdefgh", "ab"], tokenizer, max_len=4, long="split")
    assert tokenizer.decode_batch(data.rows) == ["abc", "def", "gh", "ab"]
    assert all(row[0] == tokenizer.start_id and len(row) <= 4 for row in data.rows)
    assert [row[-1] == tokenizer.end_id for row in data.rows] == [False, False, True, True]
    assert data.n_long == 1
    assert len(data) == 4


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(2, 12), st.booleans())
def test_splitting_loses_nothing(lengths, max_len, start):
    text = ["".join(chr(97 + i % 26) for i in range(n)) for n in lengths]
    tokenizer = CharTokenizer.of("".join(text), cls=False, start=start)
    data = Dialogue(text, tokenizer, max_len=max_len, long="split")
    assert tokenizer.decode([i for row in data.rows for i in row]) == "".join(text)
    assert all(1 <= len(row) <= max_len for row in data.rows)


def test_a_row_with_room_for_start_alone_cannot_be_split_into():
    with pytest.raises(ValueError, match="max_len without <start> must be at least 1, got 0"):
        data_of([3], max_len=1, long="split")
    with pytest.raises(ValueError, match="long must be one of 'cut', 'split', got 'drop'"):
        data_of([3], long="drop")
    with pytest.raises(ValueError, match="max_len must be at least 1"):
        data_of([3], max_len=0)


def test_a_tokenizer_without_padding_fills_up_with_any_id_under_the_mask():
    data = Dialogue(["ab", "a"], CharTokenizer("ab", cls=None))
    batch = data.batch([0, 1])
    assert batch.input_ids.tolist() == [[0, 1], [0, 0]]
    assert batch.input_mask.tolist() == [[True, True], [True, False]]


# One speech at a time


def test_D7_a_speech_by_its_index_is_padded_on_the_right_to_the_longest_of_all():
    data = word_data()
    assert len(data) == len(data.rows) == 3
    for i, row in enumerate(data.rows):
        item = data[i]
        assert item.keys() == {"input_ids", "input_mask"}
        assert item["input_ids"].shape == item["input_mask"].shape == (max(data.lengths),)
        assert item["input_mask"].tolist() == [t < len(row) for t in range(max(data.lengths))]
        assert item["input_ids"][: len(row)].tolist() == row
        assert set(item["input_ids"][len(row) :].tolist()) <= {data.tokenizer.pad_id}
    assert torch.equal(data[-1]["input_ids"], data[2]["input_ids"])
    assert len(list(data)) == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_D7_a_plain_loader_gives_padded_batches(workers):
    data = data_of([5, 2, 7, 3, 4])
    batches = list(DataLoader(data, batch_size=2, num_workers=workers))
    assert [tuple(batch["input_ids"].shape) for batch in batches] == [(2, 7), (2, 7), (1, 7)]
    rows = [row for batch in batches for row in batch["input_ids"].tolist()]
    masks = [row for batch in batches for row in batch["input_mask"].tolist()]
    assert [sum(mask) for mask in masks] == [5, 2, 7, 3, 4]
    assert [row[: sum(mask)] for row, mask in zip(rows, masks, strict=True)] == data.rows


def test_D7_collate_gives_the_batches_of_the_data_set():
    data = data_of([5, 2, 7, 3, 4])
    loader = DataLoader(data, batch_size=2, collate_fn=data.collate)
    for i, batch in enumerate(loader):
        expected = data.batch(range(2 * i, min(2 * i + 2, 5)))
        for name in ("input_ids", "input_mask", "targets"):
            assert torch.equal(getattr(batch, name), getattr(expected, name))
        assert dict(batch).keys() == {"input_ids", "input_mask"}


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_without_a_speech_is_named(index):
    with pytest.raises(IndexError, match=f"index is {index}, but there are 3 examples; the last"):
        word_data()[index]


@pytest.mark.parametrize("index", [1.0, True, "1", None])
def test_an_index_is_a_whole_number(index):
    with pytest.raises(TypeError, match="index must be a whole number"):
        word_data()[index]

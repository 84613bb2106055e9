"""Token files: what was written is read, any window, from any shard; damage is one sentence."""

import hashlib
import json
import os
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clearhead
from clearhead.data import CharTokenizer, TokenFile, WordTokenizer, write_token_file
from clearhead.data.token_file import verify
from clearhead.files import BadFile
from clearhead.training.tasks.characters import CharacterData

TOKENIZER = CharTokenizer("abcdefg", cls=None)
IDS = [(i * i + i // 3) % 7 for i in range(53)]


@pytest.fixture
def folder(tmp_path):
    write_token_file(tmp_path / "x.tokens", TOKENIZER, [IDS[:5], [], IDS[5:]], shard_tokens=20)
    return tmp_path / "x.tokens"


def change_header(folder, **changes):
    values = {**json.loads((folder / "header.json").read_text()), **changes}
    kept = {name: value for name, value in values.items() if value is not ...}
    (folder / "header.json").write_text(json.dumps(kept))


# What was written is read


def test_a_token_file_is_shards_a_tokenizer_and_a_header(folder):
    shards = ["tokens-00000.bin", "tokens-00001.bin", "tokens-00002.bin"]
    assert sorted(os.listdir(folder)) == ["header.json", "tokenizer.json", *shards]
    assert (folder / shards[2]).read_bytes() == np.array(IDS[40:], "<u2").tobytes()
    header = json.loads((folder / "header.json").read_text())
    assert header == {
        "format": 1,
        "dtype": "uint16",
        "vocab_size": 7,
        "tokenizer_sha256": hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest(),
        "shards": [
            {"n_tokens": n, "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()}
            for n, name in zip((20, 20, 13), shards, strict=True)
        ],
    }


@given(
    parts=st.lists(st.lists(st.integers(0, 6), max_size=9)),
    shard_tokens=st.integers(1, 12),
    data=st.data(),
)
def test_every_window_holds_the_ids_that_were_written(tmp_path_factory, parts, shard_tokens, data):
    path = tmp_path_factory.mktemp("tokens") / "x.tokens"
    ids = [i for part in parts for i in part]
    if not ids:
        with pytest.raises(ValueError, match="there are no tokens to write"):
            write_token_file(path, TOKENIZER, parts, shard_tokens=shard_tokens)
        assert os.listdir(path.parent) == []
        return
    write_token_file(path, TOKENIZER, parts, shard_tokens=shard_tokens)
    tokens = TokenFile(path)
    assert len(tokens) == len(ids)
    assert tokens.read(0, len(ids)).tolist() == ids
    length = data.draw(st.integers(0, len(ids)))
    starts = data.draw(st.lists(st.integers(0, len(ids) - length), max_size=5))
    found = tokens.read_windows(starts, length)
    assert found.shape == (len(starts), length)
    assert found.tolist() == [ids[start : start + length] for start in starts]
    verify(path)


def test_a_large_vocabulary_takes_four_bytes_an_id(tmp_path):
    words = WordTokenizer([f"w{i}" for i in range(70_000)])
    write_token_file(tmp_path / "x.tokens", words, [[69_999, 0, 65_536]])
    tokens = TokenFile(tmp_path / "x.tokens")
    assert tokens.header.dtype == "uint32"
    assert tokens.n_bytes == 12
    assert tokens.read(0, 3).tolist() == [69_999, 0, 65_536]
    assert tokens.load_tokenizer() == words


def test_the_result_belongs_to_the_caller(folder):
    """A torch tensor of it may be changed: it is no view of the file."""
    tokens = TokenFile(folder)
    ids = tokens.read(3, 4)
    ids[:] = 6
    assert tokens.read(3, 4).tolist() == IDS[3:7]


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (52, 2), (54, 0), (0, 54)])
def test_windows_beyond_the_ends_are_refused(folder, start, length):
    with pytest.raises(ValueError, match=f"start must be from 0 to {53 - length}, so that"):
        TokenFile(folder).read(start, length)


def test_the_fingerprint_changes_with_one_token_and_with_the_tokenizer(tmp_path):
    found = set()
    for number, (tokenizer, ids) in enumerate(
        [(TOKENIZER, IDS), (TOKENIZER, [*IDS[:-1], 6]), (CharTokenizer("gfedcba", cls=None), IDS)]
    ):
        write_token_file(tmp_path / f"{number}.tokens", tokenizer, [ids])
        found.add(TokenFile(tmp_path / f"{number}.tokens").fingerprint)
    assert len(found) == 3
    write_token_file(tmp_path / "again.tokens", TOKENIZER, [IDS])
    assert TokenFile(tmp_path / "again.tokens").fingerprint in found


# Writing


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([[0, 7]], "ids must be from 0 to 6, got 0 to 7; give the tokenizer that made them"),
        ([[-1]], "ids must be from 0 to 6, got -1 to -1"),
        ([[0.5]], "each part must be a list of whole numbers"),
        ([[[1, 2]]], "each part must be a list of whole numbers"),
        ([[65_536 + 1]], "ids must be from 0 to 6"),  # which would be 1 in 16 bits
    ],
)
def test_ids_the_tokenizer_does_not_have_are_refused_and_nothing_stays(tmp_path, parts, words):
    with pytest.raises((ValueError, TypeError), match=words):
        write_token_file(tmp_path / "x.tokens", TOKENIZER, [[1, 2, 3], *parts])
    assert os.listdir(tmp_path) == []


def test_nothing_has_the_name_before_all_is_written(tmp_path):
    path = tmp_path / "x.tokens"

    def parts():
        for _ in range(3):
            yield [1, 2, 3]
            assert not path.exists()
            (staged,) = os.listdir(tmp_path)
            assert "header.json" not in os.listdir(tmp_path / staged)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_token_file(path, TOKENIZER, parts(), shard_tokens=2)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_there_is_not_replaced(folder):
    with pytest.raises(BadFile, match="exists already"):
        write_token_file(folder, TOKENIZER, [[1]])
    verify(folder)


def test_the_name_must_say_what_it_is(tmp_path):
    with pytest.raises(ValueError, match=r"must end with \.tokens, got .*corpus"):
        write_token_file(tmp_path / "corpus", TOKENIZER, [[1]])


# Damage


SHA = "0" * 64


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "format must be 1, got 2"),
        ({"format": True}, "format must be 1, got True"),
        ({"format": ...}, "must hold format, dtype, vocab_size, tokenizer_sha256, shards and noth"),
        ({"name": "x"}, "and nothing else"),
        ({"dtype": "float32"}, "dtype must be uint16 or uint32, got 'float32'"),
        ({"dtype": ["uint16"]}, "dtype must be uint16 or uint32, got"),
        ({"vocab_size": 0}, "vocab_size must be at least 1, got 0"),
        ({"vocab_size": 65_537}, "vocab_size must be at most 65,536, got 65,537"),
        ({"vocab_size": "7"}, "vocab_size must be a whole number, got '7'"),
        ({"tokenizer_sha256": "0" * 63 + "G"}, "a SHA-256 has 64 hexadecimal digits"),
        ({"tokenizer_sha256": 5}, "a SHA-256 has 64 hexadecimal digits, got 5"),
        ({"shards": []}, "shards must be a list of 1 to 10,000 shards"),
        ({"shards": {}}, "shards must be a list"),
        ({"shards": [{"n_tokens": 1, "sha256": SHA}] * 10_001}, "shards must be a list of 1 to"),
        ({"shards": [3]}, "Shard is made from names and values, got 3"),
        ({"shards": [{"n_tokens": 20}]}, "Shard needs 'sha256', which is missing"),
        ({"shards": [{"n_tokens": 0, "sha256": SHA}]}, "n_tokens must be at least 1, got 0"),
        ({"shards": [{"n_tokens": -20, "sha256": SHA}]}, "n_tokens must be at least 1, got -20"),
        ({"shards": [{"n_tokens": 20, "sha256": "x"}]}, "a SHA-256 has 64 hexadecimal digits"),
        ({"shards": [{"n_tokens": 20, "sha256": SHA, "file": "/etc/passwd"}]}, "has no 'file'"),
    ],
)
def test_a_header_with_an_odd_value_is_refused_by_its_name(folder, changes, words):
    change_header(folder, **changes)
    with pytest.raises(BadFile, match=words) as fault:
        TokenFile(folder)
    assert str(fault.value).startswith(str(folder / "header.json"))


@pytest.mark.parametrize("text", ["", "[]", "7", '{"format": NaN}', '{"a": 1, "a": 1}', "{"])
def test_a_header_that_is_not_strict_json_is_refused(folder, text):
    (folder / "header.json").write_text(text)
    with pytest.raises(BadFile, match=r"header\.json"):
        TokenFile(folder)


@given(st.integers(0, 900), st.binary(min_size=1, max_size=4))
def test_F10_bytes_changed_anywhere_in_the_header_give_ids_or_a_bad_file(
    tmp_path_factory, place, data
):
    folder = tmp_path_factory.mktemp("damaged") / "x.tokens"
    write_token_file(folder, TOKENIZER, [IDS], shard_tokens=20)
    header = bytearray((folder / "header.json").read_bytes())
    place %= len(header)
    header[place : place + len(data)] = data
    (folder / "header.json").write_bytes(header)
    with suppress(BadFile):
        assert TokenFile(folder).read(0, 53).tolist() == IDS
        verify(folder)


@pytest.mark.parametrize("size", [0, 39, 41, 42])
def test_a_shard_of_another_size_is_refused(folder, size):
    os.truncate(folder / "tokens-00001.bin", size)
    words = rf"tokens-00001\.bin has {size} bytes, but header\.json says 40; copy the folder again"
    with pytest.raises(BadFile, match=words):
        TokenFile(folder)


def test_a_missing_shard_and_one_that_is_no_file_are_named(folder):
    (folder / "tokens-00002.bin").unlink()
    with pytest.raises(BadFile, match=r"tokens-00002\.bin is not there"):
        TokenFile(folder)
    os.mkfifo(folder / "tokens-00002.bin")
    with pytest.raises(BadFile, match=r"tokens-00002\.bin is not a regular file"):
        TokenFile(folder)


def test_a_shard_cut_off_while_in_use_is_a_sentence_not_a_crash(folder):
    tokens = TokenFile(folder)
    os.truncate(folder / "tokens-00001.bin", 0)
    assert tokens.read(0, 20).tolist() == IDS[:20]
    with pytest.raises(BadFile, match=r"tokens-00001\.bin was cut off while in use"):
        tokens.read(18, 5)


def test_an_id_beyond_the_vocabulary_is_refused_where_it_is_read(folder):
    with open(folder / "tokens-00001.bin", "r+b") as file:
        file.seek(2 * 6)
        file.write(b"\x07\x00")
    tokens = TokenFile(folder)
    assert tokens.read(0, 26).tolist() == IDS[:26]
    with pytest.raises(BadFile, match="holds the id 7 at place 26, but its ids go from 0 to 6"):
        tokens.read_windows([0, 24], 5)
    with pytest.raises(BadFile, match=r"tokens-00001\.bin holds an id above 6"):
        verify(folder)


def test_verify_finds_one_changed_bit_that_opening_does_not(folder):
    path = folder / "tokens-00002.bin"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1, *path.read_bytes()[1:]]))
    TokenFile(folder)
    with pytest.raises(BadFile, match=r"tokens-00002\.bin has changed: its SHA-256 is not that in"):
        verify(folder)


def test_verify_tells_how_far_it_is(folder):
    told = []
    verify(folder, lambda words, done, total: told.append((Path(words).name, done, total)))
    assert told == [
        ("tokens-00000.bin", 40, 106),
        ("tokens-00001.bin", 80, 106),
        ("tokens-00002.bin", 106, 106),
    ]


def test_another_tokenizer_is_refused(folder):
    CharTokenizer("gfedcba", cls=None).save(folder / "tokenizer.json")
    with pytest.raises(BadFile, match=r"tokenizer\.json does not have the SHA-256 in header\.json"):
        TokenFile(folder).load_tokenizer()
    with pytest.raises(BadFile, match=r"tokenizer\.json does not have the SHA-256 in header\.json"):
        verify(folder)


def test_a_tokenizer_of_another_size_than_the_header_says_is_refused(folder):
    change_header(folder, vocab_size=8)
    with pytest.raises(BadFile, match=r"has 7 tokens, but header\.json says that vocab_size is 8"):
        TokenFile(folder).load_tokenizer()


# 20 GB


@pytest.fixture
def sparse(folder):
    """A token file of 20 GB in 20 shards, all zeros, which takes no room on the disk."""
    shard = {"n_tokens": 500_000_000, "sha256": SHA}
    for number in range(20):
        path = folder / f"tokens-{number:05d}.bin"
        path.write_bytes(b"")
        os.truncate(path, 1_000_000_000)
        if path.stat().st_blocks * 512 > 1_000_000:
            pytest.skip("this file system has no sparse files")
    change_header(folder, shards=[shard] * 20)
    return folder


# A child, so that nothing else counts: how much memory grows over the imports, in bytes.
PROGRAM = """
import resource, sys
from clearhead.training.state import DataOrder, State
from clearhead.training.tasks.characters import CharacterData

def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak()
task = CharacterData(sys.argv[1], context=256).open()
order, state = DataOrder(task, 0, 64), State()
for cursor in (0, task.n_examples // 2 // 64 * 64, task.n_examples // 64 * 64):
    state.cursor = cursor
    for _ in range(20):
        assert task.batch(order.next(state)).inputs.shape[1] == 256
assert state.epoch == 1
for i in range(250):  # 500 MB one after the other
    task.tokens.read(i * 10**6, 10**6)
print(task.n_examples, peak() - before)
"""


def test_memory_stays_bounded_with_20_GB(sparse):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(sparse)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(clearhead.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    n_examples, growth = map(int, done.stdout.split())
    assert n_examples == (9_000_000_000 - 1) // 256
    assert growth < 200e6


def test_the_plans_of_an_epoch_of_20_GB_take_no_memory(sparse):
    task = CharacterData(str(sparse), context=256).open()
    tracemalloc.start()
    plans = task.plans(0, 1, 64)
    some = [plans[i] for i in (0, 1, len(plans) // 2, len(plans) - 1)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plans) == -(-task.n_examples // 64)
    assert len({start for plan in some for start in plan}) == sum(map(len, some))
    assert peak < 1 << 20

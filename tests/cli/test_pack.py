"""clearhead data pack and verify: counts on stdout, a bar on stderr, nothing after a mistake."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import clearhead
from clearhead.data import CharTokenizer, TokenFile

TEXT = "ROMEO: but soft, what light?\n" * 40


@pytest.fixture
def play(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("play.txt").write_text(TEXT)
    return Path("play.txt")


def test_a_text_becomes_a_token_file_and_the_next_command_is_named(run, play):
    code, out, err = run("data", "pack", "play.txt", "--tokenizer", "char")
    assert code == 0
    counts, following = out.splitlines()
    assert counts.startswith(
        "play.tokens: 1,160 tokens, vocabulary of 21, 2.32 kB, from 1.16 kB of text, "
    )
    assert following == "next: clearhead train shakespeare-char data.path=play.tokens"
    assert err.splitlines() == [
        "finding the characters: 1.16 of 1.16 kB, 100 %",
        "encoding: 1.16 of 1.16 kB, 100 %",
    ]
    tokens = TokenFile("play.tokens")
    assert tokens.load_tokenizer().decode(tokens.read(0, len(tokens))) == TEXT


def test_byte_pairs_are_the_default(run, play):
    code, out, err = run("data", "pack", "play.txt", "--vocab-size", "262", "--out", "p.tokens")
    assert (code, out.splitlines()[-1].split("=")[-1]) == (0, "p.tokens")
    assert err.startswith("learning byte pairs from the first 16.0 MB of each file\n")
    assert TokenFile("p.tokens").vocab_size == 262


def test_quiet_and_json(run, play):
    code, out, err = run("data", "pack", "play.txt", "--tokenizer", "bytes", "--quiet")
    assert (code, err, len(out.splitlines())) == (0, "", 1)
    code, out, _ = run("data", "pack", "play.txt", "--out", "b.tokens", "--json")
    found = json.loads(out)
    assert found.pop("seconds") > 0
    tokens = TokenFile("b.tokens")
    assert found == {
        "path": "b.tokens",
        "tokens": len(tokens),
        "vocab_size": tokens.vocab_size,
        "token_bytes": 2 * len(tokens),
        "shards": 1,
        "fingerprint": tokens.fingerprint,
        "text_bytes": len(TEXT),
    }


def test_a_saved_tokenizer_is_used(run, play):
    CharTokenizer("".join(sorted(set(TEXT) | {"z"})), cls=None).save("t.json")
    assert run("data", "pack", "play.txt", "--tokenizer", "t.json", "--quiet")[0] == 0
    assert TokenFile("play.tokens").vocab_size == 22


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["none.txt"], "none.txt is not there"),
        (["."], ". is a folder, not a file"),
        (["play.txt", "--tokenizer", "chars"], "got 'chars'; did you mean char?"),
        (["play.txt", "--tokenizer", "no.json"], "no.json is not there"),
        (["play.txt", "--out", "play"], "--out must end with .tokens, got play"),
        (["play.txt", "--out", "old.tokens"], "old.tokens exists already; delete it or give"),
        (["play.txt", "--workers", "1000"], "--workers must be 1 to 256, got 1000"),
        (["empty.txt"], "empty.txt is empty; give a text"),
        (["empty.txt", "empty.txt"], "empty.txt and all other files are empty; give a text"),
        (["play.txt", "--workers", "0"], "--workers must be 1 to 256, got 0"),
        (["play.txt", "--vocab-size", "9"], "--vocab-size must be at least 257, got 9"),
        (
            ["play.txt", "--tokenizer", "char", "--vocab-size", "300"],
            "--vocab-size is for byte-pairs, not for char; leave it out",
        ),
        (
            ["bad.txt"],
            "bad.txt is not UTF-8: byte 2 is 0xff (invalid start byte); save it",
        ),
        ([], "Missing argument 'FILE…'"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(run, play, options, words):
    Path("old.tokens").mkdir()
    Path("bad.txt").write_bytes(b"ab\xff")
    Path("empty.txt").touch()
    before = sorted(os.listdir())
    code, out, err = run("data", "pack", *options)
    assert (code, out) == (2, "")
    *_, sentence, hint = err.splitlines()
    assert sentence.startswith("error: ")
    assert words in sentence
    assert hint == "hint: clearhead data pack --help lists its arguments and options"
    assert sorted(os.listdir()) == before


def test_verify_says_what_is_right_and_what_has_changed(run, play):
    run("data", "pack", "play.txt", "--tokenizer", "char", "--quiet")
    code, out, err = run("data", "verify", "play.tokens")
    assert code == 0
    assert out == "play.tokens: 1,160 tokens, vocabulary of 21, 2.32 kB: every SHA-256 is right\n"
    assert err == "play.tokens/tokens-00000.bin: 2.32 of 2.32 kB, 100 %\n"
    assert json.loads(run("data", "verify", "play.tokens", "--json")[1])["tokens"] == 1160
    with open("play.tokens/tokens-00000.bin", "r+b") as file:
        file.write(b"\x01\x00")
    code, out, err = run("data", "verify", "play.tokens", "--quiet")
    assert (code, out) == (2, "")
    assert "error: play.tokens/tokens-00000.bin has changed" in err
    code, _, err = run("data", "verify", "nosuch")
    assert (code, err.splitlines()[0]) == (2, "error: nosuch/header.json is not there")


COMMAND = [sys.executable, "-m", "clearhead.cli.main", "data", "pack"]


def environment():
    return os.environ | {"PYTHONPATH": str(Path(clearhead.__file__).parents[1])}


def test_a_terminal_shows_a_bar(play):
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*COMMAND, "play.txt", "--tokenizer", "char"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment() | {"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "━" in shown
    assert "encoding" in shown
    assert "1.2/1.2 kB" in shown
    assert done.stdout.decode().startswith("play.tokens: 1,160 tokens")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_nothing_of_the_name(play, number):
    """SIGINT and SIGTERM also remove the unfinished folder; nobody can after SIGKILL."""
    with open("long.txt", "w") as file:
        for i in range(100_000):
            file.write(f"To be, or not to be {i * i}: that is the question {i}.\n")
    command = [*COMMAND, "long.txt", "--vocab-size", "300", "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
    with process:
        for line in process.stderr:
            if line.startswith("encoding"):
                break
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == {2: 130, 15: 143, 9: -9}[number], rest
    assert "Traceback" not in rest
    left = set(os.listdir()) - {"play.txt", "long.txt"}
    assert "long.tokens" not in left
    assert len(left) == (number == signal.SIGKILL)

"""No text from elsewhere controls the terminal."""

import io
import json
import os
import pty
import subprocess
import sys

import pytest
from small_runs import run_outside, small_run

from clearhead.cli.streams import Escaped, escape_controls, find_raw

ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r\b"


def test_control_characters_are_escaped_and_newlines_and_tabs_are_not():
    controls = [chr(i) for i in (*range(32), *range(127, 160))]
    for character in controls:
        expected = character if character in "\n\t" else f"\\u{ord(character):04x}"
        assert escape_controls(f"a{character}b") == f"a{expected}b"
    assert escape_controls("ü √ 😀 \u00a0 ~") == "ü √ 😀 \u00a0 ~"


def test_escaped_json_is_the_same_json():
    text = json.dumps({"text": ATTACK}, ensure_ascii=False)
    assert "\x9b" in text
    assert json.loads(escape_controls(text)) == {"text": ATTACK}


def test_our_own_controls_pass_below():
    file = io.StringIO()
    print("\r", file=find_raw(Escaped(file)), end="")
    print("\r", file=Escaped(file), end="")
    assert file.getvalue() == "\r\\u000d"
    assert find_raw(file) is file


PROGRAM = """
import sys, typer
from clearhead.cli.streams import prepare_streams
prepare_streams()
prepare_streams()
text = sys.argv[1].encode().decode("unicode_escape")
print(text); typer.echo(text); print(text, file=sys.stderr); typer.echo(text, err=True)
"""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_every_way_to_print_is_escaped_on_a_terminal(encoding):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, ATTACK.encode("unicode_escape").decode()]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    subprocess.run(command, stdout=theirs, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the end, as a terminal says it
        pass
    os.close(ours)
    assert shown.count(b"\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u007f\\u000d\\u0008") == 4
    assert not {*shown} & {*b"\x1b\x07\x9b\x7f\b"}


def test_a_foreign_run_is_printed_without_its_escape_sequences(tmp_path):
    run = small_run(tmp_path)
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, f"key{ATTACK}": 1}))
    code, out, err = run_outside("train", "--resume", run)
    assert code == 2, err
    assert "key\\u001b]0;owned" in err
    assert "\x1b" not in err + out

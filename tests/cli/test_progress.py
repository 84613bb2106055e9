"""How a run is shown while it goes."""

import dataclasses
import io
import os
import pty
import re
import select
import sys

import pytest

from clearhead.cli.progress import (
    _format_line,
    _format_status,
    draw_sparkline,
    format_metrics,
    show_progress,
)
from clearhead.training import Progress

NEWS = [
    "going on after step 2 of 40 [red]",
    Progress(10, 40, {"loss": 0.70712, "lr": 0.1}, 12345.6, "tokens", 75.0),
    Progress(20, 40, {"loss": 0.5, "val_loss": 0.25, "val_exact": 0.875}, 900.0, "examples", 8.0),
    Progress(40, 40, {"val_loss": 0.2}, 900.0, "tokens", 0.0),
]


def test_measures_leave_out_the_learning_rate():
    assert format_metrics({"loss": 0.370412, "lr": 0.5, "val_perplexity": 1234.5}) == (
        "loss 0.3704, val_perplexity 1234"
    )


def test_in_a_file_there_is_a_line_for_each_evaluation(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with show_progress(quiet=False) as tell:
        for news in NEWS:
            tell(news)
    assert file.getvalue().splitlines() == [
        "going on after step 2 of 40 [red]",
        "step 20/40: loss 0.5, val_loss 0.25, val_exact 0.875, 900 examples/s, 8.0 s left",
        "step 40/40: val_loss 0.2, 900 tokens/s",
    ]


def test_quiet_is_quiet(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with show_progress(quiet=True) as tell:
        for news in NEWS:
            tell(news)
    assert file.getvalue() == ""


def on_a_terminal(monkeypatch, columns, kind="xterm", **variables):
    """All that a terminal of so many columns is sent."""
    for name, value in {"TERM": kind, "COLUMNS": str(columns), **variables}.items():
        monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with show_progress(quiet=False) as tell:
            for news in NEWS:
                tell(news)
        file.flush()
        monkeypatch.undo()
        seen = b""
        while select.select([ours], [], [], 0.2)[0]:
            seen += os.read(ours, 100_000)
    os.close(ours)
    return seen.decode()


@pytest.mark.parametrize("columns", [20, 60, 120])
def test_C02_on_a_terminal_one_line_changes_and_evaluations_stay(monkeypatch, columns):
    seen = on_a_terminal(monkeypatch, columns, NO_COLOR="1")
    assert "going on after step 2 of 40 [red]" in seen
    line = "step 20/40: loss 0.5, val_loss 0.25, val_exact 0.875, 900 examples/s, 8.0 s left"
    assert line in seen
    assert "40/40  loss 0.5" in seen  # the latest of each measure
    if columns == 120:
        assert "val_exact 0.875  900 tokens/s" in seen
        assert "━" in seen
    assert seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l")  # the cursor is back


RUNNING = Progress(1300, 2600, {"loss": 0.3704}, 12345.6, "tokens", 80.0)
LATEST = {"loss": 0.3704, "val_loss": 0.2456, "val_accuracy": 0.8067}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            120,
            "1300/2600  loss 0.3704, val_loss 0.2456, val_accuracy 0.8067  12,346 tokens/s  "
            "1 min 20 s left  █▅▁",
        ),
        (
            95,
            "1300/2600  loss 0.3704, val_loss 0.2456, val_accuracy 0.8067  12,346 tokens/s  1 min",
        ),
        (80, "1300/2600  loss 0.3704, val_accuracy 0.8067  12,346 tokens/s  1 min 20 s left"),
        (63, "1300/2600  loss 0.3704, val_accuracy 0.8067  1 min 20 s left"),
        (51, "1300/2600  loss 0.3704  1 min 20 s left"),
        (20, "1300/2600  1 min 20 s left"),
    ],
)
def test_a_narrow_line_leaves_out_what_matters_least(columns, words):
    text = _format_status(RUNNING, LATEST, draw_sparkline([3.0, 2.0, 1.0]), columns)
    assert text.startswith(words)
    assert "1 min 20 s left" in text


@pytest.mark.parametrize("columns", [60, 80])
def test_C02_bar_and_time_left_stay_on_a_narrow_terminal(monkeypatch, columns):
    monkeypatch.setattr(sys.modules[__name__], "NEWS", [RUNNING])
    seen = on_a_terminal(monkeypatch, columns, NO_COLOR="1")
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", seen))
    drawn = [line for line in lines if "1300/2600" in line]
    assert drawn
    assert all("━" in line and "1 min 20 s left" in line for line in drawn)
    assert max(map(len, drawn)) <= columns


def test_a_sparkline_falls_with_the_loss():
    assert draw_sparkline([]) == ""
    assert draw_sparkline([2.0]) == "▁"
    assert draw_sparkline([3.0, 2.0, 1.0]) == "█▅▁"
    assert draw_sparkline([100 - i for i in range(100)]) == "█▇▆▆▅▄▃▃▂▁"


def test_the_cursor_is_never_away(monkeypatch):
    """A second Ctrl-C ends the process at once."""
    seen = on_a_terminal(monkeypatch, 80)
    assert seen.index("\x1b[?25h") < seen.index("going on")


def test_C02_a_dumb_terminal_gets_plain_lines(monkeypatch):
    seen = on_a_terminal(monkeypatch, 80, kind="dumb")
    assert "\x1b" not in seen
    assert len(seen.splitlines()) == 3


def test_before_anything_was_learned_there_is_no_speed():
    news = dataclasses.replace(NEWS[-1], rate=None)
    assert "/s" in _format_line(NEWS[-1])
    assert "/s" not in _format_line(news)

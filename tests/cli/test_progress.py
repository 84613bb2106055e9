"""How a run is shown while it goes."""

import dataclasses
import io
import os
import pty
import select
import sys

import pytest

from clearhead.cli.progress import _format_line, format_metrics, show_progress
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

"""Commands run in this process."""

import sys

import pytest
import torch

from clearhead.cli import main as command


@pytest.fixture
def run(monkeypatch, capfd):
    """Run a command in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["clearhead", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            command.main()
        return (stop.value.code or 0, *capfd.readouterr())

    before, restore = torch.get_num_threads(), torch.set_num_threads  # a test may replace it
    yield run
    restore(before)

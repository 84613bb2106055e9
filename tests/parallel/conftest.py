"""What tests of several processes share."""

import pytest
import torch
from runs.tiny_runs import memory_folder
from small_runs import small_run


@pytest.fixture(scope="module")
def warm():
    """Import here what a run imports at its first use, so that forked processes need not."""
    import clearhead.cli.main  # noqa: F401

    torch.set_num_threads(1)
    with memory_folder() as path:
        small_run(path, "training.parallel=exact", "training.steps=1")


@pytest.fixture
def folder(warm):
    with memory_folder() as path:
        yield path

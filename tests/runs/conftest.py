"""What tests of runs share."""

import pytest
import torch
from runs.tiny_runs import memory_folder


@pytest.fixture
def folder():
    torch.set_num_threads(1)
    with memory_folder() as path:
        yield path

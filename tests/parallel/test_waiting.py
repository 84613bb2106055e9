"""Waiting for an exchange: however long it takes, and with its errors."""

import time

import pytest
import torch

from clearhead.parallel import waiting
from clearhead.parallel.waiting import finish

CPU = torch.device("cpu")


class Work:
    """An exchange that ends when it has been looked at so often, or when it is waited for."""

    def __init__(self, looks, fault=None):
        self.looks, self.fault, self.is_waited_for = looks, fault, False

    def is_completed(self):
        self.looks -= 1
        return self.looks < 0

    def wait(self):
        self.is_waited_for = True
        if self.fault is not None:
            raise self.fault


def test_every_exchange_is_waited_for_and_a_late_one_is_not_watched_for_long():
    works = [Work(0), Work(3), Work(10**12)]
    start = time.perf_counter()
    finish(works, CPU)
    assert time.perf_counter() - start < 100 * waiting.LOOK_FOR
    assert all(work.is_waited_for for work in works)
    assert works[1].looks < 0  # watched until its end


def test_on_a_gpu_nothing_is_watched():
    work = Work(10**12)
    finish([work], torch.device("cuda"))
    assert work.is_waited_for
    assert work.looks >= 10**12 - 1


def test_the_error_of_an_exchange_is_raised():
    with pytest.raises(RuntimeError, match="gloo"):
        finish([Work(0, RuntimeError("gloo: closed"))], CPU)

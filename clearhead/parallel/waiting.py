"""Wait for an exchange between processes: look often at first, then sleep.

A sleeping thread has to be woken when the tensors arrive. On a virtual machine that can take 4 ms,
because the processor has been given to somebody else: as long as the passes of a small model. While
a process looks again and again, it keeps its processor, and the threads that send and receive can
take it at any time. This is for CPUs; on a GPU an exchange is one more entry in its queue.
"""

import os
import time
from collections.abc import Sequence
from functools import partial

import torch
from torch.distributed import Work

LOOK_FOR = 0.005  # seconds; then the others are late, and their processes may need this processor

_let_others_run = getattr(os, "sched_yield", partial(time.sleep, 0))  # Windows has no sched_yield


def finish(works: Sequence[Work], device: torch.device) -> None:
    """Wait until these exchanges of tensors on this device have ended; raises their errors."""
    limit = time.perf_counter() + (LOOK_FOR if device.type == "cpu" else 0)
    for work in works:
        while not work.is_completed() and time.perf_counter() < limit:
            _let_others_run()
        work.wait()

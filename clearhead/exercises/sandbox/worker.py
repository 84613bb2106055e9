"""The untrusted side: answers the supervisor's requests with what the student's code computes.

It knows inputs, never expected values, and never says right or wrong. box.py has isolated its
process. The zygote reads this file, so it imports nothing of clearhead but frames.py and
objects.py. Requests are frames that name a method of objects.Student and its arguments:

    {"do": "load", "cells": [[first line, source], …], "files": …, "helpers": …, "forbidden": …}
    {"do": "build", "name": class, "args": […], "kwargs": {…}, "label": name of the new object}
    {"do": "set", "label": …, "weights": {name: tensor}}
    {"do": "call", "target": label or name, "method": …, "args": …, "kwargs": …, "gradient": …}
    {"do": "get", "name": …}
"""

import contextlib
import sys
from typing import Any

import torch

from clearhead.exercises.sandbox import frames
from clearhead.exercises.sandbox.objects import EXPECTED_STOPS, Student, describe_error


def serve(source: Any, sink: Any) -> None:
    """Answer requests until the supervisor closes the pipe."""
    student = Student()

    def take(n: int) -> bytes:
        data = source.read(n)
        if len(data) != n:
            raise EOFError
        return bytes(data)

    reply = frames.pack({"number": 0, "value": "ready"})
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            sink.write(reply)
            sink.flush()
            reply = answer(student, frames.read(take))
            _flush()


def _flush() -> None:
    """Send what was printed; the student's file may have replaced these streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def answer(student: Student, request: dict[str, Any]) -> bytes:
    """Answer a request by a frame; an exception of the student's code is an answer, too."""
    number, do = request.pop("number"), request.pop("do")
    try:
        seed = request.pop("seed", None)
        if seed is not None:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 7 ms
        value = getattr(student, do)(**request)
        return frames.pack({"number": number, "value": value})
    except EXPECTED_STOPS as fault:
        return frames.pack({"number": number, "error": describe_error(fault)})


def prepare() -> None:
    """Let torch detect the processor, with one thread: a process with more cannot be forked."""
    torch.set_num_threads(1)
    vars(torch)["compile"] = _skip_compiling
    torch.softmax(torch.ones(2, 2) @ torch.ones(2, 2), dim=-1)


def _skip_compiling(function: Any = None, **_: Any) -> Any:
    """torch.compile without compiling, which takes minutes; the values are the same."""
    return (lambda each: each) if function is None else function

"""A worker with questions for tests, such as one that hangs; it loads no models and no torch.

python tests/fake_worker.py '{}'
python tests/fake_worker.py '{"fails": "a sentence"}'      does not start
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from clearhead.studio import worker


def echo(_: None, value: Any = None, text: str = "") -> dict[str, Any]:
    return {"text": text, "process": os.getpid()}


def wait(_: None, seconds: float) -> dict[str, Any]:
    time.sleep(seconds)
    return {"seconds": seconds}


def count(_: None, n: int, seconds: float = 0.0, size: int = 1) -> Iterator[dict[str, Any]]:
    """A stream. size: how many numbers each answer has."""
    for i in range(n):
        time.sleep(seconds)
        yield {"i": i, "numbers": np.full(size, float(i))}


def count_marked(_: None, path: str, seconds: float = 0.01) -> Iterator[dict[str, Any]]:
    """An endless stream that writes a line to a file at each step."""
    i = 0
    while True:
        with open(path, "a") as file:
            file.write(f"{i}\n")
        yield {"i": i}
        i += 1
        time.sleep(seconds)


def fail(_: None, text: str = "", after: int = 0) -> Iterator[dict[str, Any]]:
    """A bug, in the middle of a stream."""
    for i in range(after):
        yield {"i": i}
    raise RuntimeError(f"a bug with \x1b[31m {text!r}")


def refuse(_: None, text: str = "") -> dict[str, Any]:
    raise ValueError(f"text is wrong: {text}")


def die(_: None) -> dict[str, Any]:
    os._exit(9)


def allocate(_: None) -> dict[str, Any]:
    """More memory than a process can address."""
    return {"numbers": np.empty(1 << 60, np.uint8)}


def print_line(_: None, text: str) -> dict[str, Any]:
    print(text)
    return {}


QUESTIONS = (echo, wait, count, count_marked, fail, refuse, die, allocate, print_line)


def find_question(name: str) -> Any:
    found = {question.__name__: question for question in QUESTIONS}
    if name not in found:
        raise ValueError(f"there is no question {name!r}")
    return found[name]


def main() -> None:
    settings = json.loads(sys.argv[1])
    if "fails" in settings:
        sys.exit(settings["fails"])
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    worker.find_question = find_question
    sources: Any = None
    own = worker.Worker(sources, output)
    reading = threading.Thread(
        target=worker.read_messages, args=(sys.stdin.buffer, own), daemon=True
    )
    reading.start()
    own.run()


if __name__ == "__main__":
    main()

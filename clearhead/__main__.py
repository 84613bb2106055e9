"""python -m clearhead: the command line; torchrun and clearhead launch start it in each process."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LOOK_EVERY = 0.2  # seconds
GRACE = 10.0  # seconds to save


def end_with_agent(grace: float = GRACE) -> None:
    """Stop this process, and those it has started, when the one that started it has ended.

    An agent that is killed cannot stop its processes. They would keep the run from being resumed.
    """
    agent = int(os.environ.get("CLEARHEAD_AGENT", os.getppid()))

    def watch() -> None:
        while os.getppid() == agent:
            time.sleep(LOOK_EVERY)
        os.killpg(0, signal.SIGTERM)  # the agent gave this process a group of its own
        time.sleep(grace)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def leave_silently() -> None:
    """Let Ctrl-C end this process silently until the run handles it: the agent prints a message."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def skip_teardown(main: Callable[[], None]) -> None:
    """Run a command and end without Python's teardown, in which torch sometimes aborts.

    For the agent that would be a fault, and it would start a finished run once more.
    """
    try:
        main()
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed, or its reader has ended
                stream.flush()
        os._exit(end.code if isinstance(end.code, int) else 0)


if __name__ == "__main__":
    has_agent = "TORCHELASTIC_RUN_ID" in os.environ
    if has_agent:
        end_with_agent()
        leave_silently()
    from clearhead.cli.main import main

    if has_agent:
        skip_teardown(main)
    else:
        main()

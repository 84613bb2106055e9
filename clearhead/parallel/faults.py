"""How the processes of a run ended: which one is the cause, and whether to start again."""

import signal
from collections.abc import Container, Mapping

LOST = 8  # exit code: another process or machine did not answer
CURABLE = (1, LOST)
STOPPING = (signal.SIGINT, signal.SIGTERM)
STOPPED = tuple(128 + number for number in STOPPING)  # exit codes of processes that have saved


def find_cause(codes: Mapping[int, int], running_before: Container[int] = ()) -> tuple[int, int]:
    """The process whose end explains the others: its rank and exit code, below 0 for a signal.

    When one process dies, those that wait for it end with LOST, or are aborted by the network
    library, and the agent stops the rest. So these ends explain the least. Of the others, an error
    with a reason explains more than a signal, and a signal more than an unknown error.

    running_before: ranks that ran when the agent last looked. If SIGTERM or SIGKILL has ended one
    of them, the agent has sent it.
    """
    ours = (-signal.SIGKILL, -signal.SIGTERM)
    others = {r: code for r, code in codes.items() if not (r in running_before and code in ours)}
    codes = others or codes
    consequences = [LOST, -signal.SIGABRT, *STOPPED, *(-number for number in STOPPING)]

    def order(rank: int) -> tuple[int, int]:  # the lowest is the cause
        code = codes[rank]
        if code in consequences:
            return 3 + consequences.index(code), rank
        if not is_curable(code):
            return 0, rank
        return (1 if code < 0 else 2), rank

    rank = min(codes, key=order)
    return rank, codes[rank]


def is_curable(code: int) -> bool:
    """Whether a second attempt may succeed: after a kill, an unknown error or a lost process.

    The other exit codes have causes that would come back: wrong usage, a full disk, a number that
    is not finite.
    """
    return code < 0 or code in CURABLE


def find_exit_code(code: int) -> int:
    """The code that `launch` returns for that of a process: 128 + number if a signal ended it."""
    return 128 - code if code < 0 else code


def describe_end(code: int) -> str:
    """How a process with this exit code ended, in words."""
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"was ended by {names.get(-code, f'signal {-code}')}"
    return "lost another process" if code == LOST else f"ended with exit code {code}"

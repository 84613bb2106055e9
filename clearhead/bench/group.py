"""Run a file of this folder as a group of processes, and read what each of them prints.

    run_group("clearhead.bench.processes", ["vit-digits", "ddp"], 2)     the output of ranks 0 and 1

The file is called with `python -m`, since a process needs a command of its own.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LIMIT = 1200.0  # seconds; a process that hangs would hang the comparison


def run_group(
    module: str,
    arguments: Sequence[str],
    size: int,
    *,
    variables: Mapping[str, str] | None = None,
    limit: float = LIMIT,
) -> list[str]:
    """What `python -m module arguments` prints in each process, in the order of their ranks.

    Each process has one thread, and finds its rank in the environment, as torchrun sets it.
    variables: further environment variables. limit: the seconds to wait for each process. When
    this function returns or fails, no process is left.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    common = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), **(variables or {})}
    group: list[subprocess.Popen[str]] = []
    try:
        for rank in range(size):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env={**os.environ, **common, **own},
                stdout=subprocess.PIPE,
                text=True,
            )
            group.append(process)
        texts = [process.communicate(timeout=limit)[0] for process in group]
    finally:
        for process in group:
            process.kill()
            process.communicate()
    if any(process.returncode for process in group):
        raise RuntimeError(f"a process failed, of those of {module} {' '.join(arguments)}")
    return texts


def read_memory(name: str) -> int:
    """Bytes of this process: "VmRSS", those it has now; "VmHWM", the most it has had."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

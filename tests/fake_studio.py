"""A studio whose worker is fake_worker.py: the whole server, without models and torch.

python tests/fake_studio.py '{"timeout": 2}'      the arguments of the Supervisor, and settings

"worker": another file of this folder in place of fake_worker.py. "check": a program in place of
`clearhead check`. "read_seconds", "idle_seconds": the time limits of a connection.
"""

import asyncio
import json
import secrets
import sys
from pathlib import Path

from clearhead.studio import checking, exchange, listening
from clearhead.studio.exchange import READ_SECONDS
from clearhead.studio.listening import open_first_free
from clearhead.studio.server import run_studio
from clearhead.studio.supervisor import Supervisor

FOLDER = Path(__file__).parent
WORKER = (sys.executable, str(FOLDER / "fake_worker.py"))


def main() -> None:
    options = json.loads(sys.argv[1])
    listening.MAX_CONNECTIONS = options.pop("max_connections", listening.MAX_CONNECTIONS)
    exchange.READ_SECONDS = listening.READ_SECONDS = options.pop("read_seconds", READ_SECONDS)
    listening.IDLE_SECONDS = options.pop("idle_seconds", listening.IDLE_SECONDS)
    if "check" in options:
        checking.COMMAND = (sys.executable, "-c", options.pop("check"))
    settings = {"paths": []} | options.pop("settings", {})
    command = (sys.executable, str(FOLDER / options.pop("worker", "fake_worker.py")))
    supervisor = Supervisor(settings, command=command, **options)
    work = run_studio(
        supervisor,
        open_first_free(None, [0]),
        token=secrets.token_urlsafe(32),
        tell_ready=lambda link, _: print(f"studio: {link}", flush=True),
    )
    sys.exit(asyncio.run(work))


if __name__ == "__main__":
    main()

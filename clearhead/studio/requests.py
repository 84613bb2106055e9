"""What the routes share: read bodies, cancel work when the client disconnects, ask to retry."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from clearhead.config import suggest
from clearhead.files.strict_json import parse_json
from clearhead.studio.exchange import MAX_BODY, Receive
from clearhead.studio.supervisor import AskError

T = TypeVar("T")


async def read_json(request: Request) -> Any:
    """The body of a request, which must be strict JSON."""
    return parse_json(await request.body(), "the body", max_bytes=MAX_BODY)


async def read_object(request: Request, *names: str) -> dict[str, Any]:
    """The body of a request, which must be a JSON object with no other fields than these."""
    given = await read_json(request)
    if not isinstance(given, dict):
        raise AskError(400, f"the body must be an object, got {type(given).__name__}")
    for name in given:
        if name not in names:
            raise AskError(400, f"the body has no field {name[:80]!r}{suggest(name, names)}")
    return given


def make_retry_headers(status: int) -> dict[str, str] | None:
    """The Retry-After header, in seconds, for temporary errors; None for others."""
    return {"Retry-After": "1"} if status in (429, 503) else None


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None if the client disconnects first, which cancels `work`."""
    work_task = asyncio.create_task(work)
    disconnect_task = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({work_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        return work_task.result() if work_task.done() else None
    finally:
        for task in (disconnect_task, work_task):
            task.cancel()
        await asyncio.gather(disconnect_task, work_task, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""The routes of the studio; start and stop.

    GET  /  and the files of the page
    GET  /api/status                  whether the worker is ready, and how many questions wait
    POST /api/ask/{question}          the answer as one frame (frames.py)
    POST /api/stream/{question}       [length, 4 bytes][frame] …, then a length of 0
    and the routes of completions.py, trainings.py, checking.py

An error is JSON: {"error": a sentence, "status": …}. Within a stream it is sent as a frame.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from clearhead.files.reading import BadFile
from clearhead.studio import checking, completions, trainings
from clearhead.studio.door import Door
from clearhead.studio.exchange import Receive, Scope, Send
from clearhead.studio.frames import encode_answer
from clearhead.studio.listening import ANY_ADDRESS, StudioServer, list_hosts
from clearhead.studio.page import PageFile, read_page
from clearhead.studio.requests import make_retry_headers, read_json, run_while_connected
from clearhead.studio.supervisor import AskError, Supervisor

Handler = Callable[[Request], Awaitable[Response]]
LENGTH = struct.Struct("<I")  # of a frame in a stream
NOTHING = "there is nothing at this address"


class Studio:
    """What the routes of a running studio share. closing: set when the studio begins to close."""

    def __init__(self, supervisor: Supervisor, token: str) -> None:
        self.supervisor, self.token = supervisor, token
        self.closing = asyncio.Event()
        self.endings: list[Callable[[], Awaitable[None]]] = []  # called by close

    async def close(self) -> None:
        """End all work; open streams end with an error."""
        self.closing.set()
        await asyncio.gather(self.supervisor.stop(), *(end() for end in self.endings))


def make_app(studio: Studio, *, host: str | None, port: int) -> Door:
    """All routes, behind a Door for a socket at this host and port."""
    routes = [Route(path, _make_get_file(file)) for path, file in read_page().items()]
    routes += [
        Route("/api/status", _make_get_status(studio)),
        Route("/api/ask/{question}", _make_ask(studio), methods=["POST"]),
        Route("/api/stream/{question}", _make_stream(studio), methods=["POST"]),
    ]
    for module in (completions, trainings, checking):
        routes += module.make_routes(studio)
    handlers: Mapping[Any, Any] = {
        HTTPException: _explain_http,
        AskError: _explain_ask,
        BadFile: _explain_file,
    }
    router = ExceptionMiddleware(Router(routes, redirect_slashes=False), handlers)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router  # starlette then raises 404 and 405 instead of answering itself
        await router(scope, receive, send)

    hosts, takes_any = list_hosts(host, port), host in ANY_ADDRESS
    return Door(app, token=studio.token, hosts=hosts, port=port, takes_any=takes_any)


# Routes


def _make_get_file(file: PageFile) -> Handler:
    async def get_file(request: Request) -> Response:
        return Response(file.data, media_type=file.content_type)

    return get_file


def _make_get_status(studio: Studio) -> Handler:
    async def get_status(request: Request) -> Response:
        supervisor = studio.supervisor
        return JSONResponse(
            {
                "state": supervisor.state,
                "pending": supervisor.n_pending,
                "starts": supervisor.n_starts,
            }
        )

    return get_status


def _read_question(request: Request) -> str:
    question: str = request.path_params["question"]
    if not (question.isascii() and question.isidentifier()):
        raise HTTPException(404)
    return question


def _make_ask(studio: Studio) -> Handler:
    async def ask(request: Request) -> Response:
        question, arguments = _read_question(request), await read_json(request)
        work = studio.supervisor.answer(question, arguments)
        answer = await run_while_connected(request.receive, work)
        return Response(answer, media_type="application/octet-stream")

    return ask


def _make_stream(studio: Studio) -> Handler:
    async def stream(request: Request) -> Response:
        question, arguments = _read_question(request), await read_json(request)
        return FrameStream(studio.supervisor.ask(question, arguments))

    return stream


class FrameStream(Response):
    """Sends the answers of a stream as they come.

    An error before the first answer sets the HTTP status; a later one is sent as a frame.
    """

    media_type = "application/octet-stream"

    def __init__(self, answers: AsyncGenerator[tuple[bytes, bytes], None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all answers; stop if the client disconnects."""
        await run_while_connected(receive, self._write(send))

    async def _write(self, send: Send) -> None:
        is_started = False
        try:
            async for _, data in self.answers:
                if not is_started:
                    await self._start(send)
                    is_started = True
                if data:
                    await _send_frame(send, data)
        except AskError as fault:
            if not is_started:
                raise
            await _send_frame(send, encode_answer(fault.to_json()))
        finally:
            await self.answers.aclose()
        await send({"type": "http.response.body", "body": LENGTH.pack(0)})

    async def _start(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)


async def _send_frame(send: Send, data: bytes) -> None:
    body = LENGTH.pack(len(data)) + data
    await send({"type": "http.response.body", "body": body, "more_body": True})


# Errors


async def _explain_http(request: Request, fault: HTTPException) -> Response:
    words = {404: NOTHING, 405: "this address does not accept this HTTP method"}
    sentence = words.get(fault.status_code, fault.detail)
    return JSONResponse({"error": sentence, "status": fault.status_code}, fault.status_code)


async def _explain_ask(request: Request, fault: AskError) -> Response:
    headers = make_retry_headers(fault.status)
    return JSONResponse(fault.to_json(), fault.status, headers=headers)


async def _explain_file(request: Request, fault: BadFile) -> Response:
    return JSONResponse({"error": str(fault), "status": 400}, 400)


# Start and stop


async def run_studio(
    supervisor: Supervisor,
    sockets: Sequence[socket.socket],
    *,
    token: str,
    host: str | None = None,
    tell_ready: Callable[[str, str], None],
) -> int:
    """Run until a signal ends it; returns the exit code.

    tell_ready(link, link_once) is called when the worker is ready or has failed to start;
    link_once works only once.
    """
    port = sockets[0].getsockname()[1]
    studio = Studio(supervisor, token)
    door = make_app(studio, host=host, port=port)
    server = StudioServer(door, studio.close)
    serve_task = asyncio.create_task(server.serve(list(sockets)))
    start_task = asyncio.create_task(studio.supervisor.start())
    try:
        await asyncio.wait({serve_task, start_task}, return_when=asyncio.FIRST_COMPLETED)
        if not serve_task.done():
            link = f"http://{list_hosts(host, port)[0]}/?token="
            tell_ready(link + token, link + door.make_ticket())
        await serve_task
    finally:
        start_task.cancel()
        await studio.close()
    return server.exit_code

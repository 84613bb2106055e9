"""The OpenAI-compatible routes.

    GET  /v1/models                   the models that write text
    GET  /v1/models/{id}              one of them
    POST /v1/completions              continue a prompt
    POST /v1/chat/completions         answer a conversation; for models with a chat format only

    client = openai.OpenAI(base_url="http://127.0.0.1:8722/v1", api_key=TOKEN)
    client.completions.create(model="shakespeare", prompt="ROMEO:", max_tokens=40, seed=1)

Errors are in OpenAI's format. When the client disconnects, the work ends before the next token.
"""

import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clearhead.files.reading import BadFile
from clearhead.studio.completion_format import END, CompletionFormat, make_error, make_event
from clearhead.studio.completion_requests import (
    CompletionRequest,
    RequestError,
    read_chat,
    read_completion,
)
from clearhead.studio.exchange import Receive, Scope, Send
from clearhead.studio.frames import decode_answer
from clearhead.studio.requests import make_retry_headers, read_json, run_while_connected
from clearhead.studio.supervisor import AskError

if TYPE_CHECKING:
    from clearhead.studio.server import Studio

Answers = AsyncGenerator[dict[str, Any], None]
Handler = Callable[[Request], Awaitable[Response]]
# The fields that an error message may begin with.
FIELD = re.compile(r"(prompt|messages|max_tokens|seed|temperature|top_p|model|stop)\b")


def make_routes(studio: "Studio") -> list[Route]:
    """The routes of this file."""
    created = int(time.time())
    list_models, get_model = _make_list_models(studio, created), _make_get_model(studio, created)
    complete = _make_complete(studio, read_completion)
    chat = _make_complete(studio, read_chat)
    return [
        Route("/v1/models", _explain_faults(list_models), methods=["GET"]),
        Route("/v1/models/{id}", _explain_faults(get_model), methods=["GET"]),
        Route("/v1/completions", _explain_faults(complete), methods=["POST"]),
        Route("/v1/chat/completions", _explain_faults(chat), methods=["POST"]),
        Route("/v1/{rest:path}", _refuse_others, methods=["GET", "POST"]),
    ]


# Models


def _make_list_models(studio: "Studio", created: int) -> Handler:
    async def list_models(request: Request) -> Response:
        ids = await _list_ids(studio)
        return JSONResponse({"object": "list", "data": [_make_model(id, created) for id in ids]})

    return list_models


def _make_get_model(studio: "Studio", created: int) -> Handler:
    async def get_model(request: Request) -> Response:
        id = request.path_params["id"]
        if id not in (ids := await _list_ids(studio)):
            known = ", ".join(ids) or "none"
            raise AskError(404, f"there is no such model; those that write text are {known}")
        return JSONResponse(_make_model(id, created))

    return get_model


def _make_model(id: str, created: int) -> dict[str, Any]:
    return {"id": id, "object": "model", "created": created, "owned_by": "clearhead"}


async def _list_ids(studio: "Studio") -> list[str]:
    answer = decode_answer(await studio.supervisor.answer("list_writers", {}))
    ids: list[str] = answer["models"]
    return ids


# Completions


def _make_complete(studio: "Studio", read: Callable[[Any], CompletionRequest]) -> Handler:
    async def complete(request: Request) -> Response:
        completion = read(await read_json(request))
        answers = ask_worker(studio, completion)
        if completion.is_stream:
            return EventStream(CompletionFormat(completion), answers)
        whole = await run_while_connected(request.receive, _collect(completion, answers))
        return JSONResponse(whole)  # None if the client has disconnected

    return complete


async def ask_worker(studio: "Studio", completion: CompletionRequest) -> Answers:
    """The answers of the worker, decoded. Closing the generator cancels the question."""
    frames = studio.supervisor.ask(completion.question, completion.arguments)
    async with aclosing(frames):
        async for _, data in frames:
            if data:
                yield decode_answer(data)


async def _collect(completion: CompletionRequest, answers: Answers) -> Any:
    """The body of a response that is not a stream."""
    form = CompletionFormat(completion)
    async with aclosing(answers):
        async for answer in answers:
            form.add(answer)
    return form.finish()


class EventStream(Response):
    """Chunks as server-sent events.

    An error before the first chunk sets the HTTP status; a later one is sent as an event.
    """

    media_type = "text/event-stream"

    def __init__(self, form: CompletionFormat, answers: Answers) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.form, self.answers, self.is_started = form, answers, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all chunks; stop if the client disconnects."""
        try:
            await run_while_connected(receive, self._write(send))
        except AskError as fault:
            if not self.is_started:
                await make_response(fault)(scope, receive, send)
                return
            await self._send(send, make_event(make_error(fault.status, fault.sentence)), last=True)

    async def _write(self, send: Send) -> None:
        async with aclosing(self.answers):
            async for answer in self.answers:
                for chunk in self.form.list_chunks(answer):
                    await self._send(send, make_event(chunk))
        await self._send(send, END, last=True)

    async def _send(self, send: Send, data: bytes, *, last: bool = False) -> None:
        if not self.is_started:
            self.is_started = True
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
        await send({"type": "http.response.body", "body": data, "more_body": not last})


# Errors


def _explain_faults(handler: Handler) -> Handler:
    """Wrap a handler so that its errors are answered in OpenAI's format."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestError as fault:
            return JSONResponse(make_error(400, fault.sentence, fault.param), 400)
        except BadFile as fault:
            return JSONResponse(make_error(400, str(fault)), 400)
        except AskError as fault:
            return make_response(fault)

    return handle


def make_response(fault: AskError) -> Response:
    """The response to an error. "param" is the field that its sentence begins with, if any."""
    found = FIELD.match(fault.sentence)
    param = "model" if fault.status == 404 else found and found[1]
    body = make_error(fault.status, fault.sentence, param)
    return JSONResponse(body, fault.status, headers=make_retry_headers(fault.status))


async def _refuse_others(request: Request) -> Response:
    sentence = "there is nothing at this address; try /v1/models or /v1/completions"
    return JSONResponse(make_error(404, sentence), 404)

"""Runs: list, follow, compare, start, stop and resume them.

    GET  /api/runs                     all runs, and the training that the studio has started
    GET  /api/runs/{id}                config, metrics and samples of a run
    GET  /api/runs/{id}/events         metrics and samples as server-sent events
    GET  /api/differences?runs=a,b     the settings in which two runs differ
    GET  /api/recipes                  the recipes that can be trained
    POST /api/trainings                start a recipe: {"recipe": …, "changes": {name: value}}
    POST /api/trainings/stop           stop the training; it saves first
    POST /api/runs/{id}/resume         resume a stopped run

run_list.py looks up runs, and checks what may be started.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from clearhead.config import suggest
from clearhead.runs.folder import RunFolder
from clearhead.runs.following import Follower, News
from clearhead.studio.frames import decode_answer
from clearhead.studio.listing import Source
from clearhead.studio.requests import read_object
from clearhead.studio.run_list import RunList, write_changes
from clearhead.studio.supervisor import AskError
from clearhead.training.recipes import RECIPES

if TYPE_CHECKING:
    from clearhead.studio.server import Studio

POLL_SECONDS = 0.3
MAX_STREAMS = 32
MAX_ITEMS = 2000  # in one event


# Events


def read_events(runs: RunList, source: Source, follower: Follower) -> list[tuple[str, Any]]:
    """The news about a run since the last call: (name of the event, its data), the state last."""
    # The state is read first: if the run has ended, all that it wrote is read below.
    state = runs.describe(source)
    events: list[tuple[str, Any]] = []
    for name, news in (("metrics", follower.read_metrics()), ("samples", follower.read_samples())):
        events += [(name, part) for part in _split(news)]
    return [*events, ("state", state)]


def _split(news: News | None) -> Iterator[dict[str, Any]]:
    """Split news into the data of events, with at most MAX_ITEMS items each."""
    if news is None:
        return
    for i in range(0, max(1, len(news.items)), MAX_ITEMS):
        items = news.items[i : i + MAX_ITEMS]
        if items and isinstance(items[0], tuple):
            items = [{"heading": heading, "text": text} for heading, text in items]
        yield {"start": news.start + i, "items": items}


class Streams:
    """Sends what runs write as server-sent events: metrics, samples, state, end, closed."""

    def __init__(self, runs: RunList, closing: asyncio.Event) -> None:
        self.runs, self.closing, self.n_open = runs, closing, 0

    async def follow(self, source: Source) -> AsyncGenerator[bytes, None]:
        """The events of a run, until its training ends or the studio closes."""
        self.n_open += 1
        follower, last = Follower(RunFolder(source.path)), None
        try:
            while not self.closing.is_set():
                for name, data in await asyncio.to_thread(read_events, self.runs, source, follower):
                    if name != "state":
                        yield _write_event(name, data)
                    elif data["state"] != "running":
                        yield _write_event("end", data)
                        return
                    elif (data["step"], data["best"]) != last:
                        last = data["step"], data["best"]
                        yield _write_event("state", data)
                await self._wait()
            yield _write_event("closed", {"error": "the studio has been closed"})
        finally:
            self.n_open -= 1

    async def _wait(self) -> None:
        """Wait until the next poll, or until the studio closes."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.closing.wait(), POLL_SECONDS)


def _write_event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


# Routes


def make_routes(studio: "Studio") -> list[Route]:
    """The routes of this file."""
    runs = RunList(studio.supervisor.settings)
    streams = Streams(runs, studio.closing)
    studio.endings.append(lambda: asyncio.to_thread(runs.trainings.close))

    async def get_all(request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(runs.describe_all))

    async def get_one(request: Request) -> Response:
        source = runs.find(request.path_params["id"])
        return JSONResponse(await asyncio.to_thread(runs.read, source))

    async def get_events(request: Request) -> Response:
        source = runs.find(request.path_params["id"])
        if streams.n_open >= MAX_STREAMS:
            raise AskError(429, f"{MAX_STREAMS} runs are followed already; close another page")
        return StreamingResponse(streams.follow(source), media_type="text/event-stream")

    async def get_differences(request: Request) -> Response:
        ids = request.query_params.get("runs", "").split(",")
        if len(ids) != 2:
            raise AskError(400, "runs must name two runs: /api/differences?runs=a,b")
        pair = [runs.find(id) for id in ids]
        return JSONResponse({"differences": await asyncio.to_thread(runs.compare, *pair)})

    async def get_recipes(request: Request) -> Response:
        listed = [{"name": name, **each._asdict()} for name, each in RECIPES.items()]
        return JSONResponse({"recipes": listed})

    async def start(request: Request) -> Response:
        given = await read_object(request, "recipe", "changes")
        recipe = given.get("recipe")
        if not isinstance(recipe, str) or recipe not in RECIPES:
            near = suggest(str(recipe), RECIPES)
            raise AskError(400, f"there is no recipe {str(recipe)[:80]!r}{near}")
        answer = await studio.supervisor.answer("describe_recipe", {"name": recipe})
        settings = write_changes(recipe, given.get("changes", {}), decode_answer(answer))
        runs.trainings.start([recipe, *settings])
        return JSONResponse(await asyncio.to_thread(runs.describe_all))

    async def stop(request: Request) -> Response:
        await read_object(request)
        current = runs.trainings.current
        if current is None:
            raise AskError(
                409, "no training of this studio is running; stop others in their own terminal"
            )
        current.stop()
        return JSONResponse(await asyncio.to_thread(runs.describe_all))

    async def resume(request: Request) -> Response:
        await read_object(request)
        source = runs.find(request.path_params["id"])
        await asyncio.to_thread(runs.resume, source)
        return JSONResponse(await asyncio.to_thread(runs.describe_all))

    return [
        Route("/api/runs", get_all),
        Route("/api/runs/{id}", get_one),
        Route("/api/runs/{id}/events", get_events),
        Route("/api/runs/{id}/resume", resume, methods=["POST"]),
        Route("/api/differences", get_differences),
        Route("/api/recipes", get_recipes),
        Route("/api/trainings", start, methods=["POST"]),
        Route("/api/trainings/stop", stop, methods=["POST"]),
    ]

"""Start the worker process, ask it, cancel, time out, and start it again when it ends.

    supervisor = Supervisor({"paths": [], "lecture": True})
    await supervisor.start()
    async for letter, data in supervisor.ask("list_models", {}): …

Questions wait here, not in the worker. It gets the next one when it has begun to answer the one
before, so a question whose page was closed meanwhile costs nothing. At most 32 wait or run.

If the worker ends, hangs or cannot be started, the questions that it has not answered fail with
status 503, and it is started again. The server itself never imports torch.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from clearhead.studio.pending import AskError, Pending, read_error
from clearhead.studio.worker_process import WorkerProcess, print_safely
from clearhead.timing import Timer

LIMIT = 32  # questions that wait or run
MAX_UNREAD = 64 << 20  # bytes of answers that a slow page has not read
PAUSES = (0.0, 0.5, 2.0)  # seconds before the next start, after 0, 1, 2 failed starts
SLOW_PAUSE = 10.0  # after more failed starts
N_FAILURES = len(PAUSES)  # starts in a row that fail before questions are refused at once

ENDED = "the model process has ended and is being started again"
HUNG = "the model process did not answer for {:.0f} s and is being started again"
FAILING = "the model process does not start; the studio keeps trying: {}"
CLOSED = "the studio has been closed"
FULL = f"{LIMIT} questions are waiting already; ask again in a second"
UNREAD = "the page reads its answers too slowly, so the stream was ended; start it again"
STREAM = "{0} answers with a stream; ask it at /api/stream/{0}"


class Supervisor:
    """The worker process. state: starting, ready, failing or closed. n_starts: starts so far."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        timeout: float = 60.0,
        start_timeout: float = 180.0,
        command: Sequence[str] | None = None,
    ) -> None:
        """timeout: a worker that owes an answer and sends nothing for so many seconds is killed."""
        self.settings, self.command = dict(settings), command
        self.timeout, self.start_timeout = timeout, start_timeout
        self.state, self.n_starts = "starting", 0
        self._worker: WorkerProcess | None = None
        self._pending: dict[int, Pending] = {}
        self._waiting: deque[int] = deque()  # ids of questions not sent to the worker yet
        self._head: int | None = None  # the question sent last, until its answer begins
        self._next_id = 1
        self._silence = Timer()  # since the last message to or from the worker
        self._is_hung = False
        self._start_error = ""  # why the last process could not be started
        self._settled = asyncio.Event()  # the worker was ready once, or several starts have failed
        self._task: asyncio.Task[None] | None = None

    @property
    def n_pending(self) -> int:
        """Questions that wait or run."""
        return len(self._pending)

    @property
    def worker_id(self) -> int | None:
        """The process id of the worker."""
        return None if self._worker is None else self._worker.id

    async def start(self) -> None:
        """Start the worker; returns when it is ready, or has failed several times."""
        self._task = asyncio.create_task(self._keep_running())
        await self._settled.wait()

    async def stop(self) -> None:
        """End the worker; all questions fail."""
        self.state = "closed"
        self._fail_all(AskError(503, CLOSED))
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    # Asking

    async def ask(self, question: str, arguments: Any) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """The answers to a question, as (letter, data): p for a part of a stream, d for the last.

        Raises AskError. Closing the generator cancels the question.
        """
        pending = self._add(question, arguments)
        try:
            letter = b""
            while letter != b"d":
                letter, data = await pending.get()
                yield letter, data
        finally:
            self._cancel(pending.id)

    async def answer(self, question: str, arguments: Any) -> bytes:
        """The only answer to a question that is not a stream."""
        async with aclosing(self.ask(question, arguments)) as answers:
            letter, data = await anext(answers)
            if letter == b"d" and data:
                return data
        raise AskError(400, STREAM.format(question))

    def _add(self, question: str, arguments: Any) -> Pending:
        if self.state == "closed":
            raise AskError(503, CLOSED)
        if self.state == "failing":
            raise AskError(503, self._describe_failure(), restarting=True)
        if len(self._pending) >= LIMIT:
            raise AskError(429, FULL)
        pending = Pending(self._next_id, question, arguments)
        self._next_id = self._next_id % 0xFFFFFFFF + 1  # an id has four bytes
        self._pending[pending.id] = pending
        self._waiting.append(pending.id)
        self._send_next()
        return pending

    def _cancel(self, id: int) -> None:
        """Forget a question. If it was sent to the worker, tell the worker to stop."""
        if self._pending.pop(id, None) is None:  # it has been answered
            return
        if id in self._waiting:
            self._waiting.remove(id)
        elif self._worker is not None:
            self._worker.send({"cancel": id})

    def _send_next(self) -> None:
        """Give the worker the next question, if it has begun to answer the one before."""
        if self.state != "ready" or self._head is not None or not self._waiting:
            return
        assert self._worker is not None
        pending = self._pending[self._waiting.popleft()]
        self._head, self._silence = pending.id, Timer()
        message = {"question": pending.question, "arguments": pending.arguments}
        self._worker.send({"id": pending.id, **message})

    def _receive(self, id: int, letter: bytes, data: bytes) -> None:
        """Pass a message of the worker to the question that waits for it."""
        self._silence = Timer()
        if letter == b"r":
            self.state = "ready"
            self._settled.set()
        if id == self._head:
            self._head = None
        pending = self._pending.get(id)
        if pending is not None:  # else it was cancelled
            pending.put(read_error(data, pending) if letter == b"e" else (letter, data))
            if letter in (b"d", b"e"):
                del self._pending[id]
            elif pending.n_unread > MAX_UNREAD:
                self._cancel(id)
                pending.fail(AskError(503, UNREAD))
        self._send_next()

    def _fail_all(self, error: AskError) -> None:
        for pending in self._pending.values():
            pending.put(error)
        self._pending.clear()
        self._waiting.clear()
        self._head = None

    # The process

    async def _keep_running(self) -> None:
        """Start the worker again and again, until cancelled."""
        n_failures = 0
        while True:
            self.n_starts += 1
            was_ready = await self._run_worker()
            n_failures = 0 if was_ready else n_failures + 1
            if n_failures >= N_FAILURES:
                self.state = "failing"
                self._settled.set()
            words = HUNG.format(self.timeout) if self._is_hung else ENDED
            words = words if was_ready else self._describe_failure()
            self._fail_all(AskError(503, words, restarting=True))
            await asyncio.sleep(PAUSES[n_failures] if n_failures < N_FAILURES else SLOW_PAUSE)

    async def _run_worker(self) -> bool:
        """Run the worker until it ends; returns whether it ever became ready."""
        self._silence, self._is_hung, was_ready = Timer(), False, False
        self._worker, self._start_error = None, ""
        try:
            async with WorkerProcess(self.settings, self.command) as self._worker:
                watch_task = asyncio.create_task(self._watch(self._worker))
                try:
                    async for message in self._worker.read():
                        was_ready = True
                        self._receive(*message)
                finally:
                    watch_task.cancel()
                    self.state = "starting" if self.state == "ready" else self.state
        except OSError as fault:  # such as too many processes, or no memory for one more
            self._start_error = fault.strerror or str(fault)
            print_safely(f"the model process cannot be started: {self._start_error}")
        return was_ready

    async def _watch(self, worker: WorkerProcess) -> None:
        """Kill a worker that does not start, or owes an answer and sends nothing for too long."""
        while not self._is_hung:
            await asyncio.sleep(min(0.25, self.timeout / 4))
            owes = self._head is not None or len(self._pending) > len(self._waiting)
            limit = self.timeout if self.state == "ready" else self.start_timeout
            if self._silence.seconds > limit and (owes or self.state != "ready"):
                self._is_hung = True
                worker.kill()

    def _describe_failure(self) -> str:
        last_line = "" if self._worker is None else self._worker.last_line
        return FAILING.format(self._start_error or last_line or "it says nothing")

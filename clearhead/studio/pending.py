"""A question that waits for answers, and the error that it may end with."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from typing import Any

from clearhead.studio.worker_process import print_safely

MIN_REDACTED = 4  # characters; shorter texts of a question may appear in the log


class AskError(Exception):
    """An error for the page: an HTTP status and a sentence. restarting: asking again will help."""

    def __init__(self, status: int, sentence: str, *, restarting: bool = False) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.restarting = status, sentence, restarting

    def to_json(self) -> dict[str, Any]:
        """The body of the response."""
        body: dict[str, Any] = {"error": self.sentence, "status": self.status}
        return body | ({"restarting": True} if self.restarting else {})


class Pending:
    """A question that waits for answers. n_unread: bytes of answers that have not been read yet."""

    def __init__(self, id: int, question: str, arguments: Any) -> None:
        self.id, self.question, self.arguments = id, question, arguments
        self.answers: asyncio.Queue[tuple[bytes, bytes] | AskError] = asyncio.Queue()
        self.n_unread = 0

    def put(self, answer: tuple[bytes, bytes] | AskError) -> None:
        """Add an answer, or the error that ends them."""
        self.n_unread += 0 if isinstance(answer, AskError) else len(answer[1])
        self.answers.put_nowait(answer)

    async def get(self) -> tuple[bytes, bytes]:
        """The next answer, (letter, data); raises the error if there is one."""
        answer = await self.answers.get()
        if isinstance(answer, AskError):
            raise answer
        self.n_unread -= len(answer[1])
        return answer

    def fail(self, error: AskError) -> None:
        """Drop the unread answers, and end with an error."""
        self.answers = asyncio.Queue()
        self.put(error)


def read_error(data: bytes, pending: Pending) -> AskError:
    """Decode an error of the worker. The traceback of a bug is printed, with inputs removed."""
    error = json.loads(data)
    sentence, log = error["error"], error.get("log")
    if log is not None:
        id = secrets.token_hex(4)
        sentence = f"{sentence} (error {id})"
        for text in sorted(_list_texts(pending.arguments), key=len, reverse=True):
            log = log.replace(text, "…").replace(repr(text)[1:-1], "…")
        print_safely(f"error {id} in {pending.question}:\n{log.rstrip()}")
    return AskError(error["status"], sentence)


def _list_texts(value: Any) -> Iterator[str]:
    """All texts in the arguments of a question that are long enough to be removed from a log."""
    if isinstance(value, str) and len(value) >= MIN_REDACTED:
        yield value
    items = value.values() if isinstance(value, dict) else value
    for item in items if isinstance(value, dict | list) else ():
        yield from _list_texts(item)

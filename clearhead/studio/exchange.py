"""A request as the door reads it, and the response, which always has the security headers."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from clearhead.studio.completion_format import make_error

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_HEADER_BYTES = 16 << 10
MAX_BODY = 1 << 20
READ_SECONDS = 10.0  # a body must arrive within this time
READ_METHODS = ("GET", "HEAD")  # they change nothing

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Refusal(Exception):
    """A request that is refused. close: close the connection, because its body is not read."""

    def __init__(self, status: int, sentence: str, *, close: bool = False) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.close = status, sentence, close


class DoorRequest:
    """The parts of a request that the door checks. Header names are lower case, as in uvicorn."""

    def __init__(self, scope: Scope) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.local_address: str = scope["server"][0]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        query: bytes = scope["query_string"]
        self.target: bytes = scope["raw_path"] + (b"?" + query if query else b"")

    def get_all(self, name: str) -> list[str]:
        """The values of all headers of this name."""
        return [value.decode("latin-1") for key, value in self.headers if key == name.encode()]

    def get(self, name: str) -> str | None:
        """The value of the first header of this name."""
        return next(iter(self.get_all(name)), None)

    @property
    def bearer(self) -> str | None:
        """The token of an Authorization header."""
        kind, _, token = (self.get("authorization") or "").partition(" ")
        return token.strip() or None if kind.lower() == "bearer" else None

    @property
    def link_token(self) -> str | None:
        """The token of the printed link: /?token=…"""
        if self.method != "GET" or not self.target.startswith(b"/?"):
            return None
        pairs = (part.partition("=") for part in self.target[2:].decode("latin-1").split("&"))
        return next((unquote(value) for name, _, value in pairs if name == "token"), None)

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies by name."""
        pairs = (part.partition("=") for line in self.get_all("cookie") for part in line.split(";"))
        return {name.strip(): value.strip() for name, _, value in pairs}

    @property
    def wants_json(self) -> bool:
        """Whether errors are sent as JSON, for a program, and not as text for a person."""
        return self.path.startswith(("/api/", "/v1/")) or self.method not in READ_METHODS


class Answer:
    """Sends responses, each with the security headers."""

    def __init__(self, send: Send, request: DoorRequest) -> None:
        self._send, self.request, self.is_started = send, request, False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Forward a message of a handler, with the security headers added."""
        if message["type"] == "http.response.start":
            self.is_started = True
            names = {name for name, _ in SECURITY_HEADERS}
            kept = [(name, value) for name, value in message["headers"] if name not in names]
            message = {**message, "headers": [*kept, *SECURITY_HEADERS]}
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with one sentence; close the connection if a part of the request is unread."""
        if self.is_started:  # the status is sent: only a broken connection can show the error
            raise ConnectionAbortedError(refusal.sentence)
        sentence = refusal.sentence
        if self.request.wants_json:
            own = {"error": sentence, "status": refusal.status}
            is_openai = self.request.path.startswith("/v1/")
            body = json.dumps(make_error(refusal.status, sentence) if is_openai else own)
            content_type = "application/json"
        else:
            body = f"{sentence[:1].upper()}{sentence[1:]}.\n"
            content_type = "text/plain; charset=utf-8"
        headers = [(b"content-type", content_type.encode())]
        headers += [(b"retry-after", b"10")] if refusal.status == 429 else []
        headers += [(b"connection", b"close")] if refusal.close or has_body(self.request) else []
        await self._send_whole(refusal.status, headers, body.encode())

    async def redirect(self, cookie: str, token: str) -> None:
        """Store the token in a cookie, and redirect to an address without it."""
        value = f"{cookie}={token}; HttpOnly; SameSite=Strict; Path=/"
        headers = [(b"location", b"/"), (b"set-cookie", value.encode())]
        await self._send_whole(303, headers, b"")

    async def _send_whole(
        self, status: int, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self.send(
            {"type": "http.response.start", "status": status, "headers": [*headers, length]}
        )
        await self.send({"type": "http.response.body", "body": body})


def has_body(request: DoorRequest) -> bool:
    """Whether a body follows, which must be read before the next request."""
    return any(length != "0" for length in request.get_all("content-length")) or bool(
        request.get_all("transfer-encoding")
    )


async def read_body(receive: Receive) -> bytes:
    """Read the whole body; raises Refusal if it is too large or too slow."""
    parts, n_bytes = [], 0
    try:
        async with asyncio.timeout(READ_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "the connection was closed", close=True)
                parts.append(message.get("body", b""))
                n_bytes += len(parts[-1])
                if n_bytes > MAX_BODY:
                    words = f"the body is larger than {MAX_BODY:,} bytes"
                    raise Refusal(413, words, close=True)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        words = f"the body did not arrive within {READ_SECONDS:.0f} s"
        raise Refusal(408, words, close=True) from None


def replay(body: bytes, receive: Receive) -> Receive:
    """A receive function that first returns this body, which was read already."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> MutableMapping[str, Any]:
        return messages.pop() if messages else await receive()

    return receive_again

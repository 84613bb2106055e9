"""The sockets of the studio, the limits of a connection, and shutdown by a signal.

a request        must arrive within 10 s; its headers have at most 16 KiB
a connection     is closed after 30 s without a request, or without reading the answer
connections      are at most 128: one more closes the one that has waited longest for a request, so
                 that slow clients cannot lock others out
"""

import asyncio
import errno
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.studio.exchange import MAX_HEADER_BYTES, READ_SECONDS, SECURITY_HEADERS
from clearhead.timing import Timer

IDLE_SECONDS = 30
MAX_CONNECTIONS = 128
LOOPBACK = ("127.0.0.1", "::1")
ANY_ADDRESS = ("0.0.0.0", "::")


# Sockets


def open_sockets(host: str | None, port: int) -> list[socket.socket]:
    """Listen on a port: at both loopback addresses if host is None, else at the address `host`.

    Port 0 chooses a free one. A machine without IPv6 has only one loopback address.
    """
    if host is not None:
        return [_listen(host, port)]
    first = _listen(LOOPBACK[0], port)
    try:
        return [first, _listen(LOOPBACK[1], first.getsockname()[1])]
    except OSError as fault:
        if _has_ipv6():  # then the port is in use at ::1
            first.close()
            raise fault
        return [first]


def open_first_free(host: str | None, ports: Sequence[int]) -> list[socket.socket]:
    """Listen on the first of these ports that is free; if none is, the error names a free port."""
    # Port 0 is tried several times: it may choose a port that is in use at ::1.
    for port in [0] * 9 if list(ports) == [0] else ports:
        try:
            return open_sockets(host, port)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                where = f"port {port}" if host is None else f"{host}, port {port}"
                words = (fault.strerror or str(fault)).lower()
                raise ValueError(f"the studio cannot listen at {where}: {words}") from None
    (free, *others) = open_sockets(host, 0)
    port = free.getsockname()[1]
    for each in (free, *others):
        each.close()
    raise ValueError(f"port {ports[0]} is in use; --port {port} is free")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends without delay only if the protocol is named; else an answer may wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(256)
    except OSError:
        listener.close()
        raise
    return listener


def _has_ipv6() -> bool:
    try:
        with closing(_listen(LOOPBACK[1], 0)):
            return True
    except OSError:
        return False


def list_hosts(host: str | None, port: int) -> list[str]:
    """The values that the Host header may have; the first one is used in the printed link."""
    names = ["127.0.0.1", "localhost", "[::1]"]
    if host in ANY_ADDRESS:
        names = [socket.gethostname().lower(), *names]
    elif host is not None:
        names = [f"[{host}]" if ":" in host else host.lower(), *names]
    unique = list(dict.fromkeys(names))
    return [f"{name}:{port}" for name in unique] + (unique if port == 80 else [])


# Connections


class LimitedProtocol(H11Protocol):
    """An HTTP connection with limits."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; if there are too many, close another one."""
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        self._waiting = Timer()  # since the connection began to wait for a request
        if len(self.connections) >= MAX_CONNECTIONS and not self._close_longest_waiting():
            transport.abort()
        super().connection_made(transport)
        self._limit("request", READ_SECONDS)

    def _close_longest_waiting(self) -> bool:
        """Close the connection that waits longest for a request; False if none waits."""
        others = [each for each in self.connections if isinstance(each, LimitedProtocol)]
        waiting = [each for each in others if each.is_waiting]
        if waiting:
            longest = max(waiting, key=lambda each: each._waiting.seconds)
            self.connections.discard(longest)
            longest.transport.abort()
        return bool(waiting)

    @property
    def is_waiting(self) -> bool:
        """Whether the next request has not arrived completely."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def data_received(self, data: bytes) -> None:
        """Read more. The time limit runs from the first byte of the headers to the last."""
        super().data_received(data)
        self._watch_request()

    def _watch_request(self) -> None:
        """Start the time limit when headers begin to arrive; end it when they are complete."""
        if self.conn.their_state is not h11.IDLE:
            self._end_limit("request")
        elif self.conn.trailing_data[0]:
            self._limit("request", READ_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for name in list(self._deadlines):
            self._end_limit(name)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._waiting = Timer()
        super().on_response_complete()
        self._watch_request()  # the next request may have begun already

    def pause_writing(self) -> None:
        """Give the client IDLE_SECONDS to read what was sent, then close the connection."""
        super().pause_writing()
        self._limit("answer", IDLE_SECONDS)

    def resume_writing(self) -> None:
        """End the limit of pause_writing: the client reads again."""
        super().resume_writing()
        self._end_limit("answer")

    def send_400_response(self, msg: str) -> None:
        """Answer input that is not HTTP, with the same security headers as any response."""
        body = b"this is not a valid HTTP request\n"
        headers = [(b"content-type", b"text/plain"), (b"connection", b"close"), *SECURITY_HEADERS]
        headers.append((b"content-length", str(len(body)).encode()))
        with suppress(h11.LocalProtocolError):  # an answer has begun already
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def shutdown(self) -> None:
        """Close the connection, because the studio ends."""
        with suppress(h11.LocalProtocolError):
            super().shutdown()
            return
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, because no request came for IDLE_SECONDS."""
        with suppress(h11.LocalProtocolError):
            super().timeout_keep_alive_handler()
            return
        self.transport.close()

    def _limit(self, name: str, seconds: float) -> None:
        """Close the connection after this time, unless _end_limit is called before."""
        if name not in self._deadlines:
            self._deadlines[name] = self.loop.call_later(seconds, self.transport.abort)

    def _end_limit(self, name: str) -> None:
        if name in self._deadlines:
            self._deadlines.pop(name).cancel()


# The server


class StudioServer(uvicorn.Server):
    """A server that ends at a signal. stop: called first, so that streams can send a last error."""

    def __init__(self, app: Any, stop: Callable[[], Awaitable[None]]) -> None:
        config = uvicorn.Config(
            app,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # its log lines contain addresses, and so the token
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        super().__init__(config)
        self._stop, self.exit_code = stop, 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT, SIGTERM and SIGHUP end the studio, with the codes 130, 143 and 129."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down, which gives open requests a second; after a second signal, end at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.exit_code = 128 + sig

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the work, then close the connections."""
        await self._stop()
        await super().shutdown(sockets)

"""Who may ask: every request passes these checks before any handler sees it.

    1. Host        must name this server; a request with another name may be an attack (DNS
                   rebinding: the name of another site is made to point at this machine)
    2. sizes       the URL, the headers and the body have limits
    3. origin      no page of another site may read answers or send questions
    4. token       from the printed link; then from a cookie, or a Bearer token for programs

No CORS header is ever sent, and every response, even an error, has the same security headers. A
refusal is one sentence. The access token is never logged, nor are texts of 4 and more characters.
"""

import hmac
import secrets
import sys
import traceback
from collections import deque
from collections.abc import Iterable

from clearhead.studio.exchange import (
    MAX_BODY,
    MAX_HEADER_BYTES,
    READ_METHODS,
    Answer,
    App,
    DoorRequest,
    Receive,
    Refusal,
    Scope,
    Send,
    read_body,
    replay,
)
from clearhead.studio.worker_process import print_safely
from clearhead.timing import Timer

MAX_URL = 4 << 10
MAX_HEADERS = 100
MAX_WRONG, WRONG_SECONDS = 20, 10.0  # at most so many wrong tokens in so many seconds

SIGN_IN = "open the link that `clearhead studio` has printed in the terminal; it holds the token"


class Door:
    """The checks around an app.

    hosts: the values that the Host header may have, such as 127.0.0.1:8722. takes_any: also accept
    the address at which the connection arrived, for a socket that listens on all addresses.
    """

    def __init__(
        self, app: App, *, token: str, hosts: Iterable[str], port: int, takes_any: bool = False
    ) -> None:
        self.app, self.token, self.hosts = app, token, frozenset(hosts)
        self.port, self.takes_any = port, takes_any
        self.cookie = f"clearhead-{port}"
        self.tickets: set[str] = set()  # tokens that work once
        self.wrong: deque[Timer] = deque(maxlen=MAX_WRONG)  # one for each of the last wrong tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no websockets, no lifespan
            return
        request = DoorRequest(scope)
        answer = Answer(send, request)
        try:
            self.check(request)
            if request.link_token is not None:
                await answer.redirect(self.cookie, self.token)
                return
            body = await read_body(receive)
            await self.app(scope, replay(body, receive), answer.send)
        except Refusal as refusal:
            await answer.refuse(refusal)
        except Exception:
            id = secrets.token_hex(4)
            print_safely(f"error {id} at {request.method} {request.path}:\n{describe_bug()}")
            words = f"this request failed; the terminal of the studio shows why (error {id})"
            await answer.refuse(Refusal(500, words, close=True))

    def check(self, request: DoorRequest) -> None:
        """Raise Refusal if the request may not ask; the cheapest checks come first."""
        self.check_host(request)
        self.check_sizes(request)
        self.check_origin(request)
        self.check_token(request)

    def check_host(self, request: DoorRequest) -> None:
        """There must be exactly one Host header, and it must name this server."""
        given, hosts = request.get_all("host"), self.hosts
        if self.takes_any:
            address = request.local_address
            hosts |= {f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}"}
        if len(given) != 1 or given[0].lower() not in hosts:
            known = " or ".join(sorted(self.hosts))
            raise Refusal(403, f"the Host header must be {known}; use the printed link", close=True)

    def check_sizes(self, request: DoorRequest) -> None:
        """Check the address, the headers, and the length that the headers announce for the body."""
        if not request.target.startswith(b"/"):
            raise Refusal(400, "the address must be a path that starts with /", close=True)
        if len(request.target) > MAX_URL:
            raise Refusal(414, f"the address is longer than {MAX_URL:,} bytes", close=True)
        n_bytes = sum(len(name) + len(value) + 4 for name, value in request.headers)
        if len(request.headers) > MAX_HEADERS or n_bytes > MAX_HEADER_BYTES:
            limits = f"{MAX_HEADERS} headers or {MAX_HEADER_BYTES:,} bytes of them"
            raise Refusal(431, f"the request has more than {limits}", close=True)
        lengths = request.get_all("content-length")
        if lengths and request.get_all("transfer-encoding"):
            raise Refusal(
                400, "Content-Length and Transfer-Encoding exclude each other; send one", close=True
            )
        if any(len(length) > 9 or int(length) > MAX_BODY for length in lengths):
            raise Refusal(413, f"the body is larger than {MAX_BODY:,} bytes", close=True)

    def check_origin(self, request: DoorRequest) -> None:
        """Refuse pages of other sites. A POST also needs a header that only our own page sends."""
        if request.get("sec-fetch-site") not in (None, "none", "same-origin"):
            raise Refusal(
                403, "another site sent this request; copy the printed link into the address bar"
            )
        if request.method in READ_METHODS:
            return
        if request.method != "POST":
            raise Refusal(405, "only GET and POST are answered here")
        own = f"http://{request.get('host')}".lower()
        if any(origin != own for origin in request.get_all("origin")):
            raise Refusal(403, "the Origin header names another site; open the printed link")
        kind = (request.get("content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "the Content-Type of a body must be application/json")
        if request.get("x-clearhead") != "studio" and not request.bearer:
            raise Refusal(403, "the header X-Clearhead: studio is missing; or send a Bearer token")

    def make_ticket(self) -> str:
        """A token that works once.

        The link that opens the browser holds a ticket and not the token, because other users of the
        machine may see the command that starts the browser.
        """
        ticket = secrets.token_urlsafe(32)
        self.tickets.add(ticket)
        return ticket

    def check_token(self, request: DoorRequest) -> None:
        """Check the token of the Authorization header, the link or the cookie."""
        given = request.bearer or request.link_token or request.cookies.get(self.cookie)
        if given is not None and is_same(given, self.token):
            return
        if request.link_token is not None and given in self.tickets:
            self.tickets.discard(given)
            return
        if given:
            is_full = len(self.wrong) == MAX_WRONG
            if is_full and self.wrong[0].seconds < WRONG_SECONDS:
                raise Refusal(429, "too many wrong tokens; wait ten seconds")
            self.wrong.append(Timer())
        raise Refusal(401, ("the token is wrong; " if given else "") + SIGN_IN)


def is_same(given: str, token: str) -> bool:
    """Compare in constant time, so that the time does not reveal how much of a token is right."""
    return hmac.compare_digest(given.encode(), token.encode())


def describe_bug() -> str:
    """The traceback of the current error, without its message, which may contain inputs."""
    kind, _, trace = sys.exc_info()
    lines = traceback.format_tb(trace)
    return "".join(lines) + (kind.__name__ if kind is not None else "")

"""Who may ask: raw requests to a running studio."""

import asyncio
import json
import re
import socket
import statistics
import time

import pytest
from running_studio import read_all, start_fake_studio

from clearhead.studio.door import MAX_WRONG, WRONG_SECONDS, Door, is_same
from clearhead.studio.exchange import MAX_BODY, MAX_HEADER_BYTES
from clearhead.studio.listening import list_hosts, open_sockets
from clearhead.studio.page import read_page

JSON = "application/json"


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A studio with the built-in runs, but the questions of fake_worker.py."""
    running = start_fake_studio(tmp_path_factory.mktemp("listed"), settings={"lecture": True})
    yield running
    running.stop()


@pytest.fixture
def get(fake):
    """A GET of exactly these lines after the request line."""

    def get(*lines, target="/api/status", method="GET", version="HTTP/1.1", body=b""):
        text = "\r\n".join([f"{method} {target} {version}", *lines, "", ""])
        return fake.send_bytes(text.encode("latin-1") + body)

    return get


@pytest.fixture
def post(fake):
    """A POST with the cookie of the page, and these headers changed; None leaves one out."""

    def post(path="/api/ask/echo", body="{}", **changes):
        headers = {
            "Cookie": f"clearhead-{fake.port}={fake.token}",
            "Content-Type": JSON,
            "X-Clearhead": "studio",
            "Origin": fake.address,
        }
        headers |= {name.replace("_", "-"): value for name, value in changes.items()}
        return fake.raw("POST", path, {k: v for k, v in headers.items() if v is not None}, body)

    return post


def status_of(answer):
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(found[1]) if found else None


# Host


FOREIGN = ["evil.example", "evil.example:{}", "127.0.0.1.evil.example:{}", "localhost.:{}", ""]
FOREIGN += ["2130706433:{}", "0x7f000001:{}", "127.1:{}", "0.0.0.0:{}", "127.0.0.1", "localhost"]
FOREIGN += ["127.0.0.1:1", "127.0.0.1:{}0", "127.0.0.1:0{}", "[::]:{}", "[::1%lo]:{}", "::1:{}"]
FOREIGN += ["user@127.0.0.1:{}", "127.0.0.1:{}@evil.example", "127.0.0.1:{}, evil.example"]
FOREIGN += ["127.0.0.1:{} evil", "127.0.0.2:{}", "xn--localhost:{}", "http://127.0.0.1:{}"]


@pytest.mark.parametrize("host", FOREIGN)
def test_W01_a_request_to_another_name_is_refused_before_anything_else(fake, get, host):
    answer = get(f"Host: {host.format(fake.port)}", f"Authorization: Bearer {fake.token}")
    assert status_of(answer) in (400, 403)
    assert b'"state"' not in answer


def test_W01_two_hosts_no_host_and_an_absolute_address_are_refused(fake, get):
    own, token = f"Host: {fake.host}", f"Authorization: Bearer {fake.token}"
    assert status_of(get(own, "Host: evil.example", token)) == 400
    assert status_of(get(own, own, token)) == 400
    assert status_of(get(token)) == 400
    assert status_of(get(token, version="HTTP/1.0")) == 403
    for target in (f"{fake.address}/api/status", "http://evil.example/", "*", "evil.example:80"):
        assert status_of(get(own, token, target=target)) == 400, target


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "LocalHost:{}", "[::1]:{}"])
def test_own_names_are_let_in(fake, get, host):
    lines = f"Host: {host.format(fake.port)}", f"Authorization: Bearer {fake.token}"
    assert status_of(get(*lines, "Connection: close")) == 200


def test_answers_are_sent_at_once():
    """Only if a socket names its protocol does asyncio set TCP_NODELAY."""
    for listener in open_sockets(None, 0):
        assert listener.proto == socket.IPPROTO_TCP
        listener.close()


def test_the_names_come_from_the_socket():
    assert list_hosts(None, 80)[-3:] == ["127.0.0.1", "localhost", "[::1]"]
    assert list_hosts("10.0.0.7", 8722)[0] == "10.0.0.7:8722"
    assert list_hosts("fe80::7", 8722)[0] == "[fe80::7]:8722"


def ask_door(door, host="127.0.0.1:8722", local_address="127.0.0.1"):
    """(status, body) with which a door answers a request that arrived at an address."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "server": (local_address, 8722),
        "headers": [(b"host", host.encode()), (b"authorization", b"Bearer secret")],
    }
    asyncio.run(door(scope, receive, send))
    return sent[0]["status"], sent[1]["body"].decode()


def test_at_all_addresses_the_host_must_be_the_one_at_which_the_connection_arrived():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(host, local_address, takes_any=True):
        hosts = list_hosts("0.0.0.0", 8722)
        door = Door(app, token="secret", hosts=hosts, port=8722, takes_any=takes_any)
        return ask_door(door, host, local_address)[0]

    assert ask("10.0.0.7:8722", "10.0.0.7") == 200
    assert ask("[fe80::7]:8722", "fe80::7") == 200
    assert ask("evil.example:8722", "10.0.0.7") == 403
    assert ask("10.0.0.8:8722", "10.0.0.7") == 403
    assert ask("10.0.0.7:8722", "10.0.0.7", takes_any=False) == 403


def test_a_bug_in_the_server_has_an_id_and_the_terminal_does_not_show_what_was_typed(capsys):
    async def app(scope, receive, send):
        raise RuntimeError("what was typed")

    status, body = ask_door(Door(app, token="secret", hosts=["127.0.0.1:8722"], port=8722))
    printed = capsys.readouterr().err
    assert status == 500
    id = re.search(r"\(error ([0-9a-f]{8})\)", body)[1]
    assert f"error {id} at GET /:" in printed
    assert printed.endswith("RuntimeError\n")
    assert "what was typed" not in body + printed.replace('RuntimeError("what was typed")', "")
    assert "line" not in body


def listening_addresses(port):
    """The addresses at which something listens at this port, from the kernel's table."""
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with open(f"/proc/net/{name}") as table:
            rows = [line.split() for line in table][1:]
        for row in rows:
            address, _, number = row[1].rpartition(":")
            if int(number, 16) == port and row[3] == "0A":  # it listens
                words = [address[i : i + 8] for i in range(0, len(address), 8)]
                raw = b"".join(bytes.fromhex(word)[::-1] for word in words)
                found.add(socket.inet_ntop(family, raw))
    return found


def test_W03_it_listens_on_this_machine_only(fake):
    addresses = listening_addresses(fake.port)
    assert "127.0.0.1" in addresses
    assert addresses <= {"127.0.0.1", "::1"}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it chooses the address of this machine
        except OSError:
            return  # there is no other address
        own = probe.getsockname()[0]
    if own != "127.0.0.1":
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((own, fake.port), timeout=30).close()


# Origin


ORIGINS = ["http://evil.example", "null", "https://127.0.0.1:{}", "http://127.0.0.1", "", "file://"]
ORIGINS += ["http://127.0.0.1:1", "http://127.0.0.1:{}.evil.example", "http://localhost:{}"]
ORIGINS += ["http://evil.example:{}", "http://127.0.0.1:{}/", "http://127.0.0.1:{}, http://a"]


@pytest.mark.parametrize("origin", ORIGINS)
def test_W02_a_page_of_another_origin_cannot_command(fake, post, origin):
    answer = post(Origin=origin.format(fake.port))
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_W02_no_answer_allows_other_origins(fake):
    for method in ("GET", "POST", "OPTIONS", "HEAD"):
        headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        for path in ("/", "/api/status", "/api/ask/echo", "/nothing"):
            answer = fake.raw(method, path, headers | fake.headers())
            assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_page_itself_can_command(post):
    assert post().status == 200
    assert post(Origin=None).status == 200  # not every browser sends it


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content_Type": "multipart/form-data; boundary=a"}, 415),
        ({"Content_Type": None}, 415),
        ({"X_Clearhead": None}, 403),
        ({"X_Clearhead": "other"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),  # another port of this machine
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Content_Type": "application/json; charset=utf-8"}, 200),
    ],
)
def test_W24_a_form_or_a_script_of_another_page_cannot_command(post, changes, status):
    assert post(**changes).status == status


def test_W24_a_get_changes_nothing_and_no_other_method_is_taken(fake):
    before = fake.raw("GET", "/api/status", fake.headers()).json["starts"]
    for path in ("/api/ask/die", "/api/stream/die", "/api/trainings", "/api/trainings/stop"):
        assert fake.raw("GET", path, fake.headers()).status == 405
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert fake.raw(method, "/api/ask/die", fake.headers()).status == 405
    assert fake.raw("GET", "/api/status", fake.headers()).json["starts"] == before


def test_W24_there_are_no_websockets(fake, get):
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    upgrade += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", f"Host: {fake.host}"]
    assert status_of(get(*upgrade, "Connection: close")) == 401


# Token


def test_the_link_sets_a_cookie_and_leaves_the_address(fake):
    answer = fake.raw("GET", f"/?token={fake.token}")
    assert answer.status == 303
    assert answer.headers["location"] == "/"
    cookie = f"clearhead-{fake.port}={fake.token}"
    assert answer.headers["set-cookie"] == f"{cookie}; HttpOnly; SameSite=Strict; Path=/"
    assert fake.raw("GET", "/", {"Cookie": f"a=b; {cookie}; c=d"}).status == 200
    assert fake.raw("GET", f"/?a=b&token={fake.token}").status == 303  # a second browser


def test_a_link_for_one_use_works_once():
    async def app(scope, receive, send):
        raise AssertionError

    door = Door(app, token="secret", hosts=["a:1"], port=1)
    ticket = door.make_ticket()

    def follow(token, **changes):
        sent = []

        async def send(message):
            sent.append(message)

        query = f"token={token}".encode()
        scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "server": ("", 1)}
        scope |= {"query_string": query, "headers": [(b"host", b"a:1")]}
        asyncio.run(door(scope, None, send))
        return sent[0]["status"], dict(sent[0]["headers"]).get(b"set-cookie", b"")

    status, cookie = follow(ticket)
    assert status == 303
    assert cookie.startswith(b"clearhead-1=secret;")
    assert follow(ticket)[0] == 401


def wait_for_patience(fake):
    """Wait until wrong tokens are answered again."""
    while fake.raw("GET", "/api/status", {"Authorization": "Bearer x"}).status == 429:
        time.sleep(0.2)


def test_W05_nobody_is_let_in_without_the_token(fake):
    wait_for_patience(fake)
    name = f"clearhead-{fake.port}"
    wrong = [{}, {"Authorization": "Bearer"}, {"Authorization": f"Basic {fake.token}"}]
    wrong += [{"Authorization": f"Bearer {fake.token}x"}, {"Cookie": f"{name}={fake.token[:-1]}"}]
    wrong += [{"Cookie": f"other={fake.token}"}, {"X-Token": fake.token}, {"Cookie": f"{name}="}]
    wrong += [{"Referer": fake.url}, {"Authorization": f"Bearer {fake.token.swapcase()}"}]
    for headers in wrong:
        for path in ("/", "/main.js", "/api/status", "/nothing"):
            answer = fake.raw("GET", path, headers)
            assert answer.status in (401, 429), headers
            assert fake.token.encode() not in answer.body
    wait_for_patience(fake)
    for path in ("/?token=", "/?token=a", f"/?Token={fake.token}", f"/main.js?token={fake.token}"):
        assert fake.raw("GET", path).status == 401
    answer = fake.raw("GET", "/")
    assert answer.body.decode().startswith("Open the link that `clearhead studio` has printed")
    assert fake.raw("GET", "/api/status").json["status"] == 401


def test_W05_guesses_are_limited_and_the_right_token_is_not(fake):
    wait_for_patience(fake)
    guess = f"GET /api/status HTTP/1.1\r\nHost: {fake.host}\r\nAuthorization: Bearer"
    guesses = "".join(f"{guess} {i}\r\n\r\n" for i in range(3 * MAX_WRONG))
    answer = fake.send_bytes(guesses.encode() + b"end\r\n\r\n")
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", answer)[: 3 * MAX_WRONG]
    assert statuses[-1] == b"429"
    assert set(statuses) == {b"401", b"429"}
    assert fake.raw("GET", "/api/status", fake.headers()).status == 200
    assert fake.raw("GET", "/api/status").status == 401  # not a guess


def test_W05_of_2000_guesses_none_is_let_in_and_the_right_token_still_is(listed):
    cookie = f"clearhead-{listed.port}"
    lines = ["Authorization: Bearer {}", f"Cookie: {cookie}={{}}"]
    start, statuses, n = time.monotonic(), [], 50
    for i in range(0, 2000, n):
        guesses = [listed.token[:-4] + f"{i + j:04}" for j in range(n)]  # all but the end is right
        requests = [
            f"GET /?token={guess} HTTP/1.1\r\nHost: {listed.host}\r\n\r\n"
            if j % 3 == 2
            else f"GET / HTTP/1.1\r\nHost: {listed.host}\r\n{lines[j % 3].format(guess)}\r\n\r\n"
            for j, guess in enumerate(guesses)
        ]
        answer = listed.send_bytes("".join(requests).encode() + b"end\r\n\r\n")
        statuses += re.findall(rb"HTTP/1\.1 (\d+)", answer)[:n]
    seconds = time.monotonic() - start
    assert len(statuses) == 2000
    assert set(statuses) == {b"401", b"429"}
    assert statuses.count(b"401") <= MAX_WRONG * (1 + seconds / WRONG_SECONDS)
    assert listed.raw("GET", "/api/status", listed.headers()).status == 200
    assert listed.raw("GET", "/", {"Cookie": f"{cookie}={listed.token}"}).status == 200
    assert listed.raw("GET", f"/?token={listed.token}").status == 303


def test_W05_the_time_to_compare_does_not_tell_how_much_of_a_guess_is_right():
    token = "a" * 1_000_000

    def measure(guess):
        start = time.perf_counter()
        is_same(guess, token)
        return time.perf_counter() - start

    early, late = "b" + token[1:], token[1:] + "b"
    times = [(measure(early), measure(late)) for _ in range(20)]
    first, second = (statistics.median(column) for column in zip(*times, strict=True))
    assert 1 / 5 < first / second < 5  # `==` takes many times as long for the late one


# Sizes


def test_W08_a_body_that_is_too_large_is_refused(fake, get):
    own = [f"Host: {fake.host}", f"Authorization: Bearer {fake.token}", f"Content-Type: {JSON}"]
    path = "/api/ask/echo"

    def send(*lines, body=b""):
        return status_of(get(*own, *lines, target=path, method="POST", body=body))

    assert send(f"Content-Length: {MAX_BODY + 1}") == 413
    assert send(f"Content-Length: {'9' * 5000}") in (400, 413)
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    assert send("Transfer-Encoding: chunked", body=chunk * 17) == 413
    fitting = json.dumps({"text": "a" * (MAX_BODY - 20)}).encode()
    lines = f"Content-Length: {len(fitting)}", "Connection: close"
    assert send(*lines, body=fitting) == 200


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: -1"],
        ["Content-Length: 1e3"],
        ["Content-Length: 2", "Content-Length: 3"],
        ["Content-Length: 2, 3"],
        ["Content-Length: 2", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Content-Length: +2"],
        ["Content-Length : 2"],
    ],
)
def test_W08_a_length_that_is_unclear_is_refused_and_the_connection_closed(fake, get, lines):
    own = [f"Host: {fake.host}", f"Authorization: Bearer {fake.token}", f"Content-Type: {JSON}"]
    answer = get(*own, *lines, target="/api/ask/echo", method="POST", body=b"2\r\n{}\r\n0\r\n\r\n")
    assert status_of(answer) in (400, 501)
    assert answer.count(b"HTTP/1.1 ") == 1


def test_W08_a_length_that_is_too_small_makes_the_rest_another_request(fake, get):
    own = [f"Host: {fake.host}", f"Authorization: Bearer {fake.token}", f"Content-Type: {JSON}"]
    body = b'{}{"text": "more"}\r\n\r\n'
    answer = get(*own, "Content-Length: 2", target="/api/ask/echo", method="POST", body=body)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200", b"400"]


def test_W10_long_addresses_and_many_headers_are_refused(fake, get):
    own = [f"Host: {fake.host}", f"Authorization: Bearer {fake.token}"]
    assert status_of(get(*own, target="/" + "a" * 4096)) == 414
    assert status_of(get(*own, target="/" + "a" * 1_000_000)) in (400, 414)
    assert status_of(get(*own, *(f"A{i}: b" for i in range(100)))) == 431
    assert status_of(get(*own, *(f"A{i}: b" for i in range(10_000)))) in (400, 431)
    assert status_of(get(*own, "A: " + "b" * 16_384)) == 431
    assert status_of(get(*own, "A: " + "b" * 100_000)) in (400, 431)
    assert status_of(get(*own, "Connection: close", *(f"A{i}: b" for i in range(90)))) == 200


# Headers


SECURITY_HEADERS = {  # written out, so that a change of the code is seen here
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
PATHS = ["/", "/main.js", "/style.css", "/whole.html", "/nothing", "/?token=a", "/../etc/passwd"]
PATHS += ["/api/status", "/api/ask/echo", "/api/ask/fail", "/api/ask/no", "/api/stream/count"]
PATHS += ["/api/runs", "/api/runs/substring", "/api/runs/substring/events", "/api/runs/a/events"]
PATHS += ["/api/runs/substring/resume", "/api/differences", "/api/differences?runs=substring,dates"]
PATHS += ["/api/recipes", "/api/trainings", "/api/trainings/stop", "/api/exercises", "/api/check"]
PATHS += ["/v1/models", "/v1/models/a", "/v1/completions", "/v1/chat/completions", "/v1/other"]
PATHS += ["/" + "a" * 5000]
STATUSES = {200, 303, 400, 401, 403, 404, 405, 409, 413, 414, 415, 431, 500}


def test_W22_every_answer_has_the_security_headers(listed):
    own, statuses = listed.headers(), set()
    requests = [
        (method, path, headers, "{" if method == "POST" else None)
        for path in [*PATHS, f"/?token={listed.token}"]
        for method in ("GET", "HEAD", "POST", "PUT")
        for headers in ({}, own, {"Host": "evil.example"})
    ]
    requests += [("POST", path, own, "{}") for path in PATHS]
    requests += [("POST", path, own | {"Content-Length": str(MAX_BODY + 1)}, "") for path in PATHS]
    requests += [("POST", path, own | {"Content-Type": "text/plain"}, "{}") for path in PATHS]
    requests += [("GET", path, own | {"A": "b" * MAX_HEADER_BYTES}, None) for path in PATHS]
    requests += [("GET", path, None, None) for path in read_page()]
    requests += [("GET", path, own, None) for path in read_page()]
    for method, path, headers, body in requests:
        answer = listed.raw(method, path, headers, body)
        found = {name: answer.headers.get(name) for name in SECURITY_HEADERS}
        assert found == SECURITY_HEADERS, (method, path, answer.status)
        statuses.add(answer.status)
    assert statuses >= STATUSES
    events = listed.raw("GET", "/api/runs/substring/events", own)
    assert events.headers["content-type"].startswith("text/event-stream")


def test_W22_an_answer_to_what_is_no_request_has_the_security_headers(fake):
    raw = fake.send_bytes(b"nonsense\r\n\r\n").decode().lower()
    assert raw.startswith("http/1.1 400 ")
    for name, value in SECURITY_HEADERS.items():
        assert f"\r\n{name}: {value.lower()}\r\n" in raw


def test_a_refused_connection_is_closed_and_others_are_kept(fake):
    headers = f"Host: {fake.host}\r\nAuthorization: Bearer {fake.token}\r\n"
    with fake.connect() as connection:
        request = f"GET /api/status HTTP/1.1\r\n{headers}\r\n".encode()
        for _ in range(3):  # one connection, several requests
            connection.sendall(request)
            answer = b""
            while b'"starts"' not in answer:
                answer += connection.recv(65536)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert b" 403 " in read_all(connection)

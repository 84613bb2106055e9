"""Load and faults: slow, leaving and wrong clients; workers and servers that are killed."""

import http.client
import json
import os
import random
import shutil
import signal
import socket
import struct
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from running_studio import MEGABYTE, find_worker, measure_memory, read_all, start_fake_studio

from clearhead.bench.studio_load import choose_question
from clearhead.files.lock import lock_folder
from clearhead.studio.frames import decode_answer
from clearhead.studio.supervisor import LIMIT

GOLDEN = Path(__file__).parents[1] / "golden"
SECONDS = 120  # in which everything happens, even on a loaded machine


def wait_until(is_true):
    """Wait for a condition, as long as it may take on a loaded machine."""
    end = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def get_status(studio):
    return studio.raw("GET", "/api/status", studio.headers()).json


def is_alive(process):
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def count_files(process):
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def open_stream(studio, question, **arguments):
    """A socket on which a stream has begun."""
    return open_request(studio, "POST", f"/api/stream/{question}", arguments)


def open_request(studio, method, path, value=None):
    """A socket that waits for an answer."""
    body = "" if value is None else json.dumps(value)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {studio.host}"]
    lines += [f"{name}: {value}" for name, value in studio.headers().items()]
    lines += [f"Content-Length: {len(body)}", "", body]
    connection = studio.connect()
    connection.sendall("\r\n".join(lines).encode())
    return connection


def read_begin(connection):
    data = connection.recv(4096)
    assert data.startswith(b"HTTP/1.1 200 ")
    return data


# Leaving


def test_W14_work_ends_when_the_client_leaves_during_a_stream(fake, tmp_path):
    marks = tmp_path / "marks"
    connection = open_stream(fake, "count_marked", path=str(marks))
    read_begin(connection)
    connection.close()
    wait_until(lambda: get_status(fake)["pending"] == 0)
    fake.ask("echo")  # the worker has read the cancellation before this
    size = marks.stat().st_size
    fake.ask("wait", {"seconds": 0.2})
    assert marks.stat().st_size == size


def test_W14_clients_that_leave_while_they_wait_leave_nothing_behind(fake, tmp_path):
    marks = tmp_path / "marks"
    for _ in range(8):
        slow = open_stream(fake, "wait", seconds=0.1)  # all others wait for it
        wait_until(lambda: get_status(fake)["pending"] >= 1)
        others = [open_stream(fake, "count_marked", path=str(marks)) for _ in range(24)]
        wait_until(lambda: get_status(fake)["pending"] >= 2)
        for connection in (*others, slow):
            connection.close()
        wait_until(lambda: get_status(fake)["pending"] == 0)
    fake.ask("echo")
    size = marks.stat().st_size if marks.exists() else 0
    assert fake.ask("echo", {"text": "a"})["text"] == "a"
    assert (marks.stat().st_size if marks.exists() else 0) == size
    assert get_status(fake)["starts"] == 1


# Load


def ask_until_answered(studio, text):
    """(answer, how often it was refused) of a client that asks again when it is told to."""
    for tries in range(10_000):
        answer = studio.post("/api/ask/echo", {"text": text})
        if answer.status == 200:
            return decode_answer(answer.body)["text"], tries
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        time.sleep(0.05)
    raise AssertionError("it was never answered")


def test_W15_of_64_clients_some_wait_some_are_refused_and_none_is_lost(fake):
    blocks = [open_stream(fake, "wait", seconds=0.5) for _ in range(2)]
    wait_until(lambda: get_status(fake)["pending"] == 2)
    most = 0
    with ThreadPoolExecutor(64) as pool:
        texts = [f"client {i}" for i in range(64)]
        answers = [pool.submit(ask_until_answered, fake, text) for text in texts]
        while not all(each.done() for each in answers):
            most = max(most, get_status(fake)["pending"])
    assert [each.result()[0] for each in answers] == texts
    assert sum(each.result()[1] for each in answers) > 0
    assert most <= LIMIT
    for connection in blocks:
        connection.close()


def test_W23_many_requests_leave_no_memory_and_no_open_files(fake):
    process = fake.process.pid
    body = json.dumps({"text": "a" * 1000})

    def ask(n):
        connection = http.client.HTTPConnection("127.0.0.1", fake.port, timeout=SECONDS)
        for _ in range(n):
            connection.request("POST", "/api/ask/echo", body, fake.headers())
            response = connection.getresponse()
            assert response.status == 200
            assert len(response.read()) > 1000
        connection.close()

    def measure():
        wait_until(lambda: get_status(fake)["pending"] == 0)
        return measure_memory(process), count_files(process)

    ask(500)
    memory, files = measure()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, [600] * 4))
    more_memory, more_files = measure()
    assert more_files <= files + 4  # connections that are just being closed
    assert more_memory < memory * 1.05 + MEGABYTE


def test_W23_many_questions_of_all_views_leave_no_memory_in_the_worker(studio):
    connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=SECONDS)

    def ask(numbers):
        for i in numbers:
            question, arguments = choose_question(i)
            body = json.dumps(arguments)
            connection.request("POST", f"/api/ask/{question}", body, studio.headers())
            response = connection.getresponse()
            assert response.status == 200, response.read()
            response.read()

    worker = find_worker(studio)
    ask(range(96))
    before = measure_memory(worker)
    ask(range(96, 456))
    connection.close()
    assert find_worker(studio) == worker
    assert measure_memory(worker) - before < 20 * MEGABYTE


# Slow


def is_closed(connection):
    """Whether the other side has closed it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_W09_a_new_connection_takes_the_place_of_the_one_that_waits_longest(tmp_path):
    studio = start_fake_studio(tmp_path, max_connections=3)
    try:
        old = studio.connect()
        streams = [open_stream(studio, "count", n=100_000, seconds=0.01) for _ in range(2)]
        for connection in streams:
            read_begin(connection)
        assert not is_closed(old)
        streams.append(open_stream(studio, "count", n=100_000, seconds=0.01))
        read_begin(streams[-1])
        assert is_closed(old)
        assert not can_ask(studio)  # all others are being answered
        streams[0].close()
        wait_until(lambda: can_ask(studio))
        assert len(streams[1].recv(4096)) > 0
        for connection in (old, *streams):
            connection.close()
    finally:
        studio.stop()


def can_ask(studio):
    try:
        return studio.post("/api/ask/echo", {}).status == 200
    except OSError:
        return False


@pytest.mark.slow
def test_W09_slow_connections_are_cut_and_keep_nobody_waiting(fake):
    own = f"Host: {fake.host}\r\nAuthorization: Bearer {fake.token}\r\n".encode()
    slow = [fake.connect() for _ in range(200)]  # more than are taken at once
    is_over = threading.Event()

    def send_slowly():
        request = b"GET / HTTP/1.1\r\n" + own + b"A: " + b"b" * 10_000
        for i in range(len(request)):
            for connection in slow[:150]:  # the other 50 send nothing
                try:
                    connection.send(request[i : i + 1])
                except OSError:
                    continue
            if is_over.wait(0.2):
                return

    sending = threading.Thread(target=send_slowly)
    sending.start()
    body = fake.connect()
    headers = b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    body.sendall(b"POST /api/ask/echo HTTP/1.1\r\n" + own + headers)
    for _ in range(50):  # each takes the place of the connection that has been slow longest
        assert fake.ask("echo", {"text": "a"})["text"] == "a"
    for connection in slow:
        assert read_all(connection) == b""  # closed by the studio
        connection.close()
    is_over.set()
    sending.join()
    answer = read_all(body)
    assert answer == b"" or b" 408 " in answer
    body.close()


@pytest.mark.slow
def test_W08_a_body_that_does_not_arrive_is_answered_and_the_connection_closed(fake):
    with fake.connect() as connection:
        lines = [f"{name}: {value}" for name, value in fake.headers().items()]
        head = ["POST /api/ask/echo HTTP/1.1", f"Host: {fake.host}", *lines, "Content-Length: 9"]
        connection.sendall("\r\n".join([*head, "", "{"]).encode())
        assert b" 408 " in read_all(connection)


# Nonsense


def make_word(rng):
    return "".join(rng.choices("ab/.%?#&=\"'{}[]\\é\x00<> 0123456789", k=rng.randint(0, 40)))


def make_request(rng, studio):
    """A request with a mistake somewhere, which ends the connection."""
    words = [make_word(rng) for _ in range(8)]
    method = rng.choice(["GET", "POST", "POST", "POST", "HEAD", "PUT", words[0].replace(" ", "")])
    folder = rng.choice(["/", "/api/ask/", "/api/stream/", "/api/runs/", "/v1/", "/api/", ""])
    target = folder + rng.choice(["echo", "count", "completions", "models", "status", words[1]])
    headers = dict(studio.headers(), Host=studio.host)
    for word in words[2 : 2 + rng.randint(0, 3)]:
        headers[rng.choice(["A", "Cookie", "Accept", "Origin", "Expect", words[5]])] = word
    if rng.random() < 0.1:
        headers.pop(rng.choice(list(headers)))
    value = rng.choice([{}, {"text": words[6]}, {"n": rng.randint(-3, 3)}, [], {words[7]: 1}])
    body = rng.choice([json.dumps(value), json.dumps(value)[:-1], words[6], "[" * 99]).encode()
    if rng.random() < 0.9:
        headers["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def make_noise(rng):
    """Bytes that are no request at all."""
    return rng.choice(
        [
            rng.randbytes(rng.randint(0, 300)),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),  # TLS
            b"GET /\r\n",  # HTTP/0.9
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET / HTTP/1.1\r\n" * rng.randint(1, 9),
            b"\r\n" * rng.randint(1, 99),
            b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        ]
    )


def send_and_close(studio, data):
    """Send bytes and say that nothing follows; returns what comes back."""
    with studio.connect() as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:  # it was refused before its end
            pass
        return read_all(connection)


def test_W10_2000_requests_with_mistakes_cause_no_500_and_take_no_memory(fake):
    rng, statuses = random.Random(16), Counter()
    starts = get_status(fake)["starts"]
    for i in range(2000):
        if i == 300:
            memory = measure_memory(fake.process.pid)
        if i % 4 == 3:
            answer = send_and_close(fake, make_noise(rng))
        else:
            answer = fake.send_bytes(make_request(rng, fake))
        statuses[answer[9:12]] += 1
    assert not [status for status in statuses if status.startswith(b"5")], statuses
    assert {b"200", b"400", b"404", b"403"} <= set(statuses)
    assert measure_memory(fake.process.pid) - memory < 20 * MEGABYTE
    assert fake.ask("echo", {"text": "a"})["text"] == "a"
    assert get_status(fake)["starts"] == starts
    assert "Traceback" not in fake.read_log().replace("in fail:\nTraceback", "")


def test_W10_requests_that_follow_each_other_at_once_are_all_answered(fake):
    own = f"Host: {fake.host}\r\nAuthorization: Bearer {fake.token}\r\n"
    one = f"GET /api/status HTTP/1.1\r\n{own}\r\n"
    last = f"GET /api/status HTTP/1.1\r\n{own}Connection: close\r\n\r\n"
    answer = fake.send_bytes((one * 50 + last).encode())
    assert answer.count(b"HTTP/1.1 200 ") == 51


# Killed


def ask_again(studio, question, arguments):
    """The answer, asked for until the worker is there again."""
    while (answer := studio.post(f"/api/ask/{question}", arguments)).status == 503:
        assert answer.json["restarting"]
        time.sleep(0.1)
    assert answer.status == 200
    return decode_answer(answer.body)


def test_W18_a_killed_worker_is_started_again_with_the_same_models(studio):
    before, worker = studio.ask("list_models"), find_worker(studio)
    os.kill(worker, signal.SIGKILL)
    assert ask_again(studio, "list_models", {}) == before
    assert find_worker(studio) != worker


def test_W18_a_page_recovers_when_the_worker_is_killed(page, studio):
    page.wait_for_selector("[data-view]")
    os.kill(find_worker(studio), signal.SIGKILL)
    page.goto_view("text", model="substring", text="abcab|cab")
    page.wait_for_selector(".heads .head")
    assert not page.query_selector(".error")
    page.expected.append("status of 503")


@pytest.mark.parametrize(("seconds", "is_repeated"), [(1, True), (40, False)])
def test_W18_a_page_does_not_repeat_a_question_that_took_too_long(page, seconds, is_repeated):
    """It has probably ended the worker itself, and would do so again."""
    asked = []
    error = {"error": "the model process has ended", "status": 503, "restarting": True}

    def refuse(route):
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=503, json=error)
        else:
            route.continue_()

    # Every look at the clock of the page is this much later than the one before.
    page.add_init_script(f"let looks = 0; performance.now = () => {1000 * seconds} * (looks += 1);")
    page.route("**/api/ask/attend", refuse)
    page.goto_view("text", model="substring", text="abc|c")
    if is_repeated:
        page.wait_for_selector(".heads .head")
    else:
        page.wait_for_selector(".error:has-text('the model process has ended')")
    assert len(asked) == 1 + is_repeated
    page.expected.append("status of 503")


def test_W18_a_worker_that_hangs_fails_its_question_and_no_later_one(tmp_path):
    studio = start_fake_studio(tmp_path, timeout=2)
    try:
        worker = find_worker(studio)
        os.kill(worker, signal.SIGSTOP)
        answer = studio.post("/api/ask/echo", {})
        assert answer.status == 503
        assert answer.json["restarting"]
        assert answer.headers["retry-after"] == "1"
        assert "did not answer for 2 s" in answer.json["error"]
        assert ask_again(studio, "echo", {"text": "a"})["text"] == "a"
        assert not is_alive(worker)
        connection = open_stream(studio, "count", n=10_000, seconds=0.05)
        data = read_begin(connection)
        os.kill(find_worker(studio), signal.SIGKILL)
        data += read_all(connection) if b"chunked" not in data else read_chunks(connection)
        assert b"the model process has ended and is being started again" in data
        connection.close()
    finally:
        studio.stop()


def read_chunks(connection):
    """What arrives until the last chunk."""
    data = b""
    while not data.endswith(b"0\r\n\r\n") and (part := connection.recv(65536)):
        data += part
    return data


def test_a_worker_that_does_not_start_is_told_on_the_page(tmp_path):
    studio = start_fake_studio(tmp_path, settings={"fails": "there is no such library"})
    try:
        answer = studio.post("/api/ask/echo", {})
        assert answer.status == 503
        assert "does not start" in answer.json["error"]
        assert "there is no such library" in answer.json["error"]
        assert get_status(studio)["state"] == "failing"
        assert "there is no such library" in studio.read_log()
    finally:
        studio.stop()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_W20_a_signal_ends_open_streams_with_an_error_and_leaves_nothing(tmp_path, number, code):
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        studio = start_fake_studio(tmp_path / str(i))
        worker = find_worker(studio)
        streams = [open_stream(studio, "count", n=100_000, seconds=0.01) for _ in range(5)]
        begins = [read_begin(connection) for connection in streams]
        waiting = [open_stream(studio, "wait", seconds=50.0) for _ in range(2)]
        wait_until(lambda: get_status(studio)["pending"] == 7)  # noqa: B023
        assert studio.stop(number) == code
        for begin, connection in zip(begins, streams, strict=True):
            data = begin + read_all(connection)
            assert b'{"error": "the studio has been closed", "status": 503}' in data
            assert struct.pack("<I", 0) in data[-20:]
            connection.close()
        for connection in waiting:
            assert b"the studio has been closed" in read_all(connection)
            connection.close()
        assert not is_alive(worker)
        with socket.socket() as again:  # the port is free
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", studio.port))
        assert "Traceback" not in studio.read_log()


STUBBORN = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open({!r}, "w").close()
time.sleep(1000)
"""
MOST_SECONDS = 6.0  # until the studio has ended: it takes 3 s at most, and more on a loaded machine


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_W20_the_studio_ends_soon_whatever_is_open(tmp_path, number, code):
    run = shutil.copytree(GOLDEN / "identity-0001", tmp_path / "runs" / "identity-0001")
    shutil.rmtree(run / "checkpoints")  # they would say that it has finished
    check = STUBBORN.format(str(tmp_path / "is checked"))
    settings = {"runs": str(tmp_path / "runs")}
    studio = start_fake_studio(tmp_path, check=check, settings=settings)
    with lock_folder(run):  # the run is live, so its events have no end
        events = open_request(studio, "GET", "/api/runs/identity-0001/events")
        stream = open_stream(studio, "count", n=100_000, seconds=0.01)
        waiting = open_stream(studio, "wait", seconds=50.0)
        checked = open_request(studio, "POST", "/api/check", {"code": "x = 1"})
        read_begin(events)
        read_begin(stream)
        wait_until((tmp_path / "is checked").exists)
        start = time.monotonic()
        assert studio.stop(number) == code
        assert time.monotonic() - start < MOST_SECONDS
        assert b"event: closed" in read_all(events)
        for connection in (events, stream, waiting, checked):
            connection.close()
    assert "Traceback" not in studio.read_log()


def test_a_worker_does_not_outlive_a_server_that_is_killed(tmp_path):
    studio = start_fake_studio(tmp_path)
    worker = find_worker(studio)
    studio.stop(signal.SIGKILL)
    wait_until(lambda: not is_alive(worker))

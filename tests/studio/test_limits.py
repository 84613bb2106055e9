"""Limits of time and memory: connections that wait, and questions that need too much memory."""

import json
import time

import numpy as np
import pytest
import torch
from running_studio import read_all, start_fake_studio

from clearhead.studio import exchange, listening
from clearhead.studio.worker import describe_fault

LIMIT = 0.5  # seconds, in place of 10 and 30
MOST_SECONDS = 8.0  # until a limit of LIMIT has acted, even on a loaded machine


@pytest.fixture(scope="module")
def brief(tmp_path_factory):
    """A studio with short time limits."""
    folder = tmp_path_factory.mktemp("brief")
    running = start_fake_studio(folder, read_seconds=LIMIT, idle_seconds=LIMIT)
    yield running
    running.stop()


def wait_until_closed(connection):
    """What arrives until the studio closes the connection, which it must do in time."""
    connection.settimeout(MOST_SECONDS)
    start = time.monotonic()
    data = read_all(connection)
    assert time.monotonic() - start < MOST_SECONDS
    return data


def get_pending(studio):
    return studio.raw("GET", "/api/status", studio.headers()).json["pending"]


def write_head(studio, *lines, path="/api/ask/echo"):
    """The headers of a POST that may ask, without the empty line."""
    own = [f"{name}: {value}" for name, value in studio.headers().items()]
    return "\r\n".join([f"POST {path} HTTP/1.1", f"Host: {studio.host}", *own, *lines]).encode()


def test_W09_a_request_may_take_ten_seconds_and_a_pause_thirty():
    assert exchange.READ_SECONDS <= 10
    assert listening.READ_SECONDS <= 10
    assert listening.IDLE_SECONDS <= 30


@pytest.mark.parametrize("n", [0, 1, 30, None])
def test_W09_a_connection_without_a_whole_request_is_closed(brief, n):
    with brief.connect() as connection:
        connection.sendall(write_head(brief)[:n])
        assert wait_until_closed(connection) == b""


def test_W09_a_body_that_does_not_arrive_is_refused_and_the_connection_closed(brief):
    with brief.connect() as connection:
        connection.sendall(write_head(brief, "Content-Length: 9") + b"\r\n\r\n{")
        assert wait_until_closed(connection).startswith(b"HTTP/1.1 408 ")


def test_W09_a_connection_that_asks_nothing_more_is_closed(brief):
    with brief.connect() as connection:
        connection.sendall(write_head(brief, "Content-Length: 2") + b"\r\n\r\n{}")
        answer = wait_until_closed(connection)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" not in answer.lower()


def test_W09_a_client_that_does_not_read_its_answers_is_cut(brief):
    body = json.dumps({"n": 100_000, "size": 10_000, "seconds": 0.01}).encode()
    head = write_head(brief, f"Content-Length: {len(body)}", path="/api/stream/count")
    with brief.connect() as connection:
        connection.sendall(head + b"\r\n\r\n" + body)
        end = time.monotonic() + MOST_SECONDS
        while get_pending(brief) == 0:
            time.sleep(0.02)
        while get_pending(brief):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert b"too slowly" not in read_all(connection)  # the limit of unread bytes


def test_an_answer_that_takes_longer_than_the_limits_arrives(brief):
    assert brief.ask("wait", {"seconds": 3 * LIMIT})["seconds"] == 3 * LIMIT


# Memory


def test_W18_a_question_without_enough_memory_is_an_error_and_others_are_answered(fake):
    starts = fake.raw("GET", "/api/status", fake.headers()).json["starts"]
    answer = fake.post("/api/ask/allocate", {})
    assert answer.status == 500
    assert answer.json["error"].startswith("this question needs more memory than is free; ")
    assert fake.ask("echo", {"text": "a"})["text"] == "a"
    assert fake.raw("GET", "/api/status", fake.headers()).json["starts"] == starts


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: torch.empty(1 << 60, dtype=torch.uint8),
        lambda: np.empty(1 << 60, np.uint8),
        lambda: bytearray(1 << 60),
    ],
)
def test_W18_missing_memory_is_named_whoever_asks_for_it(allocate):
    try:
        allocate()
    except Exception as fault:
        found = json.loads(describe_fault(fault))
    assert found["status"] == 500
    assert "more memory than is free" in found["error"]
    assert "Traceback" in found["log"]

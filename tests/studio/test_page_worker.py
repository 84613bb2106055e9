"""A page whose model process dies: it says so, goes on, and loses nothing that was written."""

import os
import signal
import struct
from pathlib import Path

import pytest
from page_numbers import wait_for
from playwright.sync_api import expect

from clearhead.studio.frames import encode_answer

expect.set_options(timeout=60_000)
CHIPS = "[aria-label=tokens] .chip"
REASON = "the model process has ended and is being started again"


def find_worker(studio):
    """The process id of the worker: the only child of the server."""
    id = studio.process.pid
    (worker,) = Path(f"/proc/{id}/task/{id}/children").read_text().split()
    return int(worker)


def wait_for_answer(page, text, words):
    """Until the page has said these words, and then shows the answer and says nothing."""
    page.wait_for_function(
        "(words) => document.getElementById('status').textContent === words", arg=words
    )
    wait_for(page, CHIPS, ["[CLS]", *text])
    expect(page.locator("#status")).to_have_text("")
    assert page.locator(".error").count() == 0


def test_W18_a_page_says_that_the_model_restarts_until_the_answer_is_there(page, studio):
    page.goto_view("text", model="substring", text="abc|c")
    page.wait_for_selector(".heads .head")
    worker = find_worker(studio)
    with page.expect_request("**/api/ask/attend"):  # a question in flight
        os.kill(worker, signal.SIGSTOP)
        page.get_by_label("text", exact=True).fill("abcab|ab")
    os.kill(worker, signal.SIGKILL)
    wait_for_answer(page, "abcab|ab", REASON)
    os.kill(find_worker(studio), signal.SIGKILL)  # none in flight
    page.wait_for_timeout(200)  # milliseconds; the server sees the end of the process
    page.get_by_label("text", exact=True).fill("cab|a")
    words = f"{REASON.capitalize()}; the answer comes when it is ready."
    wait_for_answer(page, "cab|a", words)
    page.expected.append("status of 503")


def cut_stream(page, n):
    """Streams end after n answers, as they do when the worker dies."""

    def fulfil(route):
        data, place = route.fetch().body(), 0
        for _ in range(n):
            place += 4 + struct.unpack_from("<I", data, place)[0]
        end = encode_answer({"error": REASON, "status": 503})
        body = data[:place] + struct.pack("<I", len(end)) + end + struct.pack("<I", 0)
        route.fulfill(status=200, body=body)

    page.route("**/api/stream/write", fulfil)


@pytest.mark.parametrize("n", [3, 0])
def test_W18_an_interrupted_text_stays_with_the_reason_until_it_is_continued(page, n):
    page.goto_view("generate", model="shakespeare", text="ROMEO:", seed=2)
    page.wait_for_selector(".bar-row")
    cut_stream(page, n)
    page.get_by_label("how many tokens to write").fill("8")
    page.get_by_role("button", name="write", exact=True).click()
    words = f"Writing stopped after {n} of 8 tokens: {REASON}"
    expect(page.get_by_role("alert")).to_have_text(words)
    page.wait_for_selector(".generate-columns:not(.stale) .bar-row")  # the next answer is there
    page.wait_for_timeout(500)  # milliseconds; nothing that comes later removes the words
    expect(page.get_by_role("alert")).to_have_text(words)
    expect(page.locator(".taken-chip")).to_have_count(n)
    page.unroute("**/api/stream/write")
    page.get_by_role("button", name="write", exact=True).click()
    expect(page.locator(".taken-chip")).to_have_count(n + 8)
    expect(page.get_by_role("alert")).to_have_count(0)

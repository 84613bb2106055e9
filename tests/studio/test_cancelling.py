"""A client that leaves: its question ends within a call of a part of the model."""

import json
import time

import pytest
import torch
from running_studio import start_fake_studio
from torch import nn

from clearhead.inspection import head_importance
from clearhead.studio.views import effects
from clearhead.studio.worker import CancelledError, Worker

SECONDS = 60  # in which everything happens, even on a loaded machine
MOST_SECONDS = 1.0  # until the next question is answered: 0.25 s, and more on a loaded machine
TEXT = "ROMEO: what light through yonder window"

QUESTIONS = [  # each takes 2 to 90 s with the slow worker
    ("measure_heads", {"model": "shakespeare", "text": TEXT}),
    ("sweep_patches", {"model": "shakespeare", "text": TEXT, "other": TEXT[::-1]}),
    (
        "sweep_patches",
        {"model": "shakespeare", "text": TEXT, "other": TEXT[::-1], "over": "position"},
    ),
    ("search_beams", {"model": "dates", "text": "3 may 1999", "n_beams": 16}),
    ("translate", {"model": "dates", "text": "3 may 1999"}),
    ("measure_covering", {"model": "digits", "number": 0}),
    ("look_at_picture", {"model": "digits", "number": 1}),
    ("run_smallest", {"text": "CAB", "rule": "first", "start": "learned"}),
    ("measure_kernels", {}),
]


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A studio with the built-in models, each part of which is slow."""
    options = {"worker": "slow_worker.py", "settings": {"lecture": True, "threads": 1}}
    running = start_fake_studio(tmp_path_factory.mktemp("slow"), **options)
    # What is read and imported once, for the first question, is no part of the work.
    running.ask("list_models")
    running.ask("list_pictures", {"model": "digits", "n": 1})
    running.ask("run_smallest", {"text": "CAB", "rule": "first", "start": "random"})
    yield running
    running.stop()


def open_question(studio, question, arguments, kind="ask"):
    """A socket that waits for the answer to a question."""
    body = json.dumps(arguments)
    lines = [f"POST /api/{kind}/{question} HTTP/1.1", f"Host: {studio.host}"]
    lines += [f"{name}: {value}" for name, value in studio.headers().items()]
    lines += [f"Content-Length: {len(body)}", "", body]
    connection = studio.connect()
    connection.sendall("\r\n".join(lines).encode())
    return connection


def get_pending(studio):
    return studio.raw("GET", "/api/status", studio.headers()).json["pending"]


@pytest.mark.parametrize(("question", "arguments"), QUESTIONS)
def test_W14_the_next_question_is_answered_soon_after_a_client_has_left(slow, question, arguments):
    connection = open_question(slow, question, arguments)
    time.sleep(0.3)  # it is being answered
    assert get_pending(slow) == 1
    connection.close()
    start = time.monotonic()
    slow.ask("list_writers")
    assert time.monotonic() - start < MOST_SECONDS
    assert get_pending(slow) == 0


def test_W14_a_stream_ends_within_one_of_its_steps(slow):
    random = slow.ask("run_smallest", {"text": "CAB", "rule": "first", "start": "random"})
    matrices = {
        name: None if value is None else value.tolist()
        for name, value in random["parameters"].items()
    }
    arguments = {"text": "CAB", "rule": "first", "matrices": matrices}
    connection = open_question(slow, "train_smallest", arguments, "stream")
    assert b" 200 " in connection.recv(4096)
    connection.close()
    start = time.monotonic()
    slow.ask("list_writers")
    assert time.monotonic() - start < MOST_SECONDS


def test_W14_a_model_answers_as_before_after_a_client_has_left(slow):
    question = {"model": "shakespeare", "text": TEXT[:9]}
    before = slow.post("/api/ask/attend", question).body
    for seconds in (0.1, 0.3, 0.6):
        connection = open_question(slow, "measure_heads", question)
        time.sleep(seconds)
        connection.close()
    assert slow.post("/api/ask/attend", question).body == before
    assert slow.raw("GET", "/api/status", slow.headers()).json["starts"] == 1


# The worker


class Part(nn.Module):
    """A part of a model; after so many calls its question is cancelled."""

    def __init__(self, worker, n):
        super().__init__()
        self.worker, self.n, self.n_calls = worker, n, 0

    def forward(self, x):
        self.n_calls += 1
        if self.n_calls == self.n:
            self.worker.put({"cancel": 7})
        return x


@pytest.fixture
def hook():
    """Registers the hook of a worker, as its process does."""
    handles = []

    def register(worker):
        add = nn.modules.module.register_module_forward_pre_hook
        handles.append(add(lambda module, inputs: worker.stop_cancelled()))

    yield register
    for handle in handles:
        handle.remove()


def test_W14_a_cancelled_question_is_confirmed_once_and_not_answered(hook, monkeypatch):
    worker = Worker(None, None)
    part, written = Part(worker, 3), []
    monkeypatch.setattr(worker, "write", lambda *message: written.append(message))
    hook(worker)

    def count(sources):
        for _ in range(9):
            part(torch.zeros(1))
        return {"n": part.n_calls}

    monkeypatch.setattr("clearhead.studio.worker.find_question", lambda name: count)
    worker.receive({"id": 7, "question": "count", "arguments": {}})
    assert (part.n_calls, written) == (3, [])
    worker.receive(worker.inbox.get())
    assert written == [(7, b"d", b"")]
    assert not worker.cancelled
    worker.receive({"id": 8, "question": "count", "arguments": {}})
    assert part.n_calls == 12
    assert written[1][:2] == (8, b"d")


def test_W14_the_cancellation_of_another_question_ends_nothing():
    worker = Worker(None, None)
    worker.put({"cancel": 7})
    for current in (None, 8):
        worker.current = current
        worker.stop_cancelled()
    worker.current = 7
    with pytest.raises(CancelledError):
        worker.stop_cancelled()


# Sweeps of large models


def test_a_sweep_of_a_large_model_runs_in_small_batches(lecture, monkeypatch):
    opened, sizes = lecture.open("shakespeare"), []
    found = effects.measure_heads(lecture, "shakespeare", TEXT)
    monkeypatch.setattr(effects, "MAX_BATCH_WORK", 7 * opened.model.n_parameters * len(TEXT))

    def measure(*arguments, max_rows, **options):
        sizes.append(max_rows)
        return head_importance(*arguments, max_rows=max_rows, **options)

    monkeypatch.setattr(effects, "head_importance", measure)
    again = effects.measure_heads(lecture, "shakespeare", TEXT)
    assert sizes == [3]  # a parameter is multiplied and added: two operations for each token
    torch.testing.assert_close(again["effect"], found["effect"], rtol=1e-4, atol=1e-5)

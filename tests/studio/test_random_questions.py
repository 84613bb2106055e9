"""Random questions and bodies of requests: answered or refused in one sentence, no bug.

Questions get arguments of the right types and random values; bodies get values of any type.
"""

import asyncio
import http.client
import inspect
import io
import json
import random
from collections import Counter
from urllib.parse import unquote

import pytest
from random_questions import draw_arguments
from running_studio import MEGABYTE, find_worker, measure_memory

from clearhead.studio.checking import Checker
from clearhead.studio.frames import encode_answer
from clearhead.studio.questions import QUESTIONS, find_question
from clearhead.studio.server import Studio, make_app
from clearhead.studio.training_process import Trainings
from clearhead.studio.views.recipes import describe_recipe
from clearhead.studio.worker import HEADER, Worker

N_EACH = 25  # random arguments for each question, but for slow ones
N_SLOW = {"measure_kernels": 4, "find_mistakes": 8, "list_models": 3}
SECONDS = 60
N_STEPS = 3  # answers of a stream that are read


def ask(worker, question, arguments):
    """(letter, data) of the messages that the worker sends, at first."""
    worker.output = io.BytesIO()
    worker.receive({"id": 1, "question": question, "arguments": json.loads(json.dumps(arguments))})
    for _ in range(N_STEPS):
        if worker.active:
            worker.step(1)
    worker.end(1)
    data, messages = worker.output.getvalue(), []
    while data:
        length, _, letter = HEADER.unpack_from(data)
        messages.append((letter, data[HEADER.size : 4 + length]))
        data = data[4 + length :]
    return messages


@pytest.mark.parametrize("question", sorted(QUESTIONS))
def test_W11_random_arguments_are_answered_or_refused_in_one_sentence(lecture, question):
    worker, rng = Worker(lecture, io.BytesIO()), random.Random(question)
    models, function = list(lecture.listed), find_question(question)
    for _ in range(N_SLOW.get(question, N_EACH)):
        arguments = draw_arguments(rng, function, models)
        for letter, data in ask(worker, question, arguments):
            if letter == b"e":
                error = json.loads(data)
                assert error["status"] < 500, (arguments, error)
                assert "\n" not in error["error"].strip(), (arguments, error)


# Over HTTP

N_ROUNDS = 20  # of one random request for each question, after as many that warm up
OFTEN = sorted(set(QUESTIONS) - set(N_SLOW) - {"run_smallest", "add_run"})


def request(studio, question, arguments):
    """The status of a question; of a stream only the beginning is read."""
    kind = "stream" if inspect.isgeneratorfunction(find_question(question)) else "ask"
    connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=SECONDS)
    try:
        body = json.dumps(arguments)
        connection.request("POST", f"/api/{kind}/{question}", body, studio.headers())
        response = connection.getresponse()
        response.read(None if kind == "ask" else 1)
        return response.status
    finally:
        connection.close()


def test_W11_random_questions_over_http_cause_no_500_and_take_no_memory(studio, lecture):
    rng, models, statuses = random.Random(5), list(lecture.listed), Counter()
    processes = studio.process.pid, find_worker(studio)

    def ask_rounds():
        for question in OFTEN * N_ROUNDS:
            arguments = draw_arguments(rng, find_question(question), models)
            status = request(studio, question, arguments)
            assert status < 500, (question, arguments)
            statuses[status] += 1
        return [measure_memory(process) for process in processes]

    before = ask_rounds()
    after = ask_rounds()
    assert find_worker(studio) == processes[1]
    assert {200, 400} <= set(statuses)
    for first, last in zip(before, after, strict=True):
        assert last - first < 20 * MEGABYTE


# Bodies of requests

N_BODIES = 400
ANY = [None, True, False, 0, -1, 7, 2.5, 1e300, 1 << 70, "", "first", "python", "attention"]
ANY += ["a\0b", "\ud800", "é😀" * 50, "training.steps", [], [[]], ["a", 1], {}, {"a": {}}]
BODIES = {  # address → names of its fields, and good values of some
    "/api/check": {"code": "x = 1", "kind": "notebook", "exercise": "attention", "seed": 3},
    "/api/trainings": {"recipe": "first", "changes": {"training.steps": 5}},
    "/api/trainings/stop": {},
    "/api/runs/{}/resume": {},
}


class Described:
    """In place of the worker: it describes recipes."""

    def __init__(self, runs):
        self.settings = {"paths": [], "lecture": True, "runs": runs}

    async def answer(self, question, arguments):
        return encode_answer(describe_recipe(None, **arguments))


def draw_body(rng, good):
    """A body with fields of any type, but for some that are good; or something that is none."""
    if rng.random() < 0.1:
        return rng.choice(ANY)
    body = {name: rng.choice([value, rng.choice(ANY)]) for name, value in good.items()}
    if rng.random() < 0.3 and "changes" in body:
        body["changes"] = {rng.choice(["training.steps", "model.d_qk", "x"]): rng.choice(ANY)}
    if rng.random() < 0.2:
        body[rng.choice(["", "path", "cod", "\ud800"])] = rng.choice(ANY)
    if rng.random() < 0.2 and body:
        del body[rng.choice(list(body))]
    return body


async def post(app, address, body):
    """The status and the JSON that an app answers to a POST, without a socket."""
    messages, sent = [{"type": "http.request", "body": json.dumps(body).encode()}], []

    async def receive():
        return messages.pop() if messages else await asyncio.Future()  # the client stays

    async def send(message):
        sent.append(message)

    headers = {"Host": "127.0.0.1:80", "Authorization": "Bearer token"}
    headers |= {"Content-Type": "application/json"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": unquote(address),
        "raw_path": address.encode(),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(each["body"] for each in sent[1:]))


@pytest.mark.parametrize("address", BODIES)
def test_W11_random_bodies_are_answered_or_refused_in_one_sentence(
    address, monkeypatch, tmp_path, capsys
):
    async def run(*_):  # neither code nor trainings are started
        return {}

    monkeypatch.setattr(Checker, "_run", run)
    monkeypatch.setattr(Trainings, "start", lambda *_, **__: None)
    rng, statuses = random.Random(address), set()

    async def post_many():
        app = make_app(Studio(Described(str(tmp_path)), "token"), host=None, port=80)
        for _ in range(N_BODIES):
            body = draw_body(rng, BODIES[address])
            id = rng.choice(["substring", "nothing", "%00", "%ed%a0%80", "a" * 999, "%c3%a9"])
            status, answer = await post(app, address.format(id), body)
            assert status < 500, (body, capsys.readouterr().err)
            assert "\n" not in answer.get("error", ""), body
            statuses.add(status)

    asyncio.run(post_many())
    assert statuses - {400}  # some bodies are right

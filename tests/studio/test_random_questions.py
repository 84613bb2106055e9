"""Random questions and bodies of requests: answered or refused in one sentence, no bug.

Questions get arguments of the right types and random values; bodies get values of any type.
"""

import asyncio
import dataclasses
import inspect
import io
import json
import random
import types
import typing
from urllib.parse import unquote

import pytest

from clearhead.studio.checking import Checker
from clearhead.studio.frames import encode_answer
from clearhead.studio.questions import QUESTIONS, find_question
from clearhead.studio.server import Studio, make_app
from clearhead.studio.training_process import Trainings
from clearhead.studio.views.recipes import describe_recipe
from clearhead.studio.worker import HEADER, Worker

N_EACH = 25  # random arguments for each question, but for slow ones
N_SLOW = {"measure_kernels": 4, "find_mistakes": 8, "list_models": 3}
N_STEPS = 3  # answers of a stream that are read

TEXTS = ["a", "abcab|cab", "ROMEO: what", "abc|c", "3 may 1999", "sep 21, 1883", "", "\x00", "|"]
TEXTS += ["é😀" * 5, "a" * 3000, "<script>", "\n\n", "layer 0 head 1", "substring", "rotary"]
NUMBERS = [0, 1, 2, 3, 4, 5, 6, 7, 31, -1, 1 << 31, -(1 << 63), (1 << 64) - 1]
FLOATS = [0.0, 0.5, 1.0, 2.0, -1.0, 1e-30, 1e30]


def draw(rng, hint):
    """A random value of this type, as JSON."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return draw(rng, rng.choice(parts))
    if origin is typing.Literal:
        return rng.choice(parts)
    if origin is list:
        return [draw(rng, parts[0]) for _ in range(rng.choice([0, 1, 1, 2, 3, 9]))]
    if origin is tuple:
        return [draw(rng, part) for part in parts]
    if origin is dict:
        return {rng.choice(TEXTS): draw(rng, parts[1]) for _ in range(2)}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return {field.name: draw(rng, hints[field.name]) for field in dataclasses.fields(hint)}
    pools = {str: TEXTS, int: NUMBERS, float: FLOATS, bool: [False, True]}
    return rng.choice(pools.get(hint, [None]))


def draw_arguments(rng, function, models):
    """Random arguments; mostly of a model that there is."""
    _, *parameters = inspect.signature(function).parameters.values()
    hints, values = typing.get_type_hints(function), {}
    for each in parameters:
        if each.default is each.empty or rng.random() < 0.5:
            values[each.name] = draw(rng, hints[each.name])
    if "model" in values:
        values["model"] = rng.choice([*models * 5, "nothing"])
    return values


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

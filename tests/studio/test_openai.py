"""The real openai client talks to a studio."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import openai
import pytest
from running_studio import RunningStudio
from talking_model import write_talker

from clearhead.studio.listing import LECTURE
from clearhead.timing import Timer

SECONDS = 60
ROMEO = {"model": "shakespeare", "prompt": "ROMEO:", "max_tokens": 20, "seed": 7}
LONG = {"model": "talker", "prompt": [[65]] * 4, "n": 4, "max_tokens": 590, "temperature": 1.5}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A studio with a small talker and two built-in models."""
    folder = tmp_path_factory.mktemp("openai")
    paths = [write_talker(folder / "talker"), LECTURE / "shakespeare", LECTURE / "digits"]
    running = RunningStudio(*map(str, paths), folder=folder)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(served):
    base = f"{served.address}/v1"
    with openai.OpenAI(base_url=base, api_key=served.token, max_retries=0, timeout=SECONDS) as made:
        yield made


def count_pending(served):
    return served.raw("GET", "/api/status", served.headers()).json["pending"]


def wait_until_idle(served):
    timer = Timer()
    while count_pending(served) > 0:
        assert timer.seconds < SECONDS, "the work did not end"


# Models


def test_models_that_write_text_are_listed(client):
    assert [model.id for model in client.models.list()] == ["talker", "shakespeare"]
    assert client.models.retrieve("talker").owned_by == "clearhead"
    with pytest.raises(openai.NotFoundError, match="there is no such model"):
        client.models.retrieve("digits")


# Completions


def test_a_completion_has_text_reason_and_usage(client):
    answer = client.completions.create(**ROMEO)
    assert answer.object == "text_completion"
    assert answer.model == "shakespeare"
    (choice,) = answer.choices
    assert len(choice.text) == 20
    assert choice.finish_reason == "length"
    assert choice.logprobs is None
    assert answer.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 6,
        "completion_tokens": 20,
        "total_tokens": 26,
    }


def test_a_stream_gives_the_text_of_the_whole(client):
    whole = client.completions.create(**ROMEO, n=2, logprobs=1)
    options = {"include_usage": True}
    stream = client.completions.create(
        **ROMEO, n=2, logprobs=1, stream=True, stream_options=options
    )
    *chunks, last = list(stream)
    assert len(chunks) == 40
    for choice in whole.choices:
        own = [each.choices[0] for each in chunks if each.choices[0].index == choice.index]
        assert "".join(piece.text for piece in own) == choice.text
        assert [piece.finish_reason for piece in own] == [None] * 19 + ["length"]
        joined = [value for piece in own for value in piece.logprobs.token_logprobs]
        assert joined == choice.logprobs.token_logprobs
        offsets = [value for piece in own for value in piece.logprobs.text_offset]
        assert offsets == list(range(6, 26))
    assert last.choices == []
    assert last.usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks)
    assert len({chunk.id for chunk in [*chunks, last]}) == 1


def test_a_stream_is_server_sent_events_that_end_with_done(served):
    answer = served.post("/v1/completions", {**ROMEO, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.body.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    assert [json.loads(line.removeprefix("data: "))["object"] for line in lines[:-2]] == [
        "text_completion"
    ] * 20


def test_stop_ends_a_text_before_it(client):
    whole = client.completions.create(**ROMEO).choices[0].text
    stop = whole[8:11]
    for streamed in (False, True):
        answer = client.completions.create(**ROMEO, stop=[stop, "§"], stream=streamed)
        pieces = [each.choices[0] for each in answer] if streamed else answer.choices
        assert "".join(piece.text for piece in pieces) == whole[: whole.index(stop)]
        assert pieces[-1].finish_reason == "stop"


def test_echo_and_logprobs_measure_a_prompt(client):
    answer = client.completions.create(
        model="shakespeare", prompt=["ROMEO:", "O!"], max_tokens=0, echo=True, logprobs=3
    )
    assert [choice.text for choice in answer.choices] == ["ROMEO:", "O!"]
    found = answer.choices[0].logprobs
    assert found.tokens == list("ROMEO:")
    assert found.text_offset == list(range(6))
    assert found.token_logprobs[0] is None
    assert all(value < 0 for value in found.token_logprobs[1:])
    assert [len(top) for top in found.top_logprobs[1:]] == [4] * 5  # none of them was expected


def test_a_seed_gives_the_same_text_and_another_seed_another(client):
    texts = [client.completions.create(**ROMEO | {"seed": n}).choices[0].text for n in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2]


def test_W12_temperature_0_takes_the_most_likely_token(client):
    texts = {
        client.completions.create(**ROMEO | {"seed": n}, temperature=0).choices[0].text
        for n in range(3)
    }
    assert len(texts) == 1


def test_W16_texts_under_load_are_those_of_each_alone(client):
    """Also batches, whose rows are not mixed with those of others."""

    def ask(seed):
        settings = ROMEO | {"seed": seed, "n": 1 + seed % 3, "max_tokens": 40}
        if seed % 2:
            chunks = client.completions.create(**settings, stream=True)
            pieces = [chunk.choices[0] for chunk in chunks]
        else:
            pieces = client.completions.create(**settings).choices
        texts = [""] * settings["n"]
        for piece in pieces:
            texts[piece.index] += piece.text
        return texts

    alone = [ask(seed) for seed in range(12)]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(12))) == alone


# The client leaves


def test_W14_leaving_a_stream_ends_its_work(served, client):
    with client.completions.create(**LONG, stream=True) as stream:
        next(iter(stream))
        assert count_pending(served) == 1
    wait_until_idle(served)
    assert client.completions.create(**ROMEO).choices[0].text  # and others are answered


def test_W14_leaving_before_an_answer_ends_its_work(served):
    body = json.dumps(LONG)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {served.host}\r\n"
    for name, value in served.headers().items():
        head += f"{name}: {value}\r\n"
    connection = served.connect()
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    timer = Timer()
    while count_pending(served) != 1:
        assert timer.seconds < SECONDS
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    wait_until_idle(served)


# Errors


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": -1}, "max_tokens must be a whole number from 0 to 1024, got -1"),
        ({"max_tokens": 10**9}, "max_tokens must be a whole number from 0 to 1024"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"max_tokens": "5"}, "max_tokens must be a whole number"),
        ({"n": 10**6}, "n must be a whole number from 1 to 4, got 1000000"),
        ({"temperature": -1}, "temperature must be a number from 0 to 2, got -1"),
        ({"temperature": 1e9}, "temperature must be a number from 0 to 2"),
        ({"top_p": -1}, "top_p must be a number from 0 to 1, got -1"),
        ({"stop": ["a"] * 10**5}, "stop must be a string or a list of at most 4, got a list of 10"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"logit_bias": {"5": 2}}, "logit_bias is not supported here"),
        ({"best_of": 4}, "best_of is not supported here"),
    ],
)
def test_W12_a_value_out_of_range_is_a_bad_request(client, fields, words):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**ROMEO | fields)
    assert words in caught.value.message
    assert caught.value.param == next(iter(fields))
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1e999"])
def test_W12_a_number_that_is_none_is_a_bad_request(served, number):
    body = f'{{"model": "shakespeare", "prompt": "a", "temperature": {number}}}'
    answer = served.raw("POST", "/v1/completions", served.headers(), body)
    assert answer.status == 400
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "prompt is empty; the model reads 1 to 64 tokens"),
        ("a" * 65, "prompt has 65 tokens, but the model reads at most 64"),
        ("a" * 60, "prompt and max_tokens are 60 + 20 tokens, but the model reads at most 64"),
        ("a" * 1_000_000, "prompt has 1,000,000 characters"),
        ("ab~", "prompt has '~' at index 2, which is not in the alphabet"),
        ([999], "is 999, but ids go from 0 to"),
        ([], "prompt must be a string"),
    ],
)
def test_W13_a_prompt_that_cannot_be_read_is_a_bad_request(client, prompt, words, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**ROMEO | {"prompt": prompt}, stream=stream)
    assert words in caught.value.message
    assert caught.value.param == "prompt"


def test_a_model_that_is_not_there_is_not_found(client):
    for name in ("davinci", "../digits", "digits"):
        with pytest.raises(openai.NotFoundError) as caught:
            client.completions.create(**ROMEO | {"model": name})
        assert caught.value.code == "model_not_found"
        assert caught.value.param == "model"


def test_a_wrong_token_is_an_authentication_error(served):
    stranger = openai.OpenAI(base_url=f"{served.address}/v1", api_key="x", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError) as caught:
        stranger.models.list()
    assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/completions"),
        ("POST", "/v1/models"),
        ("POST", "/v1/embeddings"),
        ("GET", "/v1/"),
    ],
)
def test_other_addresses_are_not_found_in_the_format_of_openai(served, method, path):
    answer = served.raw(method, path, served.headers(), "{}" if method == "POST" else None)
    assert answer.status == 404
    assert answer.json["error"]["message"].startswith("there is nothing at this address")


# Conversations


def test_a_model_without_a_chat_format_is_not_found_with_the_reason(client):
    messages = [{"role": "user", "content": "Romeo?"}]
    with pytest.raises(openai.NotFoundError, match="has no chat format: there is no chat_template"):
        client.chat.completions.create(model="shakespeare", messages=messages)
    with pytest.raises(openai.NotFoundError, match="has no chat format"):
        list(client.chat.completions.create(model="shakespeare", messages=messages, stream=True))


def test_a_model_with_a_chat_format_answers(client):
    settings = {
        "model": "talker",
        "messages": [{"role": "user", "content": "the cat"}],
        "max_completion_tokens": 12,
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 2,
    }
    answer = client.chat.completions.create(**settings)
    (choice,) = answer.choices
    assert answer.object == "chat.completion"
    assert choice.message.role == "assistant"
    assert [len(each.top_logprobs) for each in choice.logprobs.content] == [2] * 12
    written = bytes(byte for each in choice.logprobs.content for byte in each.bytes)
    assert written.decode(errors="replace") == choice.message.content
    assert answer.usage.completion_tokens == 12
    first, *chunks = client.chat.completions.create(**settings, stream=True)
    assert first.choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content for chunk in chunks)
    assert text == choice.message.content
    assert chunks[-1].choices[0].finish_reason == choice.finish_reason == "length"


# The worker


def test_a_stream_whose_worker_ends_says_so(served, client):
    """The last test of this file: the next question waits until the worker is there again."""
    with client.completions.create(**LONG, stream=True) as stream:
        pieces = iter(stream)
        next(pieces)
        kill_worker(served)
        with pytest.raises(openai.APIError, match="the model process has ended"):
            for _ in pieces:
                pass
    timer = Timer()
    while timer.seconds < SECONDS:
        with suppress(openai.InternalServerError):
            assert client.completions.create(**ROMEO).choices[0].text
            return
    pytest.fail("the worker did not come back")


def kill_worker(served):
    """End the process that holds the models, as running out of memory would."""
    children = f"/proc/{served.process.pid}/task/{served.process.pid}/children"
    with open(children) as file:
        for pid in file.read().split():
            os.kill(int(pid), 9)

"""The routes: files, questions, streams, errors."""

import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import typing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from running_studio import start_fake_studio
from torch.nn.utils import parameters_to_vector

from clearhead.files.lock import LOCK, MARKER, is_locked, lock_folder
from clearhead.runs.checkpoint import load_newest, save
from clearhead.runs.folder import RunFolder
from clearhead.studio.arguments import read_arguments
from clearhead.studio.frames import decode_answer, encode_answer
from clearhead.studio.page import FOLDER, read_page
from clearhead.studio.questions import QUESTIONS, find_question
from clearhead.studio.sources import Sources
from clearhead.studio.worker import Worker

GOLDEN = Path(__file__).parents[1] / "golden"
SECONDS = 60  # in which everything happens, even on a loaded machine
NOTHING = {"error": "there is nothing at this address", "status": 404}


def wait_until(is_true):
    end = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def read_frames(body):
    """The answers of a stream; it must end with a length of 0."""
    answers = []
    while (length := struct.unpack_from("<I", body)[0]) > 0:
        answers.append(decode_answer(body[4 : 4 + length]))
        body = body[4 + length :]
    assert body == b"\0\0\0\0"
    return answers


# Files


def test_files_of_the_page_are_served_with_their_types(fake):
    for path, file in read_page().items():
        answer = fake.raw("GET", path, fake.headers())
        assert answer.status == 200
        assert answer.body == file.data
        assert answer.headers["content-type"] == file.content_type
    assert fake.raw("GET", "/", fake.headers()).body == (FOLDER / "index.html").read_bytes()
    assert fake.raw("HEAD", "/main.js", fake.headers()).body == b""


NAMES = ["..", "../..", "../../../etc/passwd", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd"]
NAMES += ["..%2f..%2fetc%2fpasswd", "%252e%252e%252fetc%252fpasswd", "..%5c..%5cetc%5cpasswd"]
NAMES += ["..\\..\\etc\\passwd", "/etc/passwd", "//etc/passwd", "%2fetc%2fpasswd", "a%00", "%00"]
NAMES += ["a/../../door.py", "door.py", "../door.py", "views/../../door.py", "./../door.py"]
NAMES += ["....//door.py", "..;/door.py", "%c0%ae%c0%ae/door.py", "main.js/", "main.js/.."]
NAMES += ["main.js%00", "main.js%20", "MAIN.JS", "main.js.", "main.js~", ".git/config", "~root"]
NAMES += ["file:%2f%2f%2fetc%2fpasswd", "http:%2f%2fevil.example", "C:%5c", "page/main.js"]
NAMES += ["__init__.py", "lecture/substring/config.json", "%ff%fe", "$(id)", "`id`", "%0d%0aA:b"]
FOLDERS = ["/", "/views/", "/api/", "/api/ask/", "/api/stream/", "/api/runs/", "/api/recipes/"]
FOLDERS += ["/v1/models/"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_W07_no_name_leads_out_of_the_table_of_files(fake, folder):
    for name in NAMES:
        for method in ("GET", "POST"):
            answer = fake.raw(method, folder + name, fake.headers(), "{}")
            assert answer.status in (400, 404, 405), (method, name)
            assert b"root:" not in answer.body
            assert b"import" not in answer.body
            if folder in FOLDERS[:5]:
                assert answer.status == 405 or answer.json == NOTHING, (method, name)


ADDRESSES = ["/api/runs/{}/events", "/api/runs/{}/resume", "/api/differences?runs=substring,{}"]
ADDRESSES += ["/api/differences?runs={},digits", "/api/differences?runs={0},{0}", "/api/runs/{}?a"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_W07_no_name_of_a_run_leads_out_of_the_list_of_runs(fake, address):
    for name in NAMES:
        for method in ("GET", "POST"):
            path = address.format(name)
            answer = fake.raw(method, path, fake.headers(), "{}")
            assert answer.status in (400, 404, 405), (method, path)
            assert b"root:" not in answer.body


def test_W07_a_link_in_a_run_leads_to_no_file_outside_it(tmp_path):
    outside = shutil.copytree(GOLDEN / "substring-0001", tmp_path / "outside")
    config = json.loads((outside / "config.json").read_text())
    (outside / "config.json").write_text(json.dumps(config | {"model": {"note": "a secret"}}))
    (outside / "samples.txt").write_text("--- step 1\na secret\n\n")
    (outside / "metrics.jsonl").write_text('{"step": 1, "loss": 987.25}\n')
    for name in ("config.json", "samples.txt", "metrics.jsonl"):
        run = shutil.copytree(GOLDEN / "substring-0001", tmp_path / "runs" / name[:3])
        (run / name).unlink()
        (run / name).symlink_to(outside / name)
    studio = start_fake_studio(tmp_path, settings={"runs": str(tmp_path / "runs")})
    try:
        paths = ["/api/runs", "/api/differences?runs=con,sam", "/api/differences?runs=met,con"]
        for id in ("con", "sam", "met"):
            paths += [f"/api/runs/{id}", f"/api/runs/{id}/events", f"/api/runs/{id}/resume"]
        for path in paths:
            method = "POST" if path.endswith("/resume") else "GET"
            answer = studio.raw(method, path, studio.headers(), "{}")
            assert answer.status < 500, path
            assert not re.search(rb"a secret|987\.25", answer.body), path
        for id in ("con", "sam", "met"):
            answer = studio.raw("GET", f"/api/runs/{id}", studio.headers())
            assert answer.status == 400
            assert "is a link to a file outside the run folder" in answer.json["error"]
        assert len(studio.raw("GET", "/api/runs", studio.headers()).json["runs"]) == 3
    finally:
        studio.stop()


# Questions


def test_a_question_is_answered_by_the_models(studio):
    names = [model["id"] for model in studio.ask("list_models")["models"]]
    assert {"substring", "digits", "shakespeare", "dates"} <= set(names)


def test_a_question_that_there_is_not_is_refused_with_the_nearest(studio):
    answer = studio.post("/api/ask/atend", {})
    assert answer.status == 400
    assert answer.json["error"] == "there is no question 'atend'; did you mean attend?"


def test_a_stream_is_frames_and_an_end(fake):
    answer = fake.post("/api/stream/count", {"n": 3, "size": 5})
    assert answer.status == 200
    answers = read_frames(answer.body)
    assert [each["i"] for each in answers] == [0, 1, 2]
    assert answers[2]["numbers"].tolist() == [2.0] * 5


def test_a_plain_question_can_be_asked_as_a_stream(fake):
    (answer,) = read_frames(fake.post("/api/stream/echo", {"text": "a"}).body)
    assert answer["text"] == "a"


def test_a_stream_asked_as_a_plain_question_is_refused(fake):
    answer = fake.post("/api/ask/count", {"n": 3})
    assert answer.status == 400
    assert answer.json["error"] == "count answers with a stream; ask it at /api/stream/count"


def test_an_error_before_the_first_answer_of_a_stream_has_its_status(fake):
    assert fake.post("/api/stream/fail", {}).status == 500
    assert fake.post("/api/stream/refuse", {}).status == 400


def test_an_error_in_the_middle_of_a_stream_is_its_last_frame(fake):
    answer = fake.post("/api/stream/fail", {"after": 2})
    assert answer.status == 200
    *answers, error = read_frames(answer.body)
    assert [each["i"] for each in answers] == [0, 1]
    assert error["status"] == 500
    assert "Traceback" not in error["error"]


BODIES = {
    b"": "is not JSON",
    b"{": "is not JSON",
    b"{} {}": "is not JSON",
    b"[" * 10_000 + b"]" * 10_000: "nested deeper than 32",
    b'{"text": NaN}': "not a finite number",
    b'{"text": -Infinity}': "not a finite number",
    b'{"text": 1e999}': "not a finite number",
    b'{"text": 99999999999999999999}': "beyond 64 bits",
    b'{"text": "a", "text": "b"}': "the key 'text' twice",
    b'{"text": "\\ud800"}': "half a surrogate pair",
    b'{"text": "\xff"}': "UTF-8",
    b"\xef\xbb\xbf{}": "byte-order mark",
    b'"text"': "must be an object",
    b"[]": "must be an object",
    b"null": "must be an object",
    b'{"text": 3}': "text must be",
    b'{"text": null}': "text must be",
    b'{"text": ["a"]}': "text must be",
    b'{"txt": "a"}': "no argument 'txt'; did you mean text?",
}


@pytest.mark.parametrize(("body", "words"), BODIES.items(), ids=[b[:20] for b in BODIES])
def test_W11_a_body_that_is_not_strict_json_of_the_right_types_is_refused(fake, body, words):
    answer = fake.raw("POST", "/api/ask/echo", fake.headers(), body)
    assert answer.status == 400
    assert words in answer.json["error"]


WRONG = ["text", 7, 2.5, True, None, [], ["a"], [[1]], {}, {"a": 1}]


@pytest.mark.parametrize("question", sorted(QUESTIONS))
def test_W11_an_argument_of_a_wrong_type_is_named(question):
    function = find_question(question)
    for name, hint in list(typing.get_type_hints(function).items())[1:]:
        if name == "return":
            continue
        refused = []
        for value in WRONG:
            try:
                read_arguments(function, {name: value})
            except (TypeError, ValueError) as fault:
                refused.append(str(fault))
        named = [words for words in refused if words.startswith(name) or "is missing" in words]
        assert named == refused, (name, hint)
        assert len(refused) >= len(WRONG) / 2, (name, hint)


# Secrets


def test_W06_neither_the_token_nor_an_input_is_logged_or_repeated_to_another_page(fake):
    secret = "a sentence that I typed"
    fake.post("/api/ask/echo", {"text": secret})
    fake.post("/api/ask/fail", {"text": secret})
    fake.post("/api/stream/fail", {"text": secret, "after": 1})
    fake.post("/api/ask/refuse", {"text": secret})
    fake.raw("POST", "/api/ask/echo", fake.headers(), json.dumps({"text": secret})[:-1])
    fake.raw("GET", f"/?token={fake.token}")
    fake.raw("GET", f"/nothing?token={fake.token}", fake.headers())
    log = fake.read_log()
    assert "in fail:\nTraceback" in log
    assert secret not in log
    assert fake.token not in log
    for path in read_page():
        assert fake.token.encode() not in fake.raw("GET", path, fake.headers()).body


# Models


def ask_worker(worker, question, **arguments):
    """(letter, answer) of a worker in this process."""
    worker.output = io.BytesIO()
    worker.receive({"id": 1, "question": question, "arguments": arguments})
    data = worker.output.getvalue()
    letter = data[8:9]
    return letter, json.loads(data[9:]) if letter == b"e" else decode_answer(data[9:])


def test_W17_a_model_that_is_removed_or_damaged_is_told_and_comes_back(tmp_path):
    run = tmp_path / "substring-0001"
    shutil.copytree(GOLDEN / "substring-0001", run)
    worker = Worker(Sources([str(run)]), io.BytesIO())
    arguments = {"model": "substring-0001", "text": "abcab|cab"}
    letter, before = ask_worker(worker, "attend", **arguments)
    assert letter == b"d"

    run.rename(tmp_path / "away")
    letter, error = ask_worker(worker, "attend", **arguments)
    assert (letter, error["status"]) == (b"e", 503)
    assert "substring-0001 is gone" in error["error"]
    (tmp_path / "away").rename(run)
    letter, after = ask_worker(worker, "attend", **arguments)
    assert letter == b"d"
    assert encode_answer(after) == encode_answer(before)

    for path in run.glob("checkpoints/*/model.safetensors"):
        path.write_bytes(b"damaged")
    shutil.copytree(GOLDEN / "substring-0001" / "checkpoints", run / "checkpoints2")
    (run / "checkpoints" / "step-0000001").mkdir()
    (run / "checkpoints" / "step-0000001" / "manifest.json").write_text("{}")  # so it looks again
    letter, error = ask_worker(worker, "attend", **arguments)
    assert (letter, error["status"]) == (b"e", 503)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints2").rename(run / "checkpoints")
    letter, after = ask_worker(worker, "attend", **arguments)
    assert letter == b"d"
    assert encode_answer(after) == encode_answer(before)


def test_W25_two_studios_read_a_run_that_is_being_written(tmp_path):
    run = tmp_path / "substring-0001"
    shutil.copytree(GOLDEN / "substring-0001", run)
    with lock_folder(run):  # as a training does
        studios = [Sources([str(run)]), Sources([str(run)])]
        kinds = [sources.open("substring-0001").kind for sources in studios]
    assert kinds == ["SequenceClassifier"] * 2
    with lock_folder(run):  # a studio holds no lock
        assert studios[0].open("substring-0001").model is not None


WRITER = [sys.executable, str(Path(__file__).parents[1] / "checkpoint_writer.py")]
N_SEEN = 20  # checkpoints that each studio must have seen


def test_W25_two_studios_show_only_whole_checkpoints_while_a_run_saves_in_a_loop(tmp_path):
    run = shutil.copytree(GOLDEN / "substring-0001", tmp_path / "substring-0001")
    folder, step = RunFolder(run), 9_999_999
    good = load_newest(folder.checkpoints, folder.identity)
    state = good.state | {"logged": step, "best_step": step}
    damaged = save(folder.checkpoints, replace(good, step=step, state=state))
    with (damaged / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x7f")
    before = {path.name for path in run.iterdir()}
    writer = subprocess.Popen([*WRITER, str(run)])

    def read():
        """The numbers of the checkpoints that a studio has shown, in order."""
        sources, seen, end = Sources([str(run)]), [], time.monotonic() + SECONDS
        while len(set(seen)) < N_SEEN and time.monotonic() < end:
            model = sources.open("substring-0001").model
            weights = parameters_to_vector(model.parameters()).detach()
            low, high = float(weights.min()), float(weights.max())
            if seen or low == high:  # before, it shows what the training has saved
                assert low == high
                seen.append(low)
        return seen

    try:
        wait_until(lambda: is_locked(run))
        with ThreadPoolExecutor(2) as pool:
            for reading in [pool.submit(read) for _ in range(2)]:
                seen = reading.result()
                assert len(set(seen)) >= N_SEEN
                assert seen == sorted(seen)
                assert seen[-1] < step  # the damaged one was neither shown nor continued
        assert writer.poll() is None  # no reader was in its way
    finally:
        writer.kill()
        writer.wait()
    wait_until(lambda: not is_locked(run))  # the studios hold no lock
    assert {path.name for path in run.iterdir()} <= {*before, LOCK, LOCK + MARKER}


def write_text(studio, seed):
    """The token ids that the shakespeare model writes."""
    start = studio.ask("start_text", {"model": "shakespeare", "text": "ROMEO:"})["tokens"]
    arguments = {"model": "shakespeare", "tokens": start, "n_tokens": 12, "seed": seed}
    answer = studio.post("/api/stream/write", arguments)
    return [each["token"]["id"] for each in read_frames(answer.body)]


def test_W16_texts_written_at_the_same_time_are_those_written_alone(studio):
    alone = [write_text(studio, seed) for seed in range(6)]
    assert len(set(map(tuple, alone))) > 1
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda seed: write_text(studio, seed), range(6)))
    assert together == alone

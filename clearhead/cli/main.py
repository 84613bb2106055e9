"""clearhead VERB THING [options]

One file per verb. Help and mistakes answer at once: nothing imports torch before it must. Results
go to stdout, progress to stderr. Exit 0 done, 1 a check failed, 2 wrong usage, 130 interrupted.
"""

import io
import os
import sys
import traceback

# Before torch starts its threads: they shall sleep while they wait, not spin. Spinning is up to 1.8
# times faster on a quiet machine, but on a busy one it was measured 14 to 47 times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import typer

from clearhead import __version__
from clearhead.cli import bench, data, generate, lab, plot

__all__ = ["app", "main"]

app = typer.Typer(
    name="clearhead",
    help="Transformers you can read, run, check and see through.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("generate")(generate.generate)
app.command("lab")(lab.lab)
app.command("plot")(plot.plot)
app.command("bench")(bench.bench)
app.add_typer(data.app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clearhead {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of a mistake."),
) -> None:
    """Transformers you can read, run, check and see through."""


def main() -> None:
    """Run a command; a mistake is one line and a hint, a traceback only if --debug asks."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]  # in any place
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without √ shows ?
    try:
        code = app(arguments or ["--help"], prog_name="clearhead", standalone_mode=False) or 0
        if code == 130:  # what typer makes of Ctrl-C
            print("interrupted", file=sys.stderr)
        sys.exit(code)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # the reader, `head`, has seen enough
            sys.exit(0)
        raise
    except Exception as mistake:
        sentence = _sentence(mistake)
        if sentence is None:
            raise
        if len(arguments) < len(sys.argv) - 1:
            traceback.print_exc()
        print(f"error: {sentence}\nhint: clearhead --help lists the verbs", file=sys.stderr)
        sys.exit(2)


def _sentence(mistake: Exception) -> str | None:
    """What the user did wrong, in words; None if the mistake is ours."""
    if hasattr(mistake, "format_message"):  # wrong usage, found by the option parser
        return str(mistake.format_message())
    return str(mistake) if isinstance(mistake, ValueError | OSError) else None


if __name__ == "__main__":
    main()

"""clearhead VERB THING [options]

One file per verb. Help and mistakes answer at once: nothing imports torch before it must. Results
go to stdout, progress to stderr. Exit 0 done, 1 a check failed, 2 wrong usage or a file that cannot
be used, 3 a number that is not finite, 4 a disk that does not take what is written, 5 no good
checkpoint, 6 busy, 130 and 143 stopped by Ctrl-C or SIGTERM.
"""

import errno
import os
import sys
import traceback
from typing import Any

# Before torch starts its threads: they shall sleep while they wait, not spin. Spinning is up to 1.8
# times faster on a quiet machine, but on a busy one it was measured 14 to 47 times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from clearhead.cli.interrupts import leaving_at_once

with leaving_at_once():
    import typer

    from clearhead import __version__
    from clearhead.cli import bench, data, generate, lab, plot, predict, recipes, train
    from clearhead.cli import eval as evaluation
    from clearhead.cli.streams import prepare_streams
    from clearhead.files.reading import quote
    from clearhead.files.writing import DISK_FAULTS

# What went wrong, by the name of its class: to import the classes would be to import torch.
CODES = {"NotFinite": 3, "NotKept": 4, "NoGoodCheckpoint": 5, "Busy": 6}

app = typer.Typer(
    name="clearhead",
    help="Transformers you can read, run, check and see through.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("train")(train.train)
app.command("eval")(evaluation.evaluate)
app.command("predict")(predict.predict)
app.command("generate")(generate.generate)
app.add_typer(recipes.app, name="recipes")
app.add_typer(data.app, name="data")
app.command("lab")(lab.lab)
app.command("plot")(plot.plot)
app.command("bench")(bench.bench)


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
    prepare_streams()
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
        sentence = _sentence(mistake, arguments)
        if sentence is None:
            raise
        if len(arguments) < len(sys.argv) - 1:
            traceback.print_exc()
        print(f"error: {sentence}", file=sys.stderr)
        code = _exit_code(mistake)
        if code == 2:
            print(f"hint: {_hint(arguments)}", file=sys.stderr)
        sys.exit(code)


def _sentence(mistake: Exception, arguments: list[str]) -> str | None:
    """What the user did wrong, in words; None if the mistake is ours."""
    if hasattr(mistake, "format_message"):  # wrong usage, found by the option parser
        return str(mistake.format_message())
    if isinstance(mistake, OSError):
        return _disk_sentence(mistake)
    if _code_of_its_class(mistake) is not None:
        return str(mistake)
    if type(mistake) is ValueError:
        return _said_of_the_option(str(mistake), arguments)
    return str(mistake) if isinstance(mistake, ValueError) else None


def _said_of_the_option(sentence: str, arguments: list[str]) -> str:
    """`top_k must …`, a sentence of the library, as `--top-k must …` if this option was given."""
    name, blank, rest = sentence.partition(" ")
    option = "--" + name.replace("_", "-")
    given = {argument.partition("=")[0] for argument in arguments}
    return option + blank + rest if option in given else sentence


def _disk_sentence(fault: OSError) -> str:
    place = "the output" if fault.filename is None else quote(fault.filename)
    way_out = "make room or " if fault.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{place}: {(fault.strerror or str(fault)).lower()}; {way_out}take another folder"


def _exit_code(mistake: Exception) -> int:
    known = _code_of_its_class(mistake)
    if known is not None:
        return known
    return 4 if isinstance(mistake, OSError) and mistake.errno in DISK_FAULTS else 2


def _code_of_its_class(mistake: Exception) -> int | None:
    """The exit code that belongs to a kind of mistake of ours, None if it has none."""
    names = (
        kind.__name__ for kind in type(mistake).__mro__ if kind.__module__.startswith("clearhead.")
    )
    return next((CODES[name] for name in names if name in CODES), None)


def _hint(arguments: list[str]) -> str:
    """Where to read more: at the verb that was asked for."""
    path = ["clearhead"]
    command: Any = typer.main.get_command(app)
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument)
        if command is None:
            break
        path.append(argument)
    words = "lists the verbs" if len(path) == 1 else "says what it takes"
    return f"{' '.join(path)} --help {words}"


if __name__ == "__main__":
    main()

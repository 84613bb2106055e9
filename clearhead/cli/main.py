"""clearhead VERB THING [options]

One file per verb. Help and usage errors answer at once: nothing imports torch before it must.
Results go to stdout, progress to stderr. Exit codes:

    0  done                                   5    no usable checkpoint
    1  a check failed                         6    in use by another process
    2  wrong usage, or an unusable file       7    the sandbox cannot grade
    3  a number is not finite                 8    another process of the run does not answer
    4  the disk is full, read-only or broken  130  interrupted by Ctrl-C; 143: by SIGTERM
"""

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Set before torch starts its threads: idle threads sleep instead of spinning. Spinning is up to 1.8
# times faster on a quiet machine, but was measured 14 to 47 times slower on a busy one.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from clearhead.cli.interrupts import exit_on_interrupt

with exit_on_interrupt():
    import typer

    from clearhead import __version__
    from clearhead.cli import (
        audit,
        bench,
        check,
        data,
        exercise,
        generate,
        grade,
        lab,
        launch,
        plan,
        plot,
        predict,
        program,
        recipes,
        runs,
        studio,
        train,
    )
    from clearhead.cli import eval as evaluation
    from clearhead.cli.hints import choose_hint, describe_usage_error
    from clearhead.cli.options import print_json
    from clearhead.cli.streams import prepare_streams
    from clearhead.files.reading import quote
    from clearhead.files.writing import DISK_FAULTS

# Exit codes by the name of the error class: importing the classes would import torch.
EXIT_CODES = {"NotFinite": 3, "DiskFault": 4, "RunDeleted": 4, "NoGoodCheckpoint": 5, "Busy": 6}
EXIT_CODES |= {"GradingFailed": 7, "NoAnswer": 8}

app = typer.Typer(
    name="clearhead",
    help="Transformers you can read, run, check and see through.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("train")(train.train)
app.command("launch", context_settings={"allow_interspersed_args": False})(launch.launch)
app.command("plan")(plan.plan)
app.command("runs")(runs.runs)
app.command("eval")(evaluation.evaluate)
app.command("predict")(predict.predict)
app.command("generate")(generate.generate)
app.command("studio")(studio.studio)
app.add_typer(recipes.app, name="recipes")
app.add_typer(data.app, name="data")
app.command("check")(check.check)
app.command("exercise")(exercise.exercise)
app.command("grade")(grade.grade)
app.command("gradescope-zip")(grade.gradescope_zip)
app.command("audit")(audit.audit)
app.add_typer(program.app, name="program")
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
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Transformers you can read, run, check and see through."""


def main() -> None:
    """Run a command. An error is one line and a hint; --debug adds the traceback.

    With --json the error is also the one object on stdout: error, hint, exit_code.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]  # anywhere
    prepare_streams()
    try:
        with _explain_own_code():
            code = app(arguments or ["--help"], prog_name="clearhead", standalone_mode=False) or 0
        if code == 130:  # typer turns Ctrl-C into this code
            print("interrupted", file=sys.stderr)
        sys.exit(code)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # the reader, such as `head`, is done
            sys.exit(0)
        raise
    except Exception as error:
        sentence = _describe(error, arguments)
        if sentence is None:
            raise
        if len(arguments) < len(sys.argv) - 1:
            traceback.print_exc()
        code = _find_exit_code(error)
        hint = choose_hint(error, arguments, typer.main.get_command(app)) if code == 2 else None
        if (named := _name_rank(sentence)) is None:
            sys.exit(code)
        print(f"error: {named}", file=sys.stderr)
        if hint is not None:
            print(f"hint: {hint}", file=sys.stderr)
        if "--json" in arguments:
            with suppress(OSError):  # stdout may be what failed
                print_json({"error": sentence, "hint": hint, "exit_code": code})
        sys.exit(code)


def _name_rank(sentence: str) -> str | None:
    """The sentence with the rank of this process; None if another process has said it before."""
    parallel = sys.modules.get("clearhead.parallel.group")  # imported if a run was started
    group = None if parallel is None else parallel.current
    if group is None:
        return _find_rank() + sentence
    return f"rank {group.rank}: {sentence}" if group.say_first(sentence) else None


def _find_rank() -> str:
    """The rank of a process that has not met the others; empty for one that is alone."""
    runtime = sys.modules.get("clearhead.runtime")  # imported before a run is started
    with suppress(ValueError):
        if runtime is not None and (place := runtime.read_place()).size > 1:
            return f"rank {place.rank}: "
    return ""


@contextmanager
def _explain_own_code() -> Iterator[None]:
    """Errors in a user's own recipe file name the file and the line."""
    try:
        yield
    except (Exception, SystemExit) as fault:
        own = sys.modules.get("clearhead.runs.own_code")  # imported if such a file was read
        if own is None or _find_class_code(fault) is not None or hasattr(fault, "format_message"):
            raise
        explained = None if isinstance(fault, own.OwnCodeError) else own.explain(fault)
        if explained is None:
            raise
        raise explained from fault


def _describe(error: Exception, arguments: list[str]) -> str | None:
    """The sentence for the user; None for a bug of ours, which is shown as a traceback."""
    if hasattr(error, "format_message"):  # wrong usage, found by the option parser
        return describe_usage_error(error, arguments)
    if isinstance(error, OSError):
        return _describe_disk_error(error)
    if _find_class_code(error) is not None:
        return str(error)
    if type(error) is ValueError:
        return _name_option(str(error), arguments)
    return str(error) if isinstance(error, ValueError) else None


def _name_option(sentence: str, arguments: list[str]) -> str:
    """Turn the library's `top_k must …` into `--top-k must …` if that option was given."""
    name, space, rest = sentence.partition(" ")
    option = "--" + name.replace("_", "-")
    given = {argument.partition("=")[0] for argument in arguments}
    return option + space + rest if option in given else sentence


def _describe_disk_error(error: OSError) -> str:
    path = "the output" if error.filename is None else quote(error.filename)
    way_out = "make room or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{path}: {(error.strerror or str(error)).lower()}; {way_out}choose another folder"


def _find_exit_code(error: Exception) -> int:
    known = _find_class_code(error)
    if known is not None:
        return known
    fault = error.__cause__ or error  # that of a sentence about a user's own file
    return 4 if isinstance(fault, OSError) and fault.errno in DISK_FAULTS else 2


def _find_class_code(error: BaseException) -> int | None:
    """The exit code of one of our error classes; None if it has none."""
    names = (
        kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("clearhead.")
    )
    return next((EXIT_CODES[name] for name in names if name in EXIT_CODES), None)


if __name__ == "__main__":
    main()

"""clearhead predict RUN INPUT…: run a trained model on inputs."""

from typing import Annotated, Any

import typer

from clearhead.cli.eval import RunPath, open_run
from clearhead.cli.options import Device, Json, Quiet, Threads, Trust, Unknown, Which, print_json


def predict(
    run: RunPath,
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="Texts, sentences or picture files.")
    ],
    which: Which = "best",
    unknown: Unknown = False,
    trust: Trust = False,
    device: Device = "auto",
    threads: Threads = "1",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a trained model on inputs."""
    loaded = open_run(run, which, device, threads, trust)
    # All are answered before the first is printed.
    answers = [loaded.predict(text, unknown=unknown) for text in inputs]
    if json:
        print_json({"run": str(run), "answers": answers})
        return
    for answer in answers:
        typer.echo(str(answer["answer"]) if quiet else _format_answer(answer))
        if "note" in answer and not quiet:
            typer.echo(f"note: {answer['note']}; do not rely on the answer", err=True)


def _format_answer(answer: dict[str, Any]) -> str:
    """abccab|cca → yes (probability 0.9998)"""
    rest = ", ".join(
        f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in answer.items()
        if name not in ("input", "answer", "note")
    )
    return f"{answer['input']} → {answer['answer']}" + (f" ({rest})" if rest else "")

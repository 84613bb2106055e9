"""clearhead generate MODEL: text after a prompt, shown as it comes."""

import json as json_format
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import (
    Device,
    Json,
    Quiet,
    Seed,
    Threads,
    device_named,
    thread_count,
)

if TYPE_CHECKING:
    from clearhead.data import Tokenizer
    from clearhead.interop import Report
    from clearhead.models import GPT

__all__ = ["generate"]


def generate(
    model: Annotated[
        str,
        typer.Argument(help="A folder of weights, a llama2.c file, or stories15m."),
    ],
    prompt: Annotated[str, typer.Option("--prompt", help="How the text begins.")] = "",
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="How many new ones; if left out, all that fit.")
    ] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", help="0: the most likely token; more: more varied.")
    ] = 0.0,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Only the k most likely.")] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", help="Only the likely ones that reach p together.")
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option("--min-p", help="Only those at least p times as likely as the best."),
    ] = None,
    repetition_penalty: Annotated[
        float, typer.Option("--repetition-penalty", help="More than 1: say new things.")
    ] = 1.0,
    weights: Annotated[
        str, typer.Option("--weights", help="float, or int8: faster, slightly less exact.")
    ] = "float",
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a prompt with a language model."""
    import torch

    from clearhead.generation import Sampling, stream

    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    thread_count(threads)
    place = device_named(device)
    _check_weights(weights, place.type)
    writer, tokenizer, report = _load(model)
    ids = _ids(tokenizer, prompt)
    _check_room(len(ids), tokens, writer.config.max_len)
    start, texts = time.perf_counter(), []
    steps = stream(  # checks everything now: nothing is shown before
        writer.to(place),
        torch.tensor([ids], device=place),
        tokens,
        sampling=sampling,
        seed=seed,
        stop=_ends(tokenizer),
        weights=weights,
        tokenizer=tokenizer,
    )
    if not quiet:
        _tell(report, temperature, {"--top-k": top_k, "--top-p": top_p, "--min-p": min_p})
    _show(prompt, json)
    for step in steps:
        texts += step.texts or []
        _show(texts[-1], json)
    seconds = time.perf_counter() - start
    if json:
        answer = {"prompt": prompt, "text": "".join(texts), "tokens": len(texts)}
        typer.echo(json_format.dumps({**answer, "seconds": seconds}, ensure_ascii=False))
        return
    typer.echo()
    if not quiet:
        print(f"{len(texts)} tokens, {len(texts) / seconds:.0f} a second", file=sys.stderr)


def _show(text: str, json: bool) -> None:
    if not json:
        typer.echo(text, nl=False)
        sys.stdout.flush()


def _tell(report: "Report", temperature: float, filters: dict[str, float | None]) -> None:
    """What was loaded, and which options have no effect."""
    print(report, file=sys.stderr)
    for option, value in filters.items():
        if value is not None and temperature == 0:
            print(f"note: {option} does nothing at --temperature 0", file=sys.stderr)


def _load(name: str) -> "tuple[GPT, Tokenizer, Report]":
    """The model at a path, or one that `clearhead data get` has fetched."""
    from clearhead.interop import load
    from clearhead.models import GPT

    loaded = load(name)
    if not isinstance(loaded.model, GPT):
        raise ValueError(
            f"{name} is a {type(loaded.model).__name__}, which does not write text; "
            f"take a GPT, such as stories15m"
        )
    if loaded.tokenizer is None:
        raise ValueError(f"{name} has no tokenizer; put tokenizer.json beside its weights")
    return loaded.model, loaded.tokenizer, loaded.report


def _ids(tokenizer: "Tokenizer", prompt: str) -> list[int]:
    """The ids of the prompt."""
    try:
        prompt.encode()
    except UnicodeEncodeError as fault:  # Python keeps such a byte as half a character
        raise ValueError(
            f"--prompt has at place {fault.start} a byte that is no UTF-8; type it anew"
        ) from None
    ids = tokenizer.encode(prompt)
    if not ids:
        raise ValueError("--prompt is empty and this model has no start token; give it a word")
    return ids


def _check_room(n_prompt: int, tokens: int | None, max_len: int) -> None:
    """Prompt and new tokens fit the model."""
    room = max_len - n_prompt
    if room < 0:
        raise ValueError(
            f"--prompt has {n_prompt} tokens, but this model reads at most {max_len}; shorten it"
        )
    if tokens is not None and tokens < 0:
        raise ValueError(f"--tokens must not be negative, got {tokens}")
    if tokens is not None and tokens > room:
        raise ValueError(
            f"--tokens is {tokens}, but after this prompt the model has room for {room}; "
            f"ask for fewer, or leave it out for as many as fit"
        )


def _check_weights(weights: str, device: str) -> None:
    from clearhead.shapes import check_choice

    check_choice("--weights", weights, ("float", "int8"))
    if weights == "int8" and device != "cpu":
        raise ValueError(f"--weights int8 is for the CPU, not {device}; add --device cpu")


def _ends(tokenizer: "Tokenizer") -> set[int]:
    """The tokens after which a text is over; some models mark it by the start of the next."""
    return {mark for mark in (tokenizer.end_id, tokenizer.start_id) if mark is not None}

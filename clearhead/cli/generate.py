"""clearhead generate MODEL: text after a prompt, shown as it comes."""

import json as json_format
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import Device, Json, Quiet, Seed, Threads, thread_count

if TYPE_CHECKING:
    import torch

    from clearhead.data import Tokenizer
    from clearhead.interop import Report
    from clearhead.models import GPT

__all__ = ["generate"]


def generate(
    model: Annotated[
        str,
        typer.Argument(help="A folder of weights, a llama2.c file, or a name of clearhead data."),
    ],
    prompt: Annotated[str, typer.Option("--prompt", help="How the text begins.")] = "",
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="How many new ones; none: all that fit.")
    ] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", help="0 takes the most likely token.")
    ] = 0.0,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Only the k most likely.")] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", help="Only the likely ones that reach p together.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option("--min-p", help="Only those p times as likely as the best.")
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
    from clearhead.generation import Sampling, stream

    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    thread_count(threads)
    writer, tokenizer, report = _load(model, device)
    if not quiet:
        print(report, file=sys.stderr)
    _show(prompt, json)
    start, texts = time.perf_counter(), []
    for step in stream(
        writer,
        _prompt(tokenizer, prompt, writer.embedding.weight.device),
        tokens,
        sampling=sampling,
        seed=seed,
        stop=_ends(tokenizer),
        weights=weights,
        tokenizer=tokenizer,
    ):
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
        if sys.stdout is not None:  # closed by whoever called
            sys.stdout.flush()


def _load(name: str, device: str) -> "tuple[GPT, Tokenizer, Report]":
    """The model at a path, or one that `clearhead data get` has fetched."""
    from clearhead.interop import load
    from clearhead.models import GPT
    from clearhead.runtime import pick_device

    loaded = load(name)
    if not isinstance(loaded.model, GPT):
        raise ValueError(
            f"{name} is a {type(loaded.model).__name__}, which does not write text; "
            f"take a GPT, such as stories15m"
        )
    if loaded.tokenizer is None:
        raise ValueError(f"{name} has no tokenizer; put tokenizer.json beside its weights")
    return loaded.model.to(pick_device(device)), loaded.tokenizer, loaded.report


def _prompt(tokenizer: "Tokenizer", text: str, device: "torch.device") -> "torch.Tensor":
    """The ids of the prompt, (1, T)."""
    import torch

    ids = tokenizer.encode(text)
    if not ids:
        raise ValueError("--prompt is empty and this model has no start token; give it a word")
    return torch.tensor([ids], device=device)


def _ends(tokenizer: "Tokenizer") -> set[int]:
    """The tokens after which a text is over; some models mark it by the start of the next."""
    return {mark for mark in (tokenizer.end_id, tokenizer.start_id) if mark is not None}

"""clearhead generate MODEL: text after a prompt, shown as it comes."""

import json as json_format
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.eval import warn
from clearhead.cli.interrupts import leaving_at_once
from clearhead.cli.options import (
    Device,
    Json,
    Quiet,
    Seed,
    Threads,
    check_threads,
    device_named,
    thread_count,
)
from clearhead.files.reading import quote
from clearhead.runs.folder import RunFolder
from clearhead.timing import Timer

if TYPE_CHECKING:
    from clearhead.data import Tokenizer
    from clearhead.generation import Step
    from clearhead.interop import Loaded
    from clearhead.models import GPT, Model


def generate(
    model: Annotated[
        str,
        typer.Argument(help="A run, a folder of weights, a llama2.c file, or stories15m."),
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
    probs: Annotated[
        bool, typer.Option("--probs", help="Show the five likeliest tokens at each step.")
    ] = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a prompt with a language model."""
    check_threads(threads)
    with leaving_at_once():
        import torch

        from clearhead.generation import Sampling, stream

    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    thread_count(threads)
    place = device_named(device)
    _check_weights(weights, place.type)
    writer, tokenizer, report = _load(model)
    ids = _ids(tokenizer, prompt)
    rolls = _check_room(len(ids), tokens, writer.config.max_len)
    timer, texts, likely = Timer(), [], []
    steps = stream(  # checks everything now: nothing is shown before
        writer.to(place),
        torch.tensor([ids], device=place),
        tokens,
        sampling=sampling,
        seed=seed,
        stop=_ends(tokenizer),
        weights=weights,
        tokenizer=tokenizer,
        keep_logits=probs,
        roll=rolls,
    )
    if not quiet:
        _tell(report, temperature, {"--top-k": top_k, "--top-p": top_p, "--min-p": min_p})
        if rolls:
            print(f"note: {_ROLLS.format(writer.config.max_len)}", file=sys.stderr)
    _show(prompt, json or probs)
    for step in steps:
        texts += step.texts or []
        _show(texts[-1], json or probs)
        if probs:
            likely.append(_likeliest(step, tokenizer))
            if not json:  # the text comes after the table: on a terminal they would mix
                _show_likely(tokenizer.decode(step.tokens, specials=True), likely[-1])
    seconds = timer.seconds
    if json:
        answer = {"prompt": prompt, "text": "".join(texts), "tokens": len(texts)}
        answer |= {"seconds": seconds} | ({"probs": likely} if probs else {})
        typer.echo(json_format.dumps(answer, ensure_ascii=False))
        return
    typer.echo(prompt + "".join(texts) if probs else "")
    if not quiet:
        print(f"{len(texts)} tokens, {len(texts) / seconds:.0f} a second", file=sys.stderr)


N_LIKELY = 5
_ROLLS = (
    "the model reads at most {} tokens at once; whenever they are full, the text goes on from the "
    "last half of them, and what is older is forgotten"
)


def _likeliest(step: "Step", tokenizer: "Tokenizer") -> list[tuple[str, float]]:
    """The most probable tokens of a step, by the model alone: before temperature and filters."""
    p, best = step.probs[0].topk(min(N_LIKELY, step.probs.size(-1)))
    return [
        (tokenizer.decode([token], specials=True), round(share, 6))
        for token, share in zip(best.tolist(), p.tolist(), strict=True)
    ]


def _show_likely(chosen: str, likely: list[tuple[str, float]]) -> None:
    shares = "  ".join(f"{token!r} {share:.3f}" for token, share in likely)
    print(f"{chosen!r:>12} of  {shares}", file=sys.stderr)


def _show(text: str, silent: bool) -> None:
    if not silent:
        typer.echo(text, nl=False)
        sys.stdout.flush()


def _tell(report: object, temperature: float, filters: dict[str, float | None]) -> None:
    """What was loaded, and which options have no effect."""
    print(report, file=sys.stderr)
    for option, value in filters.items():
        if value is not None and temperature == 0:
            print(f"note: {option} does nothing at --temperature 0", file=sys.stderr)


def _load(name: str) -> "tuple[GPT, Tokenizer, object]":
    """The model of a run, at a path, or one that `clearhead data get` has fetched."""
    from clearhead.interop import load
    from clearhead.models import GPT

    model, tokenizer, report = _of_run(name) if _is_run(name) else _parts(load(name))
    if not isinstance(model, GPT):
        raise ValueError(
            f"{name} is a {type(model).__name__}, which does not write text; "
            f"take a GPT, such as stories15m"
        )
    if tokenizer is None:
        raise ValueError(f"{name} has no tokenizer; put tokenizer.json beside its weights")
    return model, tokenizer, report


def _is_run(name: str) -> bool:
    """Whether this is a run folder; a folder of weights has a config.json of another kind."""
    try:
        return {"recipe", "training"} <= RunFolder(name).config.keys()
    except (ValueError, OSError):
        return False


def _of_run(name: str) -> "tuple[Model, Tokenizer | None, object]":
    from clearhead.runs import load_run

    run = load_run(name, device="cpu", tell=warn)
    words = f"{run.recipe.name} from {quote(name)}, after step {run.step}: "
    return run.model, run.tokenizer, words + f"{run.model.n_parameters:,} parameters"


def _parts(loaded: "Loaded") -> "tuple[Model, Tokenizer | None, object]":
    return loaded.model, loaded.tokenizer, loaded.report


def _ids(tokenizer: "Tokenizer", prompt: str) -> list[int]:
    """The ids of the prompt, which is a beginning: a mark of the end is left out."""
    try:
        prompt.encode()
    except UnicodeEncodeError as fault:  # Python keeps such a byte as half a character
        raise ValueError(
            f"--prompt has at place {fault.start} a byte that is no UTF-8; type it anew"
        ) from None
    ids = tokenizer.encode(prompt)
    if ids and ids[-1] == tokenizer.end_id:
        ids.pop()
    if not ids:
        raise ValueError("--prompt is empty and this model has no start token; give it a word")
    return ids


def _check_room(n_prompt: int, tokens: int | None, max_len: int) -> bool:
    """The prompt fits the model; whether the text must go on when the context is full."""
    room = max_len - n_prompt
    if room < 0:
        raise ValueError(
            f"--prompt has {n_prompt} tokens, but this model reads at most {max_len}; shorten it"
        )
    if tokens is not None and tokens < 0:
        raise ValueError(f"--tokens must not be negative, got {tokens}")
    return tokens is not None and tokens > room


def _check_weights(weights: str, device: str) -> None:
    from clearhead.shapes import check_choice

    check_choice("--weights", weights, ("float", "int8"))
    if weights == "int8" and device != "cpu":
        raise ValueError(f"--weights int8 is for the CPU, not {device}; add --device cpu")


def _ends(tokenizer: "Tokenizer") -> set[int]:
    """The tokens after which a text is over; some models mark it by the start of the next."""
    return {mark for mark in (tokenizer.end_id, tokenizer.start_id) if mark is not None}

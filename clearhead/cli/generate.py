"""clearhead generate MODEL: continue a prompt, token by token."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import options
from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Device, Json, Quiet, Seed, Threads, Trust, Unknown
from clearhead.files.reading import quote
from clearhead.runs.folder import is_run
from clearhead.timing import Timer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clearhead.data import Tokenizer
    from clearhead.generation import PackedGPT, Step
    from clearhead.generation.row_text import Decoder
    from clearhead.models import GPT, Model

N_LIKELY = 5
ROLLING = (
    "the model reads at most {} tokens at once; whenever they are full, the text continues from "
    "the last half of them, and the older ones are dropped"
)


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A run, a folder of weights, a llama2.c file, or stories15m."
    ),
]
Prompt = Annotated[str, typer.Option("--prompt", help="How the text begins.")]
Tokens = Annotated[
    int | None, typer.Option("--tokens", help="How many new tokens; without it, all that fit.")
]
Temperature = Annotated[
    float, typer.Option("--temperature", help="0: the most likely token; more: more varied.")
]
TopK = Annotated[int | None, typer.Option("--top-k", help="Only the k most likely tokens.")]
TopP = Annotated[
    float | None, typer.Option("--top-p", help="Only the most likely that together reach p.")
]
MinP = Annotated[
    float | None,
    typer.Option("--min-p", help="Only those at least p times as likely as the best."),
]
Penalty = Annotated[float, typer.Option("--repetition-penalty", help="More than 1: repeat less.")]
Weights = Annotated[
    str, typer.Option("--weights", help="float, or int8: faster, slightly less exact.")
]
Probs = Annotated[
    bool, typer.Option("--probs", help="Show the five likeliest tokens at each step.")
]


def generate(
    model: ModelName,
    prompt: Prompt = "",
    tokens: Tokens = None,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Penalty = 1.0,
    weights: Weights = "float",
    unknown: Unknown = False,
    probs: Probs = False,
    trust: Trust = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a prompt with a language model."""
    options.check_threads(threads)
    with exit_on_interrupt():
        import torch

        from clearhead.generation import Sampling, stream
        from clearhead.generation.prose import find_stop_ids, find_unknown, make_writer

    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    options.set_threads(threads)
    target = options.find_device(device)
    _check_weights(weights, target.type)
    gpt, tokenizer, report = _load(model, trust)
    ids = _encode_prompt(tokenizer, prompt)
    rolls = _check_length(len(ids), tokens, gpt.config.max_len)
    writer = make_writer(tokenizer, len(ids))
    timer = Timer()
    steps = stream(  # checks every argument, so that an error comes before any text
        _pack(gpt.to(target), weights, gpt.config.max_len - len(ids) if tokens is None else tokens),
        torch.tensor([ids], device=target),
        tokens,
        sampling=sampling,
        seed=seed,
        stop=find_stop_ids(tokenizer),
        forbid=() if unknown else find_unknown(tokenizer),
        tokenizer=writer,
        keep_logits=probs,
        roll=rolls,
    )
    if not quiet:
        print(report, file=sys.stderr)
        _print_unused(temperature, {"--top-k": top_k, "--top-p": top_p, "--min-p": min_p})
        if rolls:
            print(f"note: {ROLLING.format(gpt.config.max_len)}", file=sys.stderr)
    texts, likely = _write(steps, prompt, tokenizer, writer, probs=probs, json=json)
    seconds = timer.seconds
    if json:
        answer = {"prompt": prompt, "text": "".join(texts), "tokens": len(texts)}
        answer |= {"seconds": seconds} | ({"probs": likely} if probs else {})
        options.print_json(answer)
    elif not quiet:
        print(f"{len(texts)} tokens, {len(texts) / seconds:.0f} a second", file=sys.stderr)


def _pack(gpt: "GPT", weights: str, n_tokens: int) -> "GPT | PackedGPT":
    """The model in the form that generates n_tokens soonest; for int8 always packed."""
    from clearhead.generation import pack, pack_if_it_pays

    return pack_if_it_pays(gpt, n_tokens) if weights == "float" else pack(gpt, weights=weights)


def _write(
    steps: "Iterable[Step]",
    prompt: str,
    tokenizer: "Tokenizer",
    writer: "Decoder",
    *,
    probs: bool,
    json: bool,
) -> tuple[list[str], list[list[tuple[str, float]]]]:
    """Print the text as it is generated; returns it and the likeliest tokens of each step.

    With probs the text follows the table of tokens, because on a terminal they would mix. With json
    nothing is printed.
    """
    from clearhead.generation.prose import Prose

    texts: list[str] = []
    likely = []
    _print_part("" if json or probs else prompt)
    for step in steps:
        texts += step.texts or []
        _print_part("" if json or probs else texts[-1])
        if probs:
            likely.append(_find_likeliest(step, tokenizer))
        if probs and not json:
            _print_likely(tokenizer.decode(step.tokens, specials=True), likely[-1])
    if texts and isinstance(writer, Prose):
        texts[-1] += writer.waiting
        _print_part("" if json or probs else writer.waiting)
    if not json:
        typer.echo(prompt + "".join(texts) if probs else "")
    return texts, likely


def _print_part(text: str) -> None:
    if text:
        typer.echo(text, nl=False)
        sys.stdout.flush()


def _find_likeliest(step: "Step", tokenizer: "Tokenizer") -> list[tuple[str, float]]:
    """The most probable tokens of a step, by the model alone: before temperature and filters."""
    p, best = step.probs[0].topk(min(N_LIKELY, step.probs.size(-1)))
    return [
        (tokenizer.decode([token], specials=True), round(share, 6))
        for token, share in zip(best.tolist(), p.tolist(), strict=True)
    ]


def _print_likely(chosen: str, likely: list[tuple[str, float]]) -> None:
    shares = "  ".join(f"{token!r} {share:.3f}" for token, share in likely)
    print(f"{chosen!r:>12} of  {shares}", file=sys.stderr)


def _print_unused(temperature: float, filters: dict[str, float | None]) -> None:
    """Name the options that have no effect."""
    for option, value in filters.items():
        if value is not None and temperature == 0:
            print(f"note: {option} does nothing at --temperature 0", file=sys.stderr)


def _load(name: str, trust: bool) -> "tuple[GPT, Tokenizer, object]":
    """The model of a run, at a path, or one that `clearhead data get` has fetched."""
    from clearhead.interop import load
    from clearhead.models import GPT

    if is_run(name):
        model, tokenizer, report = _load_run(name, trust)
    else:
        loaded = load(name)
        model, tokenizer, report = loaded.model, loaded.tokenizer, loaded.report
    if not isinstance(model, GPT):
        raise ValueError(
            f"{name} is a {type(model).__name__}, which does not write text; "
            f"use a GPT, such as stories15m"
        )
    if tokenizer is None:
        raise ValueError(f"{name} has no tokenizer; put tokenizer.json beside its weights")
    return model, tokenizer, report


def _load_run(name: str, trust: bool) -> "tuple[Model, Tokenizer | None, object]":
    from clearhead.runs import load_run

    run = load_run(name, device="cpu", trust=trust, tell=options.warn)
    words = f"{run.recipe.name} from {quote(name)}, after step {run.step}: "
    return run.model, run.tokenizer, words + f"{run.model.n_parameters:,} parameters"


def _encode_prompt(tokenizer: "Tokenizer", prompt: str) -> list[int]:
    """The ids of the prompt, without an end token, because the text continues."""
    try:
        prompt.encode()
    except UnicodeEncodeError as fault:  # Python keeps an invalid byte as half a surrogate pair
        raise ValueError(
            f"--prompt has an invalid byte at index {fault.start}; type it again in UTF-8"
        ) from None
    ids = tokenizer.encode(prompt)
    if ids and ids[-1] == tokenizer.end_id:
        ids.pop()
    if not ids:
        raise ValueError("--prompt is empty and this model has no start token; give it a word")
    return ids


def _check_length(n_prompt: int, tokens: int | None, max_len: int) -> bool:
    """Check that the prompt fits; returns whether the text will be longer than the context."""
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

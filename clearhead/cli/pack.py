"""clearhead data pack FILE… and clearhead data verify FOLDER: texts as tokens on a disk."""

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.byte_progress import format_size, show_bytes
from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Json, Quiet, print_json
from clearhead.config import suggest
from clearhead.files.reading import ANY_SIZE, open_regular, quote
from clearhead.timing import Timer, format_duration

if TYPE_CHECKING:
    from clearhead.data.token_file import TokenFile

MAX_WORKERS = 256  # each is a process
TOKENIZERS = ("char", "bytes", "byte-pairs")


def pack(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Text files, in UTF-8.")],
    tokenizer: Annotated[
        str,
        typer.Option("--tokenizer", help=f"{', '.join(TOKENIZERS)}, or a saved tokenizer.json."),
    ] = "byte-pairs",
    vocab_size: Annotated[
        int | None,
        typer.Option("--vocab-size", help="Size of the byte-pairs vocabulary; default: 4096."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes that encode.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The folder to write; default: the name of the first FILE, with .tokens."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Encode texts of any size into a token file, to train on with data.path=FOLDER."""
    for path in files:
        open_regular(path, ANY_SIZE).close()
    target = out or Path(files[0].name).with_suffix(".tokens")
    _check_options(tokenizer, vocab_size, workers, target)
    timer = Timer()
    with exit_on_interrupt():
        from clearhead.data.pack_tokens import pack_texts

    with _stop_at_sigterm(), show_bytes(quiet) as show:
        tokens = pack_texts(
            files, target, tokenizer=tokenizer, vocab_size=vocab_size, workers=workers, tell=show
        )
    text_bytes = sum(path.stat().st_size for path in files)
    if json:
        facts = {"text_bytes": text_bytes, "seconds": round(timer.seconds, 3)}
        print_json({**_describe_tokens(tokens), **facts})
        return
    seconds = format_duration(timer.seconds)
    typer.echo(f"{_sum_up(tokens)}, from {format_size(text_bytes)} of text, {seconds}")
    if not quiet:
        where = shlex.quote(str(target))
        typer.echo(f"next: clearhead train shakespeare-char data.path={where}")


def verify(
    path: Annotated[Path, typer.Argument(metavar="FOLDER", help="What data pack wrote.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare every file of a token file with its SHA-256."""
    open_regular(path / "header.json", ANY_SIZE).close()
    with exit_on_interrupt():
        from clearhead.data import token_file

    with show_bytes(quiet) as show:
        token_file.verify(path, show)
    tokens = token_file.TokenFile(path)
    if json:
        print_json(_describe_tokens(tokens))
    else:
        typer.echo(f"{_sum_up(tokens)}: every SHA-256 is right")


def _check_options(tokenizer: str, vocab_size: int | None, workers: int, target: Path) -> None:
    """Refuse wrong options before anything slow is imported."""
    if tokenizer.endswith(".json"):
        open_regular(tokenizer, ANY_SIZE).close()
    elif tokenizer not in TOKENIZERS:
        raise ValueError(
            f"--tokenizer must be {', '.join(TOKENIZERS)} or the path of a tokenizer.json, "
            f"got {tokenizer!r:.80}{suggest(tokenizer, TOKENIZERS)}"
        )
    if vocab_size is not None and tokenizer != "byte-pairs":
        raise ValueError(f"--vocab-size is for byte-pairs, not for {tokenizer:.80}; leave it out")
    if not 1 <= workers <= MAX_WORKERS:
        raise ValueError(f"--workers must be 1 to {MAX_WORKERS}, got {workers}")
    if target.suffix != ".tokens":
        raise ValueError(f"--out must end with .tokens, got {quote(target)}")
    if target.exists():
        raise ValueError(f"{quote(target)} exists already; delete it or give another --out")


def _describe_tokens(tokens: "TokenFile") -> dict[str, Any]:
    """The facts about a token file, for --json."""
    return {
        "path": str(tokens.path),
        "tokens": len(tokens),
        "vocab_size": tokens.vocab_size,
        "token_bytes": tokens.n_bytes,
        "shards": len(tokens.header.shards),
        "fingerprint": tokens.fingerprint,
    }


def _sum_up(tokens: "TokenFile") -> str:
    counts = f"{len(tokens):,} tokens, vocabulary of {tokens.vocab_size:,}"
    return f"{quote(tokens.path)}: {counts}, {format_size(tokens.n_bytes)}"


@contextmanager
def _stop_at_sigterm() -> Iterator[None]:
    """SIGTERM leaves this block as an exception, so that the unfinished folder is deleted."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

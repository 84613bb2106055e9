"""Text files of any size → a token file, with bounded memory.

    pack_texts(["books.txt"], "books.tokens", tokenizer="byte-pairs", vocab_size=8000, workers=4)

    char          one id for each character; a first pass over the files finds the alphabet
    bytes         one id for each byte of the UTF-8 text
    byte-pairs    one id for each part of a word; learned from the beginning of the files
    FILE.json     a tokenizer that was saved before, of one of these kinds

A file is read in chunks, cut where a cut changes no id, encoded piece by piece (by several
processes, if asked) and written. The ids are those of `tokenizer.encode` for each whole file, one
file after the other. If the tokenizer has <|endoftext|>, as those of bytes and byte pairs do, it
stands between two files.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.data.encoding_workers import TIMEOUT, EncodingWorkers, Piece
from clearhead.data.token_encoders import N_CODES, Encoder, Ids, list_codes, make_encoder
from clearhead.data.token_file import Tell, TokenFile
from clearhead.data.token_header import TOKENIZER
from clearhead.data.token_writing import SHARD_TOKENS, check_name, fill_folder
from clearhead.data.tokenizers import BytePairTokenizer, CharTokenizer, Tokenizer, load_tokenizer
from clearhead.data.tokenizers.byte_pairs import FEWEST_TOKENS
from clearhead.files.reading import ANY_SIZE, BadFile, open_regular, prefix_errors, quote
from clearhead.files.text import CHUNK, read_chunks
from clearhead.files.writing import create_folder
from clearhead.shapes import check_positive

VOCAB_SIZE = 4096  # of byte pairs, if none is given
SAMPLE = 16_000_000  # bytes that merges are learned from, in equal shares of each file
LONGEST_PIECE = 16 * CHUNK  # characters without a place to cut


def pack_texts(
    files: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] = "byte-pairs",
    vocab_size: int | None = None,
    workers: int = 1,
    timeout: float = TIMEOUT,
    shard_tokens: int = SHARD_TOKENS,
    tell: Tell = lambda words, done, total: None,
) -> TokenFile:
    """Encode text files and write their tokens into the new folder `out`.

    vocab_size: the largest size of a byte-pairs vocabulary. workers: how many processes encode; the
    result is the same for any number. timeout: seconds without an answer after which a worker
    counts as hung.
    """
    check_name(out)
    check_positive(workers=workers)
    if not files:
        raise ValueError("files must name at least one text file, got none")
    sizes = [_measure(path) for path in files]
    if not any(sizes):
        names = "is" if len(files) == 1 else "and all other files are"
        raise BadFile(f"{quote(files[0])} {names} empty; give a text")
    with create_folder(out) as folder:
        made = choose_tokenizer(tokenizer, files, vocab_size, tell)
        encoder = make_encoder(made)
        made.save(folder / TOKENIZER)  # which the workers read
        pieces = cut_pieces(files, encoder, _count_bytes("encoding", sizes, tell))
        with closing(_encode(encoder, pieces, folder, workers, timeout)) as encoded:
            fill_folder(folder, made, _join(encoded, made), shard_tokens=shard_tokens)
    return TokenFile(out)


def _measure(path: str | os.PathLike[str]) -> int:
    """The size of a file in bytes."""
    with open_regular(path, ANY_SIZE) as file:
        return os.fstat(file.fileno()).st_size


# The tokenizer


def choose_tokenizer(
    name: str | os.PathLike[str],
    files: Sequence[str | os.PathLike[str]],
    vocab_size: int | None = None,
    tell: Tell = lambda words, done, total: None,
) -> Tokenizer:
    """Learn the tokenizer with this name from the files, or load one from a file."""
    if vocab_size is not None and name != "byte-pairs":
        raise ValueError(f"vocab_size is for byte-pairs, got it with {quote(name)}; leave it out")
    if name == "char":
        alphabet = learn_alphabet(files, tell)
        return CharTokenizer(alphabet, cls=None)
    if name == "bytes":
        return BytePairTokenizer.train([], FEWEST_TOKENS)
    if name == "byte-pairs":
        share = SAMPLE // len(files)
        tell(f"learning byte pairs from the first {share / 1e6:.1f} MB of each file", 0, 0)
        sample = [text for path in files for text in _read_beginning(path, share)]
        return BytePairTokenizer.train(sample, VOCAB_SIZE if vocab_size is None else vocab_size)
    return load_tokenizer(name)


def _read_beginning(path: str | os.PathLike[str], n_bytes: int) -> Iterator[str]:
    """About the first n_bytes of a file, in chunks."""
    chunk = min(n_bytes, CHUNK)
    return islice(read_chunks(path, chunk=chunk), round(n_bytes / max(1, chunk)))


def learn_alphabet(
    files: Sequence[str | os.PathLike[str]], tell: Tell = lambda words, done, total: None
) -> str:
    """All characters of the files, sorted."""
    seen: NDArray[np.bool_] = np.zeros(N_CODES, bool)
    count = _count_bytes("finding the characters", [_measure(path) for path in files], tell)
    for number, path in enumerate(files):
        for chunk in read_chunks(path):
            seen[list_codes(chunk)] = True
            count(number)
    if not seen.any():
        raise BadFile(f"{quote(files[0])} is empty; give a text to learn from")
    return "".join(map(chr, np.flatnonzero(seen)))


# From files to ids


def cut_pieces(
    files: Iterable[str | os.PathLike[str]],
    encoder: Encoder,
    count: Callable[[int], None] = lambda number: None,
    *,
    chunk: int = CHUNK,
    longest: int = LONGEST_PIECE,
) -> Iterator[Piece]:
    """Cut each file into pieces whose ids together are those of the file.

    count is called with the number of the file after each chunk that was read.
    """
    for number, path in enumerate(files):
        name, rest, starts_file = quote(path), "", True
        for part in read_chunks(path, chunk=chunk):
            rest += part
            if cut := encoder.find_cut(rest):
                yield Piece(name, rest[:cut], starts_file)
                rest, starts_file = rest[cut:], False
            elif len(rest) > longest:
                raise BadFile(
                    f"{name} has {longest:,} characters without a space after a word; "
                    f"take --tokenizer bytes, or break the text into words"
                )
            count(number)
        if rest:
            yield Piece(name, rest, starts_file)


def _encode(
    encoder: Encoder, pieces: Iterable[Piece], folder: Path, workers: int, timeout: float
) -> Generator[tuple[Piece, Ids], None, None]:
    """Each piece with its ids, by this process or by several others."""
    if workers > 1:
        with EncodingWorkers(folder / TOKENIZER, workers, timeout=timeout) as processes:
            yield from processes.encode(pieces)
    else:
        for piece in pieces:
            with prefix_errors(piece.path):
                ids = encoder.encode(piece.text)
            yield piece, ids


def _join(encoded: Iterable[tuple[Piece, Ids]], tokenizer: Tokenizer) -> Iterator[Ids]:
    """The ids of all pieces, with the end token between two files."""
    between = [] if tokenizer.end_id is None else [tokenizer.end_id]
    for number, (piece, ids) in enumerate(encoded):
        if number and piece.starts_file:
            yield np.array(between, np.uint32)
        yield ids


def _count_bytes(words: str, sizes: Sequence[int], tell: Tell) -> Callable[[int], None]:
    """A function to call after each chunk of a file, with the number of the file."""
    ends, chunks = list(accumulate(sizes)), [0] * len(sizes)

    def count(number: int) -> None:
        chunks[number] += 1
        left = max(0, sizes[number] - chunks[number] * CHUNK)  # of this file
        tell(words, ends[number] - left, ends[-1])

    return count

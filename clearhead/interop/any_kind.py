"""One door for all of it: whatever lies at a path, its model, its tokenizer and what was loaded.

    loaded = load("stories15m")
    print(loaded.report)
    loaded.model(torch.tensor([loaded.tokenizer.encode("Once upon a time")]))

A Hugging Face folder is told by the model_type of its config.json. A llama2.c model is a file, or
the only one in a folder without config.json; its tokenizer.bin lies beside it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from clearhead.config import find_nearest
from clearhead.data.fetching.catalogue import CATALOGUE, find_data
from clearhead.data.tokenizers.tokenizer import Tokenizer
from clearhead.files import BadFile
from clearhead.files.reading import quote
from clearhead.interop.bert import BERT
from clearhead.interop.gpt2 import GPT2
from clearhead.interop.llama import LLAMA
from clearhead.interop.llama2c import read_llama2c
from clearhead.interop.loading import Report, check_folder, load_family
from clearhead.interop.settings import Settings
from clearhead.interop.tokenizer_files import find_tokenizer, read_tokenizer_bin
from clearhead.interop.vit import VIT
from clearhead.models import Model

FAMILIES = {family.kind: family for family in (GPT2, LLAMA, BERT, VIT)}
MODELS = ("stories15m", "minilm")  # in the catalogue


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model, its tokenizer – None for pictures, or if none lies beside it – and the report."""

    model: Model
    tokenizer: Tokenizer | None
    report: Report


def load(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> Loaded:
    """The model at a path, of whichever kind it is, or one that `clearhead data get` fetched."""
    try:
        return _load(Path(path), dtype)
    except OSError as reason:  # a folder on the way that one may not enter, a name too long
        words = (reason.strerror or str(reason)).lower()
        raise BadFile(f"{quote(path)} cannot be opened: {words}") from reason


def _load(path: Path, dtype: torch.dtype) -> Loaded:
    if not path.exists():
        path = _fetched(str(path))
    if path.is_file():
        return _llama2c(path, dtype)
    check_folder(path)
    if not (path / "config.json").exists():
        return _llama2c(_only_bin(path), dtype)
    settings = Settings.read(path)
    if settings.kind not in FAMILIES:
        raise settings.bad(
            f"model_type is {settings.kind!a:.40}; known are {', '.join(sorted(FAMILIES))}"
        )
    family = FAMILIES[settings.kind]
    tokenizer = None if family is VIT else find_tokenizer(path)
    model, report = load_family(family, path, dtype)
    return _fitting(model, tokenizer, report)


def _fetched(name: str) -> Path:
    """The folder of a model that was fetched; a sentence if this is no name of one."""
    if name in MODELS:
        return find_data(name)
    if name in CATALOGUE:
        raise BadFile(f"{name} is a data set, not a model; the models are {' and '.join(MODELS)}")
    near = find_nearest(name, MODELS, cutoff=0.6)
    known = (
        f"did you mean {near}?"
        if near
        else "give a folder with config.json and its weights, a llama2.c file, or "
        + " or ".join(MODELS)
    )
    raise BadFile(f"{quote(name)} is not there; {known}")


def _llama2c(path: Path, dtype: torch.dtype) -> Loaded:
    beside = path.with_name("tokenizer.bin")
    tokenizer = read_tokenizer_bin(beside) if beside.exists() else None
    model, report = read_llama2c(path, dtype)
    if tokenizer is not None and tokenizer.vocab_size < model.config.vocab_size:
        raise BadFile(  # the file does not say how many it should have
            f"{quote(beside)} has {tokenizer.vocab_size:,} tokens but the model of {path.name} "
            f"knows {model.config.vocab_size:,}; it is cut short or of another model"
        )
    return _fitting(model, tokenizer, report)


def _fitting(model: Model, tokenizer: Tokenizer | None, report: Report) -> Loaded:
    """A model may know more ids than its tokenizer, never fewer."""
    if tokenizer is not None and tokenizer.vocab_size > model.config.vocab_size:
        raise BadFile(
            f"{report.source}: its tokenizer has {tokenizer.vocab_size:,} tokens but the model "
            f"knows {model.config.vocab_size:,}; they do not belong together"
        )
    return Loaded(model, tokenizer, report)


def _only_bin(folder: Path) -> Path:
    """The llama2.c model of a folder."""
    files = [p for p in sorted(folder.glob("*.bin")) if p.name != "tokenizer.bin"]
    if len(files) != 1 or (folder / "model.safetensors").exists():
        raise BadFile(
            f"{quote(folder)} holds no config.json, which tells what its weights mean, and "
            f"{'no' if not files else 'not just one'} llama2.c model"
        )
    return files[0]

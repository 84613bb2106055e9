"""Load a model of any known kind, its tokenizer, and a report of what was read.

    loaded = load("stories15m")
    print(loaded.report)
    loaded.model(torch.tensor([loaded.tokenizer.encode("Once upon a time")]))

A Hugging Face folder is recognised by the model_type in its config.json. A llama2.c model is a
file, or the only one in a folder without config.json, with its tokenizer.bin beside it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.config import find_nearest
from clearhead.data.fetching.catalogue import CATALOGUE, find_data
from clearhead.data.tokenizers.tokenizer import Tokenizer
from clearhead.files import BadFile
from clearhead.files.reading import quote
from clearhead.interop.bert import BERT
from clearhead.interop.config_json import TheirConfig
from clearhead.interop.gpt2 import GPT2
from clearhead.interop.hugging_face import check_folder, load_folder
from clearhead.interop.llama import LLAMA
from clearhead.interop.llama2c import read_llama2c
from clearhead.interop.name_table import Family
from clearhead.interop.qwen3 import QWEN3
from clearhead.interop.report import Report
from clearhead.interop.tokenizer_files import find_tokenizer, read_tokenizer_bin
from clearhead.interop.vit import VIT
from clearhead.models import Model
from clearhead.models.model import Description

FAMILIES: dict[str, Family[Any]] = {
    family.kind: family for family in (GPT2, LLAMA, QWEN3, BERT, VIT)
}
FETCHED = ("stories15m", "minilm")  # the models that `clearhead data get` fetches


@dataclass(frozen=True, eq=False, repr=False)
class Loaded:
    """A model, its tokenizer (None without such a file, or for pictures) and the report."""

    model: Model
    tokenizer: Tokenizer | None
    report: Report

    def __repr__(self) -> str:
        name = "none" if self.tokenizer is None else type(self.tokenizer).__name__
        return f"{type(self.model).__name__}, tokenizer {name}\n{self.report}"

    def _repr_html_(self) -> str:
        return Description(repr(self))._repr_html_()


def load(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> Loaded:
    """Load the model at a path, of any known kind, or one that `clearhead data get` fetched."""
    try:
        found = Path(path)
        found = found if found.exists() else _find_fetched(str(path))
        if found.is_file():
            return _load_llama2c(found, dtype)
        check_folder(found)
        if not (found / "config.json").exists():
            return _load_llama2c(_find_only_bin(found), dtype)
        return _load_hugging_face(found, dtype)
    except OSError as reason:  # a folder above it that may not be entered, a name too long
        words = (reason.strerror or str(reason)).lower()
        raise BadFile(f"{quote(path)} cannot be opened: {words}") from reason


def _load_hugging_face(path: Path, dtype: torch.dtype) -> Loaded:
    theirs = TheirConfig.read(path)
    if theirs.kind not in FAMILIES:
        raise theirs.error(
            f"model_type is {theirs.kind!r:.40}; known are {', '.join(sorted(FAMILIES))}"
        )
    family = FAMILIES[theirs.kind]
    tokenizer = None if family is VIT else find_tokenizer(path)
    model, report = load_folder(family, path, dtype)
    _check_vocabulary(model, tokenizer, report)
    return Loaded(model, tokenizer, report)


def _load_llama2c(path: Path, dtype: torch.dtype) -> Loaded:
    beside = path.with_name("tokenizer.bin")
    tokenizer = read_tokenizer_bin(beside) if beside.exists() else None
    model, report = read_llama2c(path, dtype)
    if tokenizer is not None and tokenizer.vocab_size < model.config.vocab_size:
        raise BadFile(  # the file does not say how many it should have
            f"{quote(beside)} has {tokenizer.vocab_size:,} tokens but the model of {path.name} "
            f"has {model.config.vocab_size:,}; it is cut short or of another model"
        )
    _check_vocabulary(model, tokenizer, report)
    return Loaded(model, tokenizer, report)


def _check_vocabulary(model: Model, tokenizer: Tokenizer | None, report: Report) -> None:
    """A model may have more ids than its tokenizer, never fewer."""
    if tokenizer is not None and tokenizer.vocab_size > model.config.vocab_size:
        raise BadFile(
            f"{report.source}: its tokenizer has {tokenizer.vocab_size:,} tokens but the model "
            f"has {model.config.vocab_size:,}; they do not belong together"
        )


def _find_fetched(name: str) -> Path:
    """The folder of a fetched model; the error for any other name says what to give."""
    if name in FETCHED:
        return find_data(name)
    if name in CATALOGUE:
        raise BadFile(f"{name} is a data set, not a model; the models are {' and '.join(FETCHED)}")
    near = find_nearest(name, FETCHED, cutoff=0.6)
    kinds = f"a folder with config.json and its weights, a llama2.c file, or {' or '.join(FETCHED)}"
    way_out = f"did you mean {near}?" if near else f"give {kinds}"
    raise BadFile(f"{quote(name)} is not there; {way_out}")


def _find_only_bin(folder: Path) -> Path:
    """The llama2.c model of a folder."""
    files = [p for p in sorted(folder.glob("*.bin")) if p.name != "tokenizer.bin"]
    if len(files) != 1 or (folder / "model.safetensors").exists():
        raise BadFile(
            f"{quote(folder)} holds neither a config.json, which says what its weights mean, "
            f"nor exactly one llama2.c model"
        )
    return files[0]

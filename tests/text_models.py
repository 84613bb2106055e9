"""Small random models of every kind that reads a text, opened as the studio opens them."""

from contextlib import suppress

import torch
from torch import nn

from clearhead.attention import AdditiveAttention, ArgmaxAttention, LinearAttention
from clearhead.attention.features import EluFeatures
from clearhead.data.tokenizers import CharTokenizer
from clearhead.models import (
    GPT,
    ClassifierConfig,
    GPTConfig,
    SequenceClassifier,
    TextEncoder,
    TextEncoderConfig,
)
from clearhead.studio.sources import Opened, Source, Sources

V, MAX_LEN = 7, 19  # the tokenizer has 6 tokens: a model may have more ids
SIZES = {"d_model": 12, "n_layers": 2, "n_heads": 4, "max_len": MAX_LEN}
DOT_PRODUCTS = ("gpt", "llama", "alibi", "classes", "toeplitz", "encoder")
MECHANISMS = ("additive", "argmax", "linear")
NAMES = (*DOT_PRODUCTS, *MECHANISMS)
TEXT, OTHER = "abcabd", "bdcaab"  # of 7 tokens with [CLS]


def build(name: str) -> tuple[nn.Module, CharTokenizer]:
    """A model with weights that matter, the same each time, and its tokenizer."""
    model = _build_model(name)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return model.eval(), CharTokenizer("abcd|")


def _build_model(name: str) -> nn.Module:
    gpt = {"vocab_size": V, **SIZES}
    match name:
        case "gpt":
            return GPT(GPTConfig(**gpt))
        case "llama":
            return GPT(GPTConfig(**gpt, n_kv_heads=2, positions="rotary", norm="rms", d_head=6))
        case "alibi":
            return GPT(GPTConfig(**gpt, positions="alibi"))
        case "classes":
            return SequenceClassifier(ClassifierConfig(d_input=V, d_output=3, **SIZES))
        case "toeplitz":
            config = ClassifierConfig(d_input=V, d_output=1, positions="toeplitz", **SIZES)
            return SequenceClassifier(config)
        case "encoder":
            return TextEncoder(TextEncoderConfig(**gpt))
        case _:
            model = GPT(GPTConfig(**gpt))
            for block in model.stack.blocks:
                block.attention.mechanism = _build_mechanism(name)
            return model


def _build_mechanism(name: str) -> nn.Module:
    if name == "additive":
        return AdditiveAttention(3, 3, 5)
    return ArgmaxAttention() if name == "argmax" else LinearAttention(EluFeatures())


class RandomSources(Sources):
    """Opens the models of this file; their Python lines build them again."""

    def open(self, id: str) -> Opened:
        with suppress(KeyError):
            return self._opened[id][1]
        lines = [
            "import torch",
            "from text_models import build",
            f"model, tokenizer = build({id!r})",
        ]
        opened = Opened(Source(id, id, False), *build(id), None, lines)
        self._opened[id] = None, opened
        return opened


def run_python(answer: dict) -> dict:
    """The variables after the "python" of an answer has been executed in a new notebook."""
    variables: dict = {}
    exec(answer["python"], variables)
    return variables

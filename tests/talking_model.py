"""A small random GPT with byte pairs and a chat format, in a folder as Hugging Face writes it."""

import json
from pathlib import Path

import torch
from torch import nn

from clearhead.data.tokenizers import BytePairTokenizer
from clearhead.interop import export
from clearhead.models import GPT, GPTConfig

TEXT = "the cat sat on the mat, the dog sat on the log; déjà vu 😀 déjà vu 😀. "
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['role'] }}…<|im_end|>{% endfor %}"
MAX_LEN = 600


def build_tokenizer(*marks: str) -> BytePairTokenizer:
    """Byte pairs of TEXT, <|endoftext|>, and these special tokens."""
    trained = BytePairTokenizer.train([TEXT] * 3, 290)
    tokens = [*trained.tokens, *marks]
    specials = {mark: len(trained.tokens) + i for i, mark in enumerate(marks)}
    return BytePairTokenizer(tokens, trained.merges, {**trained.specials, **specials})


def build_talker(tokenizer: BytePairTokenizer, max_len: int = MAX_LEN) -> GPT:
    """A model whose tokens vary; it has two ids more than its tokenizer."""
    config = GPTConfig(tokenizer.vocab_size + 2, max_len, 24, 2, 3, tied=False)
    generator = torch.Generator().manual_seed(0)
    model = GPT(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return model


def write_talker(folder: Path, template: str | None = TEMPLATE) -> Path:
    """Export it; template: its chat_template, None for a model without one."""
    tokenizer = build_tokenizer("<|im_start|>", "<|im_end|>")
    export(build_talker(tokenizer), folder, tokenizer=tokenizer)
    if template is not None:
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    return folder

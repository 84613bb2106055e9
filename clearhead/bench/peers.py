"""Other libraries, imported only here and only when needed: pip install 'clearhead[peers]'.

Each function returns a GPT of this shape with random weights, as a function (prompts, n_tokens)
that generates greedily. The weights differ from ours; the work is the same.
"""

import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.models import GPTConfig

Generate = Callable[[Tensor, int], object]


def transformers_gpt2(config: GPTConfig) -> Generate:
    """GPT-2 of Hugging Face's transformers, with its cache."""
    model = _build_gpt2(config)

    def generate(prompts: Tensor, n_tokens: int) -> object:
        with torch.inference_mode():
            return model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=n_tokens,
                min_new_tokens=n_tokens,
                do_sample=False,
                pad_token_id=0,
            )

    return generate


def ctranslate2_gpt2(config: GPTConfig, weights: str) -> Generate:
    """GPT-2 in CTranslate2, an engine in C++; weights: "float32" or "int8"."""
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        _convert(config, Path(folder))
        generator = ctranslate2.Generator(
            f"{folder}/ct2", compute_type=weights, intra_threads=torch.get_num_threads()
        )

    def generate(prompts: Tensor, n_tokens: int) -> object:
        words = [[f"t{token}" for token in row] for row in prompts.tolist()]
        return generator.generate_batch(
            words,
            max_length=n_tokens,
            min_length=n_tokens,
            sampling_topk=1,
            include_prompt_in_result=False,
        )

    return generate


@cache
def _build_gpt2(c: GPTConfig) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.GPT2Config(
        vocab_size=c.vocab_size,
        n_positions=c.max_len,
        n_embd=c.d_model,
        n_layer=c.n_layers,
        n_head=c.n_heads,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.GPT2LMHeadModel(config).eval()


def _convert(config: GPTConfig, folder: Path) -> None:
    """Write the model in CTranslate2's own format; its words are called t0, t1, …"""
    from ctranslate2.converters import TransformersConverter

    class Words:
        unk_token, bos_token, eos_token = "t0", "t1", "t2"
        added_tokens_encoder: dict[str, int] = {}  # noqa: RUF012  # the converter's own name

        def get_vocab(self) -> dict[str, int]:
            return {f"t{i}": i for i in range(config.vocab_size)}

    class Converter(TransformersConverter):
        def load_tokenizer(self, *_: Any, **__: Any) -> Words:
            return Words()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _build_gpt2(config).save_pretrained(folder / "hf")
        Converter(str(folder / "hf")).convert(str(folder / "ct2"))

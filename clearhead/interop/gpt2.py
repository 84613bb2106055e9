"""GPT-2 (Radford et al. 2019) from a Hugging Face folder.

Its linear layers keep their weights on the side, (inputs, outputs), and one layer makes queries,
keys and values together. The head is the embedding table unless the config says otherwise.
"""

import os
from pathlib import Path
from typing import cast

import torch

from clearhead.interop.loading import load_family
from clearhead.interop.mapping import Family, layer, norm, same
from clearhead.interop.settings import Settings
from clearhead.models import GPT, GPTConfig

THEIRS, OURS = "transformer.h.#", "stack.blocks.#"
QUERY_KEY_VALUE = [f"{OURS}.attention.proj_{part}" for part in "qkv"]


def _config(settings: Settings) -> GPTConfig:
    settings.must_be(
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False,
    )
    return GPTConfig(
        vocab_size=settings.size("vocab_size"),
        max_len=settings.size("n_positions"),
        d_model=settings.size("n_embd"),
        n_layers=settings.size("n_layer"),
        n_heads=settings.size("n_head"),
        d_ff=settings.size("n_inner", None),
        norm_eps=settings.number("layer_norm_epsilon", 1e-5),
        activation=settings.activation("activation_function", "gelu_new"),
        tied=settings.flag("tie_word_embeddings", True),
        dropout=settings.number("resid_pdrop", 0.1),
    )


GPT2 = Family(
    kind="gpt2",
    model=GPT,
    config=_config,
    prefix="transformer.",
    rows=(
        same("transformer.wte.weight", "embedding.weight"),
        same("transformer.wpe.weight", "positions.weight"),
        *norm(f"{THEIRS}.ln_1", f"{OURS}.norm_attention"),
        *layer(f"{THEIRS}.attn.c_attn", QUERY_KEY_VALUE, transposed=True),
        *layer(f"{THEIRS}.attn.c_proj", f"{OURS}.attention.proj_out", transposed=True),
        *norm(f"{THEIRS}.ln_2", f"{OURS}.norm_feed_forward"),
        *layer(f"{THEIRS}.mlp.c_fc", f"{OURS}.feed_forward.proj_in", transposed=True),
        *layer(f"{THEIRS}.mlp.c_proj", f"{OURS}.feed_forward.proj_out", transposed=True),
        *norm("transformer.ln_f", "stack.norm"),
        same("lm_head.weight", "head.weight"),
    ),
    ignored=(
        (f"{THEIRS}.attn.bias", "the causal mask, which Mask.causal() is here"),
        (f"{THEIRS}.attn.masked_bias", "the number that stood for −∞ in masked places"),
    ),
)


def load_gpt2(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> GPT:
    """The GPT in a folder with config.json and safetensors, with or without its head's name."""
    return cast(GPT, load_family(GPT2, Path(path), dtype)[0])

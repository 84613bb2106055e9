"""GPT-2 (Radford et al. 2019) from a Hugging Face folder.

Weights of linear layers are stored transposed, (inputs, outputs), and one layer computes queries,
keys and values together. The head is the embedding table unless the config says otherwise.
"""

import os
from pathlib import Path

import torch

from clearhead.interop.config_json import TheirConfig
from clearhead.interop.hugging_face import load_folder
from clearhead.interop.name_table import Family, layer, norm, same
from clearhead.models import GPT, GPTConfig

THEIRS, OURS = "transformer.h.#", "stack.blocks.#"
QUERY_KEY_VALUE = [f"{OURS}.attention.proj_{part}" for part in "qkv"]


def _build_config(theirs: TheirConfig) -> GPTConfig:
    theirs.require(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    theirs.require(add_cross_attention=False)
    return GPTConfig(
        vocab_size=theirs.get_size("vocab_size"),
        max_len=theirs.get_size("n_positions"),
        d_model=theirs.get_size("n_embd"),
        n_layers=theirs.get_size("n_layer"),
        n_heads=theirs.get_size("n_head"),
        d_ff=theirs.get_size("n_inner", None),
        norm_eps=theirs.get_number("layer_norm_epsilon", 1e-5),
        activation=theirs.get_activation("activation_function", "gelu_new"),
        tied=theirs.get_flag("tie_word_embeddings", True),
        dropout=theirs.get_number("resid_pdrop", 0.1),
    )


GPT2 = Family(
    kind="gpt2",
    model=GPT,
    config=_build_config,
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
        (f"{THEIRS}.attn.bias", "the causal mask; ours is Mask.causal()"),
        (f"{THEIRS}.attn.masked_bias", "the number used for −∞ in masked scores"),
    ),
)


def load_gpt2(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> GPT:
    """Load GPT-2 from a folder with config.json and safetensors, saved with or without a head."""
    return load_folder(GPT2, Path(path), dtype)[0]

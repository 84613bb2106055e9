"""Llama (Touvron et al. 2023) from a Hugging Face folder, or from a file of llama2.c.

A Llama is a GPT with rotary positions, RMS norm and SwiGLU, without biases, often with fewer
key/value heads. Hugging Face rotates columns i and i + Dh/2 of a head together, as we do.
"""

import os
from pathlib import Path

import torch

from clearhead.interop.config_json import TheirConfig
from clearhead.interop.hugging_face import load_folder
from clearhead.interop.llama2c import read_llama2c
from clearhead.interop.name_table import Family, layer, norm, same
from clearhead.models import GPT, GPTConfig

THEIRS, OURS = "model.layers.#", "stack.blocks.#"


def _build_config(theirs: TheirConfig) -> GPTConfig:
    d_model, n_heads = theirs.get_size("hidden_size"), theirs.get_size("num_attention_heads")
    theirs.require(hidden_act="silu", head_dim=d_model // n_heads)
    bias = theirs.get_flag("attention_bias", False)
    theirs.require(mlp_bias=bias)
    if bias and "mlp_bias" not in theirs.values:
        raise theirs.error("attention_bias is true but mlp_bias is not; here both are or none")
    return GPTConfig(
        vocab_size=theirs.get_size("vocab_size"),
        max_len=theirs.get_size("max_position_embeddings", 2048),
        d_model=d_model,
        n_layers=theirs.get_size("num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=theirs.get_size("num_key_value_heads", n_heads),
        d_ff=theirs.get_size("intermediate_size"),
        positions="rotary",
        rotary_base=_get_rotary_base(theirs),
        norm="rms",
        norm_eps=theirs.get_number("rms_norm_eps", 1e-6),
        activation="swiglu",
        bias=bias,
        tied=theirs.get_flag("tie_word_embeddings", False),
        dropout=theirs.get_number("attention_dropout", 0.0),
    )


def _get_rotary_base(theirs: TheirConfig) -> float:
    """Read rope_theta, alone or inside rope_parameters; any scaling of the angles is refused."""
    theirs.require(partial_rotary_factor=1.0)
    theirs.refuse("rope_scaling")
    rotary = theirs.values.get("rope_parameters")
    if rotary is None:
        return theirs.get_number("rope_theta", 10000.0)
    if not isinstance(rotary, dict):
        raise theirs.error(f"rope_parameters must hold names and values, got {rotary!a:.60}")
    inner = TheirConfig(theirs.path, rotary)
    inner.require(rope_type="default", partial_rotary_factor=1.0)
    inner.refuse(*(rotary.keys() - {"rope_type", "rope_theta", "partial_rotary_factor"}))
    return inner.get_number("rope_theta", theirs.get_number("rope_theta", 10000.0))


LLAMA = Family(
    kind="llama",
    model=GPT,
    config=_build_config,
    prefix="model.",
    rows=(
        same("model.embed_tokens.weight", "embedding.weight"),
        *norm(f"{THEIRS}.input_layernorm", f"{OURS}.norm_attention"),
        *layer(f"{THEIRS}.self_attn.q_proj", f"{OURS}.attention.proj_q"),
        *layer(f"{THEIRS}.self_attn.k_proj", f"{OURS}.attention.proj_k"),
        *layer(f"{THEIRS}.self_attn.v_proj", f"{OURS}.attention.proj_v"),
        *layer(f"{THEIRS}.self_attn.o_proj", f"{OURS}.attention.proj_out"),
        *norm(f"{THEIRS}.post_attention_layernorm", f"{OURS}.norm_feed_forward"),
        *layer(f"{THEIRS}.mlp.gate_proj", f"{OURS}.feed_forward.proj_gate"),
        *layer(f"{THEIRS}.mlp.up_proj", f"{OURS}.feed_forward.proj_in"),
        *layer(f"{THEIRS}.mlp.down_proj", f"{OURS}.feed_forward.proj_out"),
        *norm("model.norm", "stack.norm"),
        same("lm_head.weight", "head.weight"),
    ),
    ignored=((f"{THEIRS}.self_attn.rotary_emb.inv_freq", "rotary angles, computed from the base"),),
)


def load_llama(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> GPT:
    """Load Llama from a folder with config.json and safetensors, or from a llama2.c file."""
    if Path(path).is_file():
        return read_llama2c(Path(path), dtype)[0]
    return load_folder(LLAMA, Path(path), dtype)[0]

"""Llama (Touvron et al. 2023; Llama 3, 2024) from a Hugging Face folder, or a file of llama2.c.

A Llama is a GPT with rotary positions, RMS norm and SwiGLU, without biases, often with fewer
key/value heads. Hugging Face rotates columns i and i + Dh/2 of a head together, as we do. From
Llama 3.1 on the rotation is slowed down for long texts; see positions/rotary.py.
"""

import os
from pathlib import Path
from typing import Any

import torch

from clearhead.interop.config_json import TheirConfig
from clearhead.interop.hugging_face import load_folder
from clearhead.interop.llama2c import read_llama2c
from clearhead.interop.name_table import Family, layer, norm, same
from clearhead.models import GPT, GPTConfig
from clearhead.positions.rotary import Scaling

THEIRS, OURS = "model.layers.#", "stack.blocks.#"

# Their ways to scale the rotary frequencies, and the settings of each.
ROPE_TYPES = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
}


def _build_config(theirs: TheirConfig) -> GPTConfig:
    d_model, n_heads = theirs.get_size("hidden_size"), theirs.get_size("num_attention_heads")
    theirs.require(head_dim=d_model // n_heads)
    bias = theirs.get_flag("attention_bias", False)
    theirs.require(mlp_bias=bias)
    if bias and "mlp_bias" not in theirs.values:
        raise theirs.error("attention_bias is true but mlp_bias is not; here both are or none")
    max_len = theirs.get_size("max_position_embeddings", 2048)
    n_kv_heads = theirs.get_size("num_key_value_heads", n_heads)
    return build_rotary_config(theirs, max_len=max_len, n_kv_heads=n_kv_heads, bias=bias)


def build_rotary_config(theirs: TheirConfig, **own: Any) -> GPTConfig:
    """Build our config of Llama or a relative; own: the settings in which they differ."""
    theirs.require(hidden_act="silu")
    base, scaling = _read_rotary(theirs, own["max_len"])
    return GPTConfig(
        vocab_size=theirs.get_size("vocab_size"),
        d_model=theirs.get_size("hidden_size"),
        n_layers=theirs.get_size("num_hidden_layers"),
        n_heads=theirs.get_size("num_attention_heads"),
        d_ff=theirs.get_size("intermediate_size"),
        positions="rotary",
        rotary_base=base,
        rotary_scaling=scaling,
        norm="rms",
        norm_eps=theirs.get_number("rms_norm_eps", 1e-6),
        activation="swiglu",
        tied=theirs.get_flag("tie_word_embeddings", False),
        dropout=theirs.get_number("attention_dropout", 0.0),
        **own,
    )


def _read_rotary(theirs: TheirConfig, max_len: int) -> tuple[float, Scaling]:
    """Read the base and the scaling of the rotary frequencies.

    New files have them in rope_parameters, older ones in rope_theta and rope_scaling.
    """
    theirs.require(partial_rotary_factor=1.0)
    old, new = (theirs.values.get(name) for name in ("rope_scaling", "rope_parameters"))
    if old is not None and new is not None and old != new:
        raise theirs.error("rope_scaling and rope_parameters differ; give one of them")
    name, values = ("rope_scaling", old) if new is None else ("rope_parameters", new)
    if not isinstance(values, dict | None):
        raise theirs.error(f"{name} must hold names and values, got {values!r:.60}")
    inner = TheirConfig(theirs.path, values or {})
    inner.require(partial_rotary_factor=1.0)
    base = inner.get_number("rope_theta", theirs.get_number("rope_theta", 10000.0))
    scaling = _read_scaling(inner, max_len)
    if isinstance(scaling, tuple):  # it would be given twice
        theirs.refuse("original_max_position_embeddings")
    return base, scaling


def _read_scaling(rope: TheirConfig, max_len: int) -> Scaling:
    """Read how angles are scaled; a kind that we do not compute is refused by its name."""
    key = "rope_type" if rope.values.get("rope_type") is not None else "type"
    kind = rope.get_choice(key, "default", tuple(ROPE_TYPES))
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *ROPE_TYPES[kind]}
    rope.refuse(*sorted(rope.values.keys() - known))
    if kind == "default":
        return None
    factor = rope.get_number("factor")
    if kind == "linear":
        return factor
    low, high = rope.get_number("low_freq_factor"), rope.get_number("high_freq_factor")
    return factor, low, high, rope.get_size("original_max_position_embeddings", max_len)


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

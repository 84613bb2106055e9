"""Llama (Touvron et al. 2023) from a Hugging Face folder, or from a file of llama2.c.

A Llama is a GPT with rotary positions, RMS norm and SwiGLU, without biases, often with fewer
key/value heads. Hugging Face turns columns i and i + Dh/2 of a head together, as we do.
"""

import os
from pathlib import Path
from typing import cast

import torch

from clearhead.interop.llama2c import read_llama2c
from clearhead.interop.loading import load_family
from clearhead.interop.mapping import Family, layer, norm, same
from clearhead.interop.settings import Settings
from clearhead.models import GPT, GPTConfig

THEIRS, OURS = "model.layers.#", "stack.blocks.#"


def _config(settings: Settings) -> GPTConfig:
    d_model, n_heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    settings.must_be(hidden_act="silu", head_dim=d_model // n_heads)
    bias = settings.flag("attention_bias", False)
    settings.must_be(mlp_bias=bias)
    if bias and "mlp_bias" not in settings.values:
        raise settings.bad("attention_bias is true but mlp_bias is not; here both have it or none")
    return GPTConfig(
        vocab_size=settings.size("vocab_size"),
        max_len=settings.size("max_position_embeddings", 2048),
        d_model=d_model,
        n_layers=settings.size("num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=settings.size("num_key_value_heads", n_heads),
        d_ff=settings.size("intermediate_size"),
        positions="rotary",
        rotary_base=_rotary_base(settings),
        norm="rms",
        norm_eps=settings.number("rms_norm_eps", 1e-6),
        activation="swiglu",
        bias=bias,
        tied=settings.flag("tie_word_embeddings", False),
        dropout=settings.number("attention_dropout", 0.0),
    )


def _rotary_base(settings: Settings) -> float:
    """rope_theta, alone or among rope_parameters; any scaling of the angles is refused."""
    settings.must_be(partial_rotary_factor=1.0)
    settings.must_be_absent("rope_scaling")
    rotary = settings.values.get("rope_parameters")
    if rotary is None:
        return settings.number("rope_theta", 10000.0)
    if not isinstance(rotary, dict):
        raise settings.bad(f"rope_parameters must hold names and values, got {rotary!a:.60}")
    inner = Settings(settings.path, rotary)
    inner.must_be(rope_type="default", partial_rotary_factor=1.0)
    inner.must_be_absent(*(rotary.keys() - {"rope_type", "rope_theta", "partial_rotary_factor"}))
    return inner.number("rope_theta", settings.number("rope_theta", 10000.0))


LLAMA = Family(
    kind="llama",
    model=GPT,
    config=_config,
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
    ignored=(
        (
            f"{THEIRS}.self_attn.rotary_emb.inv_freq",
            "the rotary angles, which follow from the base",
        ),
    ),
)


def load_llama(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> GPT:
    """The GPT in a folder with config.json and safetensors, or in a llama2.c file."""
    if Path(path).is_file():
        return read_llama2c(Path(path), dtype)[0]
    return cast(GPT, load_family(LLAMA, Path(path), dtype)[0])

"""Qwen3 (Yang et al. 2025) from a Hugging Face folder.

Qwen3 is a Llama with an RMS norm of each head's queries and keys before the rotation. The width of
a head is a separate setting: n_heads · head_dim may be larger than d_model.
"""

import os
from dataclasses import replace
from pathlib import Path

import torch

from clearhead.interop.config_json import TheirConfig
from clearhead.interop.hugging_face import load_folder
from clearhead.interop.llama import LLAMA, OURS, THEIRS, build_rotary_config
from clearhead.interop.name_table import same
from clearhead.models import GPT, GPTConfig


def _build_config(theirs: TheirConfig) -> GPTConfig:
    theirs.require(use_sliding_window=False)
    theirs.require(rms_norm_eps=1e-6)  # also used by q_norm and k_norm; in ours it is a constant
    kinds = theirs.values.get("layer_types") or []
    if kinds != ["full_attention"] * len(kinds):
        raise theirs.error(
            f"layer_types is {kinds!r:.60}, which is not supported; use full_attention everywhere"
        )
    return build_rotary_config(
        theirs,
        max_len=theirs.get_size("max_position_embeddings", 32768),
        n_kv_heads=theirs.get_size("num_key_value_heads"),
        d_head=theirs.get_size("head_dim", 128),
        qk_norm=True,
        bias=False,
        attention_bias=theirs.get_flag("attention_bias", False),
    )


QWEN3 = replace(
    LLAMA,
    kind="qwen3",
    config=_build_config,
    rows=(
        *LLAMA.rows,
        same(f"{THEIRS}.self_attn.q_norm.weight", f"{OURS}.attention.norm_q.weight"),
        same(f"{THEIRS}.self_attn.k_norm.weight", f"{OURS}.attention.norm_k.weight"),
    ),
)


def load_qwen3(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> GPT:
    """Load Qwen3 from a folder with config.json and safetensors, its head tied or not."""
    return load_folder(QWEN3, Path(path), dtype)[0]

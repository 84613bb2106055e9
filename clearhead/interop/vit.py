"""The Vision Transformer (Dosovitskiy et al. 2021) from a Hugging Face folder.

A picture classifier has a head; a base model has none. Our head is zeros then, from which the paper
starts fine-tuning, and the report says so.
"""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from clearhead.interop.config_json import TheirConfig
from clearhead.interop.hugging_face import load_folder
from clearhead.interop.name_table import Family, layer, norm, same
from clearhead.models.vit import VisionTransformer, ViTConfig

THEIRS, OURS = "vit.encoder.layer.#", "stack.blocks.#"


def _build_config(theirs: TheirConfig, n_classes: int | None = None) -> ViTConfig:
    theirs.require(qkv_bias=True)
    return ViTConfig(
        n_classes=_count_labels(theirs) if n_classes is None else n_classes,
        image_size=_get_sides(theirs, "image_size"),
        patch_size=_get_sides(theirs, "patch_size"),
        channels=theirs.get_size("num_channels", 3),
        d_model=theirs.get_size("hidden_size"),
        n_layers=theirs.get_size("num_hidden_layers"),
        n_heads=theirs.get_size("num_attention_heads"),
        d_ff=theirs.get_size("intermediate_size"),
        norm_eps=theirs.get_number("layer_norm_eps", 1e-12),
        activation=theirs.get_activation("hidden_act", "gelu"),
        dropout=theirs.get_number("hidden_dropout_prob", 0.0),
    )


def _count_labels(theirs: TheirConfig) -> int:
    """Count the named classes; a file that names none has two."""
    names = theirs.values.get("id2label")
    if names is None:
        return theirs.get_size("num_labels", 2)
    if not isinstance(names, dict):
        raise theirs.error(f"id2label must hold the names of the classes, got {names!r:.60}")
    return len(names)


def _get_sides(theirs: TheirConfig, name: str) -> int | tuple[int, int]:
    """Read one side of a square, or [height, width]."""
    value = theirs.values.get(name)
    if not isinstance(value, list):
        return theirs.get_size(name)
    if len(value) != 2:
        raise theirs.error(f"{name} must be a number or [height, width], got {value!r:.60}")
    height, width = (TheirConfig(theirs.path, {name: side}).get_size(name) for side in value)
    return height, width


VIT = Family(
    kind="vit",
    model=VisionTransformer,
    config=_build_config,
    prefix="vit.",
    rows=(
        same("vit.embeddings.cls_token", "class_token", axes=2),
        same("vit.embeddings.position_embeddings", "positions.weight", axes=1),
        *layer("vit.embeddings.patch_embeddings.projection", "patches.conv"),
        *norm(f"{THEIRS}.layernorm_before", f"{OURS}.norm_attention"),
        *layer(f"{THEIRS}.attention.attention.query", f"{OURS}.attention.proj_q"),
        *layer(f"{THEIRS}.attention.attention.key", f"{OURS}.attention.proj_k"),
        *layer(f"{THEIRS}.attention.attention.value", f"{OURS}.attention.proj_v"),
        *layer(f"{THEIRS}.attention.output.dense", f"{OURS}.attention.proj_out"),
        *norm(f"{THEIRS}.layernorm_after", f"{OURS}.norm_feed_forward"),
        *layer(f"{THEIRS}.intermediate.dense", f"{OURS}.feed_forward.proj_in"),
        *layer(f"{THEIRS}.output.dense", f"{OURS}.feed_forward.proj_out"),
        *norm("vit.layernorm", "stack.norm"),
        *layer("classifier", "head", optional=True),
    ),
    ignored=(("vit.pooler.dense.*", "a layer after the class token, which our model lacks"),),
)


def load_vit(
    path: str | os.PathLike[str],
    *,
    n_classes: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> VisionTransformer:
    """Load ViT from a folder with config.json and safetensors.

    n_classes: how many classes the new head of a file without a head gets.
    """
    family = replace(VIT, config=partial(_build_config, n_classes=n_classes))
    return load_folder(family, Path(path), dtype)[0]

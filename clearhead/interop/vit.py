"""The Vision Transformer (Dosovitskiy et al. 2021) from a Hugging Face folder.

A file for classifying pictures has a head; a base model has none. Its head is then zeros, as a
model is fine-tuned from in the paper, and the report says so.
"""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import torch

from clearhead.interop.loading import load_family
from clearhead.interop.mapping import Family, layer, norm, same
from clearhead.interop.settings import Settings
from clearhead.models.vit import VisionTransformer, ViTConfig

THEIRS, OURS = "vit.encoder.layer.#", "stack.blocks.#"


def _config(settings: Settings, n_classes: int | None = None) -> ViTConfig:
    settings.must_be(qkv_bias=True)
    return ViTConfig(
        n_classes=_n_labels(settings) if n_classes is None else n_classes,
        image_size=_size(settings, "image_size"),
        patch_size=_size(settings, "patch_size"),
        channels=settings.size("num_channels", 3),
        d_model=settings.size("hidden_size"),
        n_layers=settings.size("num_hidden_layers"),
        n_heads=settings.size("num_attention_heads"),
        d_ff=settings.size("intermediate_size"),
        norm_eps=settings.number("layer_norm_eps", 1e-12),
        activation=settings.activation("hidden_act", "gelu"),
        dropout=settings.number("hidden_dropout_prob", 0.0),
    )


def _n_labels(settings: Settings) -> int:
    """How many classes have a name; a file that names none has two."""
    names = settings.values.get("id2label")
    if names is None:
        return settings.size("num_labels", 2)
    if not isinstance(names, dict):
        raise settings.bad(f"id2label must hold the names of the classes, got {names!a:.60}")
    return len(names)


def _size(settings: Settings, name: str) -> int | tuple[int, int]:
    """A side, or [height, width]."""
    value = settings.values.get(name)
    if not isinstance(value, list):
        return settings.size(name)
    if len(value) != 2:
        raise settings.bad(f"{name} must be a number or [height, width], got {value!a:.60}")
    height, width = (Settings(settings.path, {name: side}).size(name) for side in value)
    return height, width


VIT = Family(
    kind="vit",
    model=VisionTransformer,
    config=_config,
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
    ignored=(("vit.pooler.dense.*", "a layer between class token and head that ours has not"),),
)


def load_vit(
    path: str | os.PathLike[str],
    *,
    n_classes: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> VisionTransformer:
    """The model in a folder with config.json and safetensors; n_classes: if it has no head yet."""
    family = replace(VIT, config=partial(_config, n_classes=n_classes))
    return cast(VisionTransformer, load_family(family, Path(path), dtype)[0])

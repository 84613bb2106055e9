"""BERT (Devlin et al. 2019) and sentence encoders of its shape, such as MiniLM.

A file of BERT may hold heads for its pre-training or for a task, and a "pooler" for its first
token. TextEncoder is the encoder without them; `sentence` takes the mean of the tokens, as
sentence encoders are trained for.
"""

import os
from pathlib import Path
from typing import cast

import torch

from clearhead.interop.loading import load_family
from clearhead.interop.mapping import Family, layer, norm, same
from clearhead.interop.settings import Settings
from clearhead.models.encoder import TextEncoder, TextEncoderConfig

THEIRS, OURS = "bert.encoder.layer.#", "stack.blocks.#"


def _config(settings: Settings) -> TextEncoderConfig:
    settings.must_be(
        position_embedding_type="absolute", is_decoder=False, add_cross_attention=False
    )
    return TextEncoderConfig(
        vocab_size=settings.size("vocab_size"),
        max_len=settings.size("max_position_embeddings"),
        d_model=settings.size("hidden_size"),
        n_layers=settings.size("num_hidden_layers"),
        n_heads=settings.size("num_attention_heads"),
        d_ff=settings.size("intermediate_size"),
        n_types=settings.size("type_vocab_size", 2),
        norm_eps=settings.number("layer_norm_eps", 1e-12),
        activation=settings.activation("hidden_act", "gelu"),
        dropout=settings.number("hidden_dropout_prob", 0.1),
    )


BERT = Family(
    kind="bert",
    model=TextEncoder,
    config=_config,
    prefix="bert.",
    rows=(
        same("bert.embeddings.word_embeddings.weight", "embedding.weight"),
        same("bert.embeddings.position_embeddings.weight", "positions.weight"),
        same("bert.embeddings.token_type_embeddings.weight", "types.weight"),
        *norm("bert.embeddings.LayerNorm", "norm"),
        *layer(f"{THEIRS}.attention.self.query", f"{OURS}.attention.proj_q"),
        *layer(f"{THEIRS}.attention.self.key", f"{OURS}.attention.proj_k"),
        *layer(f"{THEIRS}.attention.self.value", f"{OURS}.attention.proj_v"),
        *layer(f"{THEIRS}.attention.output.dense", f"{OURS}.attention.proj_out"),
        *norm(f"{THEIRS}.attention.output.LayerNorm", f"{OURS}.norm_attention"),
        *layer(f"{THEIRS}.intermediate.dense", f"{OURS}.feed_forward.proj_in"),
        *layer(f"{THEIRS}.output.dense", f"{OURS}.feed_forward.proj_out"),
        *norm(f"{THEIRS}.output.LayerNorm", f"{OURS}.norm_feed_forward"),
    ),
    ignored=(
        ("bert.embeddings.position_ids", "the numbers 0, 1, 2, …"),
        (
            "bert.pooler.dense.*",
            "a layer for the first token; a sentence is the mean of its tokens",
        ),
        ("cls.*", "a head of the pre-training, not of the encoder"),
        ("classifier.*", "a head for a task, not of the encoder"),
        ("qa_outputs.*", "a head for a task, not of the encoder"),
    ),
)


def load_bert(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> TextEncoder:
    """The text encoder in a folder with config.json and safetensors."""
    return cast(TextEncoder, load_family(BERT, Path(path), dtype)[0])

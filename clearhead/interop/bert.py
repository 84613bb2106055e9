"""BERT (Devlin et al. 2019) and sentence encoders of its shape, such as MiniLM.

A BERT file may hold heads for pre-training or for a task, and a "pooler" for the first token.
TextEncoder is the encoder without them; its `sentence` is the mean over the tokens, which sentence
encoders are trained for.
"""

import os
from pathlib import Path

import torch

from clearhead.interop.config_json import TheirConfig
from clearhead.interop.hugging_face import load_folder
from clearhead.interop.name_table import Family, layer, norm, same
from clearhead.models.encoder import TextEncoder, TextEncoderConfig

THEIRS, OURS = "bert.encoder.layer.#", "stack.blocks.#"


def _build_config(theirs: TheirConfig) -> TextEncoderConfig:
    theirs.require(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    return TextEncoderConfig(
        vocab_size=theirs.get_size("vocab_size"),
        max_len=theirs.get_size("max_position_embeddings"),
        d_model=theirs.get_size("hidden_size"),
        n_layers=theirs.get_size("num_hidden_layers"),
        n_heads=theirs.get_size("num_attention_heads"),
        d_ff=theirs.get_size("intermediate_size"),
        n_types=theirs.get_size("type_vocab_size", 2),
        norm_eps=theirs.get_number("layer_norm_eps", 1e-12),
        activation=theirs.get_activation("hidden_act", "gelu"),
        dropout=theirs.get_number("hidden_dropout_prob", 0.1),
    )


BERT = Family(
    kind="bert",
    model=TextEncoder,
    config=_build_config,
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
        ("bert.pooler.dense.*", "a layer for the first token; a sentence is the mean over tokens"),
        ("cls.*", "a head for pre-training"),
        ("classifier.*", "a head for a task"),
        ("qa_outputs.*", "a head for a task"),
    ),
)


def load_bert(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> TextEncoder:
    """Load BERT, or an encoder of its shape, from a folder with config.json and safetensors."""
    return load_folder(BERT, Path(path), dtype)[0]

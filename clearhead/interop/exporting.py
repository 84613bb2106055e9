"""A GPT of ours as a Hugging Face folder, which `transformers` loads with the same logits.

    learned positions, layer norm, biases                   → GPT2LMHeadModel
    rotary positions, RMS norm, SwiGLU, biases or none      → LlamaForCausalLM

The tables are those of reading, used the other way. A config that neither of the two computes is
refused with the fields that stand in the way, and so are numbers that are not finite. The folder
takes its name when all of it is there.
"""

import os
from typing import Any

from clearhead.files import write_json
from clearhead.files.tensors import write_tensors
from clearhead.files.writing import create_folder
from clearhead.interop.gpt2 import GPT2
from clearhead.interop.llama import LLAMA
from clearhead.interop.mapping import Family, rows_of
from clearhead.interop.settings import ACTIVATIONS
from clearhead.models import GPT, GPTConfig

AS_GPT2 = {"positions": ("learned",), "norm": ("layer",), "bias": (True,)}
AS_LLAMA = {"positions": ("rotary",), "norm": ("rms",), "activation": ("swiglu",)}
AS_EITHER = {"qk_norm": (False,), "soft_cap": (None,)}
THEIR_NAMES = {
    "gelu_tanh": "gelu_new",
    **{ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())},
}


def export(model: GPT, folder: str | os.PathLike[str]) -> None:
    """Write config.json and model.safetensors into a new or empty folder."""
    if not isinstance(model, GPT):
        raise TypeError(f"model must be a GPT, got {type(model).__name__}")
    if model.config.tied and model.head.weight is not model.embedding.weight:
        raise ValueError(
            "the config ties head.weight to embedding.weight, but the model has two tables; "
            "tie them again or build it with tied=False"
        )
    family, config = _as_theirs(model)
    _check_finite(model)
    with create_folder(folder) as new:
        write_json(new / "config.json", config)
        tensors = _their_tensors(family, model)
        write_tensors(new / "model.safetensors", tensors, metadata={"format": "pt"})


def _check_finite(model: GPT) -> None:
    for name, tensor in model.state_dict().items():
        wrong = ~tensor.isfinite()
        if bool(wrong.any()):
            value = tensor[wrong][0].item()
            raise ValueError(
                f"{name} holds {value}, which no model computes with; export the model as it was "
                f"before its numbers broke"
            )


def _their_tensors(family: Family, model: GPT) -> dict[str, Any]:
    state = model.state_dict()
    left_out = ("head.weight",) if model.config.tied else ()
    rows = [row for row in rows_of(family, model) if row.ours != left_out]
    return {row.theirs: row.to_theirs(state) for row in rows}


def _as_theirs(model: GPT) -> tuple[Family, dict[str, Any]]:
    """The family that computes this model, and its config.json."""
    c = model.config
    dtype = str(model.embedding.weight.dtype).removeprefix("torch.")
    to_gpt2 = _differences(c, AS_GPT2 | AS_EITHER | {"activation": tuple(THEIR_NAMES)})
    if c.n_kv_heads not in (None, c.n_heads):
        to_gpt2.append(f"n_kv_heads={c.n_kv_heads}")
    to_llama = _differences(c, AS_LLAMA | AS_EITHER)
    if not to_gpt2:
        return GPT2, _gpt2_config(c, dtype)
    if not to_llama:
        return LLAMA, _llama_config(c, dtype)
    raise ValueError(
        f"neither GPT-2 nor Llama computes this model: GPT-2 has no {', '.join(to_gpt2)}; "
        f"Llama has no {', '.join(to_llama)}"
    )


def _differences(config: GPTConfig, known: dict[str, tuple[Any, ...]]) -> list[str]:
    return [
        f"{name}={getattr(config, name)!r}"
        for name, values in known.items()
        if getattr(config, name) not in values
    ]


def _gpt2_config(c: GPTConfig, dtype: str) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "dtype": dtype,
        "vocab_size": c.vocab_size,
        "n_positions": c.max_len,
        "n_embd": c.d_model,
        "n_layer": c.n_layers,
        "n_head": c.n_heads,
        "n_inner": c.d_ff,
        "layer_norm_epsilon": c.norm_eps,
        "activation_function": THEIR_NAMES[c.activation],
        "tie_word_embeddings": c.tied,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.dropout,
        "resid_pdrop": c.dropout,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _llama_config(c: GPTConfig, dtype: str) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": dtype,
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.max_len,
        "hidden_size": c.d_model,
        "intermediate_size": 4 * c.d_model if c.d_ff is None else c.d_ff,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_heads if c.n_kv_heads is None else c.n_kv_heads,
        "hidden_act": "silu",
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rotary_base,
        "attention_bias": c.bias,
        "mlp_bias": c.bias,
        "attention_dropout": c.dropout,
        "tie_word_embeddings": c.tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }

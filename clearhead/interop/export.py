"""Write our GPT as a Hugging Face folder, which `transformers` loads with the same logits.

    learned positions, layer norm, biases                   → GPT2LMHeadModel
    rotary positions, RMS norm, SwiGLU, biases or none      → LlamaForCausalLM

The name tables are those of loading, used backwards. A model that neither of the two can express is
refused with the settings that prevent it; numbers that are not finite are refused too. With a
tokenizer the folder is complete: `AutoTokenizer` reads it. The folder gets its name when all of it
is written.
"""

import os
from typing import Any

from torch import Tensor

from clearhead.data.tokenizers import Tokenizer
from clearhead.files import write_json
from clearhead.files.tensors import write_tensors
from clearhead.files.writing import create_folder
from clearhead.interop.config_json import ACTIVATIONS
from clearhead.interop.gpt2 import GPT2
from clearhead.interop.llama import LLAMA, ROPE_TYPES
from clearhead.interop.name_table import Family, list_rows
from clearhead.interop.tokenizer_export import describe_tokenizer, write_tokenizer
from clearhead.models import GPT, GPTConfig
from clearhead.positions.rotary import Scaling
from clearhead.shapes import all_finite

# Of several names of theirs for one activation, the first is written; GPT-2's own is gelu_new.
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
THEIR_ACTIVATIONS["gelu_tanh"] = "gelu_new"

# The settings that each family can express.
BOTH: dict[str, tuple[Any, ...]] = {
    "qk_norm": (False,),
    "soft_cap": (None,),
    "head_bias": (False,),
    "norm_attention": (True,),
    "final_norm": (None, True),
}
AS_GPT2 = BOTH | {
    "positions": ("learned",),
    "norm": ("layer",),
    "bias": (True,),
    "activation": tuple(THEIR_ACTIVATIONS),
}
AS_LLAMA = BOTH | {"positions": ("rotary",), "norm": ("rms",), "activation": ("swiglu",)}


def export(
    model: GPT, folder: str | os.PathLike[str], *, tokenizer: Tokenizer | None = None
) -> None:
    """Write config.json, model.safetensors and, if given, the tokenizer into a new or empty folder.

    The tokenizer becomes tokenizer.json and tokenizer_config.json, with equal ids; see
    tokenizer_export.py for the kinds that can be written.
    """
    check_exportable(model, tokenizer)
    family, config = _choose_family(model)
    if tokenizer is not None:
        describe_tokenizer(tokenizer)  # refuses one without an exact form before writing
        config |= {"bos_token_id": tokenizer.start_id, "eos_token_id": tokenizer.end_id}
    with create_folder(folder) as new:
        write_json(new / "config.json", config)
        tensors = _rename_tensors(family, model)
        write_tensors(new / "model.safetensors", tensors, metadata={"format": "pt"})
        if tokenizer is not None:
            write_tokenizer(new, tokenizer, model.config.max_len)


def check_exportable(model: GPT, tokenizer: Tokenizer | None = None) -> None:
    """A GPT of finite numbers, tied as its config says, with no fewer ids than its tokenizer."""
    if not isinstance(model, GPT):
        raise TypeError(f"model must be a GPT, got {type(model).__name__}")
    if model.config.tied and model.head.weight is not model.embedding.weight:
        raise ValueError(
            "the config ties head.weight to embedding.weight, but the model has two tables; "
            "tie them again or build it with tied=False"
        )
    if not isinstance(tokenizer, Tokenizer | None):
        raise TypeError(f"tokenizer must be a Tokenizer, got {type(tokenizer).__name__}")
    if tokenizer is not None and tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size:,} tokens but the model has "
            f"{model.config.vocab_size:,}; they do not belong together"
        )
    for name, tensor in model.state_dict().items():
        if not all_finite(tensor):
            value = tensor[~tensor.isfinite()][0].item()
            raise ValueError(
                f"{name} holds {value}, which is not finite; export an earlier checkpoint"
            )


def _rename_tensors(family: Family[GPT], model: GPT) -> dict[str, Tensor]:
    """Their tensors, by name; a tied head is left out."""
    state = model.state_dict()
    left_out = ("head.weight",) if model.config.tied else ()
    rows = [row for row in list_rows(family, model) if row.ours != left_out]
    return {row.theirs: row.to_theirs(state) for row in rows}


def _choose_family(model: GPT) -> tuple[Family[GPT], dict[str, Any]]:
    """The family that can express this model, and its config.json."""
    c = model.config
    dtype = str(model.embedding.weight.dtype).removeprefix("torch.")
    not_in_gpt2, not_in_llama = find_differences(c, AS_GPT2), find_differences(c, AS_LLAMA)
    if c.n_kv_heads not in (None, c.n_heads):
        not_in_gpt2.append(f"n_kv_heads={c.n_kv_heads}")
    for name, usual in (
        ("d_head", c.d_model / c.n_heads),
        ("attention_bias", c.bias),
        ("norm_bias", c.bias if c.norm == "layer" else False),
    ):
        if (value := getattr(c, name)) not in (None, usual):
            not_in_gpt2.append(f"{name}={value}")
            not_in_llama.append(f"{name}={value}")
    if not not_in_gpt2:
        return GPT2, _build_gpt2_config(c, dtype)
    if not not_in_llama:
        return LLAMA, _build_llama_config(c, dtype)
    raise ValueError(
        f"neither GPT-2 nor Llama can express this model: GPT-2 cannot have "
        f"{', '.join(not_in_gpt2)}; Llama cannot have {', '.join(not_in_llama)}"
    )


def find_differences(config: GPTConfig, supported: dict[str, tuple[Any, ...]]) -> list[str]:
    """The settings, as name=value, that are not among the supported ones."""
    values = {name: getattr(config, name) for name in supported}
    return [f"{name}={value!r}" for name, value in values.items() if value not in supported[name]]


def _build_gpt2_config(c: GPTConfig, dtype: str) -> dict[str, Any]:
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
        "activation_function": THEIR_ACTIVATIONS[c.activation],
        "tie_word_embeddings": c.tied,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.dropout,
        "resid_pdrop": c.dropout,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _build_llama_config(c: GPTConfig, dtype: str) -> dict[str, Any]:
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
        **_describe_scaling(c.rotary_scaling),
        "attention_bias": c.bias,
        "mlp_bias": c.bias,
        "attention_dropout": c.dropout,
        "tie_word_embeddings": c.tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _describe_scaling(scaling: Scaling) -> dict[str, Any]:
    """The scaling of the rotary frequencies, as rope_scaling in their config.json."""
    if scaling is None:
        return {}
    kind = "llama3" if isinstance(scaling, tuple) else "linear"
    numbers = scaling if isinstance(scaling, tuple) else (scaling,)
    values = dict(zip(ROPE_TYPES[kind], numbers, strict=True))
    return {"rope_scaling": {"rope_type": kind, **values}}

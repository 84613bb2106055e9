"""Write our GPT as a GGUF file, for llama.cpp and programs based on it.

    "GGUF", version 3, number of tensors, number of settings
    settings      name, kind, value                             llama.context_length, 4, 256
    tensors       name, axes, type, where its numbers start     blk.0.attn_q.weight
    numbers       each tensor from a multiple of 32 bytes on

Integers are little-endian; a string is its length in 8 bytes, then its UTF-8. Axes are listed
innermost first. A model with rotary positions, RMS norm and SwiGLU has the architecture `llama`, or
`qwen3` if it has qk_norm; any other is refused. Matrices are F32 or F16, vectors always F32.

Like llama2.c, `llama` rotates neighbouring columns 2i and 2i + 1 of a head, where we rotate i and
i + Dh/2, so the rows of W_q and W_k are reordered. `qwen3` rotates as we do.
"""

import os
import struct
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from clearhead.data.tokenizers import BytePairTokenizer, SentencePieceTokenizer, Tokenizer
from clearhead.files.writing import replace_file
from clearhead.interop.export import AS_LLAMA, check_exportable, find_differences
from clearhead.interop.fill import cast_to
from clearhead.models import GPT, GPTConfig
from clearhead.positions.rotary import scale_frequencies
from clearhead.positions.tables import frequencies
from clearhead.shapes import check_choice

ALIGNMENT = 32
TYPES = {"float32": (0, torch.float32), "float16": (1, torch.float16)}
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # kinds of tokens

NAMES = {  # our names → theirs; "#" stands for the number of a block
    "embedding": "token_embd",
    "stack.blocks.#.norm_attention": "blk.#.attn_norm",
    "stack.blocks.#.attention.proj_q": "blk.#.attn_q",
    "stack.blocks.#.attention.proj_k": "blk.#.attn_k",
    "stack.blocks.#.attention.proj_v": "blk.#.attn_v",
    "stack.blocks.#.attention.proj_out": "blk.#.attn_output",
    "stack.blocks.#.attention.norm_q": "blk.#.attn_q_norm",
    "stack.blocks.#.attention.norm_k": "blk.#.attn_k_norm",
    "stack.blocks.#.norm_feed_forward": "blk.#.ffn_norm",
    "stack.blocks.#.feed_forward.proj_gate": "blk.#.ffn_gate",
    "stack.blocks.#.feed_forward.proj_in": "blk.#.ffn_up",
    "stack.blocks.#.feed_forward.proj_out": "blk.#.ffn_down",
    "stack.norm": "output_norm",
    "head": "output",
}


def export_gguf(
    model: GPT,
    path: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer | None = None,
    weights: str = "float32",
) -> None:
    """Write one file; it is replaced whole or not at all.

    weights: "float32" or "float16". tokenizer: byte pairs, or sentence pieces with scores.
    """
    check_choice("weights", weights, tuple(TYPES))
    check_exportable(model, tokenizer)
    code, dtype = TYPES[weights]
    settings = _describe_model(model.config, code) | _describe_tokenizer(tokenizer)
    tensors = {
        name: cast_to(dtype if tensor.ndim > 1 else torch.float32, tensor, name).contiguous()
        for name, tensor in _rename_tensors(model)
    }
    with replace_file(path) as file:
        file.write(_pack_header(settings, tensors))
        for tensor in tensors.values():
            file.write(_pad(tensor.cpu().numpy().tobytes()))


def _describe_model(c: GPTConfig, file_type: int) -> dict[str, Any]:
    """The settings of the architecture; whole numbers are 32-bit, others float32."""
    differences = find_differences(c, {**AS_LLAMA, "qk_norm": (False, True)})
    if differences:
        raise ValueError(f"a GGUF file of Llama or Qwen3 cannot have {', '.join(differences)}")
    kind = _get_architecture(c)
    settings: dict[str, Any] = {
        "general.architecture": kind,
        "general.alignment": ALIGNMENT,
        "general.file_type": file_type,
        f"{kind}.vocab_size": c.vocab_size,
        f"{kind}.context_length": c.max_len,
        f"{kind}.embedding_length": c.d_model,
        f"{kind}.block_count": c.n_layers,
        f"{kind}.feed_forward_length": 4 * c.d_model if c.d_ff is None else c.d_ff,
        f"{kind}.attention.head_count": c.n_heads,
        f"{kind}.attention.head_count_kv": c.n_kv_heads or c.n_heads,
        f"{kind}.attention.key_length": c.head_width,
        f"{kind}.attention.value_length": c.head_width,
        f"{kind}.attention.layer_norm_rms_epsilon": c.norm_eps,
        f"{kind}.rope.dimension_count": c.head_width,
        f"{kind}.rope.freq_base": c.rotary_base,
    }
    if isinstance(c.rotary_scaling, float):
        settings[f"{kind}.rope.scaling.type"] = "linear"
        settings[f"{kind}.rope.scaling.factor"] = c.rotary_scaling
    return settings


def _get_architecture(c: GPTConfig) -> str:
    return "qwen3" if c.qk_norm else "llama"


def _describe_tokenizer(tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The vocabulary as llama.cpp reads it."""
    if tokenizer is None:
        return {"tokenizer.ggml.model": "no_vocab"}
    values: dict[str, Any]
    match tokenizer:
        case BytePairTokenizer():
            special = set(tokenizer.specials.values())
            kinds = [CONTROL if i in special else NORMAL for i in range(tokenizer.vocab_size)]
            values = {"model": "gpt2", "pre": "gpt-2", "tokens": list(tokenizer.tokens)}
            values |= {"token_type": kinds, "merges": tokenizer.merges}
        case SentencePieceTokenizer(scores=list()):
            kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
            kinds += [NORMAL] * (tokenizer.vocab_size - len(kinds))
            pieces = [token.replace(" ", "▁") for token in tokenizer.tokens]
            values = {"model": "llama", "tokens": pieces, "scores": tokenizer.scores}
            values |= {"token_type": kinds, "unknown_token_id": 0}
        case _:
            raise ValueError(
                f"a tokenizer of {tokenizer.kind} cannot be written to a GGUF file, only one of "
                f"byte pairs or of sentence pieces with scores; export the model without it"
            )
    ids = {"bos_token_id": tokenizer.start_id, "eos_token_id": tokenizer.end_id}
    values |= {name: i for name, i in ids.items() if i is not None}
    return {f"tokenizer.ggml.{name}": value for name, value in values.items()}


def _rename_tensors(model: GPT) -> Iterator[tuple[str, Tensor]]:
    """Their names and tensors; a tied head is left out."""
    c = model.config
    for name, tensor in model.state_dict().items():
        module, _, part = name.rpartition(".")
        number = next((word for word in module.split(".") if word.isdigit()), "")
        pattern = module.replace(f".{number}.", ".#.") if number else module
        if module == "head" and c.tied:
            continue
        if _get_architecture(c) == "llama" and pattern.endswith(("proj_q", "proj_k")):
            tensor = _interleave_rows(tensor, c.head_width)
        theirs = NAMES[pattern].replace("#", number)
        yield f"{theirs}.{'bias' if part == 'bias' else 'weight'}", tensor
    if isinstance(c.rotary_scaling, tuple):  # the divisor of each frequency
        frequency = frequencies(c.head_width, c.rotary_base, torch.device("cpu"))
        yield "rope_freqs.weight", frequency / scale_frequencies(frequency, c.rotary_scaling)


def _interleave_rows(tensor: Tensor, d_head: int) -> Tensor:
    """Put rows 0 1 2 3 4 5 of each head into the order 0 3 1 4 2 5."""
    halves = tensor.unflatten(0, (-1, 2, d_head // 2))  # (heads, 2, Dh/2, …)
    return halves.transpose(1, 2).flatten(0, 2)


# The bytes


def _pack_header(settings: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """Everything before the numbers of the first tensor."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(settings))]
    for name, value in settings.items():
        parts += [_pack_text(name), _pack_value(value)]
    start = 0
    for name, tensor in tensors.items():
        axes = tensor.shape[::-1]
        code = next(code for code, dtype in TYPES.values() if dtype == tensor.dtype)
        parts += [_pack_text(name), struct.pack(f"<I{len(axes)}Q", len(axes), *axes)]
        parts += [struct.pack("<IQ", code, start)]
        start += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    return _pad(b"".join(parts))


def _pack_value(value: Any) -> bytes:
    """The kind of a value, and the value."""
    match value:
        case int():
            return struct.pack("<II", UINT32, value)
        case float():
            return struct.pack("<If", FLOAT32, value)
        case str():
            return struct.pack("<I", STRING) + _pack_text(value)
        case [str(), *_] | []:
            head = struct.pack("<IIQ", ARRAY, STRING, len(value))
            return head + b"".join(map(_pack_text, value))
        case [float(), *_]:
            return struct.pack(f"<IIQ{len(value)}f", ARRAY, FLOAT32, len(value), *value)
        case _:
            return struct.pack(f"<IIQ{len(value)}i", ARRAY, INT32, len(value), *value)


def _pack_text(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)

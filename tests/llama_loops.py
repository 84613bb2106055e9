"""Llama, Llama 3 and Qwen3 as published, in loops: one position, head and column at a time.

config: the names of Hugging Face's config.json, and for GGUF `neighbours` (columns 2i and 2i + 1
are a pair) and `rope_factors`. tensors: by the names of Hugging Face.
"""

import math

import torch


def times(matrix, x):
    return [sum(float(w) * value for w, value in zip(row, x, strict=True)) for row in matrix]


def rms_norm(x, gain, eps=1e-6):
    root = math.sqrt(sum(value * value for value in x) / len(x) + eps)
    return [value / root * float(g) for value, g in zip(x, gain, strict=True)]


def slow_as_llama3(plain, factor, low, high, length):
    """Kept below a wavelength of length / high, divided above length / low, else mixed."""
    wavelength = 2 * math.pi / plain
    if wavelength < length / high:
        return plain
    if wavelength > length / low:
        return plain / factor
    smooth = (length / wavelength - low) / (high - low)
    return (1 - smooth) * plain / factor + smooth * plain


def frequency(config, i, width):
    """The frequency of pair i, scaled as Hugging Face does."""
    plain = 1.0 / config["rope_theta"] ** (2 * i / width)
    if "rope_factors" in config:
        return plain / float(config["rope_factors"][i])
    rope = config.get("rope_scaling", {})
    if rope.get("type") == "linear":
        return plain / rope["factor"]
    if rope.get("rope_type") == "llama3":
        names = ("factor", "low_freq_factor", "high_freq_factor")
        settings = [rope[name] for name in (*names, "original_max_position_embeddings")]
        return slow_as_llama3(plain, *settings)
    return plain


def rotate(config, x, position):
    half, y = len(x) // 2, list(x)
    for i in range(half):
        angle = position * frequency(config, i, len(x))
        j, k = (2 * i, 2 * i + 1) if config.get("neighbours") else (i, i + half)
        y[j] = x[j] * math.cos(angle) - x[k] * math.sin(angle)
        y[k] = x[k] * math.cos(angle) + x[j] * math.sin(angle)
    return y


def attend(config, tensors, n, xs):
    """The sum over heads, at each position, over the positions up to it."""
    part = f"model.layers.{n}.self_attn"
    H, G = config["num_attention_heads"], config["num_key_value_heads"]
    q, k, v = ([times(tensors[f"{part}.{p}_proj.weight"], x) for x in xs] for p in "qkv")
    Dh = len(q[0]) // H

    def head(rows, h, t, name):
        x = rows[t][h * Dh : (h + 1) * Dh]
        if config["model_type"] == "qwen3":
            x = rms_norm(x, tensors[f"{part}.{name}_norm.weight"])
        return rotate(config, x, t)

    outputs = []
    for t in range(len(xs)):
        joined = []
        for h in range(H):
            g = h * G // H
            query = head(q, h, t, "q")
            keys = [head(k, g, s, "k") for s in range(t + 1)]
            scores = [times([query], key)[0] / math.sqrt(Dh) for key in keys]
            top = max(scores)
            shares = [math.exp(score - top) for score in scores]
            total = sum(shares)
            for j in range(g * Dh, (g + 1) * Dh):
                joined.append(sum(w / total * v[s][j] for s, w in enumerate(shares)))
        outputs.append(times(tensors[f"{part}.o_proj.weight"], joined))
    return outputs


def logits(config, tensors, tokens):
    def add(x, y):
        return [a + b for a, b in zip(x, y, strict=True)]

    xs = [tensors["model.embed_tokens.weight"][token].tolist() for token in tokens]
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        normed = [rms_norm(x, tensors[f"{layer}.input_layernorm.weight"]) for x in xs]
        xs = [add(x, y) for x, y in zip(xs, attend(config, tensors, n, normed), strict=True)]
        for t, x in enumerate(xs):
            y = rms_norm(x, tensors[f"{layer}.post_attention_layernorm.weight"])
            gate = times(tensors[f"{layer}.mlp.gate_proj.weight"], y)
            up = times(tensors[f"{layer}.mlp.up_proj.weight"], y)
            inner = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up, strict=True)]
            xs[t] = add(x, times(tensors[f"{layer}.mlp.down_proj.weight"], inner))
    table = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    return torch.tensor(
        [times(table, rms_norm(x, tensors["model.norm.weight"])) for x in xs], dtype=torch.float64
    )

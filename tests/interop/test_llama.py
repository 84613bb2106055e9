"""Llama, Llama 3 and Qwen3 against the published formulas as loops, in float64, without
`transformers`: weights by their names, one position, head and column at a time."""

import json

import pytest
import torch
from llama_loops import frequency, logits

from clearhead.files.tensors import write_tensors
from clearhead.generation import generate, pack
from clearhead.interop import load

T = 7
BASE = {
    "vocab_size": 11,
    "max_position_embeddings": 32,
    "hidden_size": 12,
    "intermediate_size": 5,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "rope_theta": 30.0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 0.5,
    "high_freq_factor": 1.2,
    "original_max_position_embeddings": 8,
}
CASES = {
    "llama": {"model_type": "llama", "head_dim": 4},
    "linear": {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 3.0}},
    "llama 3": {"model_type": "llama", "hidden_size": 24, "rope_scaling": LLAMA3},
    "qwen3": {"model_type": "qwen3", "head_dim": 6, "hidden_size": 10},
    "qwen3, tied": {"model_type": "qwen3", "head_dim": 2, "tie_word_embeddings": True},
}


def make_tensors(config):
    """Random tensors by the names of Hugging Face."""
    D, F, V = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    H, G = config["num_attention_heads"], config["num_key_value_heads"]
    Dh = config.get("head_dim", D // H)
    shapes = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (V, D)
    for n in range(config["num_hidden_layers"]):
        attention, mlp = f"model.layers.{n}.self_attn", f"model.layers.{n}.mlp"
        shapes |= {
            f"model.layers.{n}.input_layernorm.weight": (D,),
            f"model.layers.{n}.post_attention_layernorm.weight": (D,),
            f"{attention}.q_proj.weight": (H * Dh, D),
            f"{attention}.k_proj.weight": (G * Dh, D),
            f"{attention}.v_proj.weight": (G * Dh, D),
            f"{attention}.o_proj.weight": (D, H * Dh),
            f"{mlp}.gate_proj.weight": (F, D),
            f"{mlp}.up_proj.weight": (F, D),
            f"{mlp}.down_proj.weight": (D, F),
        }
        if config["model_type"] == "qwen3":
            shapes |= {f"{attention}.q_norm.weight": (Dh,), f"{attention}.k_norm.weight": (Dh,)}
    generator = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) * 0.6
        for name, shape in shapes.items()
    }


def save(folder, case):
    config = BASE | CASES[case]
    tensors = make_tensors(config)
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / "model.safetensors", tensors)
    return config, tensors


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_formulas(case, tmp_path):
    config, tensors = save(tmp_path, case)
    loaded = load(tmp_path, dtype=torch.float64)
    assert loaded.report.kind == config["model_type"]
    tokens = [3, 1, 4, 1, 5, 9, 2]
    with torch.no_grad():
        mine = loaded.model(torch.tensor([tokens]))[0]
    expected = logits(config, tensors, tokens)
    assert expected.std() > 0.1
    assert (mine - expected).abs().max() <= 1e-12


def test_every_kind_of_llama3_frequency_occurs():
    """Kept, divided, and mixed from both: a case that lacks one would not test it."""
    config = BASE | CASES["llama 3"]
    ratios = [frequency(config, i, 8) / frequency(BASE, i, 8) for i in range(4)]
    assert ratios[0] == 1
    assert ratios[-1] == 0.25
    assert any(0.25 < ratio < 1 for ratio in ratios)


@pytest.mark.parametrize("case", ["llama 3", "qwen3"])
def test_the_packed_form_generates_the_same(case, tmp_path):
    save(tmp_path, case)
    model = load(tmp_path, dtype=torch.float64).model
    prompt = torch.tensor([[3, 1, 4]])
    assert torch.equal(generate(pack(model), prompt, 12), generate(model, prompt, 12))


def test_a_qwen3_without_the_norm_of_its_queries_is_refused(tmp_path):
    _, tensors = save(tmp_path, "qwen3")
    del tensors["model.layers.1.self_attn.q_norm.weight"]
    write_tensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(ValueError, match=r"layers.1.self_attn.q_norm.weight \(6,\) is missing"):
        load(tmp_path)

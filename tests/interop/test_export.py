"""A GPT of ours in `transformers`: equal logits; what stands in the way is named."""

import errno
import os
from importlib import import_module

import pytest
import torch

from clearhead.interop import export, load
from clearhead.models import GPT, GPTConfig

OURS = {
    "gpt2": {"d_model": 12, "n_layers": 2, "n_heads": 3, "activation": "gelu_tanh"},
    "gpt2, wide, untied": {
        "d_model": 20,
        "n_layers": 1,
        "n_heads": 5,
        "d_ff": 7,
        "tied": False,
        "activation": "relu",
        "norm_eps": 1e-2,
    },
    "gpt2, in words": {
        "d_model": 6,
        "n_layers": 1,
        "n_heads": 2,
        "d_head": 3,
        "attention_bias": True,
        "norm_bias": True,
        "final_norm": True,
    },
    "gpt2, squared relu": {"d_model": 6, "n_layers": 1, "n_heads": 2, "activation": "squared_relu"},
    "llama": {"d_model": 12, "n_layers": 2, "n_heads": 3, "bias": False, "tied": False},
    "llama, slowed down": {"d_model": 16, "n_layers": 1, "n_heads": 2, "rotary_scaling": 3.0},
    "llama 3": {
        "d_model": 32,
        "n_layers": 1,
        "n_heads": 2,
        "bias": False,
        "rotary_scaling": (8.0, 0.2, 1.5, 11),
    },
    "llama, grouped, biases": {
        "d_model": 24,
        "n_layers": 1,
        "n_heads": 6,
        "n_kv_heads": 2,
        "d_ff": 9,
    },
}
AS_LLAMA = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "rotary_base": 300.0}


def random_gpt(case, dtype=torch.float32):
    options = OURS[case] | (AS_LLAMA if case.startswith("llama") else {})
    model = GPT(GPTConfig(vocab_size=23, max_len=17, **options)).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


@pytest.mark.parametrize("case", OURS)
def test_transformers_loads_what_export_wrote_with_equal_logits(transformers, case, tmp_path):
    model = random_gpt(case)
    export(model, tmp_path / "folder")
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    theirs, told = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "folder", output_loading_info=True
    )
    assert not any(told.values())
    tokens = torch.randint(23, (2, 13))
    with torch.no_grad():
        assert (theirs.eval()(tokens).logits - model(tokens)).abs().max() <= 1e-4
    assert theirs.config.tie_word_embeddings == model.config.tied


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", OURS)
def test_export_and_load_is_the_same_model_to_the_bit(case, dtype, tmp_path):
    model = random_gpt(case, dtype)
    export(model, tmp_path)  # an empty folder is taken
    back = load(tmp_path, dtype=dtype)
    assert back.report.dtypes == (str(dtype).removeprefix("torch."),)
    for name, parameter in model.named_parameters():
        assert torch.equal(back.model.get_parameter(name), parameter)
    tokens = torch.randint(23, (2, 13))
    with torch.no_grad():
        assert torch.equal(back.model(tokens), model(tokens))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"positions": "alibi"},
            "GPT-2 cannot have positions='alibi'; Llama cannot have positions='alibi'",
        ),
        ({"bias": False}, "GPT-2 cannot have bias=False"),
        (
            {"n_kv_heads": 1},
            "GPT-2 cannot have n_kv_heads=1; Llama cannot have positions='learned'",
        ),
        (dict(qk_norm=True, **AS_LLAMA), "Llama cannot have qk_norm=True"),
        ({"soft_cap": 30.0}, "GPT-2 cannot have soft_cap=30.0"),
        ({"head_bias": True}, "GPT-2 cannot have head_bias=True"),
        ({"norm_attention": False}, "GPT-2 cannot have norm_attention=False"),
        ({"final_norm": False}, "GPT-2 cannot have final_norm=False"),
        ({"d_head": 3}, "GPT-2 cannot have d_head=3"),
        ({"attention_bias": False}, "GPT-2 cannot have attention_bias=False"),
        ({"norm_bias": False}, "GPT-2 cannot have norm_bias=False"),
        (
            dict(bias=False, attention_bias=True, **AS_LLAMA),
            "Llama cannot have attention_bias=True",
        ),
        (dict(d_head=6, **AS_LLAMA), "Llama cannot have d_head=6"),
        (dict(head_bias=True, **AS_LLAMA), "Llama cannot have head_bias=True"),
        ({"positions": "rotary"}, "Llama cannot have norm='layer', activation='gelu'"),
    ],
)
def test_a_model_that_neither_computes_is_not_exported(options, words, tmp_path):
    model = GPT(GPTConfig(vocab_size=5, max_len=4, d_model=4, n_layers=1, n_heads=2, **options))
    with pytest.raises(ValueError, match="neither GPT-2 nor Llama") as error:
        export(model, tmp_path / "folder")
    assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_export_overwrites_nothing(tmp_path):
    model = random_gpt("gpt2")
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists already and is not an empty folder"):
        export(model, tmp_path)
    with pytest.raises(ValueError, match="exists already and is not an empty folder"):
        export(model, tmp_path / "kept.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]
    assert (tmp_path / "kept.txt").read_text() == "mine"


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_number_that_is_not_finite_is_not_exported(value, tmp_path):
    model = random_gpt("gpt2")
    with torch.no_grad():
        model.get_parameter("stack.blocks.1.feed_forward.proj_in.bias")[5] = value
        model.get_parameter("stack.norm.gain")[3] = value
    words = rf"^stack.blocks.1.feed_forward.proj_in.bias holds {value}, which is not finite"
    with pytest.raises(ValueError, match=words):
        export(model, tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_C05_a_full_disk_is_told_of_the_folder_and_leaves_nothing(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as fault:
        export(random_gpt("gpt2"), tmp_path / "folder")
    assert fault.value.filename == str(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(import_module("clearhead.interop.export"), "write_tensors", full)
    with pytest.raises(OSError, match="no space"):
        export(random_gpt("gpt2"), tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_only_a_gpt_is_exported(tmp_path):
    with pytest.raises(TypeError, match="model must be a GPT, got Linear"):
        export(torch.nn.Linear(2, 2), tmp_path / "folder")

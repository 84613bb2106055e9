"""ONNX: what a runtime computes is what the model computes; torch.export alone shows the same.

The graph needs the packages of clearhead[onnx]; what PyTorch records, on which it is built, is
tested without them.
"""

import importlib.util
import re

import pytest
import torch

from clearhead.interop.onnx import export_onnx, find_dynamic_axes
from clearhead.models import GPT, GPTConfig, VisionTransformer, ViTConfig
from clearhead.models.encoder import TextEncoder, TextEncoderConfig

AS_LLAMA = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}


def build_gpt(**options):
    return GPT(GPTConfig(vocab_size=23, max_len=16, d_model=12, n_layers=2, n_heads=3, **options))


def draw_tokens(batch, length=7):
    return torch.randint(23, (batch, length))


MODELS = {
    "gpt2": (build_gpt, draw_tokens),
    "llama 3": (
        lambda: build_gpt(**AS_LLAMA, n_kv_heads=1, rotary_scaling=(8.0, 1.0, 4.0, 8)),
        draw_tokens,
    ),
    "qwen3": (lambda: build_gpt(**AS_LLAMA, qk_norm=True, d_head=6), draw_tokens),
    "encoder": (
        lambda: TextEncoder(
            TextEncoderConfig(vocab_size=23, max_len=16, d_model=12, n_layers=1, n_heads=3)
        ),
        draw_tokens,
    ),
    "vit": (
        lambda: VisionTransformer(
            ViTConfig(n_classes=5, image_size=8, patch_size=4, d_model=12, n_layers=1, n_heads=3)
        ),
        lambda batch, length=7: torch.randn(batch, 3, 8, 8),
    ),
}


def build(case):
    torch.manual_seed(1)
    model, draw = MODELS[case][0]().eval(), MODELS[case][1]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model, draw


@pytest.mark.parametrize("case", MODELS)
def test_what_pytorch_records_computes_the_same_for_any_batch_and_length(case):
    model, draw = build(case)
    shapes = (find_dynamic_axes(model, draw(3)),)
    program = torch.export.export(model, (draw(3),), dynamic_shapes=shapes, strict=False).module()
    for batch, length in ((2, 7), (5, 16)):
        x = draw(batch, length)
        assert (program(x) - model(x)).abs().max() <= 1e-5


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.filterwarnings("ignore")  # of PyTorch's own exporter
def test_a_runtime_computes_what_the_model_computes(case, tmp_path):
    pytest.importorskip("onnxscript", reason="the extra clearhead[onnx] is not installed")
    model, draw = build(case)
    export_onnx(model, tmp_path / "model.onnx", draw(1))
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    run = open_session(tmp_path / "model.onnx")
    for batch, length in ((3, 7), (5, 16), (1, 1)):
        x = draw(batch, length)
        with torch.no_grad():
            assert (run(x) - model(x)).abs().max() <= 1e-4


def open_session(path):
    """onnxruntime if it is installed, else the evaluator that onnx has for reference."""
    if importlib.util.find_spec("onnxruntime"):
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path))
    else:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(str(path))
    return lambda x: torch.from_numpy(session.run(None, {"input": x.numpy()})[0])


def test_without_the_packages_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("clearhead.interop.onnx.find_spec", lambda name: None)
    words = "writing ONNX needs onnx and onnxscript, which is not installed; install it: pip"
    with pytest.raises(ModuleNotFoundError, match=re.escape(words)):
        export_onnx(build_gpt(), tmp_path / "model.onnx", draw_tokens(2))
    assert list(tmp_path.iterdir()) == []


def test_a_single_token_is_no_example():
    with pytest.raises(ValueError, match="example must have at least 2 tokens in a row, got 1"):
        find_dynamic_axes(build_gpt(), draw_tokens(2, 1))


def test_only_a_model_is_exported(tmp_path):
    with pytest.raises(TypeError, match="model must be a Model of clearhead, got Linear"):
        export_onnx(torch.nn.Linear(2, 2), tmp_path / "model.onnx", torch.zeros(1, 2))

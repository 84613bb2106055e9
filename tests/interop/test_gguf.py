"""GGUF: a reader of our own, and the published formulas in float64 on what it read."""

import math
import struct

import numpy as np
import pytest
import torch
from llama_loops import logits

from clearhead.data.tokenizers import BytePairTokenizer, CharTokenizer, SentencePieceTokenizer
from clearhead.data.tokenizers.sentence_pieces import format_byte
from clearhead.interop.gguf import export_gguf
from clearhead.models import GPT, GPTConfig

AS_LLAMA = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
SIZES = {"vocab_size": 11, "max_len": 16, "d_model": 12, "n_layers": 2, "n_heads": 3, "d_ff": 5}
CASES = {
    "llama": {"n_kv_heads": 1, "tied": False},
    "linear": {"rotary_scaling": 3.0, "rotary_base": 30.0},
    "llama 3": {"rotary_scaling": (4.0, 0.5, 1.2, 8), "d_head": 8, "rotary_base": 30.0},
    "qwen3": {"qk_norm": True, "d_head": 6, "n_kv_heads": 1},
}
THEIRS = {  # GGUF → Hugging Face
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def build_gpt(case):
    torch.manual_seed(3)
    model = GPT(GPTConfig(**SIZES, norm_eps=1e-6, **AS_LLAMA, **CASES[case])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


class File:
    """Reads a GGUF file, by the words of its specification."""

    def __init__(self, path):
        self.data, self.at = path.read_bytes(), 0
        assert self.take("4s") == b"GGUF"
        version, n_tensors, n_settings = self.take("I"), self.take("Q"), self.take("Q")
        assert version == 3
        self.settings = {self.text(): self.value(self.take("I")) for _ in range(n_settings)}
        infos = [self.info() for _ in range(n_tensors)]
        start = math.ceil(self.at / self.settings["general.alignment"]) * 32
        self.tensors, self.types = {}, {}
        for name, axes, code, offset in infos:
            assert offset % 32 == 0
            dtype = {0: np.float32, 1: np.float16}[code]
            numbers = np.frombuffer(self.data, dtype, math.prod(axes), start + offset)
            self.tensors[name] = torch.from_numpy(numbers.reshape(axes[::-1]).astype(np.float64))
            self.types[name] = dtype
        assert len(self.data) % 32 == 0

    def take(self, code):
        (value,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value

    def text(self):
        return self.take(f"{self.take('Q')}s").decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, length = self.take("I"), self.take("Q")
            return [self.value(inner) for _ in range(length)]
        return self.take({4: "I", 5: "i", 6: "f"}[kind])

    def info(self):
        name, n = self.text(), self.take("I")
        return name, [self.take("Q") for _ in range(n)], self.take("I"), self.take("Q")


def as_hugging_face(file):
    """The config and the tensors of a file, by the names that the loops use."""
    kind, values = file.settings["general.architecture"], file.settings
    config = {
        "model_type": kind,
        "num_hidden_layers": values[f"{kind}.block_count"],
        "num_attention_heads": values[f"{kind}.attention.head_count"],
        "num_key_value_heads": values[f"{kind}.attention.head_count_kv"],
        "rope_theta": values[f"{kind}.rope.freq_base"],
        "neighbours": kind == "llama",
    }
    if values.get(f"{kind}.rope.scaling.type") == "linear":
        factor = values[f"{kind}.rope.scaling.factor"]
        config["rope_scaling"] = {"type": "linear", "factor": factor}
    tensors = dict(file.tensors)
    if "rope_freqs.weight" in tensors:
        config["rope_factors"] = tensors.pop("rope_freqs.weight")
    named = {}
    for name, tensor in tensors.items():
        *block, part, _ = name.split(".")
        prefix = f"model.layers.{block[1]}." if block else ""
        named[f"{prefix}{THEIRS[part]}.weight"] = tensor
    return config, named


@pytest.mark.parametrize("case", CASES)
def test_the_file_computes_the_logits_of_the_model(case, tmp_path):
    model = build_gpt(case)
    export_gguf(model, tmp_path / "model.gguf")
    config, tensors = as_hugging_face(File(tmp_path / "model.gguf"))
    tokens = [3, 1, 4, 1, 5, 9, 2]
    with torch.no_grad():
        ours = model.double()(torch.tensor([tokens]))[0]
    # The factors of Llama 3 are stored in float32; all other numbers are exact.
    tolerance = 1e-6 if case == "llama 3" else 1e-12
    assert (logits(config, tensors, tokens) - ours).abs().max() <= tolerance


@pytest.mark.parametrize("case", CASES)
def test_the_gguf_package_reads_the_same(case, tmp_path):
    gguf = pytest.importorskip("gguf", reason="the extra clearhead[gguf] is not installed")
    export_gguf(build_gpt(case), tmp_path / "model.gguf", weights="float16")
    ours, theirs = File(tmp_path / "model.gguf"), gguf.GGUFReader(tmp_path / "model.gguf")
    assert {tensor.name for tensor in theirs.tensors} == ours.tensors.keys()
    for tensor in theirs.tensors:
        assert tensor.data.dtype == ours.types[tensor.name]
        assert torch.equal(torch.tensor(tensor.data).double(), ours.tensors[tensor.name])
    for name, value in ours.settings.items():
        assert theirs.get_field(name).contents() == value


def test_half_precision_is_for_matrices(tmp_path):
    model = build_gpt("llama")
    export_gguf(model, tmp_path / "model.gguf", weights="float16")
    file = File(tmp_path / "model.gguf")
    assert file.settings["general.file_type"] == 1
    assert {t: file.types[t] for t in ("output_norm.weight", "blk.1.ffn_up.weight")} == {
        "output_norm.weight": np.float32,
        "blk.1.ffn_up.weight": np.float16,
    }
    expected = model.stack.blocks[1].feed_forward.proj_in.weight.detach().half().double()
    assert torch.equal(file.tensors["blk.1.ffn_up.weight"], expected)
    with torch.no_grad():
        model.head.weight[0, 0] = 1e6
    with pytest.raises(ValueError, match=r"output.weight has numbers too large for float16"):
        export_gguf(model, tmp_path / "other.gguf", weights="float16")
    assert not (tmp_path / "other.gguf").exists()


def test_a_tied_head_is_left_out(tmp_path):
    export_gguf(build_gpt("qwen3"), tmp_path / "model.gguf")
    assert "output.weight" not in File(tmp_path / "model.gguf").tensors


def test_vocabularies_are_those_llama_cpp_reads(tmp_path):
    model = GPT(GPTConfig(**SIZES | {"vocab_size": 300}, **AS_LLAMA))
    pairs = BytePairTokenizer.train(["low lower lowest"], 261)
    export_gguf(model, tmp_path / "model.gguf", tokenizer=pairs)
    values = File(tmp_path / "model.gguf").settings
    assert values["tokenizer.ggml.model"] == "gpt2"
    assert values["tokenizer.ggml.tokens"] == list(pairs.tokens)
    assert values["tokenizer.ggml.merges"] == pairs.merges
    assert values["tokenizer.ggml.token_type"] == [1] * 260 + [3]
    assert values["tokenizer.ggml.eos_token_id"] == 260
    pieces = ["<unk>", "<s>", "</s>", *map(format_byte, range(256)), " a", "b"]
    scored = SentencePieceTokenizer(pieces, [-0.5 * i for i in range(261)])
    export_gguf(model, tmp_path / "model.gguf", tokenizer=scored)
    values = File(tmp_path / "model.gguf").settings
    assert values["tokenizer.ggml.model"] == "llama"
    assert values["tokenizer.ggml.tokens"][-2:] == ["▁a", "b"]
    assert values["tokenizer.ggml.scores"] == scored.scores
    assert values["tokenizer.ggml.token_type"] == [2, 3, 3] + [6] * 256 + [1, 1]
    ids = [values[f"tokenizer.ggml.{name}_token_id"] for name in ("unknown", "bos", "eos")]
    assert ids == [0, 1, 2]


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ({"norm": "layer"}, {}, "a GGUF file of Llama or Qwen3 cannot have norm='layer'"),
        ({"soft_cap": 3.0}, {}, "cannot have soft_cap=3.0"),
        ({}, {"weights": "int8"}, "weights must be"),
        ({}, {"tokenizer": CharTokenizer("ab|")}, "a tokenizer of characters cannot be written"),
    ],
)
def test_what_has_no_exact_form_is_refused(model, options, words, tmp_path):
    gpt = GPT(GPTConfig(**SIZES, **AS_LLAMA | model))
    with pytest.raises(ValueError, match=words):
        export_gguf(gpt, tmp_path / "model.gguf", **options)
    assert list(tmp_path.iterdir()) == []

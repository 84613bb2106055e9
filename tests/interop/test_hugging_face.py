"""From a folder to a model: precisions, what is ignored and said, heads that are not there."""

import shutil

import pytest
import torch

from clearhead.files import BadFile
from clearhead.files.tensors import read_tensors, write_tensors
from clearhead.interop import load, load_gpt2, load_vit


def rewritten(oracle, tmp_path, change):
    folder = tmp_path / "rewritten"
    shutil.copytree(oracle.folder, folder)
    tensors = read_tensors(folder / "model.safetensors")
    write_tensors(folder / "model.safetensors", change(tensors))
    return folder


@pytest.mark.parametrize("case", ["gpt2", "llama", "bert", "vit"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_file_of_another_precision_becomes_float32(oracles, case, dtype, tmp_path):
    oracle = oracles[case]
    folder = rewritten(oracle, tmp_path, lambda t: {name: x.to(dtype) for name, x in t.items()})
    loaded, exact = load(folder), load(oracle.folder).model
    assert loaded.report.dtypes == (str(dtype).removeprefix("torch."),)
    for name, parameter in loaded.model.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, exact.get_parameter(name).to(dtype).float())


def test_a_dtype_may_be_asked_for(oracles):
    for dtype in (torch.float64, torch.bfloat16):
        model = load_gpt2(oracles["gpt2"].folder, dtype=dtype)
        assert {p.dtype for p in model.parameters()} == {dtype}
        assert model(torch.zeros(1, 3, dtype=torch.long)).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, "float32", None])
def test_a_dtype_that_is_none_is_refused(oracles, dtype):
    with pytest.raises(TypeError, match="dtype must be a floating-point type"):
        load(oracles["gpt2"].folder, dtype=dtype)


def test_F07_a_number_that_does_not_fit_the_dtype_is_refused(oracles, tmp_path):
    def huge(tensors):
        tensors["transformer.ln_f.bias"][3] = 1e6
        return tensors

    folder = rewritten(oracles["gpt2"], tmp_path, huge)
    assert load(folder).model.stack.norm.shift[3] == 1e6
    with pytest.raises(
        BadFile, match=r"tensor transformer.ln_f.bias has numbers too large for flo"
    ):
        load(folder, dtype=torch.float16)


def test_a_file_of_mixed_precision_says_so(oracles, tmp_path):
    def halve_one(tensors):
        return tensors | {
            "transformer.wte.weight": tensors["transformer.wte.weight"].half(),
        }

    report = load(rewritten(oracles["gpt2"], tmp_path, halve_one)).report
    assert report.dtypes == ("float16", "float32")
    assert "bytes of float16 and float32" in str(report)


def test_the_report_counts_what_was_read(oracles):
    oracle = oracles["gpt2"]
    report = load(oracle.folder).report
    tensors = read_tensors(oracle.folder / "model.safetensors")
    assert report.n_tensors == len(tensors) == 28
    assert report.n_bytes == sum(x.nbytes for x in tensors.values())
    assert report.n_parameters == sum(p.numel() for p in oracle.model.parameters())
    assert report.ignored == {}
    assert str(report) == (
        f"gpt2 from {oracle.folder}\n  read     28 tensors, {report.n_bytes:,} bytes of float32: "
        f"{report.n_parameters:,} parameters"
    )


BUFFERS = {
    "gpt2": {
        "transformer.h.0.attn.bias": torch.ones(1, 1, 17, 17, dtype=torch.uint8),
        "transformer.h.1.attn.bias": torch.ones(1, 1, 17, 17, dtype=torch.bool),
        "transformer.h.0.attn.masked_bias": torch.tensor(-1e4),
    },
    "gpt2 one odd head, no head's name": {"h.0.attn.bias": torch.ones(1, 1, 17, 17)},
    "llama": {"model.layers.1.self_attn.rotary_emb.inv_freq": torch.ones(3)},
    "bert": {"embeddings.position_ids": torch.arange(17)[None]},
    "bert with a head": {
        "bert.embeddings.position_ids": torch.arange(17)[None],
        "cls.seq_relationship.weight": torch.ones(2, 20),
        "bert.pooler.dense.bias": torch.ones(20),
    },
}


@pytest.mark.parametrize("case", BUFFERS)
def test_what_old_files_hold_beside_the_parameters_is_ignored_with_a_reason(
    oracles, case, tmp_path
):
    oracle = oracles[case]
    before = load(oracle.folder)
    loaded = load(rewritten(oracle, tmp_path, lambda tensors: tensors | BUFFERS[case]))
    new = loaded.report.ignored.keys() - before.report.ignored.keys()
    assert new == BUFFERS[case].keys()
    assert all(len(reason) > 10 for reason in loaded.report.ignored.values())
    assert loaded.report.n_tensors == before.report.n_tensors
    for name, parameter in before.model.named_parameters():
        assert torch.equal(loaded.model.get_parameter(name), parameter)


def test_the_text_of_the_report_gives_each_reason_once(oracles, tmp_path):
    folder = rewritten(oracles["gpt2"], tmp_path, lambda t: t | BUFFERS["gpt2"])
    lines = str(load(folder).report).splitlines()
    assert lines[2:] == [
        "  ignored  transformer.h.0.attn.bias and 1 more: the causal mask; ours is Mask.causal()",
        "  ignored  transformer.h.0.attn.masked_bias: the number used for −∞ in masked scores",
    ]


def test_a_bias_of_another_layer_is_not_a_mask(oracles, tmp_path):
    extra = {"transformer.h.x.attn.bias": torch.ones(2), "transformerXh.0.attn.bias": torch.ones(2)}
    with pytest.raises(BadFile, match="2 differences"):
        load(rewritten(oracles["gpt2"], tmp_path, lambda tensors: tensors | extra))


# A picture model without a head


def test_a_base_model_gets_a_head_of_zeros_and_says_so(oracles):
    folder = oracles["vit without a head"].folder
    loaded = load(folder)
    assert loaded.report.zeros == ("head.weight", "head.bias")
    assert "  zeros    head.weight: the file has none" in str(loaded.report)
    assert "pooler.dense.weight" in loaded.report.ignored
    images = oracles["vit without a head"].inputs()
    assert torch.equal(loaded.model(images), torch.zeros(2, 2))
    assert load_vit(folder, n_classes=7)(images).shape == (2, 7)


def test_a_head_that_is_there_has_its_own_number_of_classes(oracles):
    assert load_vit(oracles["vit"].folder).config.n_classes == 5
    assert load(oracles["vit"].folder).report.zeros == ()
    with pytest.raises(BadFile, match=r"classifier.weight is \(5, 12\), not \(7, 12\)"):
        load_vit(oracles["vit"].folder, n_classes=7)


def test_pictures_of_another_size_go_through_a_loaded_model(oracles):
    model = load_vit(oracles["vit"].folder)
    assert model(torch.randn(2, 3, 8, 16)).shape == (2, 5)


def test_a_loaded_model_learns(oracles):
    model = load_gpt2(oracles["gpt2"].folder).train()
    before = model.embedding.weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.zeros(1, 3, dtype=torch.long)).logsumexp(-1).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model.embedding.weight)
    assert model.head.weight is model.embedding.weight

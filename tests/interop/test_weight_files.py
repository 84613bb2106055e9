"""Weights of a folder: one file, several with an index, and the ways in which they can be wrong."""

import json
import shutil

import pytest
import torch

from clearhead.files import BadFile
from clearhead.files.tensors import read_tensors, write_tensors
from clearhead.interop import load
from clearhead.interop.weight_files import WeightFiles

INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(oracles, tmp_path):
    """The GPT-2 oracle in several files, as `transformers` cuts it."""
    oracles["gpt2"].model.save_pretrained(tmp_path, max_shard_size="3KB")
    return tmp_path


def change_index(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def test_several_files_hold_the_same_model_as_one(sharded, oracles):
    assert len(list(sharded.glob("model-*.safetensors"))) > 3
    parts, whole = load(sharded), load(oracles["gpt2"].folder)
    for name, parameter in whole.model.named_parameters():
        assert torch.equal(parts.model.get_parameter(name), parameter)
    assert parts.report.n_bytes == whole.report.n_bytes
    assert parts.report.n_tensors == whole.report.n_tensors


def test_tensors_are_read_file_by_file_and_each_once(sharded):
    weights = WeightFiles.find(sharded)
    names = [name for name, _ in weights.read(weights.header)]
    assert sorted(names) == sorted(weights.header)
    files = [weights.files[name] for name in names]
    assert files == sorted(files)


def test_a_missing_file_is_named(sharded):
    file = sorted(sharded.glob("model-*.safetensors"))[1]
    file.unlink()
    with pytest.raises(BadFile, match=f"{file.name} is not there"):
        load(sharded)


def test_a_cut_file_is_named(sharded):
    file = sorted(sharded.glob("model-*.safetensors"))[1]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BadFile, match=f"{file.name}.*1 bytes are missing: it is cut short"):
        load(sharded)


def test_an_index_that_is_wrong_about_a_tensor_is_refused(sharded):
    files = sorted(p.name for p in sharded.glob("model-*.safetensors"))

    def swap(index):
        name = next(n for n, file in index["weight_map"].items() if file == files[0])
        index["weight_map"][name] = files[1]

    change_index(sharded, swap)
    with pytest.raises(BadFile, match=rf"index.json says that .* is in {files[1]}, but it"):
        load(sharded)


def test_an_index_that_forgets_or_invents_a_tensor_is_refused(sharded):
    change_index(sharded, lambda index: index["weight_map"].pop("transformer.ln_f.bias"))
    with pytest.raises(BadFile, match=r"transformer.ln_f.bias is in None, but it is in mod"):
        load(sharded)
    change_index(sharded, lambda index: index["weight_map"].update({"new": "model-00001-of-00002"}))
    with pytest.raises(BadFile, match="model-00001-of-00002 is not there"):
        load(sharded)


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "", ".hidden", "x\n", "con"]
)
def test_F13_an_index_cannot_point_outside_its_folder(sharded, name):
    change_index(sharded, lambda index: index["weight_map"].update({"new": name}))
    with pytest.raises(BadFile, match=r"index.json the file"):
        load(sharded)


@pytest.mark.parametrize("value", [None, [], {"a": 1}, "model.safetensors"])
def test_an_index_without_a_map_is_refused(sharded, value):
    change_index(sharded, lambda index: index.update(weight_map=value))
    with pytest.raises(BadFile, match="must hold a weight_map of tensors to names of files"):
        load(sharded)


def test_an_index_of_too_many_files_is_refused(sharded):
    names = {f"t{n}": f"f{n}.safetensors" for n in range(1001)}
    change_index(sharded, lambda index: index.update(weight_map=names))
    with pytest.raises(BadFile, match="names 1,001 files; at most 1,000 are read"):
        load(sharded)


def test_a_tensor_in_two_files_is_refused(sharded):
    first, second = sorted(sharded.glob("model-*.safetensors"))[:2]
    tensors = read_tensors(first)
    name = next(iter(tensors))
    write_tensors(second, read_tensors(second) | {name: tensors[name]})
    with pytest.raises(BadFile, match=f"{name} is in {first.name} and again in {second.name}"):
        load(sharded)


# Folders


@pytest.fixture
def folder(oracles, tmp_path):
    shutil.copytree(oracles["bert"].folder, tmp_path / "bert")
    return tmp_path / "bert"


def test_the_only_safetensors_file_is_taken_whatever_its_name(folder, oracles):
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")
    loaded = load(folder).model.state_dict()
    for name, tensor in load(oracles["bert"].folder).model.state_dict().items():
        assert torch.equal(loaded[name], tensor)


def test_of_two_other_files_none_is_guessed(folder):
    shutil.copy(folder / "model.safetensors", folder / "a.safetensors")
    (folder / "model.safetensors").rename(folder / "b.safetensors")
    with pytest.raises(BadFile, match=r"several weight files \(a.safetensors, b.safetensors\)"):
        load(folder)


def test_a_config_without_weights(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(BadFile, match=r"bert holds no model.safetensors; save the model as safe"):
        load(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(BadFile, match=r"pytorch_model.bin is a pickle, which runs code when it"):
        load(folder)


def test_weights_without_a_config(folder):
    (folder / "config.json").unlink()
    with pytest.raises(BadFile, match=r"bert holds neither a config.json, which says what its"):
        load(folder)


def test_an_empty_folder_a_missing_one_and_a_file(tmp_path):
    with pytest.raises(BadFile, match=r"holds neither a config.json"):
        load(tmp_path)
    with pytest.raises(BadFile, match="nowhere is not there"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\0" * 900, b"{}" * 99]
)
def test_a_foreign_file_as_weights_is_refused(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(BadFile, match=r"model.safetensors"):
        load(folder)


def test_F01_a_file_cut_at_any_length_is_refused(folder):
    data = (folder / "model.safetensors").read_bytes()
    for length in {*range(0, 200, 7), *range(200, len(data), 97), len(data) - 1}:
        (folder / "model.safetensors").write_bytes(data[:length])
        with pytest.raises(BadFile, match=r"model.safetensors"):
            load(folder)

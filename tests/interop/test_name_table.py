"""Tables of names: both ways, and F06, a file that is not the model of its config."""

import re
import shutil

import pytest
import torch

from clearhead.files import BadFile
from clearhead.files.tensors import read_tensors, write_tensors
from clearhead.interop import load
from clearhead.interop.load import FAMILIES
from clearhead.interop.name_table import Row, layer, list_rows, norm, same
from clearhead.models import GPT, GPTConfig
from clearhead.models.registry import build_on_meta

CASES = ["gpt2", "llama grouped, tied", "llama one key head, biases", "bert", "vit"]


def changed(oracle, tmp_path, change):
    """The folder of an oracle with its tensors changed."""
    folder = tmp_path / "changed"
    shutil.copytree(oracle.folder, folder)
    tensors = read_tensors(folder / "model.safetensors")
    change(tensors)
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def refused(folder):
    with pytest.raises(BadFile) as error:
        load(folder)
    message = str(error.value)
    assert "changed" in message
    assert "\n" not in message
    assert len(message) < 800
    return message


# Rows by hand


def test_a_transposed_row_of_three_is_split_and_joined_again():
    row = Row("x", ("q", "k", "v"), transposed=True)
    shapes = {"q": (2, 3), "k": (1, 3), "v": (1, 3)}
    theirs = torch.arange(12).reshape(3, 4).float()
    assert row.their_shape(shapes) == (3, 4)
    ours = row.to_ours(theirs, shapes)
    assert ours["q"].tolist() == [[0, 4, 8], [1, 5, 9]]
    assert ours["k"].tolist() == [[2, 6, 10]]
    assert ours["v"].tolist() == [[3, 7, 11]]
    assert torch.equal(row.to_theirs(ours), theirs)


def test_leading_axes_are_taken_off_and_put_back():
    row = same("x", "y", axes=2)
    theirs = torch.randn(1, 1, 5)
    ours = row.to_ours(theirs, {"y": (5,)})
    assert row.their_shape({"y": (5,)}) == (1, 1, 5)
    assert ours["y"].shape == (5,)
    assert torch.equal(row.to_theirs(ours), theirs)


def test_a_layer_has_a_weight_and_a_bias_and_a_norm_gain_and_shift():
    assert [(r.theirs, r.ours) for r in layer("a", "b")] == [
        ("a.weight", ("b.weight",)),
        ("a.bias", ("b.bias",)),
    ]
    assert [(r.theirs, r.ours) for r in norm("a", "b")] == [
        ("a.weight", ("b.gain",)),
        ("a.bias", ("b.shift",)),
    ]


def test_a_parameter_that_a_table_forgets_is_named():
    model = build_on_meta(GPT, GPTConfig(5, 4, 6, 1, 2, qk_norm=True))
    with pytest.raises(ValueError, match=r"table of gpt2 lacks .*norm_k.weight"):
        list_rows(FAMILIES["gpt2"], model)


def test_an_empty_model_has_shapes_and_no_memory():
    config = GPTConfig(5, 4, 6, 1, 2)
    empty, full = build_on_meta(GPT, config), GPT(config)
    assert all(p.is_meta for p in empty.parameters())
    for name, parameter in full.named_parameters():
        assert empty.get_parameter(name).shape == parameter.shape


@pytest.mark.parametrize("case", CASES)
def test_the_table_used_backwards_gives_their_file_back(oracles, case):
    oracle = oracles[case]
    theirs = read_tensors(oracle.folder / "model.safetensors")
    model = load(oracle.folder).model
    family = FAMILIES[oracle.kind].match_prefix(theirs)
    rows = [row for row in list_rows(family, model) if row.theirs in theirs]
    for row in rows:
        assert torch.equal(row.to_theirs(model.state_dict()), theirs[row.theirs])
    unused = theirs.keys() - {row.theirs for row in rows}
    assert all(family.reason_to_ignore(name) for name in unused)


# F06


@pytest.mark.parametrize("case", CASES)
def test_F06_each_missing_tensor_is_named(oracles, case, tmp_path):
    oracle = oracles[case]
    family = FAMILIES[oracle.kind].match_prefix(read_tensors(oracle.folder / "model.safetensors"))
    names = [
        name
        for name in read_tensors(oracle.folder / "model.safetensors")
        if not family.reason_to_ignore(name)
    ]
    for n, name in enumerate(names):
        folder = changed(oracle, tmp_path / str(n), lambda tensors, name=name: tensors.pop(name))
        message = refused(folder)
        assert f"1 difference: {name} (" in message
        assert message.endswith("is missing")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.t().contiguous() if x.ndim == 2 else x[:-1], "is {new}, not {old}"),
        (lambda x: torch.cat((x, x)), "is {new}, not {old}"),
        (lambda x: x[None], "is {new}, not {old}"),
        (lambda x: x.reshape(-1), "is {new}, not {old}"),
        (lambda x: x.long(), "holds int64, not floating point"),
        (lambda x: x > 0, "holds bool, not floating point"),
    ],
    ids=["turned", "twice", "an axis more", "flat", "int64", "bool"],
)
def test_F06_another_shape_or_dtype_is_named(oracles, case, change, words, tmp_path):
    oracle = oracles[case]
    tensors = read_tensors(oracle.folder / "model.safetensors")
    # A matrix that is not square, so that turning it changes its shape.
    name = next(n for n, x in tensors.items() if x.ndim == 2 and x.size(0) != x.size(1))
    old, new = tensors[name], change(tensors[name])
    folder = changed(oracle, tmp_path, lambda tensors: tensors.update({name: new}))
    expected = words.format(old=tuple(old.shape), new=tuple(new.shape))
    assert f"1 difference: {name} {expected}" in refused(folder)


@pytest.mark.parametrize("case", CASES)
def test_F06_an_extra_tensor_is_named(oracles, case, tmp_path):
    folder = changed(oracles[case], tmp_path, lambda t: t.update({"h.9.odd": torch.ones(2, 3)}))
    assert "1 difference: h.9.odd (2, 3) is not expected" in refused(folder)


def test_F06_a_name_with_control_characters_is_shown_safely(oracles, tmp_path):
    folder = changed(oracles["gpt2"], tmp_path, lambda t: t.update({"a\x1b[2Jb": torch.ones(1)}))
    assert "\x1b" not in refused(folder)


def test_F06_of_many_differences_the_first_are_listed_and_the_rest_counted(oracles, tmp_path):
    def strip(tensors):
        for name in [n for n in tensors if ".h.1." in n]:
            del tensors[name]

    message = refused(changed(oracles["gpt2"], tmp_path, strip))
    assert "12 differences: " in message
    assert message.count(" is missing") == 5
    assert message.endswith("; and 7 more")


@pytest.mark.parametrize("given", ["gpt2", "llama", "bert", "vit"])
@pytest.mark.parametrize("told", ["gpt2", "llama", "bert", "vit"])
def test_F06_weights_of_another_family_are_refused(oracles, given, told, tmp_path):
    if given == told:
        return
    folder = tmp_path / "changed"
    shutil.copytree(oracles[told].folder, folder)
    shutil.copy(oracles[given].folder / "model.safetensors", folder)
    assert re.search(r"does not hold the model of its config, \d+ differences", refused(folder))


def test_F06_layers_that_the_file_does_not_have(oracles, tmp_path):
    oracle = oracles["gpt2"]
    folder = changed(oracle, tmp_path, lambda tensors: None)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"n_layer": 2', '"n_layer": 3'))
    assert "transformer.h.2.ln_1.weight (12,) is missing" in refused(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("case", CASES)
def test_F07_a_number_that_is_none_is_refused_with_its_tensor(oracles, case, value, tmp_path):
    oracle = oracles[case]
    names = list(read_tensors(oracle.folder / "model.safetensors"))
    family = FAMILIES[oracle.kind].match_prefix(names)
    name = next(n for n in names[::-1] if not family.reason_to_ignore(n))

    def poison(tensors):
        tensors[name].reshape(-1)[-1] = value

    assert name in refused(changed(oracle, tmp_path, poison))


def test_F07_what_is_not_read_may_hold_anything(oracles, tmp_path):
    folder = changed(
        oracles["gpt2"],
        tmp_path,
        lambda t: t.update({"transformer.h.0.attn.masked_bias": torch.tensor(float("-inf"))}),
    )
    assert load(folder).report.ignored == {
        "transformer.h.0.attn.masked_bias": "the number used for −∞ in masked scores"
    }


def test_both_names_of_one_tensor_are_one_too_many(oracles, tmp_path):
    def twice(tensors):
        tensors["wte.weight"] = tensors["transformer.wte.weight"].clone()

    assert "wte.weight (23, 12) is not expected" in refused(
        changed(oracles["gpt2"], tmp_path, twice)
    )


# Tied heads


@pytest.mark.parametrize("case", ["gpt2", "llama grouped, tied"])
def test_a_tied_head_may_stand_in_the_file_if_it_is_the_same(oracles, case, tmp_path):
    oracle = oracles[case]
    name = {"gpt2": "transformer.wte.weight", "llama": "model.embed_tokens.weight"}[oracle.kind]

    def copy(tensors):
        tensors["lm_head.weight"] = tensors[name].clone()

    model = load(changed(oracle, tmp_path, copy)).model
    assert model.head.weight is model.embedding.weight

    def other(tensors):
        tensors["lm_head.weight"] = tensors[name] + 1

    message = refused(changed(oracle, tmp_path / "other", other))
    assert "ties head.weight to embedding.weight, but the file has other numbers" in message


def test_a_head_half_there_is_refused(oracles, tmp_path):
    folder = changed(oracles["vit"], tmp_path, lambda tensors: tensors.pop("classifier.bias"))
    assert "classifier.bias (5,) is missing" in refused(folder)

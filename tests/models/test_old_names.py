"""A run of an earlier release, whose classifier had other names, still loads and resumes.

golden/substring-0001 was written by release 0.1.0 with positions="absolute" and layers called
encoder and decoder. It has the checkpoints of steps 2 and 4.
"""

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import choose_tolerance

from clearhead.files.tensors import read_tensors
from clearhead.models import GPT, ClassifierConfig, GPTConfig, SequenceClassifier
from clearhead.runs import load_run, train

GOLDEN = Path(__file__).parents[1] / "golden" / "substring-0001"
# What release 0.1.0 predicted.
ANSWERS = {"abccab|cca": 0.5460944175720215, "aab|ba": 0.5201302170753479}


def read_weights(step):
    return read_tensors(GOLDEN / f"checkpoints/step-{step:07}/model.safetensors")


def test_an_old_run_loads_and_predicts_as_before():
    run = load_run(GOLDEN)
    assert run.recipe.model.positions == "learned"
    for text, probability in ANSWERS.items():
        found = run.predict(text)
        assert found["answer"] == "yes"
        assert found["probability"] == pytest.approx(probability, abs=1e-6)


def test_an_old_state_dict_loads_under_the_new_names():
    values = json.loads((GOLDEN / "config.json").read_text())["model"]
    config = ClassifierConfig.from_dict({k: v for k, v in values.items() if k != "kind"})
    model, old = SequenceClassifier(config), read_weights(4)
    model.load_state_dict(old)
    assert torch.equal(model.embedding.weight, old["encoder.weight"])
    assert torch.equal(model.head.bias, old["decoder.bias"])
    assert [name.split(".")[0] for name in model.state_dict()][-1] == "head"
    again = SequenceClassifier(config)
    again.load_state_dict(model.state_dict())  # today's names, too
    assert torch.equal(again.embedding.weight, model.embedding.weight)


def test_an_old_run_resumes_with_its_weights_and_its_optimizer(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "substring-0001")
    shutil.rmtree(tmp_path / "substring-0001/checkpoints/step-0000004")
    recipe = load_run(tmp_path / "substring-0001").recipe
    # force: versions and machine may differ from those of the run; another model is still refused.
    result = train(recipe, tmp_path, resume="last", threads=1, force=True)
    assert (result.run.name, result.steps) == ("substring-0001", 4)
    expected = SequenceClassifier.translate_names(read_weights(4))
    found = load_run(result.run, which="last").model.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, atol=choose_tolerance(name)), name


def test_the_old_name_of_learned_positions_warns_in_code_but_not_from_a_file():
    with pytest.warns(DeprecationWarning, match='positions="absolute" is now positions="learned"'):
        made = ClassifierConfig(3, 2, positions="absolute")
    assert made == ClassifierConfig(3, 2, positions="learned")
    with pytest.warns(DeprecationWarning, match="is now"):
        replace(made, positions="absolute")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ClassifierConfig.from_dict(made.to_dict() | {"positions": "absolute"}) == made


def test_the_old_names_of_the_layers_warn():
    model = SequenceClassifier(ClassifierConfig(3, 2, d_model=4, n_heads=2))
    with pytest.warns(DeprecationWarning, match="SequenceClassifier.encoder is now embedding"):
        assert model.encoder is model.embedding
    with pytest.warns(DeprecationWarning, match="SequenceClassifier.decoder is now head"):
        assert model.decoder is model.head


def test_models_whose_layers_kept_their_names_translate_nothing():
    model = GPT(GPTConfig(7, 5, 12, n_layers=1, n_heads=3))
    assert GPT.translate_names(model.state_dict()).keys() == model.state_dict().keys()
    assert GPT.translate_names({"encoder.weight": torch.ones(1)}).keys() == {"encoder.weight"}

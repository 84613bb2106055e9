"""Histograms of weights, the likeness of embeddings, and the settings of recipes."""

import json

import pytest
import torch
from text_models import run_python

from clearhead.studio.views.recipes import describe_recipe
from clearhead.studio.views.weights import summarise_weights
from clearhead.training import find_recipe, with_changes
from clearhead.training.recipes import RECIPES


@pytest.mark.parametrize("name", ["substring-0001", "dialogue-0001", "identity-0001"])
def test_the_python_of_summarise_weights_gives_the_same_numbers(sources, name):
    answer = summarise_weights(sources, name)
    made = run_python(answer)
    assert len(answer["parameters"]) == len(list(sources.open(name).model.parameters()))
    for each in answer["parameters"]:
        mean, std = made["moments"][each["name"]]
        assert (each["mean"], each["std"]) == (mean.item(), std.item())
        assert torch.equal(each["counts"], made["counts"][each["name"]])
        assert each["counts"].sum() == made["parameters"][each["name"]].numel()
    assert [each["name"] for each in answer["embeddings"]] == list(made["embeddings"])
    for each in answer["embeddings"]:
        assert torch.equal(each["norms"], made["norms"][each["name"]][: len(each["norms"])])
        if each["cosines"] is not None:
            assert torch.equal(each["cosines"], made["cosines"][each["name"]])


def test_an_embedding_of_one_hot_rows_has_a_row_for_each_token(sources):
    (table,) = summarise_weights(sources, "substring-0001")["embeddings"]
    assert set(table["rows"]) == {"[CLS]", "a", "b", "c", "|"}
    weight = sources.open("substring-0001").model.embedding.weight
    row = table["rows"].index("b")
    assert table["norms"][row].item() == pytest.approx(weight[:, row].norm().item())
    assert table["cosines"].diagonal().tolist() == pytest.approx([1.0] * 5)


@pytest.mark.parametrize("name", RECIPES)
def test_the_described_values_of_a_recipe_are_read_as_the_recipe_itself(sources, name):
    described = describe_recipe(sources, name)
    json.dumps(described)
    fields = [field for section in described["sections"] for field in section["fields"]]
    changes = [f"{field['name']}={field['value']}" for field in fields]
    assert with_changes(find_recipe(name), changes) == find_recipe(name)
    for field in fields:
        assert field["choices"] is None or field["value"] in field["choices"]


def test_a_field_tells_its_type_its_meaning_and_who_decides_it(sources):
    sections = describe_recipe(sources, "shakespeare-char")["sections"]
    fields = {field["name"]: field for section in sections for field in section["fields"]}
    assert fields["training.clip"]["type"] == "a number or none"
    assert "largest norm" in fields["training.clip"]["about"]
    assert fields["model.tied"]["about"] == "the head is the embedding table"
    assert fields["model.vocab_size"]["is_decided_by_data"]
    assert "rotary" in fields["model.positions"]["choices"]
    with pytest.raises(ValueError, match="the nearest is 'substring'"):
        describe_recipe(sources, "substrin")

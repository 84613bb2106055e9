"""Changes as data do what the interventions of inspection do, and say so in Python."""

import pytest
import torch
from text_models import OTHER, TEXT, RandomSources, build, run_python

from clearhead.attention import JoinedHeads, SelfAttention
from clearhead.inspection import ablate, edit_mask, patch, record, sharpen
from clearhead.studio.arguments import read_arguments
from clearhead.studio.sources import Opened, Source, Sources
from clearhead.studio.views.changes import Change, change_model
from clearhead.studio.views.text import attend

CHANGES = {
    "silence": Change("silence", 1, 2),
    "silence a layer": Change("silence", 0),
    "silence at a position": Change("silence", 0, 1, position=3),
    "silence by the mean": Change("silence", 1, 3, by="mean"),
    "sharpen": Change("sharpen", 0, 2, factor=3.5),
    "forbid": Change("mask", 1, 0, cells=[(4, 1), (5, 2)]),
    "allow": Change("mask", 1, 0, cells=[(1, 4), (0, 2)], allow=True),
    "patch a head": Change("patch", 0, 1, from_text=OTHER),
    "patch a position": Change("patch", "blocks.0", position=5, from_text=OTHER, from_position=2),
    "patch tokens": Change("patch", "blocks.1", position=6, from_tokens=[0, 3, 2, 1, 1, 3, 3]),
}


@pytest.fixture(scope="module")
def models():
    return RandomSources([])


@pytest.fixture(scope="module")
def gpt(models):
    return models.open("gpt")


@pytest.fixture(scope="module")
def tokens(gpt):
    return torch.tensor([gpt.tokenizer.encode(TEXT)])


def run_changed(gpt, tokens, *changes):
    with torch.no_grad(), change_model(gpt, tokens[0].tolist(), changes):
        return gpt.model(tokens)


@torch.no_grad()
def compute_by_hand(gpt, tokens, change):
    """The logits with the intervention written out."""
    model, others = gpt.model, torch.tensor([gpt.tokenizer.encode(OTHER)])
    with record(model) as own:
        model(tokens)
    with record(model) as trace:
        model(others if change.from_tokens is None else torch.tensor([change.from_tokens]))
    name = f"stack.{change.layer}" if isinstance(change.layer, str) else None
    if change.kind == "silence":
        reference = own if change.by == "mean" else None
        context = ablate(
            model,
            change.layer,
            change.head,
            change.by,
            positions=change.position,
            reference=reference,
        )
    elif change.kind == "sharpen":
        context = sharpen(model, change.factor, layer=change.layer, head=change.head)
    elif change.kind == "mask":

        def edit(allowed):
            for row, column in change.cells:
                allowed[:, :, row, column] = change.allow
            return allowed

        context = edit_mask(model, edit, layer=change.layer, head=change.head)
    elif name is None:
        value = trace["stack.blocks.0.attention"].output
        context = patch(model, {"blocks.0.attention": value}, head=change.head)
    else:
        at = change.position if change.from_position is None else change.from_position
        value = trace[name].output[:, at : at + 1]
        context = patch(model, {name: value}, positions=change.position)
    with context:
        return model(tokens)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_does_what_its_intervention_does(gpt, tokens, name):
    changed = run_changed(gpt, tokens, CHANGES[name])
    assert torch.equal(changed, compute_by_hand(gpt, tokens, CHANGES[name]))
    with torch.no_grad():
        assert not torch.allclose(changed, gpt.model(tokens), atol=1e-3)


@pytest.mark.parametrize("name", CHANGES)
def test_the_python_of_a_change_gives_the_same_logits(models, gpt, tokens, name):
    python = run_python(attend(models, "gpt", TEXT, changes=[CHANGES[name]]))
    assert torch.equal(python["logits"], run_changed(gpt, tokens, CHANGES[name]))


def test_the_python_of_all_changes_together_gives_the_same_numbers(models, gpt, tokens):
    changes = list(CHANGES.values())
    answer = attend(models, "gpt", TEXT, changes=changes)
    python = run_python(answer)
    assert torch.equal(python["logits"], run_changed(gpt, tokens, *changes))
    for layer in answer["layers"]:
        assert torch.equal(layer["weights"], python["weights"][layer["name"]][0])
        assert torch.equal(layer["output"], python["calls"][layer["name"]].output[0])


def test_a_change_ends_with_its_block_and_with_an_error(gpt, tokens):
    with torch.no_grad():
        before = gpt.model(tokens)
        run_changed(gpt, tokens, *CHANGES.values())
        with pytest.raises(RuntimeError), change_model(gpt, tokens[0].tolist(), [CHANGES["allow"]]):
            raise RuntimeError
        assert torch.equal(gpt.model(tokens), before)
    assert sum(len(module._forward_hooks) for module in gpt.model.modules()) == 0


def test_values_of_a_patch_come_from_a_run_without_changes(gpt, tokens):
    """So the order of changes does not matter here."""
    silence, copy = (
        Change("silence", 0, 1),
        Change("patch", "blocks.1", position=6, from_text=OTHER),
    )
    both = run_changed(gpt, tokens, silence, copy)
    assert torch.equal(both[:, 6], run_changed(gpt, tokens, copy)[:, 6])


def test_a_forbidden_cell_has_no_weight_and_an_allowed_one_has(models):
    forbid, allow = CHANGES["forbid"], CHANGES["allow"]
    layer = attend(models, "gpt", TEXT, changes=[forbid, allow])["layers"][1]
    assert layer["weights"][0, 4, 1] == layer["weights"][0, 5, 2] == 0
    assert layer["weights"][0, 1, 4] > 0
    assert layer["allowed"].shape == (4, 7, 7)
    assert layer["weights"][1, 4, 1] > 0  # another head


def test_a_change_is_read_from_plain_values():
    plain = {"kind": "mask", "layer": "blocks.1.attention", "head": 0, "cells": [[4, 1]]}
    values = {"model": "gpt", "text": "a", "changes": [plain]}
    (change,) = read_arguments(attend, values)["changes"]
    assert change == Change("mask", "blocks.1.attention", 0, cells=[(4, 1)])
    with pytest.raises(ValueError, match="kind must be one of silence, sharpen, mask, patch"):
        read_arguments(attend, {**values, "changes": [{"kind": "erase", "layer": 0}]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change("silence", 2), "layer must be from 0 to 1, got 2"),
        (Change("silence", 0, 4), "head must be from 0 to 3"),
        (Change("silence", 0, position=7), "position must be from 0 to 6, got 7"),
        (Change("silence", "blocks.9"), "no part called 'blocks.9'"),
        (Change("sharpen", 0, factor=-1.0), "factor"),
        (Change("mask", 0, cells=[(2, 7)]), r"cells has \(2, 7\), but rows and columns go"),
        (Change("mask", 0), "cells is empty"),
        (Change("patch", 0, from_text="ab"), "has 3 tokens and this one 7"),
        (
            Change("patch", 0, position=4, from_text="ab"),
            "from_position must be from 0 to 2, got 4",
        ),
        (Change("patch", "embedding", from_text=OTHER), "output of a head or a block"),
    ],
)
def test_a_wrong_change_is_refused_in_a_sentence(models, change, words):
    with pytest.raises((ValueError, LookupError), match=words):
        attend(models, "gpt", TEXT, changes=[change])


def test_one_token_has_no_mean(models):
    with pytest.raises(ValueError, match=r"^the text has one token, so there is no mean"):
        attend(models, "gpt", "", [1], [Change("silence", 0, 0, by="mean")])


def test_a_head_of_joined_heads_is_a_layer_of_its_own():
    model, tokenizer = build("classes")
    for block in model.stack.blocks:
        block.attention = JoinedHeads([SelfAttention(12, 4, 5) for _ in range(3)], 12)
    sources = Sources([])
    opened = Opened(Source("joined", "", is_run=False), model.eval(), tokenizer, None, [])
    sources.add_loaded(opened)
    layer = attend(sources, "joined", TEXT)["layers"][1]["name"]
    tokens = torch.tensor([tokenizer.encode(TEXT)])
    for change in (Change("silence", layer, 0), Change("sharpen", layer, 0, factor=3.5)):
        found = attend(sources, "joined", TEXT, changes=[change])["answer"]["logits"]
        by_hand = (
            ablate(model, layer) if change.kind == "silence" else sharpen(model, 3.5, layer=layer)
        )
        with torch.no_grad(), by_hand:
            expected = model(tokens)[0, 0]
        torch.testing.assert_close(found, expected)
        with torch.no_grad(), change_model(opened, tokens[0].tolist(), []):
            assert not torch.allclose(model(tokens)[0, 0], expected)

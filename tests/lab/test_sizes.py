"""Sizes: what is trained, what stays untrained, and how the accuracy by length is reported."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from findings import Between, check_numbers

from clearhead.lab import sizes
from clearhead.lab.sizes import KINDS, build_recipe, count_tokens, experiment, measure
from clearhead.models import SequenceClassifier
from clearhead.positions import LearnedPositions, ToeplitzBias

LENGTHS = list(range(3, 17))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_model_has_room_for_twice_the_trained_length(kind: str, full: bool) -> None:
    recipe = build_recipe(kind, 7, full)
    needle = 3 if full else 1
    assert (recipe.data.haystack, recipe.data.needle) == ((3, 8), (1, needle))
    assert (recipe.model.positions, recipe.model.max_len) == (kind, 1 + 16 + 1 + needle)
    assert recipe.training.seed == 7
    assert recipe.training.steps == (2200 if full else sizes.STEPS)


@pytest.mark.parametrize("kind", ["learned", "toeplitz"])
def test_what_only_longer_texts_need_gets_no_gradient(kind: str) -> None:
    recipe = build_recipe(kind, 0, full=False)
    task = recipe.data.open()
    model = SequenceClassifier(replace(recipe.model, **task.predictor.model_sizes))
    task.loss(model, task.train.batch(range(400))).backward()
    scheme = next(m for m in model.modules() if isinstance(m, LearnedPositions | ToeplitzBias))
    seen, longest = (count_tokens(n, recipe.data) for n in (8, 16))
    axis = 1 if kind == "learned" else 0  # (positions, D) or (H, distances)
    trained = scheme.weight.grad.abs().amax(dim=axis) > 0
    assert int(trained.sum()) == (seen if kind == "learned" else 2 * seen - 1)
    untrained = dict(sizes._tabulate_untrained(recipe.data).rows)[sizes.NAMES[kind]]
    expected = {"learned": (8, 19), "toeplitz": (16, 37)}[kind]
    assert untrained.startswith(f"{expected[0]} of {expected[1]}")
    needed = longest if kind == "learned" else 2 * longest - 1
    assert (needed - int(trained.sum()), needed) == expected


def test_a_model_that_searches_is_right_at_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that answers the opposite never: the labels are those of the texts."""
    recipe = build_recipe("none", 0, full=False)
    task = recipe.data.open()

    class Searching(torch.nn.Module):
        config, device, sign = recipe.model, torch.device("cpu"), 1.0

        def forward(self, tokens: torch.Tensor, token_mask: torch.Tensor) -> torch.Tensor:
            texts = [row[real][1:].tolist() for row, real in zip(tokens, token_mask, strict=True)]
            bar = 4
            found = [text[-1] in text[: text.index(bar)] for text in texts]
            return self.sign * (2 * torch.tensor(found).float() - 1)[:, None, None]

    model = Searching()
    result = SimpleNamespace(trained=SimpleNamespace(task=task, model=model))
    monkeypatch.setattr(sizes, "train_temporarily", lambda recipe, device: result)
    assert measure(recipe, "cpu") == dict.fromkeys(LENGTHS, 1.0)
    model.sign = -1.0
    assert measure(recipe, "cpu") == dict.fromkeys(LENGTHS, 0.0)


def test_tables_sentences_and_picture_contain_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learned: 1 inside, 0.5 beyond. The others fall by 0.01 a letter, more with a later seed."""
    asked = []

    def instead(recipe, device):
        kind, seed = recipe.model.positions, recipe.training.seed
        asked.append((kind, seed, device))
        if kind == "learned":
            return {n: 1.0 if n <= 8 else 0.5 for n in LENGTHS}
        return {n: 1.0 - 0.01 * (n - 3) - 0.02 * (seed % 100) for n in LENGTHS}

    monkeypatch.setattr(sizes, "measure", instead)
    finding = experiment(seed=4)
    assert asked == [(kind, seed, "cpu") for kind in KINDS for seed in (400, 401)]
    numbers = finding.numbers
    assert numbers["lengths"] == LENGTHS
    assert numbers["rotary_right"] == pytest.approx([0.99 - 0.01 * (n - 3) for n in LENGTHS])
    assert numbers["rotary_low"] == pytest.approx([0.98 - 0.01 * (n - 3) for n in LENGTHS])
    assert numbers["rotary_high"] == pytest.approx([1.0 - 0.01 * (n - 3) for n in LENGTHS])
    assert numbers["rotary_seen"] == pytest.approx([0.965, 0.955, 0.975])
    rows = {row[0]: row[1:] for row in finding.tables[0].rows}
    assert rows["learned"] == ["100.0", "50.0", "50.0", "50.0", "50.0"]
    assert rows["ALiBi"][0] == "96.5 (95.5–97.5)"
    assert rows["ALiBi"][-1] == "86.0 (85.0–87.0)"
    assert "at least 95.5% right" in finding.seen
    assert "50% (learned), 86% (Toeplitz)" in finding.seen
    [axes] = finding.picture.figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        *("learned", "Toeplitz", "rotary", "ALiBi", "none")
    ]
    asked.clear()
    experiment(seed=4, full=True)
    assert [seed for _, seed, _ in asked] == [4] * len(KINDS)


@pytest.mark.slow
def test_learned_positions_guess_beyond_the_trained_lengths_and_rotary_do_not(monkeypatch) -> None:
    kinds = ("learned", "rotary", "none")
    monkeypatch.setattr(sizes, "KINDS", kinds)
    monkeypatch.setattr(sizes, "N_RUNS", 1)
    finding = experiment()
    shares = [Between(0, 1)] * len(LENGTHS)
    expected = {f"{kind}_{name}": shares for kind in kinds for name in ("right", "low", "high")}
    seen = {f"{kind}_seen": [Between(0.95, 1)] * 3 for kind in kinds[:-1]}
    # Guessing, or answers by the letters that it knows: 37 to 52 % on two kinds of processors.
    beyond = {"learned_right": [*shares[:6], *[Between(0.3, 0.65)] * 8]}
    far = {"rotary_right": [*shares[:-1], Between(0.8, 1)]}
    lengths = {"lengths": LENGTHS, "none_seen": [Between(0.5, 0.85)] * 3}
    check_numbers(finding, expected | seen | beyond | far | lengths)

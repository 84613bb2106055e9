"""Faithful: ranks and correlations by hand, the rows for comparison, and the whole experiment."""

import dataclasses
from typing import Any

import pytest
import torch
from findings import Between, check_numbers

from clearhead.inspection import (
    Faithfulness,
    measure_covering,
    measure_faithfulness,
    picture_map,
)
from clearhead.lab import faithful
from clearhead.lab.faithful import BEFORE, EFFECT, INK, LEARNED, MAPS, RANDOM
from clearhead.models import VisionTransformer, ViTConfig
from clearhead.training import Recipe
from clearhead.training.recipes.vit_digits import vit_digits
from clearhead.training.tasks.pictures import PictureData


def small_model() -> VisionTransformer:
    torch.manual_seed(0)
    config = ViTConfig(
        n_classes=4, image_size=(6, 9), patch_size=3, channels=1, d_model=12, n_layers=2, n_heads=3
    )
    return VisionTransformer(config).eval()


def draw_maps(n: int = 300) -> dict[str, torch.Tensor]:
    """Independent random maps for every name."""
    generator = torch.Generator().manual_seed(1)
    return {name: torch.rand(n, 4, 5, generator=generator) for name in MAPS}


def find(numbers: faithful.Numbers, measure: str, name: str) -> float:
    return float(numbers[measure][MAPS.index(name)])


def test_equal_numbers_share_a_rank() -> None:
    ranks = faithful.rank_patches(
        torch.tensor([[[0.5, 0.1], [0.5, 9.0]], [[3.0, 3.0], [3.0, 3.0]]])
    )
    assert ranks.tolist() == [[0.0, -1.5, 0.0, 1.5], [0.0, 0.0, 0.0, 0.0]]


def test_the_correlation_is_that_of_each_picture_by_itself() -> None:
    effect = torch.tensor([[1.0, 2.0, 3.0, 10.0], [4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    heat = torch.tensor([[0.1, 0.2, 0.3, 0.4], [1.0, 2.0, 3.0, 99.0], [1.0, 2.0, 3.0, 4.0]])
    ranks = (faithful.rank_patches(x[:, None]) for x in (effect, heat))
    assert faithful.correlate(*ranks).tolist() == pytest.approx([1, -1, 0])


def test_ink_is_the_mean_brightness_of_each_patch() -> None:
    images = torch.zeros(1, 2, 6, 9)
    images[0, 0, 3:, 3:6] = 1.0  # the patch in row 1, column 1, in one of two channels
    images[0, :, 0, 8] = 9.0  # one of the nine pixels of the last patch of row 0
    assert faithful.mean_by_patch(images, (2, 3)).tolist() == [[[0, 0, 1], [0, 0.5, 0]]]


def test_the_effect_agrees_with_itself_and_random_maps_with_nothing() -> None:
    numbers = faithful.measure_maps(draw_maps())
    assert find(numbers, "with_effect", EFFECT) == pytest.approx(1)
    assert find(numbers, "with_effect", RANDOM) == pytest.approx(0, abs=0.05)
    assert find(numbers, "with_ink", INK) == pytest.approx(1)
    assert find(numbers, "better_than_ink", INK) == find(numbers, "uncertainty", INK) == 0


def test_a_map_that_only_follows_ink_says_nothing_beyond_it() -> None:
    maps = draw_maps(1000)
    maps[INK] = maps[INK].flatten(1).argsort(dim=1).argsort(dim=1).view_as(maps[INK]) / 20
    maps[EFFECT] = maps[INK] + 0.5 * maps[RANDOM]
    noise = torch.rand(maps[INK].shape, generator=torch.Generator().manual_seed(2))
    maps[LEARNED["mean"]] = maps[INK] + 0.3 * noise  # ink, and something of its own
    maps[LEARNED["gradient"]] = maps[RANDOM]  # the other half of the effect
    numbers = faithful.measure_maps(maps)
    assert find(numbers, "with_effect", LEARNED["mean"]) > 0.7
    assert find(numbers, "beyond_ink", LEARNED["mean"]) == pytest.approx(0, abs=0.02)
    assert find(numbers, "with_effect", LEARNED["gradient"]) < 0.6
    assert find(numbers, "beyond_ink", LEARNED["gradient"]) > 0.7


def test_every_map_is_what_its_name_says() -> None:
    model, images = small_model(), torch.randn(5, 1, 6, 9)
    labels, cover = torch.tensor([0, 1, 2, 3, 0]), torch.zeros(1, 6, 9)
    maps = faithful.collect_maps(model, images, labels, cover, seed=0)
    assert set(maps) == set(MAPS)
    for method, name in LEARNED.items():
        torch.testing.assert_close(maps[name], picture_map(model, images, method, labels))
        assert not torch.allclose(maps[name], maps[BEFORE[method]])
    torch.testing.assert_close(maps[EFFECT], measure_covering(model, images, labels, cover))
    assert {heats.shape for heats in maps.values()} == {(5, 2, 3)}


def small_recipe() -> Recipe:
    whole = vit_digits()
    return dataclasses.replace(whole, data=PictureData("digits", n_train=60, n_test=30))


def test_the_whole_experiment_on_a_few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faithful, "vit_digits", small_recipe)
    monkeypatch.setattr(faithful, "STEPS", 2)
    monkeypatch.setattr(faithful, "N_PICTURES", 25)
    covers = []

    def measure(*given: Any, cover: torch.Tensor) -> Faithfulness:
        covers.append(cover)
        return measure_faithfulness(*given, cover=cover)

    monkeypatch.setattr(faithful, "measure_faithfulness", measure)
    finding = faithful.experiment()
    numbers = finding.numbers
    task = small_recipe().data.open()
    mean = task.predictor.normalise(task.train.images).mean(dim=0)
    assert len(covers) == len(MAPS)
    torch.testing.assert_close(torch.stack(covers), mean.expand(len(MAPS), -1, -1, -1))
    assert find(numbers, "with_effect", EFFECT) == pytest.approx(1)
    assert find(numbers, "with_ink", INK) == pytest.approx(1)
    # Whatever the model: to cover what lowers the logit most is a good order of deletion.
    assert find(numbers, "score", EFFECT) > find(numbers, "score", RANDOM)
    assert len(finding.tables[0].rows) == len(MAPS)
    axes = finding.picture.figure.axes
    assert len(axes) == faithful.N_DRAWN * (1 + len(faithful.DRAWN)) + 2
    assert [line.get_label() for line in axes[-1].lines] == list(faithful.CURVES)
    assert "ink" in finding.seen


@pytest.mark.slow
def test_attention_is_hardly_better_than_ink_and_gradients_help() -> None:
    finding = faithful.experiment()
    share = Between(0, 1)

    def expect(**known: Between) -> list[Between]:
        names = {"mean": LEARNED["mean"], "gradient": LEARNED["gradient"], "before": BEFORE["mean"]}
        names |= {"ink": INK, "random": RANDOM, "effect": EFFECT}
        by_name = {names[key]: value for key, value in known.items()}
        return [by_name.get(name, Between(-1, 1)) for name in MAPS]

    near_zero, one = Between(-0.05, 0.05), Between(0.999, 1.001)
    check_numbers(
        finding,
        {
            "accuracy": Between(0.88, 1),
            "with_effect": expect(
                mean=Between(0.25, 0.5), gradient=Between(0.35, 0.6), ink=Between(0.2, 0.5),
                before=Between(-0.1, 0.3), random=near_zero, effect=one,
            ),
            "beyond_ink": expect(
                mean=Between(0.05, 0.35), gradient=Between(0.2, 0.5), random=near_zero, effect=one
            ),
            "with_ink": expect(mean=Between(0.7, 0.95), ink=one, random=near_zero),
            "better_than_ink": expect(gradient=Between(0.03, 0.3), mean=Between(-0.05, 0.12)),
            "uncertainty": [Between(0, 0.1)] * len(MAPS),
            "deletion": [share] * len(MAPS),
            "insertion": [share] * len(MAPS),
            "score": expect(
                mean=Between(0.3, 0.7), ink=Between(0.3, 0.7), effect=Between(0.4, 0.8)
            ),
        },
    )  # fmt: skip

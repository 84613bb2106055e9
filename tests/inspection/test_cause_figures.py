"""Pictures of causes: what is written in them is what was measured."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from model_cases import H, L, T, V, build_case, draw_ids, gpt

from clearhead.inspection import (
    Picture,
    Sweep,
    attribution,
    attribution_picture,
    faithfulness_picture,
    head_importance,
    head_scores,
    head_scores_picture,
    lens_picture,
    logit_difference,
    logit_lens,
    map_picture,
    measure_faithfulness,
    patch_sweep,
    picture_map,
    sweep_picture,
)

METRIC = logit_difference(3, 7)
NAMES = [f"w{i}" for i in range(V)]


def texts(picture: Picture) -> list[str]:
    return [text.get_text() for axes in picture.figure.axes for text in axes.texts]


def test_the_lens_writes_the_most_likely_token_of_each_layer() -> None:
    lens = logit_lens(gpt(), draw_ids())
    best = lens[:, 1].argmax(-1).flatten().tolist()
    assert texts(lens_picture(lens, NAMES, batch=1)) == [NAMES[i] for i in best]


def test_attribution_has_a_bar_for_each_of_the_largest_terms_and_one_for_the_others() -> None:
    found = attribution(gpt(), draw_ids())
    (axes,) = attribution_picture(found, batch=1, most=5).figure.axes
    widths = [bar.get_width() for bar in axes.patches]
    assert len(widths) == 6
    assert sum(widths) == pytest.approx(float(found.total[1]))
    assert f"{found.total[1]:.3f}" in axes.get_xlabel()


def test_sweeps_write_their_numbers() -> None:
    model = gpt()
    sweep = patch_sweep(model, draw_ids(seed=1), draw_ids(seed=2), METRIC)
    written = [float(text.replace("−", "-")) for text in texts(sweep_picture(sweep))]
    assert written == pytest.approx(sweep.recovered.flatten().tolist(), abs=0.006)
    importance = head_importance(model, draw_ids(), METRIC)
    assert len(texts(sweep_picture(importance))) == L * H
    over = patch_sweep(model, draw_ids(seed=1), draw_ids(seed=2), METRIC, over="position")
    labels = sweep_picture(over, tokens=list("abcdefg")).figure.axes[0].get_xticklabels()
    assert [label.get_text() for label in labels] == list("abcdefg")


def test_an_effect_that_rounds_to_zero_has_no_sign() -> None:
    sweep = Sweep(torch.tensor([[-0.001, -0.5]]), 0.0, None, ["blocks.0.attention"], "head")
    assert texts(sweep_picture(sweep)) == ["0.00", "−0.50"]


def test_head_scores_have_a_table_for_each_kind() -> None:
    scores = head_scores(gpt(), n_tokens=6)
    grid = head_scores_picture(scores).figure.axes[:3]
    for axes, table in zip(
        grid, (scores.previous, scores.duplicate, scores.induction), strict=True
    ):
        assert [float(text.get_text()) for text in axes.texts] == pytest.approx(
            table.flatten().tolist(), abs=0.006
        )


def test_a_map_is_drawn_as_it_is_beside_the_picture() -> None:
    images = torch.rand(2, 1, 8, 8)
    heat = torch.tensor([[[0.1, 0.2], [0.3, 0.4]], [[5.0, 6.0], [7.0, 8.0]]])
    grid = map_picture(images, {"mean": heat, "untrained": heat}).figure.axes
    assert len(grid) == 6
    torch.testing.assert_close(torch.tensor(grid[4].images[0].get_array()), heat[1])
    assert grid[4].get_xlabel() == "5 … 8"
    assert grid[4].images[0].get_clim() == (5, 8)
    (scale,) = grid[4].child_axes  # the colours from the lowest to the highest
    assert scale.images[0].get_cmap() == grid[4].images[0].get_cmap()
    assert (np.diff(scale.images[0].get_array()[0]) > 0).all()
    assert [axes.get_title() for axes in grid[:3]] == ["picture", "mean", "untrained"]


def test_many_pictures_are_drawn_two_in_a_row_with_their_labels() -> None:
    heat = torch.rand(5, 2, 2)
    labels = ["one", "two\ntaken for three", "$x", "four", "five"]
    grid = map_picture(torch.rand(5, 3, 4, 4), {"mean": heat}, "five", labels=labels).figure.axes
    assert [axes.get_xlabel() for axes in grid[:10:2]] == labels
    assert [axes.get_title() for axes in grid[:4]] == ["picture", "mean"] * 2
    assert not any(axes.axison for axes in grid[10:])  # the cells of a sixth picture
    assert len({round(axes.get_subplotspec().colspan.start) for axes in grid}) == 4


def test_curves_start_and_end_where_they_were_measured() -> None:
    model, (images,) = build_case("vit")
    found = measure_faithfulness(model, images, picture_map(model, images))
    left, right = faithfulness_picture({"mean": found}).figure.axes
    assert left.lines[0].get_ydata().tolist() == pytest.approx(found.deletion.mean(0).tolist())
    assert right.lines[0].get_ydata().tolist() == pytest.approx(found.insertion.mean(0).tolist())


PICTURES: dict[str, Callable[[], Picture]] = {
    "lens": lambda: lens_picture(
        logit_lens(gpt(), draw_ids()), NAMES, ["$", " "] + ["a"] * (T - 2)
    ),
    "attribution": lambda: attribution_picture(attribution(gpt(), draw_ids())),
    "importance": lambda: sweep_picture(head_importance(gpt(), draw_ids(), METRIC), title="$x"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_saved(name: str, tmp_path: Path) -> None:
    assert PICTURES[name]().save(tmp_path / "x.svg").stat().st_size > 1000


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"lens must have shape \(L \+ 1, B, T, V\)"):
        lens_picture(torch.zeros(3, 2, 5), NAMES)
    with pytest.raises(ValueError, match="tokens has 1 entries"):
        lens_picture(logit_lens(gpt(), draw_ids()), NAMES, ["a"])
    with pytest.raises(ValueError, match=r"images must have shape \(B, 1 or 3, height, width\)"):
        map_picture(torch.rand(8, 8), {})
    with pytest.raises(ValueError, match=r"map 'mean' must have shape \(2, rows, columns\)"):
        map_picture(torch.rand(2, 1, 8, 8), {"mean": torch.rand(3, 2, 2)})
    with pytest.raises(ValueError, match="vocabulary must name each of 11 tokens, got 3"):
        lens_picture(logit_lens(gpt(), draw_ids()), "abc")
    with pytest.raises(ValueError, match="batch must be at most 1, got 2"):
        lens_picture(logit_lens(gpt(), draw_ids()), NAMES, batch=2)
    with pytest.raises(ValueError, match="batch must be at most 1, got 2"):
        attribution_picture(attribution(gpt(), draw_ids()), batch=2)
    with pytest.raises(ValueError, match="most must be at least 1, got 0"):
        attribution_picture(attribution(gpt(), draw_ids()), most=0)

"""The eight panels of the smallest transformer: what they show, and by which names."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.inspection.picture import Picture
from clearhead.inspection.smallest_figure import Compared, smallest_panels, smallest_rows
from clearhead.models.smallest import TorchTransformer, designs

ORDER = ["Km", "Qm", "Vm", "K", "Q", "V", "Attn", "Out"]
SEQ, TOKENS = np.eye(4)[[3, 0, 1, 0]], ["CLS", "A", "$x_1$", "A"]
INPUTS = ["A", "B", "C", "CLS", *(f"place {t}" for t in range(6))]


def panels(picture: Picture) -> dict:
    return {axes.get_title(): axes for axes in picture.figure.axes}


def ticks(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_the_panels_hold_the_matrices_and_the_steps() -> None:
    design = designs.unique(5)
    steps = design.steps(SEQ)
    shown = panels(smallest_panels(design, SEQ))
    assert sorted(shown) == sorted(ORDER)
    right = [design.Km, design.Qm, design.Vm, steps.K, steps.Q, steps.V]
    for name, matrix in zip(ORDER, [*right, steps.attention, steps.output], strict=True):
        image = shown[name].images[0]
        np.testing.assert_allclose(image.get_array(), matrix, rtol=1e-6, atol=1e-7)
        top = 1 if name == "Attn" else np.abs(matrix).max()
        assert image.get_clim() == pytest.approx((0 if name == "Attn" else -top, top))


def test_rows_have_the_names_of_inputs_and_tokens() -> None:
    shown = panels(smallest_panels(designs.unique(5), SEQ, tokens=TOKENS, inputs=INPUTS))
    for name in ORDER:
        assert ticks(shown[name].yaxis) == (INPUTS if name in ("Km", "Qm", "Vm") else TOKENS)
    assert ticks(shown["Attn"].xaxis) == TOKENS
    assert (shown["Attn"].get_ylabel(), shown["Attn"].get_xlabel()) == ("query", "key")


def test_small_panels_have_their_numbers_written_in() -> None:
    shown = panels(smallest_panels(designs.identity(sharpness=2), np.eye(3)[[0, 1, 1]]))
    assert [text.get_text() for text in shown["Qm"].texts] == ["3.5"] * 3  # 2 √3
    assert [text.get_text() for text in shown["Km"].texts] == ["1"] * 3
    assert shown["Attn"].texts[0].get_text() == ".79"


def test_large_panels_say_how_to_read_their_colours() -> None:
    model = TorchTransformer(3, 15, 2)
    shown = panels(smallest_panels(model, np.eye(3)))
    top = model.Vm.weight.abs().max().item()
    assert shown["Vm"].get_xlabel() == f"d_v\ncolours ±{top:.3g}"
    assert not any(axes.texts for axes in shown.values())


def test_the_torch_form_is_shown_as_the_numpy_form(tmp_path: Path) -> None:
    design = designs.unique(5)
    pictures = [smallest_panels(m, SEQ) for m in (design, TorchTransformer.from_numpy(design))]
    files = [p.save(tmp_path / f"{i}.svg").read_bytes() for i, p in enumerate(pictures)]
    assert files[0] == files[1]
    assert pictures[0].description == (
        "The smallest transformer on 4 tokens: Km Qm Vm K Q V Attn Out"
    )


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="model must be a NumpyTransformer or TorchTransformer"):
        smallest_panels(torch.nn.Linear(2, 2), SEQ)
    with pytest.raises(ValueError, match="tokens has 3 entries but the weights have 4 queries"):
        smallest_panels(designs.unique(5), SEQ, tokens=["a", "b", "c"])
    with pytest.raises(ValueError, match="inputs has 3 entries but Km has 10 rows"):
        smallest_panels(designs.unique(5), SEQ, inputs=["a", "b", "c"])


def test_rows_of_panels_are_rescaled_from_0_to_1() -> None:
    design, seq = designs.unique(5), SEQ
    models = {"by hand": design, "torch": TorchTransformer.from_numpy(design)}
    groups = [
        Compared("unique", models, seq, TOKENS, {"by hand": INPUTS}),
        Compared("identity", {"one": designs.identity()}, np.eye(3)[[1, 1]], ["B", "B"], {}),
    ]
    picture = smallest_rows(groups)
    assert len(picture.figure.axes) == 3 * len(ORDER)
    top, second, last = (picture.figure.axes[i : i + 8] for i in (0, 8, 16))
    steps = design.steps(seq)
    right = [design.Km, design.Qm, design.Vm, steps.K, steps.Q, steps.V]
    for axes, again, matrix in zip(
        top, second, [*right, steps.attention, steps.output], strict=True
    ):
        low, high = matrix.min(), matrix.max()
        for panel in (axes, again):
            image = panel.images[0]
            np.testing.assert_allclose(image.get_array(), (matrix - low) / (high - low), atol=1e-6)
            assert image.get_clim() == (0, 1)
    assert [axes.get_title() for axes in top] == ORDER
    assert ticks(top[0].yaxis) == INPUTS
    assert ticks(second[0].yaxis) == []  # nobody named its inputs
    assert ticks(top[6].yaxis) == TOKENS
    assert not last[3].images[0].get_array()[:, 0].any()  # of B B, no key offers A
    assert picture.description == (
        "Km Qm Vm K Q V Attn Out of 3 transformers. unique: by hand, torch; identity: one"
    )


def test_a_matrix_of_one_number_is_white() -> None:
    groups = [Compared("A", {"one": designs.identity()}, np.eye(3)[:1], ["A"], {})]
    attention = smallest_rows(groups).figure.axes[6].images[0].get_array()
    assert attention.tolist() == [[0]]

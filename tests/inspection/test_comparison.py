"""Two smallest transformers side by side: the panels, the differences, the signs."""

import numpy as np
import pytest
import torch

from clearhead.inspection import Comparison, compare, sign_picture
from clearhead.models.smallest import NumpyTransformer, TorchTransformer, designs

ORDER = ["Km", "Qm", "Vm", "K", "Q", "V", "Attn", "Out"]
LETTERS = ["CLS", "A", "B", "A", "C"]
SEQ = np.eye(4)[[3, 0, 1, 0, 2]]
SIGNS = [1, -1, 1, -1, 1]


def trained(d_input=4, d_qk=7, d_v=1, d_pos=3):
    torch.manual_seed(0)
    return TorchTransformer(d_input, d_qk, d_v, d_pos)


def matrices_of(model, seq):
    steps = model.steps(seq)
    found = (model.Km, model.Qm, model.Vm, steps.K, steps.Q, steps.V)
    return dict(zip(ORDER, (*found, steps.attention, steps.output), strict=True))


def rescaled(matrix):
    low, high = matrix.min(), matrix.max()
    return (matrix - low) / (high - low or 1)


def test_two_rows_of_eight_panels_are_rescaled_from_0_to_1():
    hand, learned = designs.first(4), trained(3, 2, 3, 2)
    seq = np.eye(3)[[2, 0, 2]]
    figure = compare(hand, learned, seq, tokens=list("CAC")).picture.figure
    assert len(figure.axes) == 16
    for row, model in enumerate((hand, learned.to_numpy())):
        for axes, matrix in zip(
            figure.axes[8 * row :], matrices_of(model, seq).values(), strict=False
        ):
            image = axes.images[0]
            np.testing.assert_allclose(image.get_array(), rescaled(matrix), atol=1e-6)
            assert image.get_clim() == (0, 1)
    assert [axes.get_title() for axes in figure.axes[:8]] == ORDER
    assert [figure.axes[row].get_ylabel() for row in (0, 8)] == ["by hand", "trained"]


def test_the_differences_are_those_of_the_matrices():
    hand = designs.unique(5)
    learned = NumpyTransformer(hand.Km + 0.25, hand.Qm / 8, hand.Vm, hand.pos)
    found = compare(hand, learned, SEQ).differences
    one, other = matrices_of(hand, SEQ), matrices_of(learned, SEQ)
    assert list(found) == ORDER
    for name, (largest, mean) in found.items():
        assert largest == pytest.approx(np.abs(one[name] - other[name]).max())
        expected = np.abs(rescaled(one[name]) - rescaled(other[name])).mean()
        assert mean == pytest.approx(expected, abs=1e-12)
    assert (found["Km"].largest, found["Vm"].largest) == (0.25, 0)
    assert found["Qm"].rescaled == pytest.approx(0, abs=1e-12)


def test_matrices_of_other_shapes_have_no_difference():
    comparison = compare(designs.unique(5), trained(), SEQ, tokens=LETTERS)
    found = comparison.differences
    assert {name for name, value in found.items() if value.largest is None} == {
        *("Km", "Qm", "Vm", "K", "Q")
    }
    assert found["Km"] == (None, None)
    lines = str(comparison).splitlines()
    assert lines[1] == "Km       other shape"
    labels = [axes.get_xlabel() for axes in comparison.picture.figure.axes[8:16]]
    assert labels[0] == "d_qk\nother shape"
    assert labels[7] == f"d_v\n{found['Out'].largest:.2g}"


def test_for_one_output_the_signs_of_all_three_are_found_and_drawn():
    learned = trained()
    comparison = compare(designs.unique(5), learned, SEQ, tokens=LETTERS)
    own = learned(torch.tensor(SEQ))[:, 0].sign().int().tolist()
    assert comparison.signs == {"by hand": SIGNS, "trained": own, "expected": SIGNS}
    assert own != SIGNS
    axes = comparison.picture.figure.axes[16]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(comparison.signs)
    assert [label.get_text() for label in axes.get_xticklabels()] == LETTERS
    written = [text.get_text() for text in axes.texts]
    assert written == [
        "+1" if sign > 0 else "−1" for signs in comparison.signs.values() for sign in signs
    ]
    assert str(comparison).splitlines()[-1] == "expected +1 −1 +1 −1 +1"


@pytest.mark.parametrize(
    "expected", [[1, 1, -1, -1, 1], torch.tensor([[1.0], [1], [-1], [-1], [1]])]
)
def test_what_is_expected_can_be_given(expected):
    found = compare(designs.unique(5), trained(), SEQ, expected=expected)
    assert found.signs["expected"] == [1, 1, -1, -1, 1]


def test_several_outputs_have_no_signs():
    found = compare(designs.identity(), trained(3, 3, 3, None), np.eye(3))
    assert found.signs == {}
    assert len(found.picture.figure.axes) == 16


def test_a_design_does_not_differ_from_itself_in_either_form():
    design = designs.unique(5)
    found = compare(design, TorchTransformer.from_numpy(design), torch.tensor(SEQ))
    assert isinstance(found, Comparison)
    assert all(value == (0, 0) for value in found.differences.values())


def test_a_comparison_is_saved_and_shown_by_a_notebook(tmp_path):
    found = compare(designs.unique(5), trained(), SEQ, tokens=LETTERS)
    assert found.save(tmp_path / "found.png").read_bytes()[1:4] == b"PNG"
    assert found._repr_html_().startswith("<img alt=")


def test_a_long_sequence_has_a_name_at_every_third_row():
    tokens = list("ABC" * 10)
    figure = compare(
        designs.first(30), designs.first(30), np.eye(3)[[0, 1, 2] * 10], tokens=tokens
    ).picture.figure
    labels = [label.get_text() for label in figure.axes[6].get_yticklabels()]
    assert labels == ["A"] * 10


def test_the_sign_picture_has_a_row_for_each_name():
    picture = sign_picture({"one": np.array([0.2, -3.0]), "two": np.array([0.0, 1.0])}, ["A", "B"])
    (axes,) = picture.figure.axes
    np.testing.assert_allclose(axes.images[0].get_array(), [[0.2, -1], [0, 1]])
    assert [text.get_text() for text in axes.texts] == ["+1", "−1", "0", "+1"]


@pytest.mark.parametrize("wrong", [[1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], [1.0, np.nan]])
def test_signs_that_do_not_fit_the_tokens_are_refused(wrong):
    words = r"outputs\['one'\] must hold a finite number for each of the 2 tokens, got \["
    with pytest.raises(ValueError, match=words):
        sign_picture({"two": np.ones(2), "one": np.array(wrong)}, ["A", "B"])
    for nothing in (({}, ["A"]), ({"one": np.ones(0)}, [])):
        with pytest.raises(ValueError, match="at least one token and one row of outputs"):
            sign_picture(*nothing)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hand": designs.identity()}, "seq has 4 columns but d_input is 3"),
        ({"learned": trained(d_v=2)}, "equally many outputs, got d_v=1 and d_v=2"),
        ({"sequence": SEQ[:0]}, "sequence has no tokens"),
        ({"sequence": np.eye(4)[[0] * 11]}, "seq has length 11 but pos has"),
        ({"tokens": ["A"]}, "tokens has 1 entries but the weights have 5"),
        ({"expected": [1, 2]}, "expected must hold 5 finite numbers, one for each row"),
        ({"expected": "abcde"}, "expected must hold 5 finite numbers"),
        ({"expected": [1, 1, 1, 1, np.nan]}, "expected must hold 5 finite numbers"),
    ],
)
def test_what_cannot_be_compared_is_named(given, words):
    whole = {"hand": designs.unique(5), "learned": trained(), "sequence": SEQ, **given}
    with pytest.raises(ValueError, match=words):
        compare(**whole)


def test_expected_is_only_for_one_output():
    with pytest.raises(ValueError, match="expected is for models with one output, got d_v=3"):
        compare(designs.identity(), designs.identity(), np.eye(3), expected=[1, 1, 1])


def test_a_comparison_is_of_smallest_transformers():
    with pytest.raises(TypeError, match="model must be a NumpyTransformer or TorchTransformer"):
        compare(torch.nn.Linear(4, 1), trained(), SEQ)

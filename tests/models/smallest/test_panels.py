"""The picture of a forward pass: eight panels from 0 to 1, drawn only when asked for."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from clearhead.models.smallest import designs
from clearhead.models.smallest.panels import rescale

matplotlib.use("Agg")

import matplotlib.pyplot as plt

SEQ = np.eye(4)[[3, 0, 1, 0]]
ORDER = ["Km", "Qm", "Vm", "K", "Q", "V", "Attn", "Out"]


@pytest.fixture(autouse=True)
def _no_figures():
    plt.close("all")
    yield
    plt.close("all")


def test_plot_draws_the_eight_matrices_rescaled_and_the_output_stays_the_same():
    design = designs.unique(5)
    output = design.forward(SEQ, plot=True)
    np.testing.assert_array_equal(output, design.forward(SEQ))
    (number,) = plt.get_fignums()
    axes = plt.figure(number).axes
    assert [panel.get_title() for panel in axes] == ORDER
    steps = design.steps(SEQ)
    shown = [design.Km, design.Qm, design.Vm, steps.K, steps.Q, steps.V]
    for panel, matrix in zip(axes, [*shown, steps.attention, steps.output], strict=True):
        low, high = matrix.min(), matrix.max()
        image = panel.images[0].get_array()
        np.testing.assert_allclose(image, (matrix - low) / (high - low), atol=1e-12)
    assert axes[2].get_xlabel() == "−1 … 1"


def test_nothing_is_drawn_unless_asked():
    designs.unique(5).forward(SEQ)
    designs.unique(5).forward(SEQ, verbose=True)
    assert plt.get_fignums() == []


def test_every_call_is_a_figure_of_its_own():
    for _ in range(2):
        designs.unique(5).forward(SEQ, False, True)
    assert len(plt.get_fignums()) == 2


def test_no_tokens_are_drawn_as_empty_panels():
    assert designs.identity().forward(np.zeros((0, 3)), plot=True).shape == (0, 3)
    assert [axes.get_xlabel() for axes in plt.gcf().axes][3:] == ["empty"] * 5


@pytest.mark.parametrize(
    ("matrix", "expected"), [([[2, 4], [3, 2]], [[0, 1], [0.5, 0]]), ([[7, 7]], [[0, 0]])]
)
def test_a_matrix_is_rescaled_from_0_to_1(matrix, expected):
    assert rescale(np.array(matrix, dtype=float)).tolist() == expected


def test_matplotlib_is_imported_only_to_draw():
    code = (
        "import sys, numpy as np; from clearhead.models.smallest import designs; "
        "designs.identity().forward(np.eye(3)); print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

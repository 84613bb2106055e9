"""The eight matrices of a forward pass as one row of panels: Km Qm Vm K Q V Attn Out.

`NumpyTransformer.forward(seq, plot=True)` draws it. Pictures with names and numbers, and of several
models side by side, are in inspection/, which may import models; models may not import inspection.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def rescale(matrix: Array) -> Array:
    """From 0 for the smallest entry to 1 for the largest; a constant matrix becomes 0."""
    if not matrix.size:
        return matrix
    low, high = float(matrix.min()), float(matrix.max())
    return (matrix - low) / (high - low if high > low else 1.0)


def plot_panels(matrices: Mapping[str, Array]) -> None:
    """Draw matrices by their names in a new figure of pyplot, each rescaled to 0–1.

    A notebook shows the figure; in a program call plt.show() or plt.savefig(path) afterwards.
    """
    import matplotlib.pyplot as plt  # slow to import, and only for those who draw

    figure, row = plt.subplots(1, len(matrices), figsize=(11, 1.9), layout="constrained")
    for axes, (name, matrix) in zip(row, matrices.items(), strict=True):
        n_rows, n_columns = (max(n, 1) for n in matrix.shape)
        box = (-0.5, n_columns - 0.5, n_rows - 0.5, -0.5)  # an empty matrix has an outline too
        axes.imshow(rescale(matrix), cmap="Blues", vmin=0, vmax=1, aspect="auto", extent=box)
        ends = f"{matrix.min():.3g} … {matrix.max():.3g}" if matrix.size else "empty"
        axes.set(title=name, xticks=[], yticks=[])
        axes.set_xlabel(ends.replace("-", "−"), fontsize=8)
    figure.supxlabel("each panel: white = its smallest entry, dark = its largest", fontsize=9)

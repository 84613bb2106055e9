"""Two smallest transformers on one sequence, set by hand and trained: a picture and its numbers.

    comparison = compare(designs.first(4), run.model, np.eye(3)[[2, 0, 2]], tokens=list("CAC"))
    comparison.save("first.png")
    print(comparison)                   for each panel: how much the two matrices differ

The picture has a row of eight panels for each model, every panel rescaled to 0–1. Models with one
output, as for `unique`, have a third part: the sign of each output, by hand, trained and expected.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clearhead.inspection.matrices import (
    array,
    check_tokens,
    draw_cell_lines,
    draw_signed,
    label_tokens,
    write_cells,
)
from clearhead.inspection.picture import Array, Axes, Picture, new_figure, panels, style
from clearhead.inspection.smallest_figure import (
    PANELS,
    Compared,
    Transformer,
    compute_matrices,
    draw_group,
)
from clearhead.models.smallest.panels import rescale

BY_HAND, TRAINED, EXPECTED = "by hand", "trained", "expected"


class Difference(NamedTuple):
    """How much two matrices differ; None where their shapes do."""

    largest: float | None  # of any entry
    rescaled: float | None  # mean over all entries, both matrices rescaled to 0–1 before


@dataclass(frozen=True)
class Comparison:
    """The picture, the differences by the names of the panels, and the signs of one output.

    signs has "by hand", "trained" and "expected", each a list of +1 and −1 (0 for an output of 0);
    it is empty for models with several outputs.
    """

    picture: Picture
    differences: dict[str, Difference]
    signs: dict[str, list[int]]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture as .png or .svg; returns its path."""
        return self.picture.save(path)

    def _repr_html_(self) -> str:
        return self.picture._repr_html_()

    def __str__(self) -> str:
        lines = ["         largest difference    mean of rescaled"]
        for name, (largest, rescaled) in self.differences.items():
            if largest is None or rescaled is None:
                lines.append(f"{name:9}other shape")
            else:
                lines.append(f"{name:9}{_format_number(largest):22}{_format_number(rescaled)}")
        for name, signs in self.signs.items():
            lines.append(f"{name:9}{' '.join(map(_format_sign, signs))}")
        return "\n".join(lines)


def compare(
    hand: Transformer,
    learned: Transformer,
    sequence: Any,
    *,
    tokens: Sequence[str] | None = None,
    expected: Any = None,
) -> Comparison:
    """Compare two smallest transformers on one sequence (n, d_input) whose rows tokens name.

    They must have equal widths of inputs and of outputs; d_qk and positions may differ. expected
    (n,), for models with one output: what they should give. By default that is the rule of
    `unique`: +1 for a row of the sequence that occurs once, −1 for a repeated one.
    """
    models = {BY_HAND: hand, TRAINED: learned}
    matrices = {name: compute_matrices(model, sequence) for name, model in models.items()}
    names = _check(matrices, tokens, expected)
    one, other = matrices.values()
    differences = {panel: _measure(one[panel], other[panel]) for panel in PANELS}
    outputs = _collect_outputs(matrices, sequence, expected)
    picture = _draw(Compared(_describe(one), models, sequence, names, {}), differences, outputs)
    return Comparison(picture, differences, {k: _find_signs(v) for k, v in outputs.items()})


def sign_picture(outputs: Mapping[str, Array], tokens: Sequence[str]) -> Picture:
    """Outputs (n,) by name, a row for each name: colours from −1 to 1, the sign in each cell."""
    outputs = {name: array(values) for name, values in outputs.items()}
    n = len(tokens)
    if not n or not outputs:
        raise ValueError("sign_picture needs at least one token and one row of outputs")
    for name, values in outputs.items():
        if values.shape != (n,) or not np.isfinite(values).all():
            raise ValueError(
                f"outputs[{name!r}] must hold a finite number for each of the {n} tokens, "
                f"got {values.tolist()!r:.80}"
            )
    with panels(0.5 * len(tokens) + 1.6, 0.4 * len(outputs) + 0.6) as (figure, [axes]):
        _draw_signs(axes, outputs, tokens)
    return Picture(figure, f"The signs of {len(tokens)} outputs: {', '.join(outputs)}")


def _check(
    matrices: Mapping[str, dict[str, Array]], tokens: Sequence[str] | None, expected: Any
) -> list[str]:
    """Refuse what cannot be compared; returns the names of the tokens."""
    one, other = matrices.values()
    n, d_v = one["Out"].shape
    if not n:
        raise ValueError("sequence has no tokens; give one row for each token, at least one")
    if other["Out"].shape[1] != d_v:
        raise ValueError(
            f"hand and learned must have equally many outputs, got d_v={d_v} and "
            f"d_v={other['Out'].shape[1]}; compare two models of one rule"
        )
    if expected is not None and d_v != 1:
        raise ValueError(f"expected is for models with one output, got d_v={d_v}; leave it out")
    if tokens is not None:
        check_tokens("tokens", tokens, n, "queries")
    return [str(t) for t in range(n)] if tokens is None else list(tokens)


# The numbers


def _measure(one: Array, other: Array) -> Difference:
    if one.shape != other.shape:
        return Difference(None, None)
    return Difference(
        float(np.abs(one - other).max()), float(np.abs(rescale(one) - rescale(other)).mean())
    )


def _collect_outputs(
    matrices: Mapping[str, dict[str, Array]], sequence: Any, expected: Any
) -> dict[str, Array]:
    """The outputs (n,) of both models and the expected ones; none if they have several outputs."""
    if any(found["Out"].shape[1] != 1 for found in matrices.values()):
        return {}
    outputs = {name: found["Out"][:, 0] for name, found in matrices.items()}
    n = len(outputs[BY_HAND])
    right = _find_unique(array(sequence)) if expected is None else _read_expected(expected, n)
    return {**outputs, EXPECTED: right}


def _read_expected(expected: Any, n: int) -> Array:
    """(n,) or (n, 1) → (n,)."""
    try:
        numbers = array(expected)
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if numbers.shape not in ((n,), (n, 1)) or not np.isfinite(numbers).all():
        raise ValueError(
            f"expected must hold {n} finite numbers, one for each row of sequence, "
            f"got {expected!r:.80}; leave it out for the rule of unique"
        )
    return numbers.ravel()


def _find_unique(sequence: Array) -> Array:
    """+1 for a row that occurs once, −1 for a repeated one."""
    counts = (sequence[:, None] == sequence).all(axis=-1).sum(axis=1)
    return np.where(counts == 1, 1.0, -1.0)


def _find_signs(outputs: Array) -> list[int]:
    return [int(sign) for sign in np.sign(outputs)]


# The picture


def _describe(matrices: Mapping[str, Array]) -> str:
    n, d_v = matrices["Out"].shape
    return f"{n} token{'s' * (n != 1)}, {d_v} output{'s' * (d_v != 1)}"


def _draw(
    compared: Compared, differences: Mapping[str, Difference], outputs: Mapping[str, Array]
) -> Picture:
    heights = [3.7, 1.9] if outputs else [3.7]
    with style():
        figure = new_figure(11.0, sum(heights))
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        grid = draw_group(parts[0], compared)
        for axes, (panel, (_, _, meaning)) in zip(grid[-1], PANELS.items(), strict=True):
            axes.set_xlabel(f"{meaning}\n{_format_difference(differences[panel])}")
        parts[0].supxlabel(
            "each panel: white = its smallest entry, dark = its largest; below it: the largest "
            "difference of any entry, before rescaling",
            fontsize=9,
        )
        if outputs:
            _draw_signs(parts[1].subplots(), outputs, compared.tokens)
    shown = f"{' '.join(PANELS)}{' and the signs of the outputs' if outputs else ''}"
    return Picture(figure, f"{shown} of two transformers, {' and '.join(compared.models)}")


def _draw_signs(axes: Axes, outputs: Mapping[str, Array], tokens: Sequence[str]) -> None:
    table = np.array([np.clip(values, -1, 1) for values in outputs.values()])  # (names, n)
    draw_signed(axes, table, 1.0)
    signs = np.sign(np.array(list(outputs.values())))
    write_cells(axes, signs, lambda sign: _format_sign(int(sign)), is_dark=table <= 0.2, size=9)
    draw_cell_lines(axes, *table.shape)
    size = (0.4 * len(outputs), 0.5 * len(tokens))
    label_tokens(axes, list(outputs), tokens, size)
    axes.tick_params(axis="x", labelrotation=0)


def _format_difference(difference: Difference) -> str:
    return "other shape" if difference.largest is None else _format_number(difference.largest, 2)


def _format_number(value: float, digits: int = 4) -> str:
    """Smaller numbers than float64 can tell from 0 are 0."""
    return f"{0.0 if value < 1e-12 else value:.{digits}g}"


def _format_sign(sign: int) -> str:
    return {1: "+1", -1: "−1", 0: "0"}[sign]

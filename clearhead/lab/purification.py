"""Linear purification: every token becomes a mixture of all tokens, with a penalty on the weights.

    L(W) = ‖X − W X‖² + λ ‖W‖²                        X (T, D): a row for each token; W (T, T)
    Ŵ    = X Xᵀ (X Xᵀ + λ I)⁻¹                        where the gradient of L is 0
         = U diag(σ² / (σ² + λ)) Uᵀ                   with X = U diag(σ) Vᵀ

Attention computes W X too, with weights from a softmax. Ŵ keeps the share σ² / (σ² + λ) of the
direction with the singular value σ: nearly all if σ² ≫ λ, nearly nothing if σ² ≪ λ, half at σ² = λ.
Everything is computed in double precision, on the CPU.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.inspection.picture import LINES, Picture
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.drawing import Axes, finish, line_style, panels
from clearhead.lab.tools.finding import Finding, Table, wrap

TWO_ROWS = [[-2.17, 1.98, 2.41, -2.03], [0.02, -0.01, 0.01, -0.02]]  # one strong, one weak
SIGMAS = [10.0, 8.0, 4.0, 1.0, 0.5, 0.36, 0.16, 0.01]
N_KEPT, AT_LEAST, AT_MOST = 3, 0.8, 0.5  # keep ≥ 0.8 of the first three, ≤ 0.5 of the others
STRENGTHS = [0.1, 1.0, 4.0, 10.0]  # λ of the curves
T, D, NOISE = 32, 48, 0.08  # noisy data: tokens, width, standard deviation of the noise
WAYS = ("agreement_strength", "singular_values_apart", "descent_apart", "descent_steps")
MAX_STEPS = 1_000_000  # of gradient descent; the cases here take some thousand
ALLOWED = "#e4e4e4"  # where the conditions hold
CURVES = ("strength", "signal_lost", "noise_left", "error")


# Three ways to the same matrix


def closed_form(X: Tensor, strength: Tensor | float) -> Tensor:
    """Ŵ (..., T, T) of X (..., T, D) by the equation, for one λ or for (n,) of them."""
    A = X @ X.mT  # (..., T, T)
    strengths = torch.as_tensor(strength, dtype=A.dtype)[..., None, None]
    return torch.linalg.solve(A + strengths * torch.eye(A.size(-1), dtype=A.dtype), A, left=False)


def by_singular_values(X: Tensor, strength: float) -> Tensor:
    """Ŵ (T, T) from the singular values of X (T, D)."""
    U, sigma, _ = torch.linalg.svd(X, full_matrices=False)
    return U * share_kept(sigma, strength) @ U.mT


def by_descent(X: Tensor, strength: float, until: float = 1e-13) -> tuple[Tensor, int]:
    """Ŵ (T, T) by gradient descent from W = 0, and the steps it took.

    The second derivative of L along a direction is 2 (σ² + λ); a step of one over the largest never
    overshoots. Descent ends when the gradient has fallen to `until` of the first one.
    """
    A = X @ X.mT
    step = 0.5 / (torch.linalg.matrix_norm(X, 2).item() ** 2 + strength)
    W, steps, first = torch.zeros_like(A), 0, 2 * A.norm().item()
    for _ in range(MAX_STEPS):
        gradient = 2 * (W @ A - A + strength * W)
        if gradient.norm().item() <= until * first:
            return W, steps
        W, steps = W - step * gradient, steps + 1
    raise RuntimeError(f"gradient descent has not converged after {MAX_STEPS:,} steps")


def share_kept(sigma: Any, strength: float) -> Any:
    """The share that is kept of a direction; sigma is a number or a tensor."""
    return sigma**2 / (sigma**2 + strength)


# The experiment


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Purify two rows, a matrix with eight singular values, and noisy data."""
    generator = torch.Generator().manual_seed(seed)
    two = torch.tensor(TWO_ROWS, dtype=torch.float64)
    eight = with_singular_values(SIGMAS, len(SIGMAS), 12, generator)
    clean, data = noisy_data(400 if full else 20, generator)
    curves = _noise_curves(clean, data)
    noise = _noise_numbers(curves) | {"error_before": _relative_length(data - clean, clean)}
    cases = {
        "two rows": (two, 0.1),
        "eight singular values": (eight, 2.0),
        "noisy data": (data[0], noise["best_strength"]),
    }
    scan = _range_numbers(eight, 0.001 if full else 0.01)
    numbers = _two_row_numbers(two) | scan | _compare_ways(cases.values()) | noise
    return Finding(
        claim=EXPERIMENTS["purification"],
        tables=_tabulate(numbers, cases),
        seen=_describe(numbers),
        numbers=numbers,
        picture=_draw(numbers, curves),
    )


def _two_row_numbers(X: Tensor) -> dict[str, Any]:
    """The λ at which keeping both rows costs as much as keeping only the first.

    Each list: both rows kept, only the first, and Ŵ at that λ.
    """

    def terms(W: Tensor) -> tuple[float, float]:
        return (X - W @ X).square().sum().item(), W.square().sum().item()

    both = terms(torch.eye(2, dtype=X.dtype))
    first = terms(torch.diag(torch.tensor([1, 0], dtype=X.dtype)))
    equal_at = (first[0] - both[0]) / (both[1] - first[1])
    found = [both, first, terms(closed_form(X, equal_at))]
    return {
        "equal_at": equal_at,
        "mixture_error": [error for error, _ in found],
        "mixture_weights": [weights for _, weights in found],
        "mixture_cost": [error + equal_at * weights for error, weights in found],
    }


def _range_numbers(X: Tensor, step: float) -> dict[str, Any]:
    """Which λ keep enough of the first three singular values and little enough of the others.

    Once by the equation, σ²/(σ²+λ) ≥ a for λ ≤ σ² (1−a)/a, and once by trying every λ up to 10.
    """
    U = torch.linalg.svd(X, full_matrices=False).U
    strengths = torch.arange(1, round(10 / step) + 1, dtype=X.dtype) * step
    kept = (U.mT @ closed_form(X, strengths) @ U).diagonal(dim1=-2, dim2=-1)  # (n, 8)
    rounding = 1e-9  # at the ends of the range a share equals its limit
    enough = (kept[:, :N_KEPT] >= AT_LEAST - rounding).all(-1)
    little = (kept[:, N_KEPT:] <= AT_MOST + rounding).all(-1)
    fits = strengths[enough & little]
    return {
        "range_low": max(s**2 for s in SIGMAS[N_KEPT:]) * (1 - AT_MOST) / AT_MOST,
        "range_high": min(s**2 for s in SIGMAS[:N_KEPT]) * (1 - AT_LEAST) / AT_LEAST,
        "scanned_low": fits.min().item(),
        "scanned_high": fits.max().item(),
        "scanned_fits": len(fits),
        "scanned": len(strengths),
        **{f"kept_at_{x:g}": [share_kept(s, x) for s in SIGMAS] for x in STRENGTHS},
    }


def _compare_ways(cases: Iterable[tuple[Tensor, float]]) -> dict[str, Any]:
    """How far the three ways to Ŵ differ, and how many steps descent takes."""
    found = []
    for X, strength in cases:
        W, (descended, steps) = closed_form(X, strength), by_descent(X, strength)
        apart = [(V - W).abs().max().item() for V in (by_singular_values(X, strength), descended)]
        found.append([strength, *apart, steps])
    return dict(zip(WAYS, map(list, zip(*found, strict=True)), strict=True))


def noisy_data(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """clean (T, D) with only the first three singular values, and n noisy copies (n, T, D)."""
    clean = with_singular_values(SIGMAS[:N_KEPT], T, D, generator)
    noise = torch.randn(n, T, D, dtype=clean.dtype, generator=generator)
    return clean, clean + NOISE * noise


def with_singular_values(
    sigmas: list[float], rows: int, columns: int, generator: torch.Generator
) -> Tensor:
    """A matrix (rows, columns) with these singular values in random directions."""
    U, V = (
        torch.linalg.qr(torch.randn(n, len(sigmas), dtype=torch.float64, generator=generator)).Q
        for n in (rows, columns)
    )
    return U * torch.tensor(sigmas, dtype=torch.float64) @ V.mT


def _noise_curves(clean: Tensor, data: Tensor) -> dict[str, list[float]]:
    """Signal lost, noise left and error, for λ from 0.001 to 1000."""
    points = []
    for strength in (10 ** (i / 20) for i in range(-60, 61)):
        W = closed_form(data, strength)  # (n, T, T)
        parts = (clean - W @ clean, W @ (data - clean), W @ data - clean)
        points.append([strength, *(_relative_length(part, clean) for part in parts)])
    return dict(zip(CURVES, map(list, zip(*points, strict=True)), strict=True))


def _noise_numbers(curves: Mapping[str, list[float]]) -> dict[str, Any]:
    """The curves at each power of ten, and where the error is least."""
    error = curves["error"]
    best = min(range(len(error)), key=error.__getitem__)
    shown = sorted({*range(0, len(error), 20), best})
    numbers: dict[str, Any] = {key: [curve[i] for i in shown] for key, curve in curves.items()}
    return numbers | {"best_strength": curves["strength"][best], "best_error": error[best]}


def _relative_length(difference: Tensor, clean: Tensor) -> float:
    """‖difference‖ / ‖clean‖, the mean over all noisy data."""
    return (torch.linalg.matrix_norm(difference).mean() / clean.norm()).item()


# Tables and sentences


def _tabulate(n: Mapping[str, Any], cases: Iterable[str]) -> list[Table]:
    before = ["before", 0.0, n["error_before"], n["error_before"]]
    return [
        Table.from_columns(
            f"Two rows, one strong and one weak: what W costs at λ = {n['equal_at']:.3g}.",
            ("W keeps", ["both rows", "only the first", "what Ŵ keeps"]),
            ("‖X − WX‖²", n["mixture_error"]),
            ("‖W‖²", n["mixture_weights"]),
            ("L(W)", n["mixture_cost"]),
        ),
        Table.from_columns(
            "Eight singular values: the share σ²/(σ² + λ) that is kept.",
            ("σ", map("{:g}".format, SIGMAS)),
            *((f"λ = {x:g}", n[f"kept_at_{x:g}"]) for x in STRENGTHS),
        ),
        Table(
            "Three ways to Ŵ: the largest difference of any entry from the closed form.",
            ["", "λ", "singular values", "gradient descent", "its steps"],
            list(zip(cases, *(n[key] for key in WAYS), strict=True)),
        ),
        Table(
            f"Noisy data of rank {N_KEPT}: norms relative to that of the clean data.",
            ["λ", "signal lost", "noise left", "error"],
            [before, *zip(*(n[key] for key in CURVES), strict=True)],
        ),
    ]


def _describe(n: Mapping[str, Any]) -> str:
    return wrap(
        f"Keeping both rows costs as much as keeping only the first at λ = {n['equal_at']:.3g}; "
        f"the conditions on the eight singular values hold for {n['range_low']:g} ≤ λ ≤ "
        f"{n['range_high']:g}, and of {n['scanned']:,} λ tried up to 10 for the "
        f"{n['scanned_fits']:,} from {n['scanned_low']:g} to {n['scanned_high']:g}.",
        f"Gradient descent ends within {max(n['descent_apart']):.0e} of the closed form, and on "
        f"noisy data the error falls from {n['error_before']:.1%} to {n['best_error']:.1%} at "
        f"λ = {n['best_strength']:.1f}.",
    )


# The picture


def _draw(n: Mapping[str, Any], curves: Mapping[str, list[float]]) -> Picture:
    with panels(11.0, 4.3, 2) as (figure, (left, right)):
        _draw_shares(left, n)
        _draw_noise(right, n, curves)
    return Picture(
        figure,
        "The share that is kept of each singular value, a curve for each λ; beside it the error of "
        "purified noisy data over λ",
    )


def _draw_shares(axes: Axes, n: Mapping[str, Any]) -> None:
    """Draw a curve for each λ. A λ meets the conditions if its marks all lie in grey areas."""
    low, strong, weak, high = 0.006, SIGMAS[N_KEPT - 1], SIGMAS[N_KEPT], 60.0
    axes.fill_between([strong, high], AT_LEAST, 1, color=ALLOWED, linewidth=0)
    axes.fill_between([low, weak], 0, AT_MOST, color=ALLOWED, linewidth=0)
    axes.text(8.5, AT_LEAST - 0.02, f"≥ {AT_LEAST:.0%} of each\nof the first three", va="top")
    axes.text(low * 1.2, AT_MOST - 0.02, f"≤ {AT_MOST:.0%} of each of the rest", va="top")
    sigmas = torch.logspace(-2.3, 1.8, 200).tolist()
    for order, strength in enumerate(STRENGTHS):
        shares = [share_kept(sigma, strength) for sigma in sigmas]
        axes.plot(sigmas, shares, **line_style(order, marker="", label=f"λ = {strength:g}"))
        marks = line_style(order, linestyle="none", markersize=4)
        axes.plot(SIGMAS, n[f"kept_at_{strength:g}"], **marks)
    finish(axes, "upper left", xscale="log", xlim=(low, high), ylim=(0, 1.02))
    axes.set_xticks(SIGMAS, [f"{sigma:g}" for sigma in SIGMAS], rotation=90)
    axes.minorticks_off()
    axes.set(xlabel="singular value σ", ylabel="share kept, σ² / (σ² + λ)")
    fits = f"{n['range_low']:g} ≤ λ ≤ {n['range_high']:g}"
    axes.set_title(f"All marks are in the grey only for {fits}")


def _draw_noise(axes: Axes, n: Mapping[str, Any], curves: Mapping[str, list[float]]) -> None:
    """Signal lost, noise left and error over λ; grey: the range of the other panel."""
    low, high = n["range_low"], n["range_high"]
    axes.axvspan(low, high, color=ALLOWED, linewidth=0)
    axes.text((low * high) ** 0.5, 47, f"{low:g} ≤ λ ≤ {high:g}", ha="center")
    for key, order in zip(CURVES[1:], (1, 2, 0), strict=True):
        percent = [100 * share for share in curves[key]]
        look = line_style(order, marker="", label=key.replace("_", " "))
        axes.plot(curves["strength"], percent, **look)
    best, least, before = n["best_strength"], 100 * n["best_error"], 100 * n["error_before"]
    axes.plot(best, least, "o", color=LINES[0][0])
    axes.text(best, least + 1.8, f"{least:.1f}%", ha="center")
    axes.axhline(before, color="#000000", linewidth=0.8)
    axes.text(0.0012, before + 0.7, f"before: {before:.1f}%")
    finish(axes, "upper left", xscale="log", xlim=(0.001, 100), ylim=(0, 50), xlabel="λ")
    axes.set_ylabel("norm, % of that of the clean data")
    axes.set_title(f"Noisy data of rank {N_KEPT}: the error is least at λ = {best:.1f}")

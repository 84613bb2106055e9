"""Linear purification: the numbers by hand, by fractions and by NumPy, and the laws behind them."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from findings import Between, check_numbers

from clearhead import lab
from clearhead.lab.purification import (
    NOISE,
    SIGMAS,
    STRENGTHS,
    TWO_ROWS,
    D,
    T,
    by_descent,
    by_singular_values,
    closed_form,
    experiment,
    noisy_data,
    share_kept,
    with_singular_values,
)
from clearhead.lab.tools.finding import format_cell


@pytest.fixture(scope="module")
def finding():
    return experiment()


@pytest.fixture(scope="module")
def drawn():
    """The eight singular values, the clean data and the noisy ones, drawn again from the seed."""
    generator = torch.Generator().manual_seed(0)
    eight = with_singular_values(SIGMAS, len(SIGMAS), 12, generator)
    clean, data = noisy_data(20, generator)
    return eight.numpy(), clean.numpy(), data.numpy()


def two_rows_by_hand(strength):
    """‖X − ŴX‖² and ‖Ŵ‖² of the two rows, with the inverse of a 2 × 2 matrix written out."""
    (first, second) = TWO_ROWS
    a = sum(x * x for x in first)
    b = sum(x * y for x, y in zip(first, second, strict=True))
    c = sum(y * y for y in second)
    det = (a + strength) * (c + strength) - b * b
    # (a b; b c) times the inverse of (a+λ b; b c+λ)
    W = [
        [(a * (c + strength) - b * b) / det, b * strength / det],
        [b * strength / det, (c * (a + strength) - b * b) / det],
    ]
    error = 0.0
    for i, row in enumerate(TWO_ROWS):
        for j, x in enumerate(row):
            error += (x - W[i][0] * first[j] - W[i][1] * second[j]) ** 2
    return error, sum(w * w for row in W for w in row)


def noise_by_numpy(clean, data, strength):
    """Signal lost, noise left and error, data by data, with Ŵ from an eigendecomposition."""
    found = []
    for X in data:
        values, U = np.linalg.eigh(X @ X.T)
        W = U @ np.diag(values / (values + strength)) @ U.T
        parts = (clean - W @ clean, W @ (X - clean), W @ X - clean)
        found.append([math.sqrt((part**2).sum()) for part in parts])
    return np.mean(found, axis=0) / math.sqrt((clean**2).sum())


def steps_by_theory(sigmas, strength, until=1e-13):
    """Along a direction the gradient is 2σ² rⁿ after n steps, r = 1 − (σ²+λ)/(σ₁²+λ)."""
    squares = np.asarray(sigmas) ** 2
    r = 1 - (squares + strength) / (squares.max() + strength)
    n = 0
    while np.linalg.norm(squares * r**n) > until * np.linalg.norm(squares):
        n += 1
    return n


def test_every_number_follows_from_the_equations(finding, drawn):
    _, clean, data = drawn
    two = np.linalg.svd(np.array(TWO_ROWS))[1]
    error, weights = two_rows_by_hand(0.001)
    curve = [10 ** (i / 20) for i in range(-60, 61)]
    errors = [noise_by_numpy(clean, data, strength)[2] for strength in curve]
    best = curve[int(np.argmin(errors))]
    strengths = sorted([0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, best])
    lost, left, after = zip(*(noise_by_numpy(clean, data, x) for x in strengths), strict=True)
    steps = [
        steps_by_theory(two, 0.1),
        steps_by_theory(SIGMAS, 2.0),
        steps_by_theory(np.linalg.svd(data[0])[1], best),
    ]
    close = {"rel": 1e-9, "abs": 1e-12}
    check_numbers(
        finding,
        {
            "equal_at": pytest.approx(0.001, rel=1e-12),
            "mixture_error": pytest.approx([0.0, 0.001, error], **close),
            "mixture_weights": pytest.approx([2.0, 1.0, weights], **close),
            "mixture_cost": pytest.approx([0.002, 0.002, error + 0.001 * weights], **close),
            "range_low": pytest.approx(1.0, rel=1e-12),
            "range_high": pytest.approx(4.0, rel=1e-12),
            "scanned_low": pytest.approx(1.0, rel=1e-12),
            "scanned_high": pytest.approx(4.0, rel=1e-12),
            "scanned_fits": 301,
            "scanned": 1000,
            "kept_at_0.1": pytest.approx([s * s / (s * s + 0.1) for s in SIGMAS]),
            "kept_at_1": pytest.approx([s * s / (s * s + 1) for s in SIGMAS]),
            "kept_at_4": pytest.approx([s * s / (s * s + 4) for s in SIGMAS]),
            "kept_at_10": pytest.approx([s * s / (s * s + 10) for s in SIGMAS]),
            "agreement_strength": pytest.approx([0.1, 2.0, best]),
            "singular_values_apart": [Between(0, 1e-13)] * 3,
            "descent_apart": [Between(0, 1e-10)] * 3,
            "descent_steps": pytest.approx(steps, abs=5),
            "strength": pytest.approx(strengths),
            "signal_lost": pytest.approx(lost, rel=1e-7),
            "noise_left": pytest.approx(left, rel=1e-7),
            "error": pytest.approx(after, rel=1e-7),
            "error_before": pytest.approx(
                np.mean([np.linalg.norm(X - clean) for X in data]) / np.linalg.norm(clean)
            ),
            "best_strength": pytest.approx(best),
            "best_error": pytest.approx(min(errors), rel=1e-7),
        },
    )


def test_the_range_found_with_fractions_is_the_one_found_by_scanning(finding):
    squares = [Fraction(str(sigma)) ** 2 for sigma in SIGMAS]
    fits = []
    for hundredths in range(1, 1001):
        strength = Fraction(hundredths, 100)
        kept = [s / (s + strength) for s in squares]
        if min(kept[:3]) >= Fraction(4, 5) and max(kept[3:]) <= Fraction(1, 2):
            fits.append(strength)
    assert (fits[0], fits[-1], len(fits)) == (1, 4, 301)
    assert finding.numbers["scanned_fits"] == len(fits)


def test_below_a_thousandth_keeping_both_rows_is_cheaper_and_above_it_only_the_first(finding):
    """Keeping both costs 0 + 2λ, keeping the first 0.001 + λ."""
    errors, weights = finding.numbers["mixture_error"], finding.numbers["mixture_weights"]
    for strength, cheaper in ((0.0009, 0), (0.0011, 1)):
        costs = [errors[i] + strength * weights[i] for i in (0, 1)]
        assert costs == pytest.approx([2 * strength, 0.001 + strength])
        assert costs.index(min(costs)) == cheaper


def test_where_both_cost_the_same_half_of_the_weak_row_is_kept():
    X = torch.tensor(TWO_ROWS, dtype=torch.float64)
    assert closed_form(X, 0.001)[1, 1].item() == pytest.approx(0.5, abs=1e-4)
    assert share_kept(0.5, 0.25) == 0.5  # σ² = λ


def test_no_other_mixture_costs_less():
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(5, 7, dtype=torch.float64, generator=generator)

    def cost(W):
        return ((X - W @ X) ** 2).sum() + 0.7 * (W**2).sum()

    best = closed_form(X, 0.7)
    for size in (1e-3, 0.1, 1.0):
        for _ in range(20):
            other = best + size * torch.randn(5, 5, dtype=X.dtype, generator=generator)
            assert cost(other) > cost(best)


def test_the_gradient_of_the_cost_is_zero_at_the_best_mixture():
    X = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    W = closed_form(X, 0.7).requires_grad_()
    (((X - W @ X) ** 2).sum() + 0.7 * (W**2).sum()).backward()
    assert W.grad.abs().max() < 1e-12


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5)])
@pytest.mark.parametrize("strength", [0.3, 5.0])
def test_the_three_ways_give_one_matrix(shape, strength):
    X = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    W = closed_form(X, strength)
    assert torch.allclose(W, W.mT, atol=1e-12)
    assert torch.allclose(by_singular_values(X, strength), W, atol=1e-12)
    descended, steps = by_descent(X, strength)
    assert torch.allclose(descended, W, atol=1e-10)
    assert steps > 10


def test_descent_never_overshoots():
    """With a step from the largest singular value the cost falls with every step."""
    X = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    costs = []
    for until in (0.5, 0.1, 1e-2, 1e-3, 1e-4):
        W = by_descent(X, 0.5, until)[0]
        costs.append((((X - W @ X) ** 2).sum() + 0.5 * (W**2).sum()).item())
    assert costs == sorted(costs, reverse=True)


def test_made_matrices_have_the_singular_values_asked_for(drawn):
    eight, clean, data = drawn
    assert np.linalg.svd(eight)[1] == pytest.approx(SIGMAS)
    assert np.linalg.svd(clean)[1][:3] == pytest.approx(SIGMAS[:3])
    assert np.linalg.svd(clean)[1][3:] == pytest.approx(0, abs=1e-12)
    assert data.shape == (20, T, D)
    assert (data - clean).std() == pytest.approx(NOISE, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_on_noisy_data_the_error_has_its_least_inside_the_range(seed, finding):
    numbers = experiment(seed=seed).numbers
    assert numbers["error"] != finding.numbers["error"]
    assert 1 < numbers["best_strength"] < 4
    assert numbers["best_error"] < numbers["error_before"] / 2
    assert numbers["error_before"] == pytest.approx(
        NOISE * math.sqrt(T * D) / math.sqrt(sum(s * s for s in SIGMAS[:3])), rel=0.03
    )
    assert numbers["signal_lost"] == sorted(numbers["signal_lost"])
    assert numbers["noise_left"] == sorted(numbers["noise_left"], reverse=True)


def test_the_same_seed_gives_the_same_numbers(finding):
    again = lab.run("purification", seed=0, device="cpu")
    assert again.numbers == finding.numbers
    assert again.text == finding.text


def test_the_tables_contain_the_numbers(finding):
    numbers, (two, eight, ways, noisy) = finding.numbers, finding.tables
    columns = ("mixture_error", "mixture_weights", "mixture_cost")
    assert [row[1:] for row in two.rows] == np.transpose([numbers[c] for c in columns]).tolist()
    for place, strength in enumerate(STRENGTHS, start=1):
        assert [row[place] for row in eight.rows] == numbers[f"kept_at_{strength:g}"]
    assert [row[0] for row in eight.rows] == [f"{sigma:g}" for sigma in SIGMAS]
    assert [row[4] for row in ways.rows] == numbers["descent_steps"]
    assert [row[3] for row in ways.rows] == numbers["descent_apart"]
    assert [row[3] for row in noisy.rows] == [numbers["error_before"], *numbers["error"]]
    for cell in (*numbers["error"], *numbers["descent_steps"], *numbers["kept_at_4"]):
        assert format_cell(cell) in finding.text


def test_the_text_contains_the_numbers(finding):
    words = " ".join(finding.text.split())
    for part in (
        "costs as much as keeping only the first at λ = 0.001;",
        "hold for 1 ≤ λ ≤ 4, and of 1,000 λ tried up to 10 for the 301 from 1 to 4.",
        f"the error falls from {finding.numbers['error_before']:.1%}",
        f"to {finding.numbers['best_error']:.1%} at λ = {finding.numbers['best_strength']:.1f}.",
    ):
        assert part in words
    assert max(map(len, finding.text.splitlines())) <= 100


def test_the_picture_is_drawn_and_described(finding, tmp_path):
    path = finding.picture.save(tmp_path / "purification.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "singular value" in finding.picture.description
    assert len(finding.picture.figure.axes) == 2

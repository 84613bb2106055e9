"""Kernel attention: every number computed again in NumPy, the laws behind it, and real times."""

import math

import numpy as np
import pytest
import torch
from findings import Between, check_numbers

from clearhead import lab
from clearhead.attention import QuadraticFeatures
from clearhead.lab.kernels import features as kernels
from clearhead.lab.kernels.cost import FEATURES, WIDTH, Costs, find_crossover, measure
from clearhead.lab.kernels.features import FREQUENCIES, SHORT, T, WithoutCrossTerms, experiment
from clearhead.lab.kernels.report import LENGTHS, RANDOM, WAYS, D

DRAWS = 3  # instead of 20, where the test need not take long
TIMES = [128, 256, 512, 1024, 2048, 4096]
# Made up, so that all that follows from times can be computed by hand.
MADE_UP = Costs(
    TIMES,
    {
        "written": [1e-5 * x**2 for x in TIMES],
        "fused": [4e-6 * x**2 for x in TIMES],
        "quadratic": [1.2e-2 * x for x in TIMES],  # equal at T = 3000
        "fourier": [2e-3 * x for x in TIMES],  # … 500
        "elu": [1e-3 * x for x in TIMES],  # … 250
    },
    {name: [2.0 * WIDTH * C * x for x in TIMES] for name, C in FEATURES.items()},
    {
        "written": [16.0 * x**2 for x in TIMES],
        "fused": [256.0 * x for x in TIMES],
        "quadratic": [16_000.0 * x for x in TIMES],  # equal at T = 1000
        "fourier": [4_800.0 * x for x in TIMES],  # … 300
        "elu": [1_600.0 * x for x in TIMES],  # … 100: before the first
    },
)


def found(draws):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "measure", lambda lengths, generator, device: MADE_UP)
        patch.setattr(kernels, "DRAWS", draws)
        return experiment()


@pytest.fixture(scope="module")
def finding():
    return found(DRAWS)


@pytest.fixture(scope="module")
def whole_finding():
    return found(kernels.DRAWS)


@pytest.fixture(scope="module")
def rows():
    """q, k and v of the experiment, in NumPy."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, T, D, generator=generator, dtype=torch.float64).numpy()


def brought_to(length, x):
    return length * x / np.sqrt((x**2).sum(-1, keepdims=True))


def estimate(name, m, seed, q, k):
    """exp(q·k/√D) from m frequencies, by the equations as means over waves and exponentials."""
    draws = torch.randn(m, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    w = (draws / D**0.25).float().double().numpy()
    a, b = q @ w.T, k @ w.T  # (T, m)
    lengths = ((q**2).sum(-1)[:, None] + (k**2).sum(-1)) / (2 * math.sqrt(D))
    if name == "fourier":  # cos(a − b), in two products
        return np.exp(lengths) * (np.cos(a) @ np.cos(b).T + np.sin(a) @ np.sin(b).T) / m
    return np.exp(a) @ np.exp(b).T / m * np.exp(-lengths)


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


def close(x):
    return pytest.approx(x, rel=1e-6, abs=1e-12)


def expected_exactness(q, k):
    """The error of the wrong map is the sum of the terms that it lacks."""
    wanted = (q @ k.T + 1) ** 2
    products = q[:, None] * k  # (T, T, D)
    lacking = sum(
        2 * products[..., i] * products[..., j] for i in range(D) for j in range(i + 1, D)
    )
    return {
        "quadratic_features": 1 + D + D + D * (D - 1) // 2,
        "quadratic_error": Between(0, 1e-11),
        "quadratic_share": Between(0, 1e-12),
        "quadratic_negative": 0.0,
        "uncrossed_features": 1 + D + D,
        "uncrossed_error": close(np.abs(lacking).max()),
        "uncrossed_share": close(np.abs(lacking).mean() / wanted.mean()),
        "uncrossed_negative": (wanted - lacking < 0).mean(),
    }


def expected_convergence(q, k, v, draws):
    kernel = np.exp(q @ k.T / math.sqrt(D))
    output = kernel / kernel.sum(-1, keepdims=True) @ v
    numbers = {}
    for name in RANDOM:
        errors, outputs = [], []
        for place, m in enumerate(FREQUENCIES):
            tries = [estimate(name, m, 1000 * place + draw, q, k) for draw in range(draws)]
            errors.append([np.sqrt(((x / kernel - 1) ** 2).mean()) for x in tries])
            mixed = [x / x.sum(-1, keepdims=True) @ v for x in tries]
            outputs.append([np.sqrt(((x - output) ** 2).mean()) for x in mixed])
        slopes = [slope(FREQUENCIES, column) for column in np.transpose(errors)]
        numbers |= {
            f"{name}_error": close([np.mean(row) for row in errors]),
            f"{name}_spread": close([np.std(row, ddof=1) for row in errors]),
            f"{name}_output": close([np.mean(row) for row in outputs]),
            f"{name}_slope": close(np.mean(slopes)),
            f"{name}_slope_spread": close(np.std(slopes, ddof=1)),
            f"{name}_output_slope": close(slope(FREQUENCIES, np.mean(outputs, axis=1))),
        }
    return numbers | {f"{name}_predicted": predicted(name, q, k) for name in RANDOM}


def predicted(name, q, k):
    """The relative error from the variance, pair by pair."""
    total = 0.0
    for a in q:
        for b in k:
            apart, together = ((a - b) ** 2).sum() / 4, ((a + b) ** 2).sum() / 4
            if name == "fourier":
                mean = math.exp(-apart / 2)
                total += ((1 + math.exp(-2 * apart)) / 2 - mean**2) / mean**2
            else:
                total += math.exp(together) - 1
    return close([math.sqrt(total / T**2 / m) for m in FREQUENCIES])


def expected_denominators(q, k, draws):
    numbers = {f"{name}_bad": [0.0] * 3 for name in ("positive", "elu", "quadratic")}
    for length in LENGTHS:
        rows = brought_to(length, q), brought_to(length, k)
        numbers[f"fourier_bad_{length:g}"] = close(
            [
                np.mean(
                    [estimate("fourier", m, 1000 * i + x, *rows).sum(-1) <= 0 for x in range(draws)]
                )
                for i, m in enumerate(FREQUENCIES)
            ]
        )
    return numbers


def expected_prices():
    numbers = {}
    for name in WAYS:
        numbers[f"{name}_milliseconds"] = MADE_UP.milliseconds[name]
        numbers[f"{name}_bytes"] = MADE_UP.bytes[name]
        numbers[f"{name}_power"] = close(2.0 if name in ("written", "fused") else 1.0)
    numbers |= {f"{name}_fewer_from": close(C) for name, C in FEATURES.items()}
    faster = {"quadratic": 3000.0, "fourier": 500.0, "elu": 250.0}
    lighter = {"quadratic": 1000.0, "fourier": 300.0, "elu": 128.0}
    numbers |= {f"{name}_faster_from": close(x) for name, x in faster.items()}
    return numbers | {f"{name}_lighter_from": close(x) for name, x in lighter.items()}


def check_all(finding, rows, draws):
    q, k, v = rows
    short = brought_to(SHORT, q), brought_to(SHORT, k)
    expected = expected_exactness(q, k) | expected_convergence(*short, v, draws)
    expected |= expected_denominators(q, k, draws) | expected_prices()
    agrees = ("quadratic", "elu", *RANDOM)
    check_numbers(finding, expected | {f"{name}_agrees": Between(0, 1e-12) for name in agrees})


def test_every_number_is_that_of_an_independent_computation(finding, rows):
    check_all(finding, rows, DRAWS)


@pytest.mark.slow
def test_every_number_of_all_draws_is_that_of_an_independent_computation(whole_finding, rows):
    check_all(whole_finding, rows, 20)


@pytest.mark.slow
def test_random_features_converge_as_one_over_the_root_of_m(whole_finding):
    n = whole_finding.numbers
    for name in RANDOM:
        assert n[f"{name}_slope"] == Between(-0.55, -0.45)
        assert n[f"{name}_output_slope"] == Between(-0.56, -0.42)
        assert n[f"{name}_error"][2:] == pytest.approx(n[f"{name}_predicted"][2:], rel=0.2)


def test_more_frequencies_make_bad_denominators_rarer_and_longer_vectors_more_frequent(finding):
    by_length = [finding.numbers[f"fourier_bad_{length:g}"] for length in LENGTHS]
    for shares in by_length:
        assert shares == sorted(shares, reverse=True)
    for m in range(len(FREQUENCIES)):
        assert by_length[0][m] <= by_length[1][m] <= by_length[2][m]
    assert by_length[2][0] > 0.2
    assert by_length[0][-1] == 0


def test_a_worked_case_needs_its_cross_term():
    """q = k = (1, 2): q·k = 5 and (5 + 1)² = 36; the cross term is 2·(1·1)(2·2) = 8."""
    x = torch.tensor([1.0, 2.0])
    right, wrong = QuadraticFeatures(), WithoutCrossTerms()
    assert (right(x) @ right(x)).item() == pytest.approx(36)
    assert (wrong(x) @ wrong(x)).item() == pytest.approx(36 - 8)
    assert wrong(x).tolist() == pytest.approx([1, math.sqrt(2), 2 * math.sqrt(2), 1, 4])


def test_a_crossing_lies_between_two_lengths_by_a_line_in_logarithms():
    assert find_crossover([10, 1000], [10.0, 10.0], [1.0, 100.0]) == pytest.approx(100)
    assert find_crossover([1, 2, 4], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]) == 1.0
    assert find_crossover([1, 2], [3.0, 3.0], [2.0, 2.0]) == math.inf
    late = find_crossover([1, 2, 4, 8], [1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0])
    assert 4 < late < 8, "the last crossing counts"


def test_the_products_are_those_of_the_sums_by_hand():
    """With values 64 wide and a column of ones, which is stored 16 times: W = 80."""
    costs = measure_quickly([1024])
    W, N = WIDTH + 16, 1024.0
    assert costs.products["written"] == [2 * N**2 * WIDTH]
    assert costs.products["elu"] == [2 * N * 64 * W]
    assert costs.products["fourier"] == [2 * N * 256 * W + 2 * N * 128 * WIDTH]  # and W x
    assert costs.products["quadratic"][0] >= 2 * N * FEATURES["quadratic"] * W


def test_softmax_written_out_takes_memory_for_all_pairs_and_linear_attention_does_not():
    costs = measure_quickly([1024, 2048])
    growth = {name: sizes[1] / sizes[0] for name, sizes in costs.bytes.items()}
    assert growth["written"] == pytest.approx(4, rel=0.01)
    assert growth["fused"] == pytest.approx(2, rel=0.01)
    assert costs.bytes["written"][0] >= 4 * 1024**2
    for name in FEATURES:
        assert growth[name] < 2.1
        assert costs.bytes["fused"][1] < costs.bytes[name][1] < costs.bytes["written"][1]


def measure_quickly(lengths):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "clearhead.lab.kernels.cost.best_milliseconds",
            lambda work, device, seconds: dict.fromkeys(work, 1.0),
        )
        return measure(lengths, torch.Generator().manual_seed(0), "cpu")


def test_the_text_contains_the_numbers(finding):
    n, text = finding.numbers, " ".join(finding.text.split())
    for words in (
        f"exact to {n['quadratic_error']:.0e}",
        f"off by {n['uncrossed_share']:.0%}",
        f"m^{n['fourier_slope']:.2f} (Fourier)",
        f"m^{n['positive_slope']:.2f} (positive)",
        f"of {n['fourier_bad_4'][0]:.0%} of the queries",
        "T = 250 (elu+1, 64 features), 500 (Fourier, 256 features), 3,000 (quadratic, 2145 f",
    ):
        assert words in text
    assert finding.seen.count(".\n") == 1


def test_the_tables_contain_the_numbers(finding):
    exact, agreement, errors, shares, times, crossovers = finding.tables
    n = finding.numbers
    assert [row[1] for row in exact.rows] == [153, 33]
    assert exact.rows[1][2:] == [
        n["uncrossed_error"],
        f"{n['uncrossed_share']:.1%}",
        f"{n['uncrossed_negative']:.1%}",
    ]
    assert agreement.rows[0][1] == n["quadratic_agrees"]
    assert [row[3] for row in errors.rows[:5]] == n["fourier_error"]
    assert [row[2] for row in errors.rows[6:11]] == n["positive_predicted"]
    assert errors.rows[11][2:] == [
        -0.5,
        *(n[f"positive_{x}"] for x in ("slope", "slope_spread", "output_slope")),
    ]
    assert shares.rows[1][1:] == [f"{x:.1%}" for x in n["fourier_bad_4"]]
    assert {cell for row in shares.rows[3:] for cell in row[1:]} == {"0.0%"}
    assert times.rows[4][1:] == [*n["elu_milliseconds"], n["elu_power"]]
    assert crossovers.rows[2] == ["quadratic, 2145 features", "2145", "3000", "1000", 65.536]
    assert crossovers.rows[4][:4] == ["elu+1, 64 features", "64", "250", "128 or less"]


def test_a_map_that_never_gets_faster_is_reported_as_such(monkeypatch):
    slow = Costs(
        TIMES,
        MADE_UP.milliseconds | {"quadratic": [1e6] * len(TIMES)},
        MADE_UP.products,
        MADE_UP.bytes,
    )
    numbers = kernels.summarize_costs(slow)
    assert "quadratic_faster_from" not in numbers
    crossovers = kernels.tabulate(FAKE | numbers, FREQUENCIES, slow)[-1]
    assert crossovers.rows[2][2] == "not up to 4096"


# What a table needs beside the prices.
FAKE = {f"{name}_{x}": [0.1] * 5 for name in RANDOM for x in ("predicted", "error", "spread")}
FAKE |= {f"{name}_output": [0.1] * 5 for name in RANDOM}
FAKE |= {f"{name}_{x}": 0.1 for name in RANDOM for x in ("slope", "slope_spread", "output_slope")}
FAKE |= {f"fourier_bad_{length:g}": [0.1] * 5 for length in LENGTHS}
FAKE |= {f"{name}_bad": [0.0] for name in ("positive", "elu", "quadratic")}
FAKE |= {f"{name}_agrees": 0.0 for name in ("quadratic", "elu", *RANDOM)}
FAKE |= {
    f"{name}_{x}": 1.0
    for name in ("quadratic", "uncrossed")
    for x in ("features", "error", "share", "negative")
}


def test_the_picture_is_drawn_and_described(finding, tmp_path):
    path = finding.picture.save(tmp_path / "kernels.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    left, middle, right = finding.picture.figure.axes
    assert "1/√m" in left.get_title()
    assert len(middle.lines) == 1 + len(LENGTHS)
    rings = [text.get_text() for text in right.texts if "≈" in text.get_text()]
    assert rings == ["T ≈ 250", "T ≈ 500", "T ≈ 3,000"]
    assert "denominator" in finding.picture.description
    assert finding.claim.endswith(".")


@pytest.mark.slow
def test_times_grow_as_the_work_does_and_linear_attention_becomes_faster(whole_finding):
    measured, again = lab.run("kernels", device="cpu").numbers, whole_finding.numbers
    made_up = ("milliseconds", "bytes", "power", "faster_from", "lighter_from", "fewer_from")
    assert {k: x for k, x in measured.items() if not k.endswith(made_up)} == {
        k: x for k, x in again.items() if not k.endswith(made_up)
    }
    for name in ("written", "fused"):
        assert measured[f"{name}_power"] == Between(1.5, 3.0)
    for name in ("elu", "fourier"):
        assert measured[f"{name}_power"] == Between(0.3, 1.6)
        assert measured[f"{name}_faster_from"] == Between(128, 4096)
        assert measured[f"{name}_milliseconds"][-1] < measured["fused_milliseconds"][-1]

"""Scores and the scale: the law, every number against another simulation, and the telling."""

import itertools
import math
import statistics

import numpy as np
import pytest
import torch
from findings import Between, check_numbers

from clearhead.lab import why_sqrt_d
from clearhead.lab.tools.finding import format_cell
from clearhead.lab.why_sqrt_d import MEANS, N_PAIRS, WIDTHS, B, S, T, experiment, softness


@pytest.fixture(scope="module")
def finding():
    return experiment()


# The law


@pytest.mark.parametrize("mu", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.5, -2.0, 3.0)])
def test_mean_and_variance_are_exact_for_all_throws_of_six_coins(mu):
    """A coin that shows −1 or 1 has mean 0 and variance 1, and all throws can be counted."""
    scores = [
        sum((m + a) * (m + b) for m, a, b in zip(mu, coins[:3], coins[3:], strict=True))
        for coins in itertools.product((-1, 1), repeat=6)
    ]
    length = sum(m * m for m in mu)
    assert statistics.fmean(scores) == pytest.approx(length)
    assert statistics.pvariance(scores) == pytest.approx(3 + 2 * length)


# Another simulation


def simulated(d, scale, n=4000):
    """Entropy, ‖∂w/∂s‖ and ‖∂w/∂q‖ of n queries of their own keys, without queries and keys.

    Seen from a query of length r, a key is a number z along it and d − 1 numbers across it. The
    scores are r·z; of ∂w/∂q, J z lies along the query and J times the rest across it.
    """
    chance = np.random.default_rng(d)
    r = np.sqrt(chance.chisquare(d, (n, 1)))
    z = chance.standard_normal((n, S))
    w = np.exp(r * z * scale - (r * z * scale).max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    entropy = -np.sum(w * np.log(np.maximum(w, 1e-300)), axis=1)
    others = np.maximum((w**2).sum(axis=1, keepdims=True) - w**2, 0)
    to_scores = (w**2 * ((1 - w) ** 2 + others)).sum(axis=1)  # Σ_ij J_ij², row by row
    along = (w**2 * (z - (w * z).sum(axis=1, keepdims=True)) ** 2).sum(axis=1)
    if d < 32:
        rest = chance.standard_normal((n, S, d - 1))
        rest -= (w[..., None] * rest).sum(axis=1, keepdims=True)
        across = (w[..., None] ** 2 * rest**2).sum(axis=(1, 2))
    else:
        across = (d - 1) * to_scores  # its mean, and with many entries nearly its value
    return entropy, np.sqrt(to_scores), scale * np.sqrt(along + across)


def mean_like(values):
    """Where the mean of B · T of these lies: within five standard errors."""
    error = 5 * values.std() / math.sqrt(B * T)
    return Between(values.mean() - error, values.mean() + error)


def median_like(values):
    """Where their median lies: five standard errors of the place of the middle are 0.056."""
    return Between(*np.quantile(values, (0.44, 0.56)))


def about(centre, error):
    return Between(centre - 5 * error, centre + 5 * error)


def expected():
    """Every number, by the law or by the other simulation."""
    numbers = {"width": [4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0]}
    spread = math.sqrt(4 / N_PAIRS)  # of a variance; of a normal one it would be √(2/n)
    for m in MEANS:
        laws = [(d * m * m, d + 2 * d * m * m) for d in WIDTHS]
        numbers[f"mean_{m:g}"] = [about(mean, math.sqrt(v / N_PAIRS)) for mean, v in laws]
        numbers[f"variance_{m:g}"] = [about(v, v * spread) for _, v in laws]
    numbers["variance_scaled"] = [about(1, spread) for _ in WIDTHS]
    for name, power in (("with", -0.5), ("without", 0.0)):
        entropy, to_scores, to_query = zip(*(simulated(d, d**power) for d in WIDTHS), strict=True)
        numbers[f"entropy_{name}"] = [mean_like(x) for x in entropy]
        numbers[f"to_scores_{name}"] = [median_like(x) for x in to_scores]
        numbers[f"to_query_{name}"] = [median_like(x) for x in to_query]
        numbers[f"to_query_mean_{name}"] = [mean_like(x) for x in to_query]
    return numbers


def test_every_number_is_that_of_the_law_or_of_another_simulation(finding):
    check_numbers(finding, expected())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_seeds_show_the_same(seed):
    check_numbers(experiment(seed=seed), expected())


# The claim


def test_with_the_scale_the_softmax_is_equally_soft_at_every_width(finding):
    for name in ("entropy_with", "to_scores_with", "to_query_with", "to_query_mean_with"):
        values = finding.numbers[name]
        assert max(values) < 1.1 * min(values)


def test_without_the_scale_it_hardens_with_every_doubling_of_the_width(finding):
    entropy = finding.numbers["entropy_without"]
    assert all(narrow > wide for narrow, wide in itertools.pairwise(entropy))
    assert entropy[-1] < 0.06 * finding.numbers["entropy_with"][-1]


def test_without_the_scale_half_of_the_queries_lose_their_gradient_and_a_few_get_more(finding):
    numbers = finding.numbers
    assert numbers["to_query_without"][-1] < 0.05 * numbers["to_query_with"][-1]
    assert numbers["to_query_mean_without"][-1] > 5 * numbers["to_query_mean_with"][-1]


# What softness measures


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_sizes_are_those_of_the_matrices_of_derivatives(scale):
    chance = torch.Generator().manual_seed(0)
    q = torch.randn(2, 3, 5, generator=chance, dtype=torch.float64)
    k = torch.randn(2, 7, 5, generator=chance, dtype=torch.float64)
    found = softness(q, k, scale)
    jacobian = torch.autograd.functional.jacobian
    for b, t in itertools.product(range(2), range(3)):
        to_query = jacobian(lambda x, b=b: (k[b] @ x * scale).softmax(dim=-1), q[b, t])
        to_scores = jacobian(lambda s: s.softmax(dim=-1), k[b] @ q[b, t] * scale)
        w = (k[b] @ q[b, t] * scale).softmax(dim=-1).tolist()
        assert found.to_query[b, t].item() == pytest.approx(to_query.norm().item(), rel=1e-12)
        assert found.to_scores[b, t].item() == pytest.approx(to_scores.norm().item(), rel=1e-12)
        assert found.entropy[b, t].item() == pytest.approx(-sum(x * math.log(x) for x in w))


def test_equal_scores_give_the_numbers_worked_by_hand():
    """Each of five weights is 1/5: J is (I − 1/5) / 5, whose four eigenvalues 1/5 give 2/5."""
    found = softness(torch.zeros(1, 1, 4), torch.ones(1, 5, 4), 1.0)
    assert found.entropy.item() == pytest.approx(math.log(5))
    assert found.to_scores.item() == pytest.approx(2 / 5)
    assert found.to_query.item() == pytest.approx(0, abs=1e-6)  # the keys are all the same


def test_a_key_with_all_the_weight_leaves_no_gradient():
    k = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    found = softness(torch.tensor([[[1000.0, 0.0]]]), k, 1.0)
    assert found.entropy.item() == found.to_scores.item() == found.to_query.item() == 0


# What is told


def test_tables_and_sentences_contain_the_numbers(finding):
    told = finding.text.split()
    for name, values in finding.numbers.items():
        if name != "width":
            assert {format_cell(value) for value in values} <= set(told)
    assert {f"{d:,}" for d in WIDTHS} <= set(told)
    assert max(map(len, finding.text.splitlines())) <= 100


def test_the_sentences_compare_the_smallest_and_the_largest_width(finding):
    ends = {
        name: [format_cell(values[0]), format_cell(values[-1])]
        for name, values in finding.numbers.items()
    }
    for words in (
        "From d = 4 to 1,024",
        "grows from {} to {}".format(*ends["variance_0"]),
        "divided by √d it is {} and {}".format(*ends["variance_scaled"]),
        "the entropy falls from {} to {} nats".format(*ends["entropy_without"]),
        "from {} to {}; with it".format(*ends["to_scores_without"]),
        "{} and {} at d = 1,024".format(ends["entropy_with"][1], ends["to_scores_with"][1]),
    ):
        assert words in finding.seen.replace("\n", " ")


def test_the_picture_is_drawn_and_described(finding, tmp_path):
    path = finding.picture.save(tmp_path / "why.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "from 4 to 1024" in finding.picture.description
    assert len(finding.picture.figure.axes) == 4
    assert finding.claim.endswith(".")


def test_the_lines_of_the_variance_are_the_law(finding):
    axes = finding.picture.figure.axes[1]
    laws = [line.get_ydata() for line in axes.lines if line.get_linestyle() != "None"]
    for law, factor in zip(laws, (3, 1.5, 1), strict=False):
        assert list(law) == [factor * d for d in WIDTHS]
    assert list(laws[3]) == [1.0] * len(WIDTHS)


def test_the_seed_decides_all_numbers(monkeypatch):
    monkeypatch.setattr(why_sqrt_d, "WIDTHS", (4, 6))
    monkeypatch.setattr(why_sqrt_d, "N_PAIRS", 100)
    once, again, other = (experiment(seed=seed) for seed in (5, 5, 6))
    assert once.numbers == again.numbers
    assert once.text == again.text
    assert all(
        once.numbers[name] != other.numbers[name] for name in once.numbers if name != "width"
    )

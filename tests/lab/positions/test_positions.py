"""Positions: laws and curves by hand, small models scored again in NumPy, what they do beyond."""

import math

import numpy as np
import pytest
import torch
from findings import Between, check_numbers, check_page

from clearhead.attention import MultiHeadAttention
from clearhead.lab.positions import schemes as positions
from clearhead.lab.positions.rule import (
    DENSITY,
    DIGITS,
    KINDS,
    LIMITED,
    TRAINED,
    latest_digits,
    learn,
    score,
)
from clearhead.lab.positions.schemes import (
    HEADS,
    SHIFT,
    WIDTH,
    by_distance,
    experiment,
    similarity,
    spread,
)

LENGTHS = [32, 64, 128]
RELATIVE = ("none", "rotary", "toeplitz", "alibi")
OMEGAS = [10000 ** (-2 * i / WIDTH) for i in range(WIDTH // 2)]
COSINES = [sum(math.cos(w * d) for w in OMEGAS) / len(OMEGAS) for d in range(TRAINED)]


def run(steps=None):
    """The experiment and the models it trained; with `steps`, trained no longer than that."""
    models = {kind: [] for kind in KINDS}

    def learned(kind, seed, given, device):
        models[kind].append(learn(kind, seed, steps or given, device))
        return models[kind][-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positions, "learn", learned)
        return experiment(), models


@pytest.fixture(scope="module")
def quick():
    return run(steps=10)


@pytest.fixture(scope="module")
def whole():
    return run()


def close(x):
    return pytest.approx(x, rel=1e-5, abs=1e-6)


def within(low, high, n=1):
    return [Between(low, high)] * n


# Every number


def scored(model, kind):
    """Loss and right answers by length, in NumPy."""
    generator = torch.Generator().manual_seed(99)
    losses, rights = [], []
    for T in LENGTHS[:1] if kind in LIMITED else LENGTHS:
        tokens, answers = latest_digits(128, T, generator)
        with torch.no_grad():
            logits = model(tokens).double().numpy()[:, -32:]
        answers = answers.numpy()[:, -32:]
        probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        losses.append(-np.log(np.take_along_axis(probs, answers[..., None], -1)).mean())
        rights.append((logits.argmax(-1) == answers).mean())
    return losses, rights


def expected_answers(models):
    numbers = {}
    for kind, trained in models.items():
        losses, rights = zip(*(scored(model, kind) for model in trained), strict=True)
        numbers |= {
            f"{kind}_loss": close(np.mean(losses, axis=0).tolist()),
            f"{kind}_loss_low": close(np.min(losses, axis=0).tolist()),
            f"{kind}_loss_high": close(np.max(losses, axis=0).tolist()),
            f"{kind}_right": close(np.mean(rights, axis=0).tolist()),
        }
    return numbers


def cosines_of(table):
    """The mean over pairs of each distance, and how far such pairs differ, by loops."""
    rows = [row / np.sqrt((row**2).sum()) for row in table]
    pairs = [[rows[i] @ rows[i - d] for i in range(d, len(rows))] for d in range(len(rows))]
    return [np.mean(x) for x in pairs], max(max(x) - min(x) for x in pairs)


def expected_distances(models):
    table = models["learned"][0].positions.weight.detach().double().numpy()
    learned, learned_spread = cosines_of(table)
    bias = models["toeplitz"][0].stack.blocks[0].attention.positions.weight.detach().numpy()
    loudest = bias[np.abs(bias).max(-1).argmax()] / math.sqrt(WIDTH // HEADS)
    return {
        "sinusoidal_by_distance": close(COSINES),
        "learned_by_distance": close(learned),
        "rotary_by_distance": pytest.approx(COSINES, abs=0.05),  # the mean over 256 contents
        "toeplitz_by_distance": close([loudest[TRAINED - d] for d in range(TRAINED)]),
        "alibi_by_distance": close([-d / 4 for d in range(TRAINED)]),  # 2^(−8/4) for head 1 of 4
        "sinusoidal_spread": Between(0, 1e-12),
        "learned_spread": close(learned_spread),
        "rotary_spread": Between(0, 1e-12),
        "toeplitz_spread": 0.0,
        "alibi_spread": 0.0,
    }


def attention_by_hand(kind):
    """attention(x, hidden) in NumPy; the first `hidden` keys are seen by nobody. x (T, D)."""
    torch.manual_seed(0)
    layers = MultiHeadAttention(WIDTH, HEADS).double()
    shape = {"learned": (TRAINED, WIDTH), "toeplitz": (HEADS, 2 * TRAINED + 1)}.get(kind, (0,))
    drawn = torch.empty(shape, dtype=torch.float64).normal_().numpy()
    Dh = WIDTH // HEADS

    def project(layer, x):
        weight, bias = (p.detach().numpy() for p in (layer.weight, layer.bias))
        return x @ weight.T + bias

    def turned(x, n):  # columns i and i + Dh/2 are a point in a plane
        angles = np.outer(np.arange(n), 10000.0 ** (-2 * np.arange(Dh // 2) / Dh))
        points = (x[:, : Dh // 2] + 1j * x[:, Dh // 2 :]) * np.exp(1j * angles)
        return np.concatenate([points.real, points.imag], axis=1)

    def attend(x, hidden=0):
        n, outputs = len(x), []
        if kind == "sinusoidal":
            angles = np.outer(np.arange(n), OMEGAS)
            x = x + np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, WIDTH)
        elif kind == "learned":
            x = x + drawn[:n]
        ahead = np.arange(n) - np.arange(n)[:, None]  # j − i
        for head in range(HEADS):
            part = slice(head * Dh, (head + 1) * Dh)
            parts = (layers.proj_q, layers.proj_k, layers.proj_v)
            q, k, v = (project(layer, x)[:, part] for layer in parts)
            if kind == "rotary":
                q, k = turned(q, n), turned(k, n)
            scores = q @ k.T
            if kind == "toeplitz":
                scores += drawn[head][TRAINED + ahead]
            scores /= math.sqrt(Dh)
            if kind == "alibi":
                scores -= 2.0 ** (-2 * (head + 1)) * np.abs(ahead)
            scores[:, :hidden] = -np.inf
            weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
            outputs.append(weights @ v)
        return project(layers.proj_out, np.concatenate(outputs, axis=1))

    return attend


def expected_laws():
    generator = torch.Generator().manual_seed(0)
    torch.randn(256, 1, WIDTH, generator=generator, dtype=torch.float64)  # contents to be turned
    x, before = (
        torch.randn(1, n, WIDTH, generator=generator, dtype=torch.float64)[0].numpy()
        for n in (TRAINED - SHIFT, SHIFT)
    )
    order = torch.randperm(len(x), generator=generator).numpy()
    numbers = {}
    for kind in KINDS:
        attend = attention_by_hand(kind)
        output = attend(x)
        permuted = attend(x[order]) - output[order]
        moved = attend(np.concatenate([before, x]), hidden=SHIFT)[SHIFT:] - output
        numbers[f"{kind}_permuted"] = pytest.approx(np.abs(permuted).max(), rel=1e-9, abs=1e-12)
        numbers[f"{kind}_moved"] = pytest.approx(np.abs(moved).max(), rel=1e-9, abs=1e-12)
    return numbers


def expected_pairs():
    waves = np.sin(np.outer(np.arange(4096 + SHIFT), OMEGAS))
    alike = waves[:TRAINED] @ waves[:TRAINED].T / len(OMEGAS)
    apart = max(np.ptp(np.diagonal(alike, -d)) for d in range(TRAINED))
    here, there = waves[:4096], waves[SHIFT:]
    left = there - here @ np.linalg.pinv(here) @ there
    return {
        "sines_spread": close(apart),
        "sines_missed": pytest.approx(np.sqrt((left**2).sum() / (there**2).sum()), rel=1e-3),
        "pairs_missed": Between(0, 1e-9),
    }


def check_all(finding, models):
    expected = expected_laws() | expected_distances(models) | expected_pairs()
    check_numbers(finding, expected | expected_answers(models))


def test_every_number_is_that_of_an_independent_computation(quick):
    check_all(*quick)


@pytest.mark.slow
def test_every_number_after_the_whole_training_is_that_of_an_independent_computation(whole):
    check_all(*whole)


# The laws behind


def test_one_rotation_of_every_pair_takes_each_position_to_the_one_eight_later():
    """PE[p + 8] = R PE[p] with one R for all p, written out from the angles."""
    table = positions.sinusoid_table(200, WIDTH, torch.float64).numpy()
    turn = np.zeros((WIDTH, WIDTH))
    for i, w in enumerate(OMEGAS):
        c, s = math.cos(8 * w), math.sin(8 * w)
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, s], [-s, c]]
    assert np.abs(table[:-8] @ turn.T - table[8:]).max() < 1e-12


def test_spread_and_mean_are_taken_along_the_diagonals():
    matrix = torch.tensor([[1.0, 9.0, 9.0], [2.0, 3.0, 9.0], [5.0, 8.0, 1.0]])
    assert by_distance(matrix) == pytest.approx([5 / 3, 5.0, 5.0])
    assert spread(matrix) == 6.0
    assert similarity(torch.tensor([[3.0, 0.0], [1.0, 1.0]]))[0, 1] == pytest.approx(0.5**0.5)


def test_only_tables_refuse_a_longer_sequence(quick):
    said = positions.try_one_token_more()
    assert said["learned"] == (
        "x has length 33 but max_len is 32; shorten it or build the module with max_len=33"
    )
    assert said["toeplitz"] == (
        "the query sequence has length 33 but max_len is 32; "
        "shorten it or build the module with max_len=33"
    )
    for kind in ("sinusoidal", "rotary", "alibi"):
        assert said[kind] == "accepted"
    for sentence in said.values():
        assert sentence in quick[0].text
    for kind in LIMITED:
        with pytest.raises(ValueError, match="length 33 but max_len is 32"):
            quick[1][kind][0](torch.zeros(1, 33, dtype=torch.long))


def test_the_answer_is_the_latest_digit():
    tokens, answers = latest_digits(50, 40, torch.Generator().manual_seed(3))
    for row, answer in zip(tokens.tolist(), answers.tolist(), strict=True):
        latest = None
        for token, expected in zip(row, answer, strict=True):
            latest = token or latest
            assert expected == latest
        assert row[0] > 0
    assert set(tokens.unique().tolist()) == set(range(DIGITS + 1))
    assert (tokens[:, 1:] > 0).float().mean().item() == pytest.approx(DENSITY, abs=0.05)


def test_only_the_last_answers_count():
    """A model that is right in the last 32 places of 64 only is right."""

    class LateOracle(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(1, 1)

        def forward(self, tokens):
            T = tokens.size(1)
            latest = torch.where(tokens > 0, torch.arange(T), 0).cummax(dim=1).values
            answers = tokens.gather(1, latest)
            answers[:, : T - TRAINED] = 0
            return 50.0 * torch.nn.functional.one_hot(answers, DIGITS + 1).float()

    (result,) = score(LateOracle(), [64], seed=0, n=8)
    assert result.right == 1.0
    assert result.loss == pytest.approx(0, abs=1e-6)


def test_the_same_seed_trains_the_same_model_and_leaves_the_generator_alone():
    before = torch.get_rng_state()
    first, second, other = (learn("rotary", seed, 3).head.weight for seed in (5, 5, 6))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_same_seed_gives_the_same_numbers(quick):
    assert run(steps=10)[0].numbers == quick[0].numbers


@pytest.mark.slow
def test_the_numbers_of_the_page_are_those_of_the_experiment(whole):
    check_page("positions", whole[0])


@pytest.mark.slow
def test_beyond_the_trained_length_alibi_answers_and_sinusoidal_and_rotary_do_not(whole):
    n = whole[0].numbers
    assert n["alibi_right"] == within(0.9, 1, 3)
    for kind in ("sinusoidal", "rotary"):
        assert n[f"{kind}_right"][0] > 0.97
        assert n[f"{kind}_right"][2] < 0.6
        assert n[f"{kind}_loss"][1:] == within(1, 10, 2)
    assert n["learned_right"] == within(0.97, 1)
    assert n["toeplitz_right"][0] > n["none_right"][0] + 0.1
    assert n["none_right"][0] < 0.7


def test_only_attention_without_positions_is_blind_to_the_order(quick):
    for kind in KINDS:
        assert (quick[0].numbers[f"{kind}_permuted"] < 1e-12) == (kind == "none")
        assert (quick[0].numbers[f"{kind}_moved"] < 1e-12) == (kind in RELATIVE)


# What is told


def test_the_text_contains_the_numbers(quick):
    finding, _ = quick
    n = finding.numbers
    for words in (
        f"to {n['none_permuted']:.0e}, with any of the five",
        f"changes by {min(n[f'{kind}_permuted'] for kind in KINDS if kind != 'none'):.1g} or more",
        f"distance alone, to {n['sinusoidal_spread']:.0e},",
        f"differs by up to {n['sines_spread']:.2f}",
        f"from {n['sinusoidal_right'][0]:.0%} to {n['sinusoidal_right'][2]:.0%} (sinusoidal)",
        f"from {n['rotary_right'][0]:.0%} to {n['rotary_right'][2]:.0%} (rotary)",
        f"from {n['alibi_right'][0]:.0%} to {n['alibi_right'][2]:.0%} (ALiBi)",
    ):
        assert words in " ".join(finding.seen.split())
    assert finding.seen.count(".\n") == 1


def test_the_tables_contain_the_numbers(quick):
    finding, _ = quick
    n = finding.numbers
    laws, distances, pairs, answers, beyond = finding.tables
    assert laws.rows[3] == ["rotary", n["rotary_permuted"], n["rotary_moved"]]
    assert distances.rows[4][:8] == [
        *("ALiBi", "0.00", "-0.25", "-0.50", "-1.00", "-2.00", "-4.00", "-7.75")
    ]
    assert distances.rows[1][8] == n["learned_spread"]
    assert pairs.rows[1] == ["sine only", n["sines_spread"], f"{n['sines_missed']:.1%}"]
    losses, rights = n["alibi_loss"], n["alibi_right"]
    told = [*(f"{x:.2f}" for x in losses), *(f"{x:.0%}" for x in rights)]
    assert answers.rows[5] == ["ALiBi", *told]
    assert answers.rows[2][2:4] == ["refused", "refused"]
    assert "2.08, 12%" in answers.caption
    assert [row[0] for row in beyond.rows] == [
        *("sinusoidal", "learned", "rotary", "Toeplitz", "ALiBi")
    ]


def test_the_picture_is_drawn_and_described(quick, tmp_path):
    picture = quick[0].picture
    assert picture.save(tmp_path / "positions.png").read_bytes().startswith(b"\x89PNG")
    titles = [axes.get_title() for axes in picture.figure.axes]
    assert sum("bias" in title for title in titles) == 2
    assert "trained on 32, tested on more" in titles
    assert "trained length" in picture.description
    assert quick[0].claim.endswith(".")

"""Masks and what they forbid: counted by hand, computed again in NumPy, and broken on purpose."""

import math

import numpy as np
import pytest
import torch
from findings import Between, check_numbers

from clearhead import lab
from clearhead.attention import Mask
from clearhead.lab.masks import (
    COLUMNS,
    D,
    H,
    T,
    build,
    experiment,
    gradient,
    influence,
    masks,
    reach,
)

NAMES = list(masks())
# Pairs that each mask allows, counted by hand for eight positions.
ALLOWED = {
    "causal": 8 * 9 // 2,
    "padding": 8 * 5,
    "window": 8 + 2 * 7,  # the diagonal and one beside it on either side
    "segments": 3 * 3 + 3 * 3,
    "dense": 8 + 2 * 5 + 2 * 2,  # diagonals 0, ±3 and ±6
    "causal & padding": 15 + 3 * 5,
    "causal & window": 8 + 7,
    "causal & segments": 6 + 6,
}
# What two blocks add: the position itself by the residual path, and what the others attend to.
FURTHER = {
    "padding": 3,  # three padded positions themselves
    "window": 2 * 6,  # two steps away
    "segments": 2,
    "causal & padding": 3,
    "causal & window": 6,
    "causal & segments": 2,
}


@pytest.fixture(scope="module")
def finding():
    return experiment()


@pytest.fixture(scope="module")
def built():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build("cpu")


def rule(name, i, j):
    """Whether query i may attend to key j, in plain words of Python."""
    rules = {
        "causal": j <= i,
        "padding": j < 5,
        "window": abs(i - j) < 2,
        "segments": i // 3 == j // 3 < 2,
        "dense": (i - j) % 3 == 0,
    }
    return all(rules[part] for part in name.split(" & "))


def reaches(name, i, j):
    """Whether output i of two blocks may depend on input j: itself, or through one other."""
    step = [[rule(name, a, b) or a == b for b in range(T)] for a in range(T)]
    return any(step[i][k] and step[k][j] for k in range(T))


def attention_in_numpy(attention, x, source, name):
    """The layer with loops over heads and queries, each query with its list of keys."""
    wq, wk, wv, wo = (
        layer.weight.double().numpy()
        for layer in (attention.proj_q, attention.proj_k, attention.proj_v, attention.proj_out)
    )
    q, k, v = x @ wq.T, source @ wk.T, source @ wv.T
    joined = np.zeros((T, D))
    for head in range(H):
        part = slice(head * D // H, (head + 1) * D // H)
        for i in range(T):
            keys = [j for j in range(T) if rule(name, i, j)]
            exps = [math.exp(q[i, part] @ k[j, part] / math.sqrt(D // H)) for j in keys]
            for j, e in zip(keys, exps, strict=True):
                joined[i, part] += e / sum(exps) * v[j, part]
    return joined @ wo.T


def influence_in_numpy(built, name):
    attention, _, x, other = built
    x, other = x[0].double().numpy(), other[0].double().numpy()
    before = attention_in_numpy(attention, x, x, name)
    columns = []
    for j in range(T):
        changed = x.copy()
        changed[j] = other[j]
        after = attention_in_numpy(attention, x, changed, name)
        columns.append(np.abs(after - before).max(axis=1))
    return np.stack(columns, axis=1)


def smallest_in_two_blocks(built, name):
    """All changed inputs in one batch, with the mask written out by the rule."""
    _, blocks, x, other = built
    mask = torch.tensor([[rule(name, i, j) for j in range(T)] for i in range(T)])
    batch = x.repeat(T, 1, 1)
    for j in range(T):
        batch[j, j] = other[0, j]
    change = (blocks(batch, mask=mask) - blocks(x, mask=mask)).abs().amax(-1)  # (changed j, i)
    return min(change[j, i].item() for i in range(T) for j in range(T) if reaches(name, i, j))


def with_total(values):
    return [*values, sum(values)]


def expected_counts(depth, built):
    pairs = [ALLOWED[name] + (FURTHER.get(name, 0) if depth == "two" else 0) for name in NAMES]
    if depth == "one":
        smallest = []
        for name in NAMES:
            changes = influence_in_numpy(built, name)
            smallest.append(
                min(changes[i, j] for i in range(T) for j in range(T) if rule(name, i, j))
            )
    else:
        smallest = [smallest_in_two_blocks(built, name) for name in NAMES]
    return {
        f"{depth}_forbidden": with_total([T * T - n for n in pairs]),
        f"{depth}_forbidden_changed": [0] * 9,
        f"{depth}_forbidden_gradient": [0] * 9,
        f"{depth}_allowed": with_total(pairs),
        f"{depth}_allowed_changed": with_total(pairs),
        f"{depth}_allowed_gradient": with_total(pairs),
        f"{depth}_smallest_change": pytest.approx([*smallest, min(smallest)], rel=1e-3, abs=1e-5),
    }


def test_every_number_is_the_one_counted_by_hand(finding, built):
    check_numbers(
        finding,
        {
            **expected_counts("one", built),
            **expected_counts("two", built),
            "gpt_ahead": 8 * 7 // 2,
            "gpt_ahead_changed": 0,
            "gpt_behind": 8 * 9 // 2,
            "gpt_behind_changed": 8 * 9 // 2,
            "unmasked_ahead": 8 * 7 // 2,
            "unmasked_ahead_changed": 8 * 7 // 2,
            "empty_outputs": 2 * D,
            "empty_not_zero": 0,
            "plain_weights": 2 * T,
            "plain_nan": 2 * T,
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_masks_and_their_reach_are_what_the_rules_say(name):
    allowed = masks()[name].dense(T, T).reshape(T, T)
    assert allowed.tolist() == [[rule(name, i, j) for j in range(T)] for i in range(T)]
    assert reach(allowed, 2).tolist() == [[reaches(name, i, j) for j in range(T)] for i in range(T)]
    assert reach(allowed, 1).tolist() == [
        [rule(name, i, j) or i == j for j in range(T)] for i in range(T)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_measured_influence_is_that_of_attention_in_numpy(name, built):
    attention, _, x, other = built
    measured = influence(lambda source: attention(x, source, mask=masks()[name]), x, other)
    assert measured.numpy() == pytest.approx(influence_in_numpy(built, name), abs=1e-5)


def test_influence_and_gradient_of_a_known_matrix_are_its_entries():
    M = torch.randn(T, T, generator=torch.Generator().manual_seed(1)).tril()
    x = torch.zeros(1, T, 3)
    moved = influence(lambda y: M @ y, x, x + 1)
    assert torch.allclose(moved, M.abs())
    assert torch.allclose(gradient(lambda y: M @ y, x), M.abs())


def test_a_layer_that_looks_ahead_is_caught(built):
    """The check can fail: a mask that lets one pair through shows exactly this pair."""
    attention, _, x, other = built
    leaky = Mask.causal().dense(T, T)
    leaky[2, 6] = True
    moved = influence(lambda source: attention(x, source, mask=leaky), x, other) != 0
    ahead = moved & ~Mask.causal().dense(T, T)
    assert ahead.nonzero().tolist() == [[2, 6]]


def test_a_lowered_score_instead_of_a_mask_leaks(built):
    """A bias of −5 where a mask belongs: small, but not 0."""
    attention, _, x, other = built
    bias = torch.zeros(T, T).masked_fill(~Mask.causal().dense(T, T), -5.0)
    moved = influence(lambda source: attention(x, source, bias=bias), x, other)
    assert (moved > 0).all()


def test_queries_with_nothing_to_attend_to_get_zeros_and_give_no_gradient(built):
    attention, _, x, _ = built
    mask = masks()["segments"]
    assert (attention(x, mask=mask)[0, 6:] == 0).all()
    assert (gradient(lambda y: attention(y, mask=mask), x)[6:] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_other_seeds_count_the_same(seed, finding):
    numbers = experiment(seed=seed).numbers
    for name, value in finding.numbers.items():
        if name.endswith("smallest_change"):
            assert numbers[name] != value
            assert numbers[name] == [Between(1e-5, 10)] * 9
        else:
            assert numbers[name] == value


@pytest.mark.slow
def test_the_full_experiment_tries_more_pairs(finding):
    numbers = experiment(full=True).numbers
    assert numbers["one_forbidden"] == [20 * n for n in finding.numbers["one_forbidden"]]
    assert numbers["two_forbidden_changed"] == [0] * 9
    assert numbers["two_allowed_changed"] == numbers["two_allowed"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_and_leaves_the_generator_alone(finding):
    state = torch.random.get_rng_state()
    again = experiment(seed=0)
    assert torch.random.get_rng_state().equal(state)
    assert again.numbers == finding.numbers
    assert again.text == finding.text
    assert lab.run("masks", device="cpu").numbers == finding.numbers


def test_the_tables_contain_the_numbers(finding):
    for depth, table in zip(("one", "two"), finding.tables[:2], strict=True):
        assert [row[0] for row in table.rows] == [*NAMES, "together"]
        for place, column in enumerate(COLUMNS, start=1):
            assert [row[place] for row in table.rows] == finding.numbers[f"{depth}_{column}"]
    looked_for = [tuple(row[1:]) for row in finding.tables[2].rows]
    assert looked_for == [(28, 0), (36, 36), (28, 28), (20, 0), (16, 16)]


def test_the_text_contains_the_numbers(finding):
    words = " ".join(finding.text.split())
    for part in (
        "In one attention layer 0 of 317 forbidden pairs changed an output and 195 of 195 allowed",
        "(by gradient 0 and 195); in two blocks 0 of 289 forbidden pairs changed an output and 223",
        "Of 28 pairs that look ahead 0 changed the logits of a GPT and 28 the output of blocks",
        "nothing, 0 of 20 outputs differ from 0, and a plain softmax gives 16 weights that",
    ):
        assert part in words
    assert max(map(len, finding.text.splitlines())) <= 100


def test_the_picture_shows_every_mask_above_its_influences(finding, tmp_path):
    path = finding.picture.save(tmp_path / "masks.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert finding.claim.endswith(".")
    assert "8 masks" in finding.picture.description
    panels = finding.picture.figure.axes[: 3 * len(NAMES)]
    assert [axes.get_title().replace("\n", " ") for axes in panels[:8]] == NAMES
    zeros = [len(axes.collections[0].get_offsets()) for axes in panels[8:]]
    numbers = finding.numbers
    assert zeros == numbers["one_forbidden"][:-1] + numbers["two_forbidden"][:-1]

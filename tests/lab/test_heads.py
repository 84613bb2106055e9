"""Heads: what it means to take one away, who attends to whom, and what a trained model needs."""

import pytest
import torch
from findings import Between, check_numbers

from clearhead.attention import MultiHeadAttention
from clearhead.data.batch import Batch
from clearhead.data.substrings import Substrings
from clearhead.inspection import ablate
from clearhead.lab import heads
from clearhead.lab.heads import (
    KINDS,
    accuracy,
    experiment,
    kinds_of_keys,
    lost_accuracy,
    mean_weights,
    weights_by_kind,
)
from clearhead.models import ClassifierConfig, SequenceClassifier
from clearhead.training.tasks.substrings import SubstringData

LAYERS, HEADS = 2, 3
BAR = 4  # the id of the separator: [CLS] is 0, then a, b, c


@pytest.fixture
def model():
    """Untrained; without biases its answers depend on the text."""
    torch.manual_seed(1)
    config = ClassifierConfig(
        5, 1, d_model=12, n_layers=LAYERS, n_heads=HEADS, max_len=16, bias=False
    )
    model = SequenceClassifier(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.7)
    return model


@pytest.fixture
def texts():
    return Substrings(haystack=(3, 8), needle=(1, 3), part="validation").batch(range(60))


def two_texts():
    """[CLS] a b a | a b and [CLS] c c | c, the second filled up."""
    inputs = torch.tensor([[0, 1, 2, 1, 4, 1, 2], [0, 3, 3, 4, 3, 0, 0]])
    real = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    return Batch(inputs, torch.tensor([1, 1]), real)


# Taking a head away


def test_without_a_head_the_output_is_less_by_exactly_its_term():
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(12, HEADS).double(), torch.randn(2, 5, 12).double()
    q, k, v = (layer(x) for layer in (attention.proj_q, attention.proj_k, attention.proj_v))
    whole = attention(x)
    for head in range(HEADS):
        columns = slice(4 * head, 4 * head + 4)
        weights = (q[..., columns] @ k[..., columns].mT / 2).softmax(dim=-1)  # √4 = 2
        term = weights @ v[..., columns] @ attention.proj_out.weight[:, columns].mT
        with ablate(attention, 0, [head]):
            torch.testing.assert_close(whole - attention(x), term)
    torch.testing.assert_close(attention(x), whole, rtol=0, atol=0)  # all is as it was


def test_without_any_head_only_the_bias_is_left():
    attention, x = MultiHeadAttention(12, HEADS), torch.randn(2, 5, 12)
    with ablate(attention, 0, range(HEADS)):
        output = attention(x)
    assert torch.equal(output, attention.proj_out.bias.expand_as(output))


def test_a_head_comes_back_after_an_error():
    attention, x = MultiHeadAttention(12, HEADS), torch.randn(2, 5, 12)
    before = attention(x)
    with pytest.raises(RuntimeError, match="stop"), ablate(attention, 0, [0]):
        raise RuntimeError("stop")
    assert torch.equal(attention(x), before)


def test_accuracy_counts_the_texts_answered_right(model, texts):
    right = 0
    for row, real, target in zip(texts.inputs, texts.token_mask, texts.targets, strict=True):
        logit = model(row[real][None])[0, 0, 0].item()  # alone, without padding
        right += (logit > 0) == bool(target)
    assert 0 < right < len(texts)
    assert accuracy(model, texts) == pytest.approx(right / len(texts))


def test_lost_accuracy_is_that_of_weights_set_to_zero(model, texts):
    found, whole = lost_accuracy(model, texts), accuracy(model, texts)
    layers = [block.attention.proj_out.weight for block in model.stack.blocks]

    def with_only(layer, kept):
        weight = layers[layer]
        before = weight.detach().clone()
        with torch.no_grad():
            for head in set(range(HEADS)) - set(kept):
                weight[:, 4 * head : 4 * head + 4] = 0.0
            answer = accuracy(model, texts)
            weight.copy_(before)
        return answer

    def but(head):
        return set(range(HEADS)) - {head}

    by_layer = [whole - with_only(layer, []) for layer in range(LAYERS)]
    most = max(range(LAYERS), key=lambda layer: by_layer[layer])
    assert found == {
        "accuracy": whole,
        "lost_layer_0": pytest.approx([whole - with_only(0, but(h)) for h in range(HEADS)]),
        "lost_layer_1": pytest.approx([whole - with_only(1, but(h)) for h in range(HEADS)]),
        "lost_with_all": pytest.approx(by_layer),
        "most_missed_layer": most,
        "one_head_left": pytest.approx([with_only(most, [h]) for h in range(HEADS)]),
    }
    assert len({*found["lost_layer_0"], *found["lost_layer_1"]}) > 2  # else nothing was tried


# Who attends to whom


def test_kinds_of_keys_are_those_found_by_hand():
    kinds = kinds_of_keys(two_texts(), BAR)
    assert kinds.keys() == set(KINDS)

    def keys(kind, text, query):
        return kinds[kind][text, query].nonzero().flatten().tolist()

    seen_by_third = {kind: keys(kind, 0, 3) for kind in KINDS}  # the second a of aba|ab
    assert seen_by_third == {
        "previous": [2],
        "itself": [3],
        "next": [4],
        "same_letter": [1, 5],
        "separator": [4],
        "haystack": [1, 2, 3],
        "needle": [5, 6],
    }
    assert keys("needle", 1, 0) == [4]
    assert keys("next", 1, 4) == []  # what follows is padding
    assert not any(keys(kind, 1, 5) for kind in KINDS)  # padding asks nothing


def test_mean_weights_are_means_over_letters_and_over_class_tokens():
    texts = two_texts()
    weights = torch.rand(2, HEADS, 7, 7, generator=torch.Generator().manual_seed(1))
    found = mean_weights(weights, texts, BAR)
    letters = [(0, t) for t in (1, 2, 3, 5, 6)] + [(1, t) for t in (1, 2, 4)]
    needles = {0: (5, 6), 1: (4,)}
    words = [[0, 1, 2, 1, 4, 1, 2], [0, 3, 3, 4, 3]]
    for head in range(HEADS):
        w = weights[:, head].tolist()
        back = sum(w[b][t][t - 1] for b, t in letters) / 8
        same = (
            sum(
                w[b][t][s]
                for b, t in letters
                for s in range(len(words[b]))
                if s != t and words[b][s] == words[b][t]
            )
            / 8
        )
        needle = sum(w[b][0][s] for b in (0, 1) for s in needles[b]) / 2
        assert found["previous"][head] == pytest.approx(back, rel=1e-5)
        assert found["same_letter"][head] == pytest.approx(same, rel=1e-5)
        assert found["needle"][head] == pytest.approx(needle, rel=1e-5)


def test_a_head_with_equal_weights_gives_each_part_its_share_of_the_tokens():
    maps = [torch.rand(2, HEADS, 7, 7) for _ in range(LAYERS)]
    numbers = weights_by_kind(maps, two_texts(), BAR)
    assert all(len(row) == LAYERS * HEADS + 1 for row in numbers.values())
    assert numbers["weight_haystack"][-1] == pytest.approx((3 / 7 + 2 / 5) / 2)
    assert numbers["weight_needle"][-1] == pytest.approx((2 / 7 + 1 / 5) / 2)
    assert numbers["weight_itself"][-1] == pytest.approx((5 / 7 + 3 / 5) / 8)
    assert numbers["weight_next"][-1] == pytest.approx((4 / 7 + 2 / 5) / 8)
    assert numbers["weight_haystack"][HEADS] == pytest.approx(
        maps[1][0, 0, 0, 1:4].sum().item() / 2 + maps[1][1, 0, 0, 1:3].sum().item() / 2
    )


# What is told


def check_told(finding, n_layers, n_heads):
    """Tables, sentences and picture say the numbers."""
    numbers = finding.numbers
    lost, left, weights = finding.tables
    for layer, row in enumerate(lost.rows):
        shares = [*numbers[f"lost_layer_{layer}"], numbers["lost_with_all"][layer]]
        assert [float(cell) for cell in row[1:]] == pytest.approx(
            [100 * x for x in shares], abs=0.051
        )
    none = numbers["accuracy"] - max(numbers["lost_with_all"])
    assert [float(cell) for cell in left.rows[0][1:]] == pytest.approx(
        [100 * x for x in (*numbers["one_head_left"], none)], abs=0.051
    )
    assert len(weights.rows) == n_layers * n_heads + 1
    for place, row in enumerate(weights.rows):
        shares = [100 * numbers[f"weight_{kind}"][place] for kind in KINDS]
        assert [float(cell) for cell in row[1:]] == pytest.approx(shares, abs=0.051)
    assert f"{numbers['accuracy']:.2%}" in finding.seen
    assert f"at most {max(numbers['one_head_left']):.1%}" in finding.seen
    single = [x for n in range(n_layers) for x in numbers[f"lost_layer_{n}"]]
    assert f"{sum(x > 0.01 for x in single)} of the {len(single)} heads" in finding.seen
    table, *maps, _ = finding.picture.figure.axes
    assert len(table.texts) == n_layers * (n_heads + 1)
    assert len(maps) == 3
    assert f"{100 * max(single):.1f} points lost" in maps[0].get_title()
    assert "heads" in finding.picture.description


def test_tables_sentences_and_picture_contain_the_numbers(monkeypatch, model, tmp_path):
    monkeypatch.setattr(heads, "N_TEXTS", 60)
    asked = []

    def instead(*given):
        asked.append(given)
        return model, SubstringData(haystack=(3, 8), needle=(1, 3)).open()

    monkeypatch.setattr(heads, "train_substring_model", instead)
    finding = experiment(seed=5, full=True)
    assert asked == [(5, True, "cpu")]
    check_told(finding, LAYERS, HEADS)
    assert experiment(seed=5, full=True).numbers == finding.numbers
    assert finding.picture.save(tmp_path / "heads.png").stat().st_size > 10_000


# The trained model


@pytest.fixture(scope="module")
def finding():
    """The whole experiment, with its training: for slow tests."""
    return experiment()


@pytest.mark.slow
def test_a_trained_model_needs_several_heads(finding):
    n_heads = 4
    points, shares = Each(-0.02, 0.6, n_heads), Each(0.0, 1.0, 3 * n_heads + 1)
    check_numbers(
        finding,
        {
            "accuracy": Between(0.98, 1.0),
            **{f"lost_layer_{n}": points for n in range(3)},
            "lost_with_all": Each(0.05, 0.6, 3),
            "most_missed_layer": Between(0, 2),
            "one_head_left": Each(0.4, 0.95, n_heads),  # none of them can do it alone
            **{f"weight_{kind}": shares for kind in KINDS},
        },
    )
    single = [x for n in range(3) for x in finding.numbers[f"lost_layer_{n}"]]
    assert max(single) > 0.1
    assert sum(x > 0.01 for x in single) >= 3
    check_told(finding, 3, n_heads)


class Each:
    """Equal to n numbers, each from low to high."""

    def __init__(self, low, high, n):
        self.low, self.high, self.n = low, high, n

    def __eq__(self, other):
        return len(other) == self.n and all(self.low <= x <= self.high for x in other)

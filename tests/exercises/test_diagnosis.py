"""What a wrong answer is told: one id, the term, an honest outcome."""

import pytest
from submissions import check_source

from clearhead.exercises.check import check
from clearhead.exercises.definitions import find_definition
from clearhead.exercises.intake import read_source
from clearhead.exercises.lines import find_line

MODULE = """
import torch
from torch import nn

class SelfAttention(nn.Module):
    def __init__(self, input_dim, key_dim, output_dim):
        super().__init__()
        self.q = nn.Linear(input_dim, key_dim)
        self.k = nn.Linear(input_dim, key_dim)
        self.v = nn.Linear(input_dim, output_dim)

    def forward(self, x, mask=None):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        out = weights @ v
        return out
"""
NONSENSE = """
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        y = self.w2(torch.relu(self.w1(x)))
        return 1e3 * torch.sin(57.0 * y.cumsum(-1) + 1e3)
"""
PAIR = """
import torch

def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v
"""


def test_of_two_mistakes_the_first_of_the_formula_is_the_mistake_and_both_are_listed(tmp_path):
    path = tmp_path / "pair.py"
    path.write_text(PAIR)
    part = check(path, "attention", seed=3).to_json()["parts"][0]
    assert part["mistake"] == "no_scaling"
    assert part["mistakes"] == ["no_scaling", "mask_inverted"]
    assert "not divided by" in part["sentence"]
    assert "inverted" in part["sentence"]


@pytest.mark.parametrize(
    ("old", "new", "term"),
    [
        ("/ q.shape[-1] ** 0.5", "/ (q.shape[-1] + 1) ** 0.5", "scale"),
        ("/ q.shape[-1] ** 0.5", "/ 8", "scale"),
        ("q @ k.mT", "torch.relu(q @ k.mT)", "score"),
        ("torch.softmax(scores, dim=-1)", "torch.softmax(scores, dim=-1) ** 2", "weigh"),
        ('float("-inf")', "-3.0", "hide"),
        ("weights @ v", "weights @ v * 2", "mix"),
    ],
)
def test_a_mistake_without_a_name_gets_its_term_by_what_it_does(old, new, term):
    found = check_source("self_attention", MODULE.replace(old, new))
    assert (found.outcome, found.term) == ("narrowed", term)


def test_a_mistake_that_nothing_explains_is_unknown_with_an_example():
    found = check_source("feed_forward", "import torch\n" + NONSENSE)
    assert (found.verdict, found.outcome, found.term) == ("failed", "unknown", None)
    assert found.example is not None


def test_a_line_is_found_where_the_value_is_computed_not_where_it_is_guarded():
    source = MODULE.replace("mask == 0", "mask != 0")
    definition = find_definition(("SelfAttention",), read_source(source, "x.py").definitions)
    line = find_line(source, definition, ("mask",))
    assert "masked_fill" in source.splitlines()[line - 1]
    line = find_line(source, definition, ("return",))
    assert source.splitlines()[line - 1].strip() == "out = weights @ v"

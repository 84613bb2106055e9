"""Induction: texts that repeat, a model of attention alone, and what it loses without its heads."""

import pytest
import torch
from findings import Between, check_numbers

from clearhead.lab import induction
from clearhead.lab.induction import HEADS, LAYERS, LENGTH, VOCAB

N_HEADS = LAYERS * HEADS


def test_texts_repeat_after_their_period_and_only_then_can_be_known() -> None:
    texts, period = induction.draw_texts(50, torch.Generator().manual_seed(0), "cpu")
    known = induction.find_repeated(period)
    for text, (n,), row in zip(texts.tolist(), period.tolist(), known.tolist(), strict=True):
        assert text[n:] == text[: LENGTH - n]
        # Target t of the row is token t + 1; the token before it must have occurred.
        assert [t + 1 for t, flag in enumerate(row) if flag] == list(range(n + 1, LENGTH))


def test_the_model_is_attention_alone() -> None:
    model = induction.build(0)
    x = torch.randn(2, 5, induction.WIDTH)
    for block in model.stack.blocks:
        assert torch.equal(block.feed_forward(x), torch.zeros_like(x))
        assert not any(p.requires_grad for p in block.feed_forward.parameters())


def test_a_model_that_copies_by_position_is_right_everywhere() -> None:
    """accuracy counts the repeated tokens only: here all are right, and no other."""

    class Copying(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            wanted = torch.roll(tokens, 7, dims=1)  # what stands 7 tokens before the next one
            return torch.nn.functional.one_hot(wanted, VOCAB).float()

    texts = torch.arange(LENGTH)[None] % 8
    assert induction.accuracy(Copying(), texts, torch.tensor([[8]])) == 1.0  # type: ignore[arg-type]


@pytest.mark.slow
def test_heads_of_both_kinds_appear_and_are_needed() -> None:
    finding = induction.experiment()
    some = [Between(0, 1)] * N_HEADS
    n_points = induction.STEPS // induction.EVERY + 1
    curve = [Between(0, 1)] * n_points
    check_numbers(
        finding,
        {
            "steps": list(range(0, induction.STEPS + 1, induction.EVERY)),
            "accuracy_by_step": [*curve[:-1], Between(0.9, 1)],
            "induction_by_step": [Between(0, 0.2), *curve[:-2], Between(0.6, 1)],
            "previous_by_step": [Between(0, 0.2), *curve[:-2], Between(0.5, 1)],
            "accuracy": Between(0.9, 1),
            "chance": 1 / VOCAB,
            "previous_score": some,
            "induction_score": some,
            "without_head": some,
            "previous_head": [0.0, Between(0, HEADS - 1)],
            "induction_heads": finding.numbers["induction_heads"],
            "without_previous": Between(0, 0.5),
            "without_induction": Between(0, 0.2),
            "one_head_each": [Between(0.9, 1), Between(0, 0.5), Between(0, 0.2)],
        },
    )
    assert set(finding.numbers["induction_heads"][::2]) == {1.0}  # all in the second layer
    assert "one token back" in finding.seen

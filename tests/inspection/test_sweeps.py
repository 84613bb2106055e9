"""patch_sweep and its gradient estimate: every cell is one patch by hand."""

import pytest
import torch
from model_cases import D, H, L, T, V, build_case, draw_ids, gpt, randomize
from torch import Tensor, nn

from clearhead.attention import MultiHeadAttention
from clearhead.inspection import (
    Sweep,
    ablate,
    attribution,
    estimate_sweep,
    head_importance,
    logit_difference,
    logit_lens,
    patch,
    patch_sweep,
    record,
)
from clearhead.inspection.edits import capture
from clearhead.layers import Block, Stack
from clearhead.models import GPT, GPTConfig

METRIC = logit_difference(3, 7)


def pair() -> tuple[Tensor, Tensor]:
    return draw_ids(seed=1), draw_ids(seed=2)


@pytest.mark.parametrize("name", ["gpt", "llama", "classifier", "post-norm", "vit"])
def test_each_head_of_the_sweep_is_one_patch(name: str) -> None:
    model, (clean,) = build_case(name)
    corrupted = clean.flip(0)
    metric = logit_difference(1, 0)
    sweep = patch_sweep(model, clean, corrupted, metric, max_rows=7)
    with record(model) as trace:
        goal = metric(model(clean)).mean()
    assert sweep.goal == pytest.approx(float(goal.detach()))
    assert sweep.values.shape == (L, H)
    for layer, place in enumerate(sweep.layers):
        for head in range(H):
            with patch(model, {place: trace[place].output}, head=head):
                expected = metric(model(corrupted)).mean()
            torch.testing.assert_close(sweep.values[layer, head], expected.detach())


@pytest.mark.parametrize("part", ["block", "attention", "feed_forward"])
def test_each_position_of_the_sweep_is_one_patch(part: str) -> None:
    model, (clean, corrupted) = gpt(), pair()
    sweep = patch_sweep(model, clean, corrupted, METRIC, over="position", part=part)
    assert sweep.values.shape == (L, T)
    for layer, place in enumerate(sweep.layers):
        with capture(model, [place]) as values:
            model(clean)
        for t in range(T):
            with patch(model, {place: values[place]}, positions=t):
                expected = METRIC(model(corrupted)).mean()
            torch.testing.assert_close(sweep.values[layer, t], expected.detach())


def test_the_last_token_after_the_last_block_recovers_everything_and_others_nothing() -> None:
    sweep = patch_sweep(gpt(), *pair(), METRIC, over="position")
    torch.testing.assert_close(sweep.recovered[-1, -1], torch.tensor(1.0, dtype=torch.float64))
    assert (sweep.recovered[-1, :-1] == 0).all()


def test_heads_of_a_linear_tail_are_estimated_exactly() -> None:
    config = GPTConfig(vocab_size=V, max_len=9, d_model=D, n_layers=1, n_heads=H, norm="none")
    model = randomize(GPT(config))
    for parameter in model.stack.blocks[0].feed_forward.parameters():
        nn.init.zeros_(parameter)
    exact, estimate = (f(model, *pair(), METRIC) for f in (patch_sweep, estimate_sweep))
    torch.testing.assert_close(exact.values, estimate.values)
    assert exact.correlation(estimate) == pytest.approx(1.0)


def test_a_nonlinear_model_is_estimated_to_first_order() -> None:
    """Between nearly equal inputs the estimate is nearly exact."""
    model, (corrupted,) = build_case("vit")
    near = corrupted + 1e-5 * torch.randn_like(corrupted)
    metric = logit_difference(1, 0)
    exact = patch_sweep(model, near, corrupted, metric)
    estimate = estimate_sweep(model, near, corrupted, metric)
    torch.testing.assert_close(estimate.effect, exact.effect, rtol=1e-3, atol=1e-10)


def test_importance_is_ablation_head_by_head_and_its_gradient_agrees_in_a_linear_tail() -> None:
    model, tokens = gpt(), draw_ids()
    found = head_importance(model, tokens, METRIC)
    for layer in range(L):
        for head in range(H):
            with ablate(model, layer, head):
                expected = METRIC(model(tokens)).mean().detach()
            torch.testing.assert_close(found.values[layer, head], expected)
    estimate = head_importance(model, tokens, METRIC, by="gradient")
    assert estimate.unchanged == pytest.approx(found.unchanged)
    assert found.correlation(estimate) > 0.5


def test_each_head_of_a_translator_is_one_patch() -> None:
    model, clean = build_case("translator")
    corrupted = tuple(part.flip(0) for part in clean)
    sweep = patch_sweep(model, clean, corrupted, METRIC, max_rows=9)
    with record(model) as trace:
        model(*clean)
    for layer, place in enumerate(sweep.layers):
        for head in range(H):
            with patch(model, {place: trace[place].output}, head=head):
                expected = METRIC(model(*corrupted)).mean()
            torch.testing.assert_close(sweep.values[layer, head], expected.detach())


class Pooled(nn.Module):
    """An attention after the stack of blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = Stack([Block(D, H) for _ in range(L)])
        self.pool = MultiHeadAttention(D, H)
        self.head = nn.Linear(D, V)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.stack(x)))


def test_an_attention_outside_the_blocks_is_swept_too_but_its_logits_are_no_sum_of_terms() -> None:
    model = randomize(Pooled())
    clean = torch.randn(2, T, D, dtype=torch.float64)
    corrupted = clean.flip(0)
    sweep = patch_sweep(model, clean, corrupted, METRIC)
    assert sweep.layers[-1] == "pool"
    with record(model) as trace:
        model(clean)
    for head in range(H):
        with patch(model, {"pool": trace["pool"].output}, head=head):
            expected = METRIC(model(corrupted)).mean()
        torch.testing.assert_close(sweep.values[-1, head], expected.detach())
    for read in (attribution, logit_lens):
        with pytest.raises(ValueError, match="Pooled computes more than a norm and its head after"):
            read(model, clean)


def test_estimates_need_no_parameter_with_a_gradient_and_work_inside_inference_mode() -> None:
    model, (clean, corrupted) = gpt(), pair()
    expected = estimate_sweep(model, clean, corrupted, METRIC).values
    with torch.inference_mode():
        inside = estimate_sweep(model, clean.clone(), corrupted.clone(), METRIC).values
    model.requires_grad_(False)
    torch.testing.assert_close(estimate_sweep(model, clean, corrupted, METRIC).values, expected)
    torch.testing.assert_close(inside.clone(), expected)


def test_a_metric_may_say_yes_or_no_but_has_no_gradient_then() -> None:
    model, (clean, corrupted) = gpt(), pair()

    def is_right(logits: Tensor) -> Tensor:
        return logits[:, -1].argmax(-1) == 3

    sweep = patch_sweep(model, clean, corrupted, is_right)
    assert set(sweep.values.unique().tolist()) <= {0.0, 0.5, 1.0}
    with pytest.raises(ValueError, match="metric has no gradient to estimate with"):
        estimate_sweep(model, clean, corrupted, is_right)


def test_a_metric_that_does_not_use_a_value_has_no_effect_there() -> None:
    model, (clean, corrupted) = gpt(), pair()
    with patch(model, {"blocks.1": lambda x: x.detach().requires_grad_()}):
        estimate = estimate_sweep(model, clean, corrupted, METRIC)
    assert (estimate.effect == 0).all()


def test_a_sweep_prints_the_places_that_move_the_metric_most() -> None:
    names = ["stack.blocks.0.attention", "stack.blocks.1.attention"]
    sweep = Sweep(torch.tensor([[1.0, 1.5, 0.75], [1.0, 4.0, 1.0]]), 1.0, 5.0, names, "head")
    first, *lines = repr(sweep).splitlines()
    assert first == "Sweep of 2 × 3 changes: the metric is 1 without one, 5 on the clean input"
    assert lines[:3] == [
        "  stack.blocks.1.attention head 1    +3.0000",
        "  stack.blocks.0.attention head 1    +0.5000",
        "  stack.blocks.0.attention head 2    -0.2500",
    ]
    assert "clean" not in repr(head_importance(gpt(), draw_ids(), METRIC))


def test_a_place_that_is_called_for_every_word_has_no_one_value() -> None:
    model, inputs = build_case("gru")
    with (
        pytest.raises(ValueError, match=r"'decoder\.attention' is called more than once in a pass"),
        capture(model, ["decoder.attention"]),
    ):
        model(*inputs)


def test_bad_pairs_metrics_and_choices_are_named() -> None:
    model, (clean, corrupted) = gpt(), pair()
    with pytest.raises(ValueError, match="clean and corrupted must have the same shape"):
        patch_sweep(model, clean[:, :3], corrupted, METRIC)
    with pytest.raises(ValueError, match=r"metric must give one number for each of the 2 rows"):
        patch_sweep(model, clean, corrupted, lambda logits: logits.sum())
    with pytest.raises(ValueError, match="over must be one of 'head', 'position'"):
        patch_sweep(model, clean, corrupted, METRIC, over="neuron")
    with pytest.raises(ValueError, match="nothing can be recovered"):
        _ = patch_sweep(model, clean, clean, METRIC).recovered
    with pytest.raises(ValueError, match="and there is no goal; use patch_sweep"):
        _ = head_importance(model, clean, METRIC).recovered
    with pytest.raises(TypeError, match="inputs must be a tensor or a tuple of them, got str"):
        patch_sweep(model, "abc", "abd", METRIC)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="target must be a whole number, got 'e'"):
        logit_difference("e", 1)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match=f"must be below {V}, the number of logits, got {V} and 1"):
        patch_sweep(model, clean, corrupted, logit_difference(V, 1))
    with pytest.raises(ValueError, match="different shapes"):
        patch_sweep(model, clean, corrupted, METRIC).correlation(
            patch_sweep(model, clean, corrupted, METRIC, over="position")
        )
    smallest, inputs = build_case("smallest")
    with pytest.raises(ValueError, match="has an attention without heads"):
        patch_sweep(smallest, inputs, inputs, METRIC)
    joined, (x,) = build_case("joined heads")  # whose mixtures have positions in the place of heads
    with pytest.raises(ValueError, match="has an attention without heads"):
        patch_sweep(joined, x, x, METRIC)
    translator, inputs = build_case("translator")
    with pytest.raises(ValueError, match=r"'decoder.blocks.0' has 7 heads or positions but 'enc"):
        patch_sweep(translator, inputs, inputs, METRIC, over="position")
    with pytest.raises(TypeError, match="metric must be a function of logits, got 3"):
        patch_sweep(model, clean, corrupted, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the inputs have no row"):
        patch_sweep(model, clean[:0], corrupted[:0], METRIC)
    gru, inputs = build_case("gru")
    with pytest.raises(ValueError, match="Seq2SeqGRU has no blocks; patch it by name"):
        patch_sweep(gru, inputs, inputs, METRIC, over="position")
    with pytest.raises(ValueError, match="has an attention without heads"):
        head_importance(gru, inputs, METRIC)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())

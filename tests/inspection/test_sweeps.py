"""patch_sweep and its gradient estimate: every cell is one patch by hand."""

import pytest
import torch
from model_cases import D, H, L, T, V, build_case, draw_ids, gpt, randomize
from torch import Tensor, nn

from clearhead.inspection import (
    ablate,
    estimate_sweep,
    head_importance,
    logit_difference,
    patch,
    patch_sweep,
    record,
)
from clearhead.inspection.edits import capture
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
    with pytest.raises(ValueError, match="different places"):
        patch_sweep(model, clean, corrupted, METRIC).correlation(
            patch_sweep(model, clean, corrupted, METRIC, over="position")
        )
    smallest, inputs = build_case("smallest")
    with pytest.raises(ValueError, match="has an attention without heads"):
        patch_sweep(smallest, inputs, inputs, METRIC)
    gru, inputs = build_case("gru")
    with pytest.raises(ValueError, match="has an attention without heads"):
        head_importance(gru, inputs, METRIC)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())

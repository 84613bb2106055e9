"""Inspection of other people's weights: what is changed, measured, and left as it was."""

import copy
import re

import pytest
import torch

from clearhead.generation import generate
from clearhead.inspection import (
    ablate,
    attribution,
    estimate_sweep,
    head_importance,
    head_scores,
    logit_lens,
    patch,
    patch_sweep,
    record,
)
from clearhead.inspection.head_scores import draw_repeated
from clearhead.interop import load

CASES = (
    *("gpt2", "gpt2 untied, wide", "llama", "llama grouped, tied", "llama one key head, biases"),
    *("qwen3", "bert", "bert with a head", "vit", "vit oblong, grey"),
)
WITH_LOGITS = tuple(case for case in CASES if not case.startswith("bert"))
READING_TOKENS = tuple(case for case in CASES if not case.startswith("vit"))
# The output projection of an attention, in each family.
PROJECTION = re.compile(r"attn\.c_proj|self_attn\.o_proj|attention\.(output\.dense|o_proj)")
CLOSE = 1e-5


class Pair:
    """Their model, ours with the same weights, and an input."""

    def __init__(self, oracle):
        self.theirs, self.kind, self.folder = oracle.model, oracle.kind, oracle.folder
        self.model, self.inputs = load(oracle.folder).model, oracle.inputs()
        self.n_layers, self.n_heads = self.model.config.n_layers, self.model.config.n_heads

    def load_wide(self):
        """Our model and the input in float64, where errors of rounding do not count."""
        inputs = self.inputs.double() if self.kind == "vit" else self.inputs
        return load(self.folder, dtype=torch.float64).model, inputs

    @property
    def others(self):
        """Another input of the same shape."""
        return self.inputs.flip(1 if self.inputs.ndim == 2 else -1)

    def silence(self, layer, head):
        """A copy of their model without the head's part of the output projection."""
        changed = copy.deepcopy(self.theirs)
        projections = [m for name, m in changed.named_modules() if PROJECTION.search(name)]
        assert len(projections) == self.n_layers
        weight = projections[layer].weight.data
        weight = weight.T if self.kind == "gpt2" else weight  # GPT-2 stores (in, out)
        d_head = weight.size(1) // self.n_heads
        weight[:, head * d_head : (head + 1) * d_head] = 0
        return changed

    def ask(self, theirs):
        """The result of their model that ours has too: logits, or BERT's last hidden state."""
        if self.kind == "bert":
            return getattr(theirs, "bert", theirs)(self.inputs).last_hidden_state
        return theirs(self.inputs).logits


@pytest.fixture
def pair(request, oracles):
    """After the test the model has no hook, and its output is the same bit for bit."""
    pair = Pair(oracles[request.param])
    with torch.no_grad():
        before = pair.model(pair.inputs)
        state = copy.deepcopy(pair.model.state_dict())
        yield pair
        assert torch.equal(pair.model(pair.inputs), before)
    for name, value in pair.model.state_dict().items():
        assert torch.equal(value, state[name])
    for module in pair.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert not pair.model.training


def every(*cases):
    return pytest.mark.parametrize("pair", cases, indirect=True)


def measure(result):
    """One number for each row: of logits (B, T, V) or (B, C), or of hidden states (B, T, D)."""
    last = result[:, -1] if result.ndim == 3 else result
    return last[:, 1] - last[:, 0]


@every(*CASES)
def test_recording_shows_every_head_and_changes_nothing(pair):
    plain = pair.model(pair.inputs)
    with record(pair.model) as trace:
        assert torch.equal(pair.model(pair.inputs), plain)
    assert [w.size(1) for w in trace.weights()] == [pair.n_heads] * pair.n_layers
    for call in trace.attention.values():
        torch.testing.assert_close(call.weights @ call.v, call.output, rtol=0, atol=CLOSE)


@every(*CASES)
def test_a_silenced_head_is_one_without_its_columns_in_their_model(pair):
    plain = pair.model(pair.inputs)
    for layer in range(pair.n_layers):
        for head in range(pair.n_heads):
            with ablate(pair.model, layer, head):
                mine = pair.model(pair.inputs)
            expected = pair.ask(pair.silence(layer, head))
            torch.testing.assert_close(mine, expected, rtol=0, atol=1e-4)
            assert (mine - plain).abs().max() > 1e-2


@every(*CASES)
@pytest.mark.parametrize("by", ["mean", "resample"])
def test_a_head_may_give_its_mean_or_that_of_another_row(pair, by):
    with ablate(pair.model, 0, pair.n_heads - 1, by=by), record(pair.model) as trace:
        changed = pair.model(pair.inputs)
    assert not torch.allclose(changed, pair.model(pair.inputs))
    output = next(iter(trace.attention.values())).output[:, -1]
    with record(pair.model) as plain:
        pair.model(pair.inputs)
    whole = next(iter(plain.attention.values())).output[:, -1]  # (B, T, Dv)
    expected = whole.mean(dim=(0, 1)).expand_as(whole) if by == "mean" else whole.flip(0)
    torch.testing.assert_close(output, expected)


@every(*CASES)
def test_the_last_block_of_another_input_gives_its_result(pair):
    expected = pair.model(pair.others)
    with record(pair.model) as trace:
        pair.model(pair.others)
    last = f"blocks.{pair.n_layers - 1}"
    with patch(pair.model, {last: trace[f"stack.{last}"].output}):
        torch.testing.assert_close(pair.model(pair.inputs), expected, rtol=0, atol=0)


@every(*CASES)
def test_one_head_of_another_input_is_patched(pair):
    name = "stack.blocks.0.attention"
    with record(pair.model) as trace:
        pair.model(pair.others)
    new = trace[name].output
    with patch(pair.model, {name: new}, head=1), record(pair.model) as changed:
        pair.model(pair.inputs)
    with record(pair.model) as plain:
        pair.model(pair.inputs)
    for head in range(pair.n_heads):
        expected = new if head == 1 else plain[name].output
        assert torch.equal(changed[name].output[:, head], expected[:, head])


@every(*WITH_LOGITS)
def test_the_last_row_of_the_lens_is_the_models_own_output(pair):
    lens, logits = logit_lens(pair.model, pair.inputs), pair.model(pair.inputs)
    assert lens.shape == (pair.n_layers + 1, *logits.shape)
    torch.testing.assert_close(lens[-1], logits, rtol=0, atol=CLOSE)
    torch.testing.assert_close(lens[-1], pair.ask(pair.theirs), rtol=0, atol=1e-4)


@every(*WITH_LOGITS)
def test_contributions_sum_to_the_logit(pair):
    model, inputs = pair.load_wide()
    logits = model(inputs)
    last = logits[:, -1] if logits.ndim == 3 else logits
    for target in (3, None):
        parts = attribution(model, inputs, target)
        expected = last[:, 3] if target == 3 else last.max(dim=-1).values
        assert parts.heads.shape == (2, pair.n_layers, pair.n_heads)
        assert (parts.total - expected).abs().max() <= CLOSE
    difference = attribution(model, inputs, 3, against=1)
    assert (difference.total - (last[:, 3] - last[:, 1])).abs().max() <= CLOSE
    assert (attribution(pair.model, pair.inputs, 3).total - last[:, 3]).abs().max() <= 1e-4


@every("bert", "bert with a head")
@pytest.mark.parametrize("reading", [logit_lens, attribution])
def test_an_encoder_without_logits_is_refused_in_a_sentence(pair, reading):
    with pytest.raises(ValueError, match="TextEncoder has no residual stream that ends in logits"):
        reading(pair.model, pair.inputs)


@every(*READING_TOKENS)
def test_heads_are_scored_by_what_they_attend_to(pair):
    scores = head_scores(pair.model, n_tokens=8, batch_size=3)
    assert scores.previous.shape == (pair.n_layers, pair.n_heads)
    for score in (scores.previous, scores.duplicate, scores.induction):
        assert ((score >= 0) & (score <= 1)).all()
    tokens = draw_repeated(pair.model, 8, 3, 0)
    theirs = torch.stack(pair.theirs(tokens, output_attentions=True).attentions)  # (L, B, H, T, T)
    expected = torch.stack([theirs[..., t, t - 1] for t in range(8, 16)]).mean(dim=(0, 2))
    torch.testing.assert_close(scores.previous, expected, rtol=0, atol=CLOSE)


@every("vit")
def test_a_model_of_pictures_has_no_head_scores(pair):
    with pytest.raises(ValueError, match="VisionTransformer does not read tokens"):
        head_scores(pair.model)


@every(*CASES)
def test_a_sweep_over_heads_is_a_patch_of_each(pair):
    sweep = patch_sweep(pair.model, pair.others, pair.inputs, measure)
    assert sweep.values.shape == (pair.n_layers, pair.n_heads)
    with record(pair.model) as trace:
        goal = measure(pair.model(pair.others)).mean()
    assert sweep.goal == pytest.approx(float(goal), abs=CLOSE)
    for layer, name in enumerate(trace.attention):
        for head in range(pair.n_heads):
            with patch(pair.model, {name: trace[name].output}, head=head):
                expected = measure(pair.model(pair.inputs)).mean()
            torch.testing.assert_close(sweep.values[layer, head], expected, rtol=0, atol=1e-4)


@every(*CASES)
def test_a_sweep_over_positions_ends_at_the_goal_where_the_answer_is_read(pair):
    """There the last block holds all of the answer."""
    sweep = patch_sweep(pair.model, pair.others, pair.inputs, measure, over="position")
    read = 0 if pair.kind == "vit" else -1
    assert float(sweep.values[-1, read]) == pytest.approx(sweep.goal, abs=1e-4)
    assert float(sweep.recovered[-1, read]) == pytest.approx(1, abs=1e-2)


@every("gpt2", "llama grouped, tied")
def test_a_silenced_head_stays_silent_while_text_is_generated_with_a_cache(pair):
    prompt = pair.inputs[:, :5]
    with ablate(pair.model, 0, 1):
        cached = generate(pair.model, prompt, n_tokens=6)
    text, silent = prompt, pair.silence(0, 1)
    for _ in range(6):
        text = torch.cat((text, silent(text).logits[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(cached, text)
    assert not torch.equal(cached, generate(pair.model, prompt, n_tokens=6))


@every(*CASES)
def test_importance_and_estimates_leave_the_model_alone(pair):
    importance = head_importance(pair.model, pair.inputs, measure)
    last = pair.n_layers - 1
    with ablate(pair.model, last, 2):
        expected = measure(pair.model(pair.inputs)).mean()
    torch.testing.assert_close(importance.values[last, 2], expected, rtol=0, atol=1e-4)
    estimate = estimate_sweep(pair.model, pair.others, pair.inputs, measure)
    assert estimate.values.shape == (pair.n_layers, pair.n_heads)
    assert all(parameter.grad is None for parameter in pair.model.parameters())
    assert all(parameter.requires_grad for parameter in pair.model.parameters())

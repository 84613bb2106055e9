"""ablate, patch, sharpen, edit_mask: what they change, and that nothing of them remains."""

import copy
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from model_cases import CASES, MULTI_HEAD, D, H, T, build_case, draw_ids, gpt, randomize
from torch import Tensor, nn

from clearhead.attention import (
    AdditiveAttention,
    ArgmaxAttention,
    DotProductAttention,
    Mask,
    MultiHeadAttention,
)
from clearhead.generation import beam_search, generate, pack
from clearhead.inspection import Trace, ablate, edit_mask, edits, patch, record, sharpen
from clearhead.inspection.sites import find_layers, find_site
from clearhead.layers import Block, Stack


def count_hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def silence_columns(attention: nn.Module, head: int) -> None:
    """What ablation by zero means: the head's columns of the output projection are 0."""
    columns = slice(head * attention.d_head, (head + 1) * attention.d_head)
    attention.proj_out.weight.data[:, columns] = 0


# On every model


@pytest.mark.parametrize("name", MULTI_HEAD)
def test_a_silenced_head_is_a_head_without_its_columns_of_the_output_projection(name: str) -> None:
    model, inputs = build_case(name)
    for layer in find_layers(model):
        changed = copy.deepcopy(model)
        silence_columns(changed.get_submodule(layer), head=1)
        with ablate(model, layer, head=1):
            torch.testing.assert_close(model(*inputs), changed(*inputs), rtol=0, atol=1e-12)
        assert not torch.allclose(model(*inputs), changed(*inputs))


@pytest.mark.parametrize("name", CASES)
def test_every_attention_can_be_silenced_and_nothing_remains(name: str) -> None:
    model, inputs = build_case(name)
    before = model(*inputs)
    for layer in find_layers(model):
        with ablate(model, layer):
            assert not torch.allclose(model(*inputs), before)
    assert count_hooks(model) == 0
    assert torch.equal(model(*inputs), before)


@pytest.mark.parametrize("name", CASES)
def test_a_value_patched_with_itself_changes_nothing(name: str) -> None:
    model, inputs = build_case(name)
    before = model(*inputs)
    with record(model) as trace:
        model(*inputs)
    names = [name for name in trace if len(trace.calls(name)) == 1]  # a GRU calls once a word
    for place in names:
        with patch(model, {place: trace[place].output}):
            assert torch.equal(model(*inputs), before)
    for layer in trace.attention:
        with patch(model, {f"{layer}.weights": lambda weights: weights}):
            torch.testing.assert_close(model(*inputs), before, rtol=0, atol=1e-12)


def test_the_last_block_of_another_sentence_gives_its_logits() -> None:
    model, (a, b) = gpt(), (draw_ids(), draw_ids(seed=5))
    with record(model) as trace:
        expected = model(b)
    with patch(model, {"blocks.1": trace["stack.blocks.1"].output}):
        assert torch.equal(model(a), expected)


# Which heads, positions, values


def test_nested_ablations_silence_both_heads() -> None:
    model, tokens = gpt(), draw_ids()
    with ablate(model, 0, [0, 2]):
        expected = model(tokens)
    with ablate(model, 0, 0), ablate(model, 0, 2):
        assert torch.equal(model(tokens), expected)


def test_a_head_silenced_at_one_position_leaves_earlier_tokens_alone() -> None:
    model, tokens = gpt(), draw_ids()
    before = model(tokens)
    with ablate(model, 0, 1, positions=4):
        after = model(tokens)
    assert torch.equal(after[:, :4], before[:, :4])
    changes = (after - before).abs().amax(dim=(0, 2))
    assert (changes[4:] > 1e-6).all()


def test_mean_and_resample_of_a_batch_by_hand() -> None:
    model, tokens = gpt(), draw_ids(B=3)
    with record(model) as trace:
        model(tokens)
    output = trace["stack.blocks.0.attention"].output  # (B, H, T, Dv)
    with ablate(model, 0, 1, by="mean"), record(model) as trace:
        model(tokens)
    mean = output[:, 1].mean(dim=(0, 1))
    changed = trace["stack.blocks.0.attention"].output
    torch.testing.assert_close(changed[:, 1], mean.expand_as(changed[:, 1]))
    assert torch.equal(changed[:, 0], output[:, 0])
    seen = set()
    with ablate(model, 0, 1, by="resample", seed=3), record(model) as trace:
        for _ in range(12):
            model(tokens)
    for call in trace.calls("stack.blocks.0.attention"):
        for row in range(3):
            same = (call.output[row, 1] == output[:, 1]).all(dim=(1, 2)).nonzero().flatten()
            seen.add((row, *same.tolist()))
    assert seen == {(row, other) for row in range(3) for other in range(3) if row != other}


def test_a_reference_gives_the_mean_of_other_inputs() -> None:
    model, others = gpt(), draw_ids(B=4, n=5, seed=8)
    with record(model) as reference:
        model(others)
    mean = reference["stack.blocks.1.attention"].output[:, 2].mean(dim=(0, 1))
    with (
        ablate(model, 1, 2, by="mean", reference=reference),
        record(model) as trace,
    ):
        model(draw_ids(B=1, n=1))
    torch.testing.assert_close(trace["stack.blocks.1.attention"].output[0, 2, 0], mean)
    with pytest.raises(ValueError, match=r"rows like this call's, \(3, 7, 4\), got \(3, 5, 4\)"):
        enter(ablate(model, 1, by="resample", reference=reference), lambda: model(draw_ids()))


def test_one_head_of_joined_heads_is_silenced() -> None:
    model, (x,) = build_case("joined heads")
    changed = copy.deepcopy(model)
    changed.blocks[0].attention.proj_out.weight.data[:, 2:5] = 0
    with ablate(model, 0, head=1):
        torch.testing.assert_close(model(x), changed(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["attention.q", "attention.weights", "input", "norm_cross"])
def test_the_part_that_was_named_is_silenced_and_not_the_output(name: str) -> None:
    model, inputs = build_case("translator")
    name = f"decoder.blocks.1.{name}"
    with patch(model, {name: lambda x: 0 * x}):
        expected = model(*inputs)
    with ablate(model, name):
        assert torch.equal(model(*inputs), expected)


def test_queries_of_one_head_are_changed() -> None:
    model, tokens = gpt(), draw_ids()
    with patch(model, {"blocks.0.attention.q": lambda q: 3 * q}, head=1):
        changed = model(tokens)
    with sharpen(model, 3, layer=0, head=1):
        torch.testing.assert_close(model(tokens), changed)


def test_a_function_may_write_into_the_value_it_is_given() -> None:
    model, tokens = gpt(), draw_ids()
    with ablate(model, 0, 1, positions=2):
        expected = model(tokens)
    with patch(model, {"blocks.0.attention": lambda z: z.zero_()}, head=1, positions=2):
        assert torch.equal(model(tokens), expected)


def test_no_head_is_none_not_all() -> None:
    model, tokens = gpt(), draw_ids()
    before = model(tokens)
    with (
        ablate(model, 0, []),
        sharpen(model, 5, head=[]),
        edit_mask(model, torch.ones_like, head=[]),
    ):
        assert torch.equal(model(tokens), before)


def test_padding_may_be_nan_while_weights_are_changed() -> None:
    attention = randomize(MultiHeadAttention(D, H))
    x = torch.randn(2, T, D, dtype=torch.float64)
    x[0, 5:] = torch.nan
    mask = Mask.padding([5, T])
    with patch(attention, {"weights": lambda weights: weights}):
        changed = attention(x, mask=mask)
    torch.testing.assert_close(changed[0, :5], attention(x, mask=mask)[0, :5])
    assert changed[0, :5].isfinite().all()


def test_changed_weights_are_dropped_out_while_training_as_others_are() -> None:
    attention = MultiHeadAttention(D, H, dropout=1.0)
    with patch(attention, {"weights": lambda weights: weights}), record(attention) as trace:
        attention(torch.randn(2, T, D))
    (call,) = trace.attention.values()
    assert (call.output == 0).all()


def test_beams_of_a_changed_translator_are_those_of_one_without_the_columns() -> None:
    model, (source, _) = build_case("translator")
    names = ["decoder.blocks.0.cross_attention", "encoder.blocks.1.attention"]
    changed = copy.deepcopy(model)
    for name in names:
        silence_columns(changed.get_submodule(name), head=1)
    expected = beam_search(changed, source, 6)
    with ablate(model, names[0], 1), ablate(model, names[1], 1):
        found = beam_search(model, source, 6)
    torch.testing.assert_close(vars(found), vars(expected))


def test_text_beyond_the_context_length_is_changed_at_positions_of_the_kept_half() -> None:
    model, tokens = gpt(), draw_ids()
    with ablate(model, 0, 1), ablate(model, 1, 0, positions=[0, 15]):
        rolled = generate(model, tokens, 40, roll=True)
        assert torch.equal(rolled, generate(model, tokens, 40, roll=True, cache=False))


def test_gradients_through_every_intervention_are_those_of_the_function() -> None:
    model = randomize(Stack([Block(D, H) for _ in range(2)]))
    x = torch.randn(2, 4, D, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor) -> Tensor:
        with (
            ablate(model, 0, 1, by="mean"),
            sharpen(model, 2, layer=1, head=0),
            edit_mask(model, Mask.causal(), layer=1, head=2),
            patch(model, {"blocks.1.attention.weights": lambda weights: weights.square()}),
        ):
            return model(x)

    assert torch.autograd.gradcheck(run, (x,))


def test_a_patched_tensor_gets_a_gradient() -> None:
    model, tokens = gpt(), draw_ids()
    value = torch.zeros(2, T, D, dtype=torch.float64, requires_grad=True)
    with patch(model, {"blocks.0": value}, positions=3):
        model(tokens).sum().backward()
    assert (value.grad[:, 3] != 0).all()
    assert (value.grad[:, :3] == 0).all()


def test_changes_end_in_any_order() -> None:
    model, tokens = gpt(), draw_ids()
    with ablate(model, 0, 2):
        expected = model(tokens)
    first, second = ablate(model, 0, 1), ablate(model, 0, 2)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.equal(model(tokens), expected)
    second.__exit__(None, None, None)
    assert count_hooks(model) == 0


def test_a_classifier_of_pictures_gets_the_mean_of_its_rows() -> None:
    model, inputs = build_case("vit")
    before = model(*inputs)
    with ablate(model, "head", by="mean"):
        torch.testing.assert_close(model(*inputs), before.mean(0).expand_as(before))


def test_a_feed_forward_layer_is_silenced_by_its_name() -> None:
    model, tokens = gpt(), draw_ids()
    with ablate(model, "blocks.0.feed_forward"), record(model) as trace:
        model(tokens)
    with record(model) as plain:
        model(tokens)
    block = model.stack.blocks[0]
    x = plain["stack.blocks.0"].input
    expected = x + block.attention(block.norm_attention(x), mask=Mask.causal())
    torch.testing.assert_close(trace["stack.blocks.0"].output, expected)


def test_sharper_weights_are_powers_brought_to_sum_one() -> None:
    model, tokens = gpt(), draw_ids()
    with record(model) as plain:
        model(tokens)
    with record(model) as sharp, sharpen(model, 3.0, layer=0, head=1):
        model(tokens)
    powers = plain["stack.blocks.0.attention"].weights.pow(3)
    expected = powers / powers.sum(dim=-1, keepdim=True)
    weights = sharp["stack.blocks.0.attention"].weights
    torch.testing.assert_close(weights[:, 1], expected[:, 1])
    torch.testing.assert_close(weights[:, 0], plain["stack.blocks.0.attention"].weights[:, 0])


def test_factor_zero_attends_to_all_allowed_keys_alike_also_with_a_bias() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(D, H)
    x, bias = torch.randn(2, T, D), torch.randn(H, T, T)
    with sharpen(attention, 0), record(attention) as trace:
        attention(x, mask=Mask.causal(), bias=bias)
    (call,) = trace.attention.values()
    weights = call.weights
    expected = torch.ones(T, T).tril() / torch.arange(1, T + 1)[:, None]
    torch.testing.assert_close(weights, expected.expand_as(weights))


def test_an_edited_mask_forbids_for_one_head_only() -> None:
    model, tokens = gpt(), draw_ids()
    allowed = torch.ones(T, T, dtype=torch.bool)
    allowed[4:, 2] = False
    with edit_mask(model, allowed, layer=1, head=0), record(model) as trace:
        model(tokens)
    weights = trace["stack.blocks.1.attention"].weights
    assert (weights[:, 0, 4:, 2] == 0).all()
    assert (weights[:, 1:, 4:, 2] > 0).all()
    assert (trace["stack.blocks.0.attention"].weights[:, :, 4:, 2] > 0).all()


def test_a_mask_function_may_allow_the_future() -> None:
    model, tokens = gpt(), draw_ids()
    with edit_mask(model, torch.ones_like), record(model) as trace:
        model(tokens)
    assert (trace["stack.blocks.0.attention"].weights > 0).all()


def test_a_mask_function_may_write_into_the_mask_of_one_head() -> None:
    model, tokens = gpt(), draw_ids()

    def forbid(mask: Tensor) -> Tensor:
        mask[..., 1:, 0] = False
        return mask

    with edit_mask(model, forbid, layer=0, head=1), record(model) as trace:
        model(tokens)
    weights = trace["stack.blocks.0.attention"].weights
    assert (weights[:, 1, 1:, 0] == 0).all()
    assert (weights[:, [0, 2], 1:, 0] > 0).all()


def test_edited_masks_of_all_heads_stay_structured() -> None:
    """So that the fused kernel keeps its causal form."""
    model, tokens = gpt(), draw_ids()
    with edit_mask(model, Mask.window(2)), record(model) as trace:
        model(tokens)
    mask = trace["stack.blocks.0.attention"].mask
    assert isinstance(mask, Mask)
    assert mask.is_causal


# With everything else


def test_record_shows_changed_values_in_either_order() -> None:
    model, tokens = gpt(), draw_ids()
    with record(model) as outside, ablate(model, 0, 1), record(model) as inside:
        model(tokens)
    for trace in (outside, inside):
        assert (trace["stack.blocks.0.attention"].output[:, 1] == 0).all()


def test_changes_apply_in_the_order_in_which_they_were_entered() -> None:
    model, tokens = gpt(), draw_ids()
    with record(model) as trace:
        name = "stack.blocks.0"
        with patch(model, {name: lambda x: x + 1}), patch(model, {name: lambda x: x * 2}):
            model(tokens)
    first = trace[name].output
    with record(model) as trace:
        model(tokens)
    torch.testing.assert_close(first, (trace[name].output + 1) * 2)


@pytest.mark.parametrize("positions", [None, [3, 9, 12], slice(8, None)])
def test_generation_with_and_without_a_cache_agree(positions: object) -> None:
    model, tokens = gpt(), draw_ids()
    plain = generate(model, tokens, 12)
    with ablate(model, 0, [0, 1], positions=positions), ablate(model, 1, 2, positions=positions):
        cached = generate(model, tokens, 12)
        whole = generate(model, tokens, 12, cache=False)
    assert torch.equal(cached, whole)
    assert not torch.equal(cached, plain)


@pytest.mark.parametrize("positions", [0, [3, 9, 12], slice(8, None)])
@pytest.mark.parametrize(
    "name",
    ["feed_forward", "input", "attention.q", "attention.k", "attention.weights", "attention"],
)
def test_positions_of_every_part_count_cached_tokens(name: str, positions: object) -> None:
    model, tokens = gpt(), draw_ids()
    change = {f"blocks.0.{name}": lambda x: -2 * x}
    with patch(model, change, positions=positions):
        cached = generate(model, tokens, 12)
        whole = generate(model, tokens, 12, cache=False)
    assert torch.equal(cached, whole)


def test_positions_count_cached_tokens_also_under_an_edited_mask() -> None:
    model, tokens = gpt(), draw_ids()
    with edit_mask(model, lambda own: own), ablate(model, 0, positions=0):
        cached = generate(model, tokens, 12)
        assert torch.equal(cached, generate(model, tokens, 12, cache=False))


@pytest.mark.parametrize("name", ["attention", "cross_attention", "feed_forward"])
def test_a_translator_that_writes_word_by_word_is_changed_at_the_same_positions(name: str) -> None:
    model, (source, target) = build_case("translator")
    with ablate(model, f"decoder.blocks.0.{name}", positions=[0, 3]):
        state = model.encode(source)
        steps = [model.decode_step(word, state)[0] for word in target.unbind(1)]
        torch.testing.assert_close(torch.stack(steps, dim=1), model(source, target))


def test_positions_in_front_of_the_blocks_are_refused_while_tokens_are_cached() -> None:
    model, tokens = gpt(), draw_ids()
    change = {"embedding": lambda x: 0 * x}
    with patch(model, change, positions=0):
        expected = model(tokens)
    with patch(model, change, positions=0):
        with pytest.raises(ValueError, match=r"use a name inside the blocks, .* or cache=False"):
            generate(model, tokens, 3)
        assert torch.equal(model(tokens), expected)  # also after the exception
    assert count_hooks(model) == 0


def test_a_value_without_positions_is_not_changed_by_rows_of_the_batch() -> None:
    model, inputs = build_case("vit")
    with pytest.raises(ValueError, match=r"'head' has none here: its shape is \(2, 5\)"):
        enter(patch(model, {"head": lambda x: 0 * x}, positions=1), lambda: model(*inputs))


def test_a_silenced_head_gets_no_gradient_and_the_others_do() -> None:
    model, tokens = gpt(), draw_ids()
    with ablate(model, 1, 0):
        model(tokens).square().sum().backward()
    Dh = D // H
    gradient = model.stack.blocks[1].attention.proj_v.weight.grad
    assert (gradient[:Dh] == 0).all()
    assert (gradient[Dh:] != 0).any()


def test_a_packed_copy_of_a_changed_model_is_refused() -> None:
    model = gpt()
    with ablate(model, 0, 0), pytest.raises(ValueError, match="an intervention on it is open"):
        pack(model)
    pack(model)


def test_a_shared_mechanism_is_changed_in_one_layer_only() -> None:
    mechanism = DotProductAttention()
    model = randomize(Stack([Block(D, H, mechanism=mechanism) for _ in range(2)]))
    x = torch.randn(2, T, D, dtype=torch.float64)
    with ablate(model, 1, 0), record(model) as trace:
        model(x)
    assert (trace["blocks.0.attention"].output[:, 0] != 0).any()
    assert (trace["blocks.1.attention"].output[:, 0] == 0).all()
    assert count_hooks(model) == 0


def test_a_copy_made_inside_is_plain_and_can_be_changed_by_itself() -> None:
    model, tokens = gpt(), draw_ids()
    before = model(tokens)
    with ablate(model, 0, 1):
        changed = model(tokens)
        copied = copy.deepcopy(model)
        assert torch.equal(copied(tokens), before)
        with ablate(copied, 0):
            assert torch.equal(model(tokens), changed)
            assert not torch.equal(copied(tokens), changed)
        pack(copied)
    assert torch.equal(copied(tokens), before)


def hold_open(model: nn.Module, close: threading.Event) -> threading.Thread:
    """A thread that changes the first head until it is told to close."""
    is_open = threading.Event()

    def hold() -> None:
        with ablate(model, 0, 0):
            is_open.set()
            close.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    is_open.wait(10)
    return thread


def test_a_change_that_another_thread_ends_during_a_call_makes_the_call_skip_none() -> None:
    model, tokens, close = gpt(), draw_ids(), threading.Event()
    thread = hold_open(model, close)

    def end_other(z: Tensor) -> Tensor:
        close.set()
        thread.join()
        return z

    with patch(model, {"blocks.0.attention": end_other}), ablate(model, 0), record(model) as trace:
        model(tokens)
    assert (trace["stack.blocks.0.attention"].output == 0).all()
    assert count_hooks(model) == 0


def test_a_change_entered_while_another_thread_ends_its_own_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, tokens, close = gpt(), draw_ids(), threading.Event()
    thread, find = hold_open(model, close), edits._find_editor

    def find_slowly(module: nn.Module) -> object:
        editor = find(module)
        close.set()
        thread.join(0.2)  # the other thread waits for this one
        return editor

    monkeypatch.setattr(edits, "_find_editor", find_slowly)
    with ablate(model, 0), record(model) as trace:
        model(tokens)
    assert (trace["stack.blocks.0.attention"].output == 0).all()
    thread.join()
    assert count_hooks(model) == 0


def call_elsewhere(run: Callable[[], object]) -> Callable[[Tensor], Tensor]:
    """A change that changes nothing, but lets another thread run something meanwhile."""

    def wait(x: Tensor) -> Tensor:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return x

    return wait


def test_positions_are_those_of_the_own_thread() -> None:
    model, tokens = gpt(), draw_ids()
    with ablate(model, 0, positions=[2, 9]):
        expected = generate(model, tokens, 6)
    disturb = {"blocks.0.norm_attention": call_elsewhere(lambda: model(tokens[:, :3]))}
    with ablate(model, 0, positions=[2, 9]), patch(model, disturb):
        assert torch.equal(generate(model, tokens, 6), expected)


def test_a_shared_mechanism_is_changed_for_the_own_thread_and_after_an_exception() -> None:
    mechanism = DotProductAttention()
    model = randomize(Stack([Block(D, H, mechanism=mechanism) for _ in range(2)]))
    x = torch.randn(2, T, D, dtype=torch.float64)
    with ablate(model, 1):
        expected = model(x)
        with patch(model, {"blocks.1.attention.proj_q": call_elsewhere(lambda: model(x))}):
            assert torch.equal(model(x), expected)
        with pytest.raises(ZeroDivisionError):
            enter(patch(model, {"blocks.1.attention.proj_out": lambda _: 1 / 0}), lambda: model(x))
        assert torch.equal(model(x), expected)


def test_a_compiled_model_is_refused_because_its_graph_would_not_see_the_change() -> None:
    model = gpt()
    with pytest.raises(ValueError, match="model is compiled"):
        enter(ablate(torch.compile(model, backend="eager"), 0), lambda: None)
    model.stack.blocks[1] = torch.compile(model.stack.blocks[1], backend="eager")
    with pytest.raises(ValueError, match="change and run the plain model"):
        enter(patch(model, {"blocks.0": lambda x: x}), lambda: None)
    model = gpt()
    model.stack.compile(backend="eager")
    with pytest.raises(ValueError, match="change and run the plain model"):
        enter(ablate(model, 0), lambda: None)


def test_another_thread_is_not_changed() -> None:
    model, tokens = gpt(), draw_ids()
    before, results = model(tokens), []
    with ablate(model, 0, 0):
        thread = threading.Thread(target=lambda: results.append(model(tokens)))
        thread.start()
        thread.join()
    assert torch.equal(results[0], before)


# Names


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("blocks.1.attn.hook_z", "stack.blocks.1.attention"),
        ("blocks.0.attn.hook_pattern", "stack.blocks.0.attention.weights"),
        ("blocks.0.attn.hook_q", "stack.blocks.0.attention.q"),
        ("blocks.1.hook_resid_pre", "stack.blocks.1.input"),
        ("blocks.1.hook_resid_post", "stack.blocks.1"),
        ("blocks.1.hook_attn_out", "stack.blocks.1.attention.proj_out"),
        ("blocks.1.hook_mlp_out", "stack.blocks.1.feed_forward"),
        ("hook_embed", "embedding"),
        ("ln_final.hook_normalized", "stack.norm"),
    ],
)
def test_names_of_transformer_lens_are_understood(theirs: str, ours: str) -> None:
    assert find_site(gpt(), theirs).name == ours


def test_inputs_of_modules_can_be_patched() -> None:
    model, (a, b) = gpt(), (draw_ids(), draw_ids(seed=5))
    with record(model) as trace:
        expected = model(b)
    with patch(model, {"blocks.0.input": trace["stack.blocks.0"].input}):
        assert torch.equal(model(a), expected)


def test_a_tensor_of_three_axes_replaces_the_projected_output_of_an_attention() -> None:
    model, tokens = gpt(), draw_ids()
    bias = model.stack.blocks[0].attention.proj_out.bias.data
    with patch(model, {"blocks.0.attention": bias.expand(2, T, D)}):
        patched = model(tokens)
    with ablate(model, 0):
        torch.testing.assert_close(model(tokens), patched)


# Bad input


def enter(manager: AbstractContextManager[None], run: Callable[[], object]) -> None:
    with manager:
        run()


def trace_other() -> Trace:
    """Of a model with other heads."""
    stack = Stack([Block(8, 2)])
    with record(nn.ModuleDict({"stack": stack})) as trace:
        stack(torch.randn(2, T, 8))
    return trace


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m: ablate(m, 5), "layer must be from 0 to 1, got 5: the layers are"),
        (lambda m: ablate(m, -1), "layer must be from 0 to 1, got -1"),
        (
            lambda m: ablate(m, 0, 3),
            "head must be from 0 to 2 in 'stack.blocks.0.attention', got 3",
        ),
        (lambda m: ablate(m, "blocks.0.feed_forward", 1), "has no heads; leave head out"),
        (lambda m: ablate(m, 0, by="men"), "did you mean 'mean'"),
        (lambda m: ablate(m, 0, positions=99), None),
        (lambda m: patch(m, {"blocks.0.atention": torch.zeros(1)}), "nearest are .*attention"),
        (lambda m: patch(m, {"feed_forward": torch.zeros(1)}), "may be any of"),
        (lambda m: patch(m, {0: torch.zeros(1)}), "an activation must be a string, got int"),
        (lambda m: patch(m, {"blocks.0": 3}), "must be a tensor or a function, got int"),
        (
            lambda m: patch(m, {"blocks.0": torch.zeros(5, T, D)}),
            "its batch is 5, that of the call 2",
        ),
        (lambda m: patch(m, {"blocks.0": torch.zeros(2, T, 4)}), r"its shape \(2, 7, 12\), got"),
        (lambda m: patch(m, {"blocks.0.attention": lambda z: z[:, :1]}), "must have its shape"),
        (lambda m: patch(m, {"blocks.0.attention": lambda z: None}), "must be a tensor, got NoneT"),
        (lambda m: patch(m, {"blocks.0": lambda x: x}, head=1), "has no heads"),
        (lambda m: patch(m, {"blocks.0.attention.input": lambda x: x}, head=1), "has no heads"),
        (lambda m: patch(m, {"stack.blocks": lambda x: x}), "no part called 'stack.blocks'"),
        (lambda m: patch(m, [("blocks.0", 0)]), "values must map names to new values, .* got list"),
        (lambda m: ablate(m, 0, True), "head must be a whole number or a list of them, got True"),
        (lambda m: ablate(m, 0, "1"), "head must be a whole number"),
        (lambda m: ablate(m, 0, positions=[1.5]), r"positions must be a .* list of them, got \[1"),
        (lambda m: ablate(m, 0, positions=torch.ones(T).bool()), "positions must be a whole"),
        (lambda m: ablate(m, 0, by="mean", reference=torch.ones(2)), "reference must be a trace"),
        (lambda m: ablate(m, 0, by="mean", reference=trace_other()), "heads and widths like this"),
        (lambda m: ablate(m, 0, by="resample", seed="x"), "seed must be a whole number"),
        (
            lambda m: edit_mask(m, Mask.causal(), layer="blocks.0.feed_forward"),
            "not an attention; the attention layers are",
        ),
        (lambda m: sharpen(m, 1e300), "factor must be a finite number from 0 to 1e"),
        (lambda m: sharpen(m, -1), "factor must be"),
        (lambda m: sharpen(m, float("nan")), "factor must be"),
        (lambda m: edit_mask(m, lambda a: a.float()), "must return a boolean tensor"),
        (lambda m: edit_mask(m, torch.ones(3, 3, dtype=torch.bool)), "mask"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_the_model_as_it_was(
    make: Callable[[nn.Module], AbstractContextManager[None]], words: str | None
) -> None:
    model, tokens = gpt(), draw_ids()
    if words is None:  # a position that a later step of generation may reach
        enter(make(model), lambda: model(tokens))
    else:
        with pytest.raises((ValueError, TypeError, KeyError), match=words):
            enter(make(model), lambda: model(tokens))
    assert count_hooks(model) == 0


def test_a_position_outside_a_whole_sequence_is_refused() -> None:
    model, inputs = build_case("classifier")
    with pytest.raises(IndexError, match="positions has no 7: the sequence has 7 tokens"):
        enter(ablate(model, 0, positions=7), lambda: model(*inputs))


def test_the_layers_of_a_translator_are_named_not_numbered() -> None:
    model, _ = build_case("translator")
    with pytest.raises(ValueError, match="any of the model's 2 stacks; give a name, one of"):
        enter(ablate(model, 0), lambda: None)


@pytest.mark.parametrize("mechanism", [ArgmaxAttention(), AdditiveAttention(4, 4, 5)])
def test_mechanisms_whose_scores_cannot_be_scaled_are_refused(mechanism: nn.Module) -> None:
    attention = MultiHeadAttention(D, H, mechanism=mechanism)
    with pytest.raises(TypeError, match="cannot be sharpened; DotProductAttention can"):
        enter(sharpen(attention, 2), lambda: None)


def test_a_module_that_returns_several_things_is_changed_by_its_parts() -> None:
    model, inputs = build_case("gru")
    with pytest.raises(TypeError, match=r"'encoder\.gru' is not a tensor here but a tuple"):
        enter(ablate(model, "encoder.gru"), lambda: model(*inputs))


def test_a_batch_of_one_has_no_other_row() -> None:
    model = gpt()
    with pytest.raises(ValueError, match=r"the batch has one row; give reference="):
        enter(ablate(model, 0, by="resample"), lambda: model(draw_ids(B=1)))
    with pytest.raises(ValueError, match=r"needs more than one token to average"):
        enter(ablate(model, 0, by="mean"), lambda: model(draw_ids(B=1, n=1)))


def test_an_exception_inside_leaves_no_hook() -> None:
    model = gpt()
    with pytest.raises(ZeroDivisionError):
        enter(ablate(model, 0, 0), lambda: 1 / 0)
    assert count_hooks(model) == 0


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="holds no attention"):
        enter(ablate(nn.Linear(2, 2), 0), lambda: None)
    with pytest.raises(TypeError, match=r"model must be an nn\.Module"):
        enter(ablate("gpt2", 0), lambda: None)  # type: ignore[arg-type]

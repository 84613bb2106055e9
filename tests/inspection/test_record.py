"""record(model): what a watcher sees, and that the watched model does not notice."""

import copy
import threading

import pytest
import torch
from torch import Tensor, nn

from clearhead.attention import (
    AdditiveAttention,
    ArgmaxAttention,
    DotProductAttention,
    EluFeatures,
    JoinedHeads,
    KVCache,
    LinearAttention,
    Mask,
    MultiHeadAttention,
    SelfAttention,
)
from clearhead.inspection import AttentionCall, Trace, record, rollout
from clearhead.layers import Block, Stack
from clearhead.positions import RotaryPositions, ToeplitzBias

B, H, T, S, DH = 2, 3, 5, 7, 4
D = H * DH


def model(**options: object) -> Stack:
    torch.manual_seed(0)
    return Stack([Block(D, H, 8, **options) for _ in range(2)]).eval()


def tokens(T: int = T) -> Tensor:
    return torch.randn(B, T, D, generator=torch.Generator().manual_seed(1))


def mechanisms() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "dot product": DotProductAttention(dropout=0.5),
        "additive": AdditiveAttention(DH, DH, 6),
        "argmax": ArgmaxAttention(),
        "linear": LinearAttention(EluFeatures()),
    }


def hooks_in(module: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


# What is seen


def test_names_are_those_of_the_modules_in_the_models_order() -> None:
    stack = model()
    with record(stack) as trace:
        stack(tokens())
    assert list(trace) == ["blocks.0", "blocks.0.attention", "blocks.1", "blocks.1.attention"]
    assert len(trace) == 4
    assert "blocks.1" in trace
    assert "blocks.2" not in trace
    assert list(trace.attention) == ["blocks.0.attention", "blocks.1.attention"]
    assert list(trace.blocks) == ["blocks.0", "blocks.1"]


def test_a_decoder_shows_self_and_cross_attention() -> None:
    decoder = model(cross=True)
    with record(decoder) as trace:
        decoder(tokens(), tokens(S), mask=Mask.causal())
    assert trace["blocks.0.attention"].weights.shape == (B, H, T, T)
    assert trace["blocks.0.cross_attention"].weights.shape == (B, H, T, S)
    assert [w.shape[-1] for w in trace.weights()] == [T, S, T, S]


def test_weights_times_values_are_the_output() -> None:
    stack = model()
    with record(stack) as trace:
        stack(tokens(), mask=Mask.causal() & Mask.padding(torch.tensor([3, 5])))
    for call in trace.attention.values():
        torch.testing.assert_close(call.weights @ call.v, call.output)
        assert (call.weights[0, :, :, 3:] == 0).all()
        assert (call.weights.triu(1) == 0).all()


def test_weights_hold_the_position_bias() -> None:
    attention = MultiHeadAttention(D, H, positions=ToeplitzBias(H, T))
    nn.init.normal_(attention.positions.weight, std=5.0)
    with record(attention) as trace:
        attention(tokens())
    call = trace[""]
    expected = ((call.q @ call.k.mT + attention.positions(T)) / DH**0.5).softmax(-1)
    torch.testing.assert_close(call.weights, expected.detach())


def test_blocks_show_their_input_and_output() -> None:
    stack, x = model(), tokens()
    with record(stack) as trace:
        y = stack(x=x)
    assert torch.equal(trace["blocks.0"].input, x)
    assert torch.equal(trace["blocks.0"].output, trace["blocks.1"].input)
    assert torch.equal(trace["blocks.1"].output, y)


def test_a_block_called_by_keyword_is_seen() -> None:
    block, x = Block(D, H), tokens()
    with record(block) as trace:
        block(x=x)
    assert torch.equal(trace[""].input, x)
    assert list(trace) == ["", "attention"]


def test_a_bare_mechanism_has_the_empty_name() -> None:
    mechanism = DotProductAttention()
    q, k, v = torch.randn(B, H, T, DH), torch.randn(B, H, S, DH), torch.randn(B, H, S, 6)
    with record(mechanism) as trace:
        mechanism(q, k=k, v=v)
    assert list(trace) == [""]
    torch.testing.assert_close(trace[""].weights, mechanism.weights(q, k))


def test_mechanisms_under_other_names_keep_them() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.soft, self.hard = DotProductAttention(), ArgmaxAttention()

        def forward(self, x: Tensor) -> Tensor:
            return self.soft(x, x, x) + self.hard(x, x, x)

    two = nn.Sequential(Two())
    with record(two) as trace:
        two(tokens())
    assert list(trace) == ["0.soft", "0.hard"]


def test_a_block_that_is_a_holder_itself_does_not_hide_its_mechanism() -> None:
    class Short(Block):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.mechanism = DotProductAttention()

        def forward(self, x: Tensor) -> Tensor:
            return self.mechanism(x, x, x)

    short = Short()
    with record(short) as trace:
        short(tokens())
    assert list(trace) == ["", "mechanism"]


def test_one_mechanism_shared_by_all_blocks_is_seen_in_each() -> None:
    shared = DotProductAttention()
    stack = model(mechanism=shared)
    with record(stack) as trace:
        stack(tokens())
    assert list(trace.attention) == ["blocks.0.attention", "blocks.1.attention"]
    first, second = trace.attention.values()
    assert torch.equal(first.output, trace.calls("blocks.0.attention")[0].output)
    assert not torch.equal(first.q, second.q)
    assert len(trace.calls("blocks.1.attention")) == 1
    assert hooks_in(stack) == 0


def test_a_block_used_twice_has_one_name_and_two_calls() -> None:
    block = Block(D, H).eval()
    stack = Stack([block, block])
    with record(stack) as trace:
        y = stack(tokens())
    assert list(trace) == ["blocks.0", "blocks.0.attention"]
    assert len(trace.calls("blocks.0.attention")) == 2
    assert torch.equal(trace["blocks.0"].output, y)


def test_heads_joined_from_a_list_are_layers_of_one_head() -> None:
    joined = JoinedHeads([SelfAttention(D, 4, 6) for _ in range(2)], 5)
    with record(joined) as trace:
        joined(tokens())
    assert list(trace) == ["heads.0", "heads.1"]
    assert trace["heads.0"].weights.shape == (B, T, T)
    assert [tuple(w.shape) for w in trace.weights()] == [(B, 1, T, T)] * 2


def test_heads_joined_inside_a_block_are_one_layer() -> None:
    heads = [SelfAttention(D, 4, 6), SelfAttention(D, 7, 2)]
    stack = Stack([Block(D, attention=JoinedHeads(heads, D)), Block(D, H)])
    with record(stack) as trace:
        stack(tokens())
    assert list(trace.layers) == ["blocks.0.attention", "blocks.1.attention"]
    assert [tuple(w.shape) for w in trace.weights()] == [(B, 2, T, T), (B, H, T, T)]
    both = [trace[f"blocks.0.attention.heads.{i}"].weights for i in range(2)]
    assert torch.equal(trace.weights()[0], torch.stack(both, dim=1))
    first, second = (weights.mean(dim=1) for weights in trace.weights())
    eye = torch.eye(T)
    expected = (second + eye) / 2 @ ((first + eye) / 2)
    assert torch.allclose(rollout(trace), expected, atol=1e-6)


# Some heads and rows

CHOICES = [
    (None, None),
    (1, None),
    (-1, 2),
    (None, -1),
    (slice(0, 2), slice(1, None, 2)),
    (slice(None, None, -1), [4, 0, 0]),
    ([2, 0], slice(3, 3)),
    ([], [1]),
]


def selected(whole: Tensor, heads: object, rows: object) -> Tensor:
    def places(chosen: object, n: int) -> list[int]:
        if chosen is None:
            return list(range(n))
        if isinstance(chosen, slice):
            return list(range(n))[chosen]
        return [chosen] if isinstance(chosen, int) else list(chosen)  # type: ignore[call-overload]

    return whole[:, places(heads, whole.size(1))][:, :, places(rows, whole.size(2))]


MASKS = {
    "none": None,
    "causal": Mask.causal(),
    "padding": Mask.padding(torch.tensor([3, 0])),
    "matrix": torch.rand(T, S, generator=torch.Generator().manual_seed(2)) > 0.4,
    "by head": torch.rand(B, H, T, S, generator=torch.Generator().manual_seed(2)) > 0.4,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", mechanisms())
def test_some_heads_and_rows_are_the_slice_of_all(kind: str, mask: str) -> None:
    mechanism = mechanisms()[kind]
    q, k, v = torch.randn(B, H, T, DH), torch.randn(B, H, S, DH), torch.randn(B, H, S, DH)
    bias = None if kind == "linear" else torch.randn(H, T, 1)
    call = AttentionCall(mechanism, q, k, v, MASKS[mask], bias, v)
    for heads, rows in CHOICES:
        part = call.weights_of(heads=heads, rows=rows)
        torch.testing.assert_close(part, selected(call.weights, heads, rows))


def test_only_the_asked_part_is_computed() -> None:
    class Counting(DotProductAttention):
        def weights(self, q: Tensor, k: Tensor, **rest: object) -> Tensor:
            sizes.append((tuple(q.shape), tuple(k.shape)))
            return super().weights(q, k, **rest)

    sizes: list[object] = []
    attention = MultiHeadAttention(D, H, mechanism=Counting())
    with record(attention) as trace:
        attention(tokens())
    assert not sizes
    trace[""].weights_of(heads=[0, 2], rows=slice(1))
    assert sizes == [((B, 2, 1, DH), (B, 2, T, DH))]


def test_rows_of_a_call_without_heads() -> None:
    head = SelfAttention(D, 4, 6)
    with record(head) as trace:
        head(tokens(), mask=Mask.causal())
    call = trace[""]
    torch.testing.assert_close(call.weights_of(rows=[3, 1]), call.weights[:, [3, 1]])
    with pytest.raises(ValueError, match="this call has no heads"):
        call.weights_of(heads=0)


def test_an_unknown_head_or_row_is_named() -> None:
    attention = MultiHeadAttention(D, H)
    with record(attention) as trace:
        attention(tokens())
    with pytest.raises(IndexError, match="heads has no 3: this call has 3 heads, from 0 to 2"):
        trace[""].weights_of(heads=3)
    with pytest.raises(IndexError, match="rows has no -6: this call has 5 rows"):
        trace[""].weights_of(rows=[0, -6])


# Modes and circumstances


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("kind", mechanisms())
def test_every_mode_gives_the_same_weights_without_a_graph(kind: str, mode: type) -> None:
    attention, x = MultiHeadAttention(D, H, mechanism=mechanisms()[kind]).eval(), tokens()
    with mode(), record(attention) as trace:
        attention(x, mask=Mask.causal())
    call = trace[""]
    assert not call.q.requires_grad
    assert not call.output.requires_grad
    assert not call.weights.requires_grad
    with record(attention) as again:
        attention(x, mask=Mask.causal())
    assert torch.equal(call.weights, again[""].weights)


def test_weights_of_a_training_pass_are_those_before_dropout() -> None:
    attention = MultiHeadAttention(D, H, dropout=0.9).train()
    with record(attention) as trace:
        attention(tokens())
    torch.testing.assert_close(trace[""].weights.sum(-1), torch.ones(B, H, T))


def test_autocast_of_the_call_is_that_of_the_weights() -> None:
    attention = MultiHeadAttention(D, H, mechanism=AdditiveAttention(DH, DH, 6))
    x = tokens()
    with record(attention) as trace, torch.autocast("cpu", torch.bfloat16):
        attention(x)
        inside = trace[""].weights
    outside = trace[""].weights
    assert inside.dtype == torch.bfloat16
    assert torch.equal(inside, outside)
    with record(attention) as trace:
        attention(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert trace[""].weights.dtype == torch.float32


@pytest.mark.parametrize("positions", [None, RotaryPositions(DH)])
def test_steps_with_a_cache_are_rows_of_the_whole(positions: nn.Module | None) -> None:
    attention, x, cache = MultiHeadAttention(D, H, positions=positions), tokens(), KVCache(2)
    with torch.no_grad(), record(attention) as whole:
        attention(x, mask=Mask.causal())
    with torch.no_grad(), record(attention) as steps:
        for t in range(T):
            attention(x[:, t : t + 1], mask=Mask.causal(), cache=cache)
    assert len(steps.calls("")) == T
    for t, call in enumerate(steps.calls("")):
        assert call.weights.shape == (B, H, 1, t + 1)
        torch.testing.assert_close(call.weights[:, :, 0], whole[""].weights[:, :, t, : t + 1])
    assert steps[""] is steps.calls("")[-1]


@pytest.mark.parametrize(("batch_size", "length"), [(0, T), (B, 0), (0, 0)])
def test_empty_inputs_have_empty_weights(batch_size: int, length: int) -> None:
    attention = MultiHeadAttention(D, H)
    with record(attention) as trace:
        attention(torch.zeros(batch_size, length, D), mask=Mask.causal())
    assert trace[""].weights.shape == (batch_size, H, length, length)
    assert trace[""].weights_of(heads=0).shape == (batch_size, 1, length, length)


def test_tensors_are_the_models_own_not_copies() -> None:
    mechanism, q = DotProductAttention(), torch.randn(B, H, T, DH, requires_grad=True)
    with record(mechanism) as trace:
        output = mechanism(q, q, q)
    assert trace[""].q.data_ptr() == q.data_ptr()
    assert trace[""].output.data_ptr() == output.data_ptr()


# The model does not notice


@pytest.mark.parametrize("training", [False, True])
def test_result_and_gradients_are_the_same_to_the_bit(training: bool) -> None:
    plain = model(dropout=0.3).train(training)
    watched = copy.deepcopy(plain)
    results = []
    for stack in (plain, watched):
        torch.manual_seed(3)
        if stack is watched:
            with record(stack) as trace:
                y = stack(tokens(), mask=Mask.causal())
                trace.weights()
        else:
            y = stack(tokens(), mask=Mask.causal())
        y.square().sum().backward()
        results.append([y, *(p.grad for p in stack.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_no_hook_is_left_behind() -> None:
    stack = model()
    with record(stack):
        assert hooks_in(stack) == 4
        stack(tokens())
    assert hooks_in(stack) == 0


def test_no_hook_is_left_when_the_model_raises() -> None:
    stack = model()
    with pytest.raises(ValueError, match="width 3"), record(stack):
        stack(torch.zeros(B, T, 3))
    assert hooks_in(stack) == 0


def test_calls_before_and_after_are_not_kept() -> None:
    stack = model()
    stack(tokens())
    with record(stack) as trace:
        pass
    stack(tokens())
    assert len(trace) == 0


def test_recorders_can_be_nested_and_run_side_by_side() -> None:
    stack = model()
    with record(stack) as outer:
        stack(tokens())
        with record(stack) as inner, record(stack.blocks[1]) as part:
            stack(tokens())
        stack(tokens())
    assert len(outer.calls("blocks.0.attention")) == 3
    assert len(inner.calls("blocks.0.attention")) == 1
    assert torch.equal(part["attention"].q, inner["blocks.1.attention"].q)
    assert hooks_in(stack) == 0


# Words


def test_the_trace_prints_as_a_table() -> None:
    stack = model()
    with record(stack) as trace:
        stack(tokens())
        stack.blocks[0](tokens())
    lines = repr(trace).splitlines()
    assert lines[0] == "Trace of 2 attentions and 2 blocks"
    assert lines[1] == "  'blocks.0'            Block  (2, 5, 12) → (2, 5, 12)  (2 calls, the last)"
    assert lines[4] == (
        "  'blocks.1.attention'  DotProductAttention  "
        "q (2, 3, 5, 4)  k (2, 3, 5, 4)  v (2, 3, 5, 4) → (2, 3, 5, 4)"
    )


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    stack = model()
    with record(stack) as trace:
        stack(tokens())
    with pytest.raises(
        KeyError, match=r"'blocks.0.atention'; the nearest are \['blocks.0.attention'"
    ):
        trace["blocks.0.atention"]
    with pytest.raises(KeyError, match="the nearest are"):
        trace.calls("something else")


def test_a_module_that_was_not_called_says_so() -> None:
    stack = model()
    with record(stack) as trace:
        stack.blocks[0](tokens())
    assert list(trace) == ["blocks.0", "blocks.0.attention"]
    assert "blocks.1" not in trace
    assert trace.calls("blocks.1") == []
    assert "'blocks.1'            not called" in repr(trace)
    with pytest.raises(
        KeyError, match=r"'blocks.1' was not called while recording: run the model inside"
    ):
        trace["blocks.1"]


def test_a_model_without_attention_is_refused() -> None:
    with (
        pytest.raises(ValueError, match="Linear holds no attention Mechanism and no Block"),
        record(nn.Linear(2, 3)),
    ):
        pass
    with pytest.raises(TypeError, match=r"model must be an nn.Module, got list"), record([]):  # type: ignore[arg-type]
        pass


def test_a_trace_is_a_mapping() -> None:
    attention = MultiHeadAttention(D, H)
    with record(attention) as trace:
        attention(tokens())
    assert isinstance(trace, Trace)
    assert dict(trace) == {"": trace[""]}
    assert trace.get("nothing") is None


def test_weights_of_parameters_that_have_changed_are_refused() -> None:
    mechanism = AdditiveAttention(DH, DH, 5)
    with record(mechanism) as trace:
        mechanism(*(torch.randn(B, H, T, DH) for _ in range(3)))
    before = trace[""].weights
    assert torch.equal(trace[""].weights, before)
    with torch.no_grad():
        mechanism.proj_score.weight.mul_(2)
    with pytest.raises(RuntimeError, match="AdditiveAttention have changed since this call"):
        _ = trace[""].weights


def test_calls_of_other_threads_are_not_recorded() -> None:
    stack, shared = model(), DotProductAttention()
    for block in stack.blocks:
        block.attention.mechanism = shared  # the name of the holder is noted before each call
    with record(stack) as trace:
        threads = [threading.Thread(target=stack, args=(tokens(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(trace) == 0
        stack(tokens(3))
    assert {call.q.size(-2) for call in trace.attention.values()} == {3}

"""Block and Stack: both norm orders by hand and against PyTorch; sources, masks, caches."""

import pytest
import torch
from torch import nn

from clearhead.attention import CrossAttention, JoinedHeads, SelfAttention
from clearhead.attention.cache import KVCache
from clearhead.attention.masks import Mask
from clearhead.attention.mechanisms import ArgmaxAttention
from clearhead.inspection import record
from clearhead.layers import Block, FeedForward, LayerNorm, RMSNorm, Stack, layer_norm
from clearhead.positions import AlibiBias, RotaryPositions, ToeplitzBias

B, T, S, D, H, F = 2, 5, 7, 12, 3, 10

# One scheme per test case, made anew for each block: a Toeplitz bias has parameters.
SCHEMES = {
    "none": lambda: None,
    "rotary": lambda: RotaryPositions(D // H),
    "toeplitz": lambda: drawn(ToeplitzBias(H, 9)),
    "alibi": lambda: AlibiBias(H),
}


def drawn(module):
    """The module with every parameter drawn at random, so that none is 0 or 1 by construction."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module


def block(**options):
    return drawn(Block(D, H, F, **options)).double()


def sequence(length=T):
    return torch.randn(B, length, D, dtype=torch.float64)


def copy_attention(ours, theirs):
    """The parameters of an nn.MultiheadAttention into a MultiHeadAttention."""
    layers = (ours.proj_q, ours.proj_k, ours.proj_v)
    for layer, weight, bias in zip(
        layers, theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
    ):
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    ours.proj_out.load_state_dict(theirs.out_proj.state_dict())


def copy_norm(ours, theirs):
    ours.gain.copy_(theirs.weight)
    ours.shift.copy_(theirs.bias)


@torch.no_grad()
def copied(theirs, **options):
    """A Block with the parameters of an nn.TransformerEncoderLayer or DecoderLayer."""
    cross = isinstance(theirs, nn.TransformerDecoderLayer)
    ours = Block(D, H, F, cross=cross, **options).double()
    copy_attention(ours.attention, theirs.self_attn)
    copy_norm(ours.norm_attention, theirs.norm1)
    if cross:
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        copy_norm(ours.norm_cross, theirs.norm2)
    copy_norm(ours.norm_feed_forward, theirs.norm3 if cross else theirs.norm2)
    ours.feed_forward.proj_in.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.proj_out.load_state_dict(theirs.linear2.state_dict())
    return ours


def test_pre_norm_adds_branches_of_the_normed_input():
    ours, x = block(), sequence()
    y = x + ours.attention(ours.norm_attention(x))
    expected = y + ours.feed_forward(ours.norm_feed_forward(y))
    assert torch.allclose(ours(x), expected, rtol=0, atol=1e-12)


def test_post_norm_norms_the_sums():
    ours, x = block(pre_norm=False), sequence()
    y = ours.norm_attention(x + ours.attention(x))
    expected = ours.norm_feed_forward(y + ours.feed_forward(y))
    assert torch.allclose(ours(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_source_is_heard_between_self_attention_and_feed_forward(pre_norm):
    ours, x, source = block(pre_norm=pre_norm, cross=True), sequence(), sequence(S)
    branches = [
        (ours.norm_attention, ours.attention),
        (ours.norm_cross, lambda y: ours.cross_attention(y, source)),
        (ours.norm_feed_forward, ours.feed_forward),
    ]
    expected = x
    for norm, branch in branches:
        if pre_norm:
            expected = expected + branch(norm(expected))
        else:
            expected = norm(expected + branch(expected))
    assert torch.allclose(ours(x, source), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_an_encoder_block_is_pytorch_s_encoder_layer(pre_norm, activation):
    theirs = drawn(
        nn.TransformerEncoderLayer(
            D, H, F, dropout=0.0, activation=activation, norm_first=pre_norm, batch_first=True
        )
    ).double()
    ours = copied(theirs, pre_norm=pre_norm, activation=activation)
    x, real = sequence().requires_grad_(), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    y, expected = ours(x, mask=Mask.tokens(real)), theirs(x, src_key_padding_mask=~real)
    assert torch.allclose(y, expected, rtol=0, atol=1e-10)
    seen = torch.randn_like(y)
    (our_gradient,) = torch.autograd.grad(y, x, seen)
    (their_gradient,) = torch.autograd.grad(expected, x, seen)
    assert torch.allclose(our_gradient, their_gradient, rtol=0, atol=1e-9)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_decoder_block_is_pytorch_s_decoder_layer(pre_norm):
    theirs = drawn(
        nn.TransformerDecoderLayer(D, H, F, dropout=0.0, norm_first=pre_norm, batch_first=True)
    ).double()
    ours = copied(theirs, pre_norm=pre_norm, activation="relu")
    x, source = sequence(), sequence(S)
    real = torch.arange(S) < torch.tensor([[7], [4]])
    y = ours(x, source, mask=Mask.causal(), source_mask=Mask.padding(torch.tensor([7, 4])))
    ahead = torch.ones(T, T).triu(1).bool()
    expected = theirs(x, source, tgt_mask=ahead, memory_key_padding_mask=~real)
    assert torch.allclose(y, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_gradients_pass_gradcheck(pre_norm):
    ours = block(pre_norm=pre_norm, cross=True, positions=drawn(ToeplitzBias(H, T)))
    x, source = sequence(3)[:1].requires_grad_(), sequence(2)[:1].requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: ours(a, b, mask=Mask.causal()), (x, source))


def test_bias_false_leaves_no_bias_anywhere():
    ours = block(activation="relu", bias=False, cross=True)
    assert not [name for name, _ in ours.named_parameters() if "bias" in name or "shift" in name]
    x, attention = sequence(), ours.attention
    without = block(activation="relu", bias=False)
    without.load_state_dict(
        {name: value for name, value in ours.state_dict().items() if "cross" not in name}
    )
    w1, w2 = ours.feed_forward.proj_in.weight.mT, ours.feed_forward.proj_out.weight.mT
    y = x + attention(ours.norm_attention(x))
    expected = y + torch.relu(ours.norm_feed_forward(y) @ w1) @ w2
    assert torch.allclose(without(x), expected)


def test_norm_and_activation_are_chosen_by_name():
    ours = Block(D, H, F, norm="rms", activation="swiglu", cross=True)
    for norm in (ours.norm_attention, ours.norm_cross, ours.norm_feed_forward):
        assert isinstance(norm, RMSNorm)
    assert ours.feed_forward.activation == "swiglu"
    assert isinstance(Block(D, H).norm_attention, LayerNorm)
    assert isinstance(Block(D, H).feed_forward, FeedForward)
    assert Block(D, H).feed_forward.proj_in.out_features == 4 * D


def test_what_attention_takes_is_handed_on():
    mechanism, positions = ArgmaxAttention(), ToeplitzBias(H, T)
    ours = Block(
        D, H, n_kv_heads=1, mechanism=mechanism, positions=positions, dropout=0.1, cross=True
    )
    assert ours.attention.mechanism is mechanism
    assert ours.attention.positions is positions
    assert ours.attention.n_kv_heads == ours.cross_attention.n_kv_heads == 1
    assert ours.cross_attention.mechanism.dropout == 0.1
    assert Block(D, H, dropout=0.1).attention.mechanism.dropout == 0.1


def test_norm_eps_reaches_every_norm():
    for norm in ("layer", "rms"):
        ours = Block(D, H, F, norm=norm, norm_eps=0.5, cross=True)
        norms = (ours.norm_attention, ours.norm_cross, ours.norm_feed_forward)
        assert [part.eps for part in norms] == [0.5] * 3
    assert Block(D, H).norm_attention.eps == 1e-5


def test_norm_eps_is_computed_with():
    x = sequence()
    wide, narrow = block(norm_eps=0.5), block()
    narrow.load_state_dict(wide.state_dict())
    assert not torch.allclose(wide(x), narrow(x))
    y = x + wide.attention(layer_norm(x, wide.norm_attention.gain, wide.norm_attention.shift, 0.5))
    inner = layer_norm(y, wide.norm_feed_forward.gain, wide.norm_feed_forward.shift, 0.5)
    assert torch.allclose(wide(x), y + wide.feed_forward(inner), rtol=0, atol=1e-12)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_without_norms_a_block_is_its_sums(pre_norm):
    ours, x, source = block(norm="none", pre_norm=pre_norm, cross=True), sequence(), sequence(S)
    y = x + ours.attention(x)
    y = y + ours.cross_attention(y, source)
    assert torch.allclose(ours(x, source), y + ours.feed_forward(y), rtol=0, atol=1e-12)
    assert not [name for name in ours.state_dict() if "norm" in name]


def test_qk_norm_is_of_the_self_attention_only():
    ours = Block(D, H, F, qk_norm=True, cross=True)
    assert ours.attention.norm_q.weight.shape == ours.attention.norm_k.weight.shape == (D // H,)
    assert ours.cross_attention.norm_q is ours.cross_attention.norm_k is None
    assert Block(D, H).attention.norm_q is None


def test_with_qk_norm_the_length_of_queries_and_keys_does_not_matter():
    ours, x = block(qk_norm=True), sequence()
    y = ours(x)
    with torch.no_grad():
        for layer in (ours.attention.proj_q, ours.attention.proj_k):
            layer.weight *= 7
            layer.bias *= 7
    assert torch.allclose(ours(x), y, rtol=0, atol=1e-4)
    with torch.no_grad():
        ours.attention.proj_v.weight *= 7
    assert not torch.allclose(ours(x), y, atol=1e-4)


def test_mask_bias_and_positions_reach_the_self_attention():
    ours, x = block(positions=RotaryPositions(D // H)), sequence()
    bias = torch.randn(H, T, T, dtype=torch.float64)
    positions = torch.tensor([5, 0, 1, 8, 3])
    options = {"mask": Mask.window(2), "bias": bias, "positions": positions}
    y = x + ours.attention(ours.norm_attention(x), **options)
    expected = y + ours.feed_forward(ours.norm_feed_forward(y))
    assert torch.allclose(ours(x, **options), expected, rtol=0, atol=1e-12)
    for name in options:
        others = {key: value for key, value in options.items() if key != name}
        assert not torch.allclose(ours(x, **others), expected)


def test_dropout_is_on_every_branch_in_training_only():
    ours, x = block(dropout=1.0, cross=True), sequence()
    source = sequence(S)
    assert torch.equal(ours(x, source), x)
    norms_only = block(pre_norm=False, dropout=1.0)
    expected = norms_only.norm_feed_forward(norms_only.norm_attention(x))
    assert torch.equal(norms_only(x), expected)
    whole = ours.eval()(x, source)
    assert torch.equal(ours(x, source), whole)
    without = block(cross=True)
    without.load_state_dict(ours.state_dict())
    assert torch.equal(without(x, source), whole)
    assert not torch.equal(ours.train()(x, source), whole)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_future_tokens_change_nothing(pre_norm):
    stack = Stack([block(pre_norm=pre_norm) for _ in range(2)])
    x = sequence()
    changed = x.clone()
    changed[:, 3:] += 1
    y, z = stack(x, mask=Mask.causal()), stack(changed, mask=Mask.causal())
    assert torch.allclose(y[:, :3], z[:, :3], rtol=0, atol=1e-12)
    assert not torch.allclose(y[:, 3:], z[:, 3:])


def test_a_stack_is_its_blocks_one_after_the_other_and_a_norm():
    blocks, norm = [block(), block(pre_norm=False)], drawn(LayerNorm(D)).double()
    x = sequence()
    expected = blocks[1](blocks[0](x, mask=Mask.causal()), mask=Mask.causal())
    assert torch.equal(Stack(blocks)(x, mask=Mask.causal()), expected)
    assert torch.equal(Stack(blocks, norm)(x, mask=Mask.causal()), norm(expected))
    assert torch.equal(Stack([])(x), x)


def test_a_stack_hands_everything_to_every_block():
    stack = Stack([block(cross=True, positions=RotaryPositions(D // H)) for _ in range(2)])
    x, source = sequence(), sequence(S)
    options = {
        "mask": Mask.causal(),
        "source_mask": Mask.padding(torch.tensor([7, 4])),
        "bias": torch.randn(H, T, T, dtype=torch.float64),
        "positions": torch.tensor([5, 0, 1, 8, 3]),
    }
    expected = x
    for part in stack.blocks:
        expected = part(expected, source, **options)
    assert torch.equal(stack(x, source, **options), expected)


def test_the_names_inside_a_stack_are_those_inspection_shows():
    names = dict(Stack([Block(D, H), Block(D, H, cross=True)], LayerNorm(D)).named_modules())
    for name in (
        "blocks.0.attention.mechanism",
        "blocks.1.cross_attention.mechanism",
        "blocks.1.norm_cross",
        "blocks.0.feed_forward.proj_in",
        "norm",
    ):
        assert name in names


@pytest.mark.parametrize("split", range(1, T))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_with_caches_a_stack_gives_at_every_split_what_it_gives_at_once(scheme, split):
    stack = Stack([block(positions=SCHEMES[scheme]()) for _ in range(2)])
    x, caches = sequence(), [KVCache() for _ in range(2)]
    with torch.no_grad():
        whole = stack(x, mask=Mask.causal())
        parts = [stack(part, mask=Mask.causal(), caches=caches) for part in x.split(split, dim=1)]
    assert torch.allclose(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("split", range(1, T))
@pytest.mark.parametrize("options", [{}, {"qk_norm": True, "n_kv_heads": 1}, {"pre_norm": False}])
def test_with_a_source_steps_give_at_every_split_what_the_whole_pass_gives(options, split):
    stack = Stack([block(cross=True, **options) for _ in range(2)], drawn(LayerNorm(D)).double())
    x, source = sequence(), sequence(S)
    masks = {"mask": Mask.causal(), "source_mask": Mask.padding(torch.tensor([7, 4]))}
    caches, source_caches = ([KVCache() for _ in range(2)] for _ in range(2))
    projected = []
    for part in stack.blocks:
        part.cross_attention.proj_k.register_forward_hook(lambda *_: projected.append("k"))
        part.cross_attention.proj_v.register_forward_hook(lambda *_: projected.append("v"))
    with torch.no_grad():
        whole = stack(x, source, **masks)
        projected.clear()
        steps = [
            stack(part, source, **masks, caches=caches, source_caches=source_caches)
            for part in x.split(split, dim=1)
        ]
    assert torch.allclose(torch.cat(steps, dim=1), whole, rtol=0, atol=1e-10)
    assert projected == ["k", "v"] * 2  # once in each block, not once in each step
    assert [len(cache) for cache in caches] == [T] * 2
    assert [len(cache) for cache in source_caches] == [S] * 2


def test_a_source_cache_alone_serves_a_whole_pass_again():
    ours, cache = block(cross=True), KVCache()
    x, source = sequence(), sequence(S)
    with torch.no_grad():
        expected = ours(x, source)
        for _ in range(2):
            assert torch.allclose(ours(x, source, source_cache=cache), expected, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_left_padding_changes_nothing_for_the_real_tokens(scheme):
    stack = Stack([block(positions=SCHEMES[scheme]()) for _ in range(2)])
    alone = sequence(3)
    padded = torch.cat((torch.randn(B, 2, D, dtype=torch.float64), alone), dim=1)
    real = torch.tensor([[False] * 2 + [True] * 3] * B)
    mask = Mask.causal() & Mask.tokens(real)
    positions = Mask.tokens(real).positions(T)
    y = stack(padded, mask=mask, positions=positions)
    assert torch.allclose(y[:, 2:], stack(alone, mask=Mask.causal()), rtol=0, atol=1e-10)


def count_parameters(name, module):
    return sorted(key for key in module.state_dict() if name in key)


def test_each_part_chooses_its_own_bias():
    free = Block(D, H, F, cross=True, bias=False, norm_bias=True)
    assert count_parameters("bias", free) == []
    assert len(count_parameters("shift", free)) == 3
    only = Block(D, H, F, cross=True, bias=False, attention_bias=True)
    assert count_parameters("shift", only) == []
    layers = ("proj_k", "proj_out", "proj_q", "proj_v")
    expected = [
        f"{part}.{layer}.bias" for part in ("attention", "cross_attention") for layer in layers
    ]
    assert count_parameters("bias", only) == expected
    assert count_parameters("bias", Block(D, H, F, norm="rms", bias=False, norm_bias=False)) == []


@pytest.mark.parametrize("pre_norm", [True, False])
def test_without_a_norm_at_attention_the_sum_is_left_as_it_is(pre_norm):
    module = block(cross=True, norm_attention=False, pre_norm=pre_norm, d_head=5)
    x, source = sequence(), sequence(S)
    y = x + module.attention(x)
    y = y + module.cross_attention(y, source)
    norm, feed_forward = module.norm_feed_forward, module.feed_forward
    y = y + feed_forward(norm(y)) if pre_norm else norm(y + feed_forward(y))
    assert torch.equal(module(x, source), y)
    assert count_parameters("norm", module) == ["norm_feed_forward.gain", "norm_feed_forward.shift"]


def joined(d_input=D, d_output=D, kind=SelfAttention):
    widths = (d_input, d_input) if kind is CrossAttention else (d_input,)
    return JoinedHeads([kind(*widths, 7, width) for width in (3, 6)], d_output)


def test_heads_of_different_widths_stand_in_a_block_with_masks():
    module = drawn(Block(D, d_ff=F, attention=joined())).double()
    x, mask = sequence(), Mask.causal() & Mask.padding([5, 3])
    y = x + module.attention(module.norm_attention(x), mask=mask)
    y = y + module.feed_forward(module.norm_feed_forward(y))
    assert torch.equal(Stack([module])(x, mask=mask, positions=torch.arange(T)), y)
    with record(module) as trace:
        module(x, mask=mask)
    assert trace["attention.heads.1"].weights.shape == (B, T, T)


def test_settings_that_do_not_fit_joined_heads_are_refused():
    with pytest.raises(TypeError, match=r"n_heads is missing; give it, or attention=JoinedHeads"):
        Block(D)
    for options in (
        *({"n_heads": 2}, {"d_head": 3}, {"qk_norm": True}, {"cross": True}),
        {"attention_bias": False},
    ):
        with pytest.raises(ValueError, match=r"takes the place of n_heads, .* leave them out"):
            Block(D, attention=joined(), **options)
    for wrong in (joined(d_input=11), joined(d_output=11), joined(kind=CrossAttention)):
        with pytest.raises(
            ValueError, match="must join SelfAttention heads from d_model=12 to d_mo"
        ):
            Block(D, attention=wrong)
    with pytest.raises(TypeError, match="attention must be JoinedHeads, got SelfAttention"):
        Block(D, attention=SelfAttention(D, 4, D))
    module, x = Block(D, attention=joined()), torch.randn(B, T, D)
    with pytest.raises(ValueError, match=r"cache cannot be served by JoinedHeads, .* d_head="):
        module(x, cache=KVCache())
    with pytest.raises(ValueError, match="bias cannot be served by JoinedHeads"):
        module(x, bias=torch.zeros(T, T))
    for norm in ("rms", "none"):
        with pytest.raises(
            ValueError, match=f"norm_bias=True .* norm='{norm}' has none; take norm="
        ):
            Block(D, H, norm=norm, norm_bias=True)


def test_mistakes_are_refused():
    x, source = sequence(), sequence(S)
    with pytest.raises(ValueError, match="source is missing: this block was built with cross=True"):
        block(cross=True)(x)
    with pytest.raises(
        ValueError, match=r"source_mask and source_cache need a block .* cross=True"
    ):
        block()(x, source)
    with pytest.raises(
        ValueError, match=r"source_mask and source_cache need a block .* cross=True"
    ):
        block()(x, source_mask=Mask.causal())
    with pytest.raises(
        ValueError, match=r"source_mask and source_cache need a block .* cross=True"
    ):
        block()(x, source_cache=KVCache())
    with pytest.raises(ValueError, match=r"^caches must hold one KVCache for each block, 2, got 1"):
        Stack([block(), block()])(x, caches=[KVCache()])
    with pytest.raises(ValueError, match=r"^source_caches must hold one KVCache for each block, 1"):
        Stack([block(cross=True)])(x, source, source_caches=[])
    with pytest.raises(ValueError, match="norm must be one of 'layer', 'rms', 'none', got 'batch'"):
        Block(D, H, norm="batch")
    with pytest.raises(ValueError, match="d_model is 12, which n_heads=5 does not divide"):
        Block(D, 5)
    with pytest.raises(ValueError, match="x has width 11"):
        block()(x[..., :11])


@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D)])
def test_empty_sizes_keep_their_shape(shape):
    x = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    y = Stack([block(), block(pre_norm=False)])(x, mask=Mask.causal())
    y.sum().backward()
    assert y.shape == x.grad.shape == shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_works_and_the_input_stays_unchanged(dtype):
    ours = Block(D, H, F, positions=RotaryPositions(D // H)).to(dtype)
    x = torch.randn(B, T, D, dtype=dtype)
    before = x.clone()
    y = ours(x, mask=Mask.causal())
    assert y.dtype == dtype
    assert y.isfinite().all()
    assert torch.equal(x, before)

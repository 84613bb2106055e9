"""SequenceClassifier: its parts by hand, ids as one-hot rows, padding, order, and its refusals."""

import copy
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from clearhead.attention import Mask
from clearhead.inspection import record
from clearhead.models.classifier import ClassifierConfig, SequenceClassifier

B, T, IN, OUT, D, H, F, L = 2, 5, 6, 3, 12, 2, 10, 2
SCHEMES = ["learned", "toeplitz", "sinusoidal", "rotary", "none"]
SMALL = ClassifierConfig(
    d_input=IN, d_output=OUT, d_model=D, n_layers=L, n_heads=H, d_ff=F, max_len=9
)


def build(**changes):
    """A model in float64 with every parameter random, a Toeplitz bias too."""
    model = SequenceClassifier(dataclasses.replace(SMALL, **changes)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def some_ids(length=T):
    return torch.randint(0, IN, (B, length))


def rows_of(ids):
    return one_hot(ids, IN).double()


# What it computes


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_model_is_its_parts_one_after_the_other(scheme, pre_norm):
    model, rows = build(positions=scheme, pre_norm=pre_norm), torch.randn(B, T, IN).double()
    x = rows @ model.embedding.weight.mT + model.embedding.bias
    if scheme == "learned":
        x = x + model.positions.weight[:T]
    elif scheme == "sinusoidal":
        x = model.positions(x)
    for block in model.stack.blocks:
        x = block(x)
    if pre_norm:
        x = model.stack.norm(x)
    expected = x @ model.head.weight.mT + model.head.bias
    assert model(rows).shape == (B, T, OUT)
    assert torch.allclose(model(rows), expected, rtol=0, atol=1e-12)
    assert (model.stack.norm is not None) == pre_norm


def test_without_blocks_that_do_anything_it_is_two_linear_layers_by_hand():
    config = ClassifierConfig(2, 1, d_model=2, n_layers=1, n_heads=1, positions="none", norm="none")
    model = SequenceClassifier(config)
    nn.init.zeros_(model.stack.blocks[0].attention.proj_out.weight)
    nn.init.zeros_(model.stack.blocks[0].attention.proj_out.bias)
    nn.init.zeros_(model.stack.blocks[0].feed_forward.proj_out.weight)
    nn.init.zeros_(model.stack.blocks[0].feed_forward.proj_out.bias)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        model.embedding.bias.copy_(torch.tensor([10.0, 20.0]))
        model.head.weight.copy_(torch.tensor([[1.0, -1.0]]))
        model.head.bias.copy_(torch.tensor([0.5]))
    # id 0 → (1, 3) + (10, 20) = (11, 23) → −12 + ½; id 1 → (12, 24) → −12 + ½
    assert model(torch.tensor([[0, 1]])).flatten().tolist() == [-11.5, -11.5]
    # the row (2, 0) → (2, 6) + (10, 20) = (12, 26) → −14 + ½
    assert model(torch.tensor([[[2.0, 0.0]]])).flatten().tolist() == [-13.5]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_ids_give_the_numbers_of_one_hot_rows(scheme, bias):
    model, ids = build(positions=scheme, bias=bias), some_ids()
    by_ids, by_rows = model(ids), model(rows_of(ids))
    assert torch.allclose(by_ids, by_rows, rtol=0, atol=1e-12)
    seen = torch.randn_like(by_ids)
    ours = torch.autograd.grad(by_ids, list(model.parameters()), seen)
    theirs = torch.autograd.grad(by_rows, list(model.parameters()), seen)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, rtol=0, atol=1e-11)
    assert torch.equal(model(ids.int()), by_ids)


def test_positions_are_where_the_scheme_puts_them():
    assert build(positions="learned").positions.weight.shape == (9, D)
    for name in ("toeplitz", "rotary"):
        model = build(positions=name)
        schemes = [block.attention.positions for block in model.stack.blocks]
        assert model.positions is None
        assert len({id(scheme) for scheme in schemes}) == L  # each layer has its own
    weights = [
        block.attention.positions.weight for block in build(positions="toeplitz").stack.blocks
    ]
    assert [tuple(weight.shape) for weight in weights] == [(H, 2 * 9 + 1)] * L
    assert all(block.attention.positions is None for block in build().stack.blocks)
    slow = build(positions="rotary", rotary_base=500.0).stack.blocks
    assert [block.attention.positions.base for block in slow] == [500.0] * len(slow)


def test_heads_start_with_different_distances_in_mind():
    torch.manual_seed(0)
    fresh = SequenceClassifier(dataclasses.replace(SMALL, positions="toeplitz", max_len=500))
    weight = torch.cat([block.attention.positions.weight for block in fresh.stack.blocks])
    assert abs(weight.mean()) < 0.1
    assert abs(weight.std() - 1) < 0.1
    assert not torch.allclose(weight[0], weight[1])


def test_without_positions_order_means_nothing():
    ids, order = some_ids(), torch.tensor([3, 0, 4, 1, 2])
    model = build(positions="none")
    assert torch.allclose(model(ids[:, order]), model(ids)[:, order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "none"])
def test_with_positions_order_means_something(scheme):
    ids, order = torch.tensor([[0, 1, 2, 3, 4]]), torch.tensor([3, 0, 4, 1, 2])
    model = build(positions=scheme)
    assert not torch.allclose(model(ids[:, order]), model(ids)[:, order], atol=1e-3)


def test_every_token_hears_every_other():
    model, ids = build(), some_ids()
    for changed in range(T):
        other = ids.clone()
        other[:, changed] = (other[:, changed] + 1) % IN
        assert (model(other) != model(ids)).any(-1).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bias", [True, False])
def test_a_gradient_reaches_every_parameter(scheme, bias):
    model = build(positions=scheme, bias=bias, max_len=T)
    model(torch.stack((torch.arange(T), torch.arange(T) + 1))).square().sum().backward()
    for name, parameter in model.named_parameters():
        # With a softmax, one number added to all keys' scores changes nothing.
        silent = name.endswith("proj_k.bias") and scheme != "rotary"
        assert silent or parameter.grad.abs().max() > 1e-9, name


def test_bias_false_leaves_no_bias_anywhere():
    model = build(bias=False, positions="none", pre_norm=False)
    assert not [n for n, _ in model.named_parameters() if "bias" in n or "shift" in n]
    rows = torch.randn(B, T, IN).double()
    x = rows @ model.embedding.weight.mT
    for block in model.stack.blocks:
        w1, w2 = block.feed_forward.proj_in.weight.mT, block.feed_forward.proj_out.weight.mT
        x = block.norm_attention(x + block.attention(x))
        x = block.norm_feed_forward(x + torch.relu(x @ w1) @ w2)
    assert torch.allclose(model(rows), x @ model.head.weight.mT, rtol=0, atol=1e-12)


def test_norm_and_activation_are_handed_on():
    model = build(norm="rms", norm_eps=0.5, activation="squared_relu")
    block = model.stack.blocks[1]
    assert type(block.norm_attention).__name__ == type(model.stack.norm).__name__ == "RMSNorm"
    assert block.norm_attention.eps == model.stack.norm.eps == 0.5
    assert block.feed_forward.activation == "squared_relu"
    assert build().stack.blocks[0].feed_forward.activation == "relu"


# Padding


@pytest.mark.parametrize("side", ["right", "left", "inside"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_padding_changes_no_real_token(scheme, side):
    model, ids = build(positions=scheme), some_ids(4)
    real = {"right": [0, 1, 2, 3], "left": [3, 4, 5, 6], "inside": [0, 2, 3, 6]}[side]
    padded = torch.randint(0, IN, (B, 7))
    token_mask = torch.zeros(B, 7, dtype=torch.bool)
    padded[:, real], token_mask[:, real] = ids, True
    expected = model(ids)
    for tokens in (padded, rows_of(padded)):
        if side == "inside" and scheme == "toeplitz":  # a bias by distance counts places
            with pytest.raises(ValueError, match="padding between real tokens in row 0"):
                model(tokens, token_mask=token_mask)
            continue
        y = model(tokens, token_mask=token_mask)
        assert torch.allclose(y[:, real], expected, rtol=0, atol=1e-12)
    assert not torch.allclose(model(padded)[:, real], expected)


def test_each_sequence_of_a_padded_batch_is_as_if_alone():
    model, lengths = build(), [5, 2, 0]
    ids = torch.randint(0, IN, (3, T))
    token_mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    y = model(ids, token_mask=token_mask)
    for row, length in enumerate(lengths):
        alone = model(ids[row : row + 1, :length])
        assert torch.allclose(y[row : row + 1, :length], alone, rtol=0, atol=1e-12)
    assert y.isfinite().all()


def test_N06_what_stands_in_padding_does_not_matter():
    model, rows = build(), torch.randn(B, T, IN).double()
    token_mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    clean = model(rows, token_mask=token_mask)
    poisoned = rows.masked_fill(~token_mask[..., None], torch.nan)
    assert torch.equal(model(poisoned, token_mask=token_mask)[token_mask], clean[token_mask])


def test_all_tokens_real_is_no_mask():
    model, ids = build(), some_ids()
    everything = torch.ones(B, T, dtype=torch.bool)
    assert torch.allclose(model(ids, token_mask=everything), model(ids), rtol=0, atol=1e-12)


# Use


def test_dropout_works_in_training_only():
    model, ids = build(dropout=0.5), some_ids()
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))
    same = build()
    same.load_state_dict(model.state_dict())
    assert torch.equal(same(ids), model(ids))
    assert not model.train()(ids).equal(same(ids))


def test_dropout_of_everything_leaves_nothing_of_the_tokens():
    model = build(dropout=1.0)
    nothing = model.head(model.stack.norm(torch.zeros(B, T, D).double()))
    assert torch.allclose(model(some_ids()), nothing, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_model_is_built_again_from_its_config_and_state(scheme):
    model, ids = build(positions=scheme, bias=False), some_ids()
    again = SequenceClassifier.from_config(model.config.to_dict()).double()
    again.load_state_dict(model.state_dict())
    assert again.config == model.config
    assert torch.equal(again(ids), model(ids))
    assert torch.equal(copy.deepcopy(model)(ids), model(ids))


def test_attention_is_seen_by_the_names_of_its_places():
    model, ids = build(), some_ids()
    token_mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    with record(model) as trace:
        model(ids, token_mask=token_mask)
    assert list(trace.attention) == [f"stack.blocks.{i}.attention" for i in range(L)]
    weights = trace["stack.blocks.0.attention"].weights
    assert weights.shape == (B, H, T, T)
    assert (weights[1, :, :, 3:] == 0).all()


def test_it_counts_and_describes_its_parameters():
    model = SequenceClassifier(SMALL)
    linear = IN * D + D + D * OUT + OUT
    block = 4 * (D * D + D) + (D * F + F) + (F * D + D) + 2 * 2 * D
    assert model.n_parameters == linear + 9 * D + L * block + 2 * D
    table = model.describe()
    assert repr(table) == table
    assert table._repr_html_().startswith("<pre>layer")
    for words in (
        "embedding",
        "weight 12×6, bias 12",
        "stack.blocks.1.feed_forward.proj_in",
        "9×12",
    ):
        assert words in table
    assert f"{model.n_parameters:,}" in table.splitlines()[-1]


def test_N23_empty_batches_and_sequences_keep_their_shape():
    for scheme in SCHEMES:
        model = build(positions=scheme)
        assert model(torch.zeros(0, T).long()).shape == (0, T, OUT)
        assert model(torch.zeros(B, 0).long()).shape == (B, 0, OUT)
        assert model(torch.zeros(B, 0, IN).double()).shape == (B, 0, OUT)
        y = model(torch.zeros(B, 1).long())
        assert y.shape == (B, 1, OUT)
        y.sum().backward()
        empty = torch.zeros(0, T, dtype=torch.bool)
        assert model(torch.zeros(0, T).long(), token_mask=empty).shape == (0, T, OUT)


def test_a_batch_element_without_a_real_token_stays_finite():
    model = build()
    y = model(some_ids(), token_mask=torch.zeros(B, T, dtype=torch.bool))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


# Refusals


@pytest.mark.parametrize("scheme", ["learned", "toeplitz"])
def test_N18_a_sequence_longer_than_max_len_is_refused(scheme):
    model = build(positions=scheme)
    words = "tokens has length 10 but max_len is 9; shorten it or build the m.* with max_len=10"
    assert model(some_ids(9)).shape == (B, 9, OUT)
    with pytest.raises(ValueError, match=words):
        model(some_ids(10))
    with pytest.raises(ValueError, match=words):
        model(rows_of(some_ids(10)))


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary", "none"])
def test_schemes_without_a_table_take_any_length(scheme):
    assert build(positions=scheme)(some_ids(300)).shape == (B, 300, OUT)


def test_N27_ids_out_of_range_are_named():
    model, ids = build(), some_ids()
    for wrong in (-1, IN):
        ids[1, 3] = wrong
        with pytest.raises(ValueError, match=rf"tokens\[1, 3\] is {wrong}, but ids go from 0 to 5"):
            model(ids)


def test_tokens_of_another_kind_are_refused():
    model = build()
    for tokens, error, words in (
        (torch.zeros(B, T, IN + 1).double(), ValueError, "tokens has width 7 .* but d_input is 6"),
        (torch.zeros(B, T, IN), TypeError, r"tokens must have the dtype of the module, torch.floa"),
        (torch.zeros(T, IN).double(), ValueError, r"\(B, T, d_input\) .* got \(5, 6\); one seq"),
        (torch.zeros(T).long(), ValueError, r"tokens must have shape \(B, T\), got \(5,\); one"),
        (torch.zeros(B, T, IN).long(), ValueError, r"tokens must have shape \(B, T\), got \(2, 5"),
        (torch.zeros(B, T).bool(), TypeError, r"tokens must hold integers, got torch\.bool"),
        ([[0, 1]], TypeError, r"tokens must be a torch\.Tensor of integers, got list"),
    ):
        with pytest.raises(error, match=words):
            model(tokens)


def test_a_token_mask_of_another_kind_is_refused():
    model, ids = build(), some_ids()
    with pytest.raises(ValueError, match=r"token_mask must have the shape of tokens, \(2, 5\)"):
        model(ids, token_mask=torch.ones(B, T + 1, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"token_mask must have the shape of tokens, \(2, 5\)"):
        model(ids, token_mask=torch.ones(1, T, dtype=torch.bool))
    with pytest.raises(TypeError, match="token_mask"):
        model(ids, token_mask=torch.ones(B, T))
    with pytest.raises(ValueError, match=r"the shape of tokens, \(2, 5\), got \(5,\)"):
        model(ids, token_mask=torch.ones(T, dtype=torch.bool))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"n_heads": 5}, ValueError, "d_model is 12, which n_heads=5 does not divide"),
        ({"n_heads": 0}, ValueError, "n_heads must be at least 1, got 0"),
        ({"d_input": 0}, ValueError, "d_input must be at least 1, got 0"),
        ({"d_output": -1}, ValueError, "d_output must be at least 1, got -1"),
        ({"n_layers": 0}, ValueError, "n_layers must be at least 1, got 0"),
        ({"d_ff": 0}, ValueError, "d_ff must be at least 1, got 0"),
        ({"max_len": 0}, ValueError, "max_len must be at least 1, got 0"),
        ({"positions": "waves"}, ValueError, "positions must be one of 'learned', 'sinusoidal'"),
        ({"positions": "rotary", "n_heads": 4}, ValueError, "d_head must be even.* got 3"),
        ({"norm": "batch"}, ValueError, "norm must be one of 'layer', 'rms'"),
        ({"activation": "sine"}, ValueError, "activation must be one of 'relu'"),
        ({"dropout": 1.5}, ValueError, "dropout must be a finite number from 0 to 1, got 1.5"),
        ({"dropout": float("nan")}, ValueError, "dropout must be a finite number, got nan"),
        ({"norm_eps": 0.0}, ValueError, "norm_eps must be a finite number above 0, got 0.0"),
        ({"norm_eps": float("inf")}, ValueError, "norm_eps must be a finite number, got inf"),
        ({"n_layers": True}, TypeError, "n_layers must be a whole number, got True of type bool"),
        ({"bias": 1}, TypeError, "bias must be true or false, got 1 of type int"),
        ({"d_model": 12.0}, TypeError, "d_model must be a whole number, got 12.0 of type float"),
        ({"positions": None}, TypeError, "positions must be a word, got None"),
    ],
)
def test_N20_F11_a_config_that_makes_no_sense_is_refused(changes, error, words):
    with pytest.raises(error, match=words):
        dataclasses.replace(SMALL, **changes)
    with pytest.raises(error, match=words):
        ClassifierConfig.from_dict(SMALL.to_dict() | changes)


def test_F11_unknown_and_missing_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="no 'n_layer'; the nearest is 'n_layers'"):
        ClassifierConfig.from_dict(SMALL.to_dict() | {"n_layer": 3})
    with pytest.raises(ValueError, match="needs 'd_output', which is missing"):
        ClassifierConfig.from_dict({"d_input": 3})
    with pytest.raises(TypeError, match="SequenceClassifier is built from a ClassifierConfig, got"):
        SequenceClassifier({"d_input": 3})


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.d_model = 3
    assert ClassifierConfig.from_dict(SMALL.to_dict()) == SMALL


def test_the_mask_is_the_one_of_the_tokens():
    """The blocks get the padding as a Mask, whose structure a kernel can use."""
    model, ids = build(n_layers=1), some_ids()
    token_mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]).bool()
    with record(model) as trace:
        model(ids, token_mask=token_mask)
    (call,) = trace.attention.values()
    assert isinstance(call.mask, Mask)
    assert torch.equal(call.mask.dense(T, T), Mask.tokens(token_mask).dense(T, T))

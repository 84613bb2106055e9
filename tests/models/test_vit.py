"""VisionTransformer: its parts by hand and against PyTorch's; other sizes; what it looks at."""

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn

from clearhead.inspection import class_token_map, record
from clearhead.layers import cut_patches
from clearhead.models.vit import VisionTransformer, ViTConfig, resize_positions

B, CHANNELS, D, H, F, L, C = 2, 3, 12, 3, 10, 2, 7
HEIGHT, WIDTH, ROWS, COLUMNS = 6, 8, 3, 2  # patches of 2 × 4
P = ROWS * COLUMNS
SMALL = ViTConfig(
    n_classes=C,
    image_size=(HEIGHT, WIDTH),
    patch_size=(2, 4),
    channels=CHANNELS,
    d_model=D,
    n_layers=L,
    n_heads=H,
    d_ff=F,
)


def build(**changes):
    """A model in float64 with every parameter random."""
    model = VisionTransformer(dataclasses.replace(SMALL, **changes)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def pictures(height=HEIGHT, width=WIDTH, b=B):
    return torch.randn(b, CHANNELS, height, width, dtype=torch.float64)


# What it computes


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_model_is_its_parts_one_after_the_other(pool, bias):
    model, images = build(pool=pool, bias=bias), pictures()
    conv, b = model.patches.conv, int(bias)
    x = cut_patches(images, (2, 4)) @ conv.weight.flatten(1).mT + (conv.bias if b else 0)
    x = torch.cat((model.class_token.expand(B, 1, D), x), dim=1) + model.positions.weight
    assert x.shape == (B, 1 + P, D)
    assert torch.allclose(model.embed(images), x, rtol=0, atol=1e-12)
    for block in model.stack.blocks:
        x = x + block.attention(block.norm_attention(x))
        x = x + block.feed_forward(block.norm_feed_forward(x))
    x = model.stack.norm(x)
    read = x[:, 0] if pool == "class" else x[:, 1:].mean(1)
    expected = read @ model.head.weight.mT + (model.head.bias if b else 0)
    assert model(images).shape == (B, C)
    assert torch.allclose(model(images), expected, rtol=0, atol=1e-12)


def test_a_picture_of_one_patch_by_hand():
    config = ViTConfig(2, 2, 2, channels=1, d_model=1, n_layers=1, n_heads=1, norm="none")
    model = VisionTransformer(config)
    block = model.stack.blocks[0]
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    nn.init.ones_(block.attention.proj_v.weight)
    nn.init.ones_(block.attention.proj_out.weight)
    with torch.no_grad():
        model.patches.conv.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 2, 2))
        model.patches.conv.bias.fill_(0.5)
        model.class_token.fill_(2.0)
        model.positions.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        model.head.weight.copy_(torch.tensor([[1.0], [-2.0]]))
        model.head.bias.copy_(torch.tensor([0.25, 0.0]))
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).view(1, 1, 2, 2)
    # The patch: 1 + 4 + ½ − 1 = 4½; the class token: 2 + 1 = 3. With equal scores each hears the
    # mean, 3¾, so the class token becomes 6¾, and the logits 6¾ + ¼ and −13½.
    assert model(images).tolist() == [[7.0, -13.5]]


def test_it_is_pytorch_s_encoder_with_a_class_token():
    layer = nn.TransformerEncoderLayer(
        D, H, F, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True, norm_first=True
    )
    theirs = nn.TransformerEncoder(layer, L, nn.LayerNorm(D, 1e-12), enable_nested_tensor=False)
    theirs.double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    ours, images = build(norm_eps=1e-12), pictures()
    with torch.no_grad():
        for block, other in zip(ours.stack.blocks, theirs.layers, strict=True):
            parts = (block.attention.proj_q, block.attention.proj_k, block.attention.proj_v)
            for part, weight, bias in zip(
                parts,
                other.self_attn.in_proj_weight.chunk(3),
                other.self_attn.in_proj_bias.chunk(3),
                strict=True,
            ):
                part.weight.copy_(weight)
                part.bias.copy_(bias)
            block.attention.proj_out.load_state_dict(other.self_attn.out_proj.state_dict())
            block.feed_forward.proj_in.load_state_dict(other.linear1.state_dict())
            block.feed_forward.proj_out.load_state_dict(other.linear2.state_dict())
            copy_norm(block.norm_attention, other.norm1)
            copy_norm(block.norm_feed_forward, other.norm2)
        copy_norm(ours.stack.norm, theirs.norm)
    expected = ours.head(theirs(ours.embed(images))[:, 0])
    assert torch.allclose(ours(images), expected, rtol=0, atol=1e-9)


def copy_norm(ours, theirs):
    ours.gain.copy_(theirs.weight)
    ours.shift.copy_(theirs.bias)


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_a_gradient_reaches_every_parameter(pool):
    model = build(pool=pool)
    model(pictures()).square().sum().backward()
    for name, parameter in model.named_parameters():
        # With a softmax, one number added to all keys' scores changes nothing.
        assert name.endswith("proj_k.bias") or parameter.grad.abs().max() > 1e-9, name


def test_bias_false_leaves_no_bias_anywhere():
    model = build(bias=False)
    assert not [n for n, _ in model.named_parameters() if "bias" in n or "shift" in n]


def test_each_picture_is_answered_as_if_alone():
    model, images = build(), pictures()
    for i in range(B):
        assert torch.allclose(model(images[i : i + 1])[0], model(images)[i], rtol=0, atol=1e-12)


def test_norm_and_activation_are_handed_on():
    model = build(norm="rms", norm_eps=0.5, activation="squared_relu")
    block = model.stack.blocks[1]
    assert type(block.norm_attention).__name__ == type(model.stack.norm).__name__ == "RMSNorm"
    assert block.norm_feed_forward.eps == model.stack.norm.eps == 0.5
    assert block.feed_forward.activation == "squared_relu"
    assert build().stack.blocks[0].feed_forward.activation == "gelu"


def test_the_defaults_are_the_model_for_cifar10():
    model = VisionTransformer(ViTConfig())
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 10)
    assert model.patches.n_patches == 64
    assert model.positions.weight.shape == (65, 128)


# Pictures of other sizes


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_kept_patches_in_another_order_give_the_same_answer_and_all_of_them_that_of_none(pool):
    torch.manual_seed(3)
    model = VisionTransformer(
        ViTConfig(n_classes=3, image_size=12, patch_size=4, channels=2, d_model=10, n_layers=2,
                  n_heads=5, pool=pool)
    ).double()  # fmt: skip
    images = torch.randn(2, 2, 12, 12, dtype=torch.float64)
    everything = torch.stack([torch.randperm(9), torch.randperm(9)])
    assert torch.allclose(model(images, kept=everything), model(images), atol=1e-12)
    some = torch.tensor([[7, 0, 3], [1, 8, 2]])
    covered = images.clone()
    covered[0, :, 4:8, 4:8] = 9.0  # patch 4, which neither row keeps
    assert torch.equal(model(covered, kept=some), model(images, kept=some))
    assert torch.allclose(model(images, kept=some.flip(1)), model(images, kept=some), atol=1e-12)
    assert not torch.allclose(model(images, kept=some), model(images))


@pytest.mark.parametrize(
    ("kept", "error", "words"),
    [
        (torch.tensor([[0, 9]]), ValueError, "kept must hold numbers of patches, 0 … 8"),
        (torch.tensor([[-1, 0]]), ValueError, "kept must hold numbers of patches, 0 … 8"),
        (torch.tensor([0, 1]), ValueError, r"kept must have shape \(B, K\).* got \(2,\)"),
        (torch.tensor([[0], [1]]), ValueError, "a row for each of the 1 images"),
        (torch.tensor([[0.0]]), TypeError, "kept must"),
    ],
)
def test_kept_patches_that_do_not_exist_are_refused(kept, error, words):
    model = VisionTransformer(ViTConfig(image_size=12, patch_size=4, d_model=8, n_heads=2))
    with pytest.raises(error, match=words):
        model(torch.randn(1, 3, 12, 12), kept=kept)


def test_the_same_size_uses_the_table_itself():
    table = torch.randn(1 + P, D)
    assert resize_positions(table, (ROWS, COLUMNS), (ROWS, COLUMNS)) is table


@pytest.mark.parametrize("new", [(3, 4), (6, 2), (5, 7), (2, 2), (1, 1)])
def test_a_stretched_table_keeps_the_class_row_and_what_is_constant(new):
    table = torch.randn(1 + P, D, dtype=torch.float64)
    y = resize_positions(table, (ROWS, COLUMNS), new)
    assert y.shape == (1 + new[0] * new[1], D)
    assert torch.equal(y[0], table[0])
    table[1:] = table[1]
    assert torch.allclose(resize_positions(table, (ROWS, COLUMNS), new)[1:], table[1])


def test_what_grows_to_the_right_still_grows_to_the_right_and_not_downwards():
    rows, columns = 4, 5
    grid = torch.arange(columns, dtype=torch.float64).expand(rows, columns)
    table = torch.cat((torch.zeros(1, dtype=torch.float64), grid.flatten()))[:, None]
    y = resize_positions(table, (rows, columns), (6, 10))[1:, 0].view(6, 10)
    # Column j of 10 has its middle at (j + ½) / 2 − ½ of the old columns: a cubic through the four
    # nearest, of which those beyond an edge are the edge (Keys 1981, with a = −¾).
    expected = [
        sum(
            cubic(middle - near) * min(max(near, 0), columns - 1)
            for near in range(math.floor(middle) - 1, math.floor(middle) + 3)
        )
        for middle in ((j + 0.5) / 2 - 0.5 for j in range(10))
    ]
    assert torch.allclose(y, torch.tensor(expected).double().expand(6, 10), rtol=0, atol=1e-6)
    assert bool((y[0].diff() > 0).all())


def cubic(d, a=-0.75):
    """What a value at distance d weighs."""
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * (d**3 - 5 * d**2 + 8 * d - 4)


def test_stretching_a_turned_grid_is_turning_the_stretched_one():
    table = torch.randn(1 + P, D, dtype=torch.float64)
    turned = table[1:].unflatten(0, (ROWS, COLUMNS)).transpose(0, 1).flatten(0, 1)
    one = resize_positions(torch.cat((table[:1], turned)), (COLUMNS, ROWS), (5, 4))[1:]
    other = resize_positions(table, (ROWS, COLUMNS), (4, 5))[1:]
    other = other.unflatten(0, (4, 5)).transpose(0, 1).flatten(0, 1)
    assert torch.allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("height", "width"), [(12, 8), (6, 16), (2, 4), (8, 12)])
def test_a_picture_of_another_size_gets_stretched_positions(height, width):
    model, images = build(), pictures(height, width)
    new = (height // 2, width // 4)
    x = torch.cat((model.class_token.expand(B, 1, D), model.patches(images)), dim=1)
    table = resize_positions(model.positions.weight, (ROWS, COLUMNS), new)
    assert torch.equal(model.embed(images), x + table)
    assert model.grid_of(images) == new
    y = model(images)
    assert y.shape == (B, C)
    y.sum().backward()
    assert model.positions.weight.grad.abs().max() > 0


def test_the_same_patches_as_another_grid_get_other_positions():
    """Six patches as 3 × 2 and as 2 × 3: as many tokens, but other places."""
    model = build()
    assert not torch.allclose(
        model.embed(pictures(6, 8))[:, 1:], model.embed(pictures(4, 12))[:, 1:]
    )
    table = model.positions.weight
    assert not torch.allclose(resize_positions(table, (3, 2), (2, 3)), table)


# What it looks at


@pytest.mark.parametrize("method", ["mean", "rollout"])
def test_D5_the_class_token_s_attention_is_a_map_of_the_picture(method):
    model, images = build().eval(), pictures()
    with record(model) as trace:
        logits = model(images)
    assert torch.equal(logits, model(images))
    assert list(trace.attention) == [f"stack.blocks.{i}.attention" for i in range(L)]
    seen = class_token_map(trace, model.grid_of(images), method)
    assert seen.shape == (B, ROWS, COLUMNS)
    weights = [trace[f"stack.blocks.{i}.attention"].weights for i in range(L)]
    assert weights[0].shape == (B, H, 1 + P, 1 + P)
    if method == "mean":
        by_hand = sum(layer[:, :, 0, 1:].mean(1) for layer in weights) / L
        assert torch.allclose(seen, by_hand.view(B, ROWS, COLUMNS))
    assert (seen > 0).all()
    assert (seen.sum((1, 2)) < 1).all()


def test_D5_the_map_shows_the_patch_that_the_class_token_was_made_to_look_at():
    """Queries of the class token's direction, keys of brightness: it looks at the bright patch."""
    config = dataclasses.replace(SMALL, channels=1, d_model=2, n_heads=1, n_layers=1, norm="none")
    model = VisionTransformer(config)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    attention = model.stack.blocks[0].attention
    with torch.no_grad():
        model.patches.conv.weight[1] = 1.0  # column 1 of a token: how bright its patch is
        model.class_token[0] = 1.0  # column 0: is it the class token?
        attention.proj_q.weight[1, 0] = 5.0
        attention.proj_k.weight[1, 1] = 1.0
    images = torch.zeros(1, 1, HEIGHT, WIDTH)
    images[..., 4:6, 0:4] = 1.0  # the patch in row 2, column 0
    with record(model) as trace:
        model(images)
    seen = class_token_map(trace, model.grid_of(images))[0]
    assert seen.argmax() == 2 * COLUMNS + 0
    assert seen[2, 0] > 0.99


# A stem of convolutions, no class token

STEM = dataclasses.replace(
    SMALL, image_size=(16, 24), patch_size=8, stem="convolution", class_token=False, pool="mean"
)


def stemmed(**changes):
    return build(**({f.name: getattr(STEM, f.name) for f in dataclasses.fields(STEM)} | changes))


@pytest.mark.parametrize("class_token", [False, True])
@pytest.mark.parametrize("pool", ["class", "mean"])
def test_a_model_with_a_stem_is_its_parts_one_after_the_other(class_token, pool):
    if pool == "class" and not class_token:
        return
    model, images = stemmed(class_token=class_token, pool=pool), pictures(16, 24)
    x = model.patches(images)
    assert x.shape == (B, 6, D)
    if class_token:
        x = torch.cat((model.class_token.expand(B, 1, D), x), dim=1)
    x = model.stack(x + model.positions.weight)
    read = x[:, 0] if pool == "class" else x[:, int(class_token) :].mean(1)
    expected = read @ model.head.weight.mT + model.head.bias
    assert torch.allclose(model(images), expected, rtol=0, atol=1e-12)
    assert model.grid_of(images) == (2, 3)


def test_a_model_without_class_token_has_a_position_for_each_patch_only():
    for model in (stemmed(), build(class_token=False, pool="mean")):
        assert model.class_token is None
        assert not any("class_token" in name for name in model.state_dict())
        assert len(model.positions.weight) == model.patches.n_patches


def test_positions_without_a_class_token_are_stretched_like_those_with_one():
    table = torch.randn(1 + 6, D, dtype=torch.float64)
    with_one = resize_positions(table, (2, 3), (4, 5))
    assert torch.equal(resize_positions(table[1:], (2, 3), (4, 5)), with_one[1:])
    assert stemmed()(pictures(32, 8)).shape == (B, C)


@pytest.mark.parametrize("stem", ["patch", "convolution"])
def test_queries_and_keys_are_normalised_if_the_config_says_so(stem):
    config = STEM if stem == "convolution" else SMALL
    for qk_norm in (False, True):
        model = VisionTransformer(dataclasses.replace(config, qk_norm=qk_norm))
        names = [name for name in model.state_dict() if "norm_q" in name or "norm_k" in name]
        assert len(names) == 2 * L * qk_norm
        assert model.stack.blocks[0].attention.norm_q is None or qk_norm


def test_a_model_with_a_stem_is_built_again_from_its_config_and_state():
    model, images = stemmed(activation="squared_relu", qk_norm=True), pictures(16, 24)
    model.patches.whiten(images)
    model(images)
    model.eval()
    again = VisionTransformer.from_config(model.config.to_dict()).double().eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(images), model(images))
    assert torch.equal(copy.deepcopy(model)(images), model(images))


def test_the_stem_learns_and_its_whitening_does_not():
    model, images = stemmed(), pictures(16, 24)
    model(images).square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.patches.parameters())
    assert model.patches.whitening.grad is None
    assert not model.patches.whitening.requires_grad


def test_settings_that_do_not_fit_the_stem_are_refused():
    for changes, words in (
        ({"stem": "pyramid"}, "stem must be one of 'patch', 'convolution', got 'pyramid'"),
        ({"patch_size": 4}, "patch_size must be 8 with stem='convolution', got 4"),
        ({"patch_size": (8, 4)}, r"patch_size must be 8 with stem='convolution', got \(8, 4\)"),
        ({"d_model": 9}, "d_model must be even with a stem of convolutions, got 9"),
        ({"pool": "class"}, "pool='class' reads the class token; set class_token=True or pool="),
        ({"image_size": 20}, "image height is 20, which patch height=8 does not divide"),
    ):
        with pytest.raises(ValueError, match=words):
            dataclasses.replace(STEM, **changes)
    model = stemmed()
    with pytest.raises(ValueError, match="image width is 20, which patch width=8 does not divide"):
        model(pictures(16, 20))
    with pytest.raises(ValueError, match=r"with channels=3, got \(2, 1, 16, 24\)"):
        model(pictures(16, 24)[:, :1])


# Use


def test_dropout_works_in_training_only():
    model, images = build(dropout=0.5), pictures()
    assert not torch.equal(model(images), model(images))
    assert (model.embed(images) == 0).any()
    model.eval()
    assert torch.equal(model(images), model(images))
    same = build()
    same.load_state_dict(model.state_dict())
    assert torch.equal(same(images), model(images))


def test_a_model_is_built_again_from_its_config_and_state():
    model, images = build(pool="mean"), pictures()
    values = model.config.to_dict()
    assert values["image_size"] == [HEIGHT, WIDTH]  # as JSON has it
    again = VisionTransformer.from_config(values).double()
    again.load_state_dict(model.state_dict())
    assert again.config == model.config
    assert torch.equal(again(images), model(images))
    assert torch.equal(copy.deepcopy(model)(images), model(images))


def test_it_counts_and_describes_its_parameters():
    model = VisionTransformer(SMALL)
    patches, head = CHANNELS * 2 * 4 * D + D, D * C + C
    block = 4 * (D * D + D) + (D * F + F) + (F * D + D) + 2 * 2 * D
    assert model.n_parameters == patches + D + (1 + P) * D + L * block + 2 * D + head
    table = model.describe()
    for words in ("class_token 12", "patches.conv", "12×3×2×4", "weight 7×12", "stack.blocks.1"):
        assert words in table


def test_N23_an_empty_batch_and_one_class_are_legal():
    assert build()(pictures(b=0)).shape == (0, C)
    assert build()(pictures(12, 8, b=0)).shape == (0, C)
    assert build(n_classes=1)(pictures()).shape == (B, 1)
    one_patch = build(image_size=(2, 4))
    one_patch(pictures(2, 4)).sum().backward()
    assert one_patch.positions.weight.shape == (2, D)


def test_it_learns_two_kinds_of_pictures():
    """Bright above or bright below: a few steps downhill are enough."""
    model = VisionTransformer(dataclasses.replace(SMALL, n_classes=2))
    labels = torch.arange(40) % 2
    images = torch.randn(40, CHANNELS, HEIGHT, WIDTH)
    images[labels == 0, :, :2] += 2
    images[labels == 1, :, 4:] += 2
    for _ in range(100):
        loss = nn.functional.cross_entropy(model(images), labels)
        parameters = list(model.parameters())
        with torch.no_grad():
            for parameter, gradient in zip(
                parameters, torch.autograd.grad(loss, parameters), strict=True
            ):
                parameter -= 0.2 * gradient
    assert (model(images).argmax(1) == labels).float().mean() > 0.95


# Refusals


def test_pictures_of_bytes_are_refused_with_the_way_out():
    images = torch.zeros(B, CHANNELS, HEIGHT, WIDTH, dtype=torch.uint8)
    with pytest.raises(
        TypeError, match=r"bytes from 0 to 255 .* clearhead\.data\.images\.to_float"
    ):
        build()(images)


def test_pictures_of_another_kind_are_refused():
    model = build()
    for images, error, words in (
        (pictures(7, 8), ValueError, "image height is 7, which patch height=2 does not divide"),
        (pictures(6, 10), ValueError, "image width is 10, which patch width=4 does not divide"),
        (pictures(0, 8), ValueError, "image height must be at least 1, got 0"),
        (pictures()[:, :2], ValueError, r"with channels=3, got \(2, 2, 6, 8\)"),
        (pictures()[0], ValueError, r"images must have at least 4 axes, got shape \(3, 6, 8\)"),
        (pictures()[None], ValueError, r"\(B, channels, height, width\) .* got \(1, 2, 3, 6, 8\)"),
        (
            pictures().float(),
            TypeError,
            r"images must have the dtype of the module, torch\.float64",
        ),
        (pictures().long(), TypeError, "images must hold floating-point numbers, got torch.int64"),
        ("cat.png", TypeError, r"images must be a torch\.Tensor, got str"),
    ):
        with pytest.raises(error, match=words):
            model(images)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"n_heads": 5}, ValueError, "d_model is 12, which n_heads=5 does not divide"),
        ({"n_heads": 0}, ValueError, "n_heads must be at least 1, got 0"),
        ({"image_size": 9}, ValueError, "image height is 9, which patch height=2 does not divide"),
        ({"image_size": (6, 9)}, ValueError, "image width is 9, which patch width=4 does not"),
        ({"image_size": 0}, ValueError, "image height must be at least 1, got 0"),
        ({"patch_size": 0}, ValueError, "patch height must be at least 1, got 0"),
        ({"n_classes": 0}, ValueError, "n_classes must be at least 1, got 0"),
        ({"channels": 0}, ValueError, "channels must be at least 1, got 0"),
        ({"n_layers": 0}, ValueError, "n_layers must be at least 1, got 0"),
        ({"d_ff": -3}, ValueError, "d_ff must be at least 1, got -3"),
        ({"pool": "max"}, ValueError, "pool must be one of 'class', 'mean', got 'max'"),
        ({"norm": "batch"}, ValueError, "norm must be one of 'layer', 'rms'"),
        ({"activation": "sine"}, ValueError, "activation must be one of 'relu'"),
        ({"dropout": -0.1}, ValueError, "dropout must be a finite number from 0 to 1, got -0.1"),
        ({"dropout": float("nan")}, ValueError, "dropout must be a finite number, got nan"),
        ({"norm_eps": -1.0}, ValueError, "norm_eps must be a finite number above 0, got -1.0"),
        (
            {"image_size": (6, 8, 3)},
            TypeError,
            r"image_size must be a whole number or \(a whole number, a whole number\)",
        ),
        ({"image_size": True}, TypeError, "image_size must be a whole number or .* got True"),
        ({"image_size": "32"}, TypeError, "image_size must be a whole number or .* got '32'"),
        ({"n_layers": True}, TypeError, "n_layers must be a whole number, got True of type bool"),
        ({"bias": 0}, TypeError, "bias must be true or false, got 0 of type int"),
    ],
)
def test_N20_N29_F11_a_config_that_makes_no_sense_is_refused(changes, error, words):
    with pytest.raises(error, match=words):
        dataclasses.replace(SMALL, **changes)
    with pytest.raises(error, match=words):
        ViTConfig.from_dict(SMALL.to_dict() | changes)


def test_F11_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="no 'imagesize'; the nearest is 'image_size'"):
        ViTConfig.from_dict({"imagesize": 3})
    with pytest.raises(TypeError, match="VisionTransformer is built from a ViTConfig, got dict"):
        VisionTransformer({"n_classes": 3})
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.d_model = 3

"""ConvolutionStem: whitened patches, convolutions and pools, each by hand."""

import pytest
import torch
from torch.nn.functional import batch_norm, conv2d, max_pool2d, pad

from clearhead.layers import ConvolutionStem, whitening_filters

B, CHANNELS, D, K = 5, 2, 6, 32  # K = 16 · CHANNELS
HEIGHT, WIDTH, ROWS, COLUMNS = 16, 24, 2, 3


def build():
    stem = ConvolutionStem((HEIGHT, WIDTH), CHANNELS, D).double()
    for parameter in stem.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return stem


def pictures(height=HEIGHT, width=WIDTH, b=B):
    """Neighbouring pixels are alike, as in photographs."""
    x = torch.randn(b, CHANNELS, height, width, dtype=torch.float64)
    return x + 2 * x.roll(1, -1) + x.roll(1, -2) + 3


# Whitening


def patches_by_hand(images):
    """Every 4 × 4 patch with an even corner, (patches, K)."""
    _, _, height, width = images.shape
    return torch.stack(
        [
            image[:, top : top + 4, left : left + 4].flatten()
            for image in images
            for top in range(0, height - 3, 2)
            for left in range(0, width - 3, 2)
        ]
    )


def test_whitened_patches_are_uncorrelated_and_of_one_size(monkeypatch):
    monkeypatch.setattr("clearhead.layers.stem.NOISE", 0.0)
    images = pictures(b=20)
    rows = patches_by_hand(images)
    filters = whitening_filters(images).flatten(1)
    assert torch.equal(filters[K // 2 :], -filters[: K // 2])
    outputs = rows @ filters[: K // 2].mT
    assert torch.allclose(outputs.mT.cov(correction=0), torch.eye(K // 2).double(), atol=1e-8)
    assert (rows.mT.corrcoef() - torch.eye(K)).abs().max() > 0.3  # before, they were not


def test_directions_come_in_the_order_of_their_variance_and_noise_is_kept_small():
    images = pictures(b=20)
    size = whitening_filters(images).flatten(1)[: K // 2].norm(dim=1)
    assert (size.diff() > 0).all()  # a direction that varies less is made larger …
    assert size.max() <= 0.1**-0.5  # … but not without end
    rows = patches_by_hand(images)
    values = torch.linalg.eigvalsh(rows.mT.cov(correction=0)).flip(0)
    assert torch.allclose(size, (values[: K // 2] + 0.1) ** -0.5)


def test_pictures_of_one_colour_give_finite_filters():
    filters = whitening_filters(torch.full((3, CHANNELS, 8, 8), 0.7))
    assert filters.shape == (K, CHANNELS, 4, 4)
    assert filters.dtype == torch.float32
    assert filters.isfinite().all()


def test_the_filters_are_set_once_and_belong_to_the_state():
    stem, images = build(), pictures()
    assert not stem.is_whitened
    stem.whiten(images)
    assert stem.is_whitened
    assert torch.equal(stem.whitening, whitening_filters(images))
    assert "whitening" in stem.state_dict()
    assert "whitening" not in dict(stem.named_parameters())
    again = build()
    again.load_state_dict(stem.state_dict())
    assert again.is_whitened
    assert torch.equal(again.eval()(images), stem.eval()(images))


def test_before_whitening_a_filter_picks_one_number_of_its_patch():
    stem, images = build(), pictures()
    picked = conv2d(images, stem.whitening, stride=2)
    expected = patches_by_hand(images)[:, : K // 2]
    assert torch.equal(picked.movedim(1, -1).flatten(0, 2), torch.cat([expected, -expected], 1))


# What it computes


def by_hand(stem, images):
    """The stem in evaluation, in channels-first memory, with ReLU and norm before the pools."""

    def layer(x, i):
        conv, norm = getattr(stem, f"conv_{i}"), getattr(stem, f"norm_{i}")
        x = conv2d(pad(x, (1, 1, 1, 1)), conv.weight)
        return batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        ).clamp(min=0)

    x = conv2d(pad(images, (1, 1, 1, 1)), stem.whitening, stride=2).clamp(min=0)
    x = max_pool2d(layer(x, 1), 2)
    return max_pool2d(layer(layer(x, 2), 3), 2)  # (B, D, rows, columns)


def test_the_stem_is_its_layers_one_after_the_other():
    stem, images = build(), pictures()
    with torch.no_grad():
        for i in (1, 2, 3):  # a largest value stays the largest if it is scaled by more than 0
            getattr(stem, f"norm_{i}").weight.abs_()
    stem.whiten(images)
    for _ in range(3):
        stem(images)  # running means and variances
    stem.eval()
    expected = by_hand(stem, images)
    assert expected.shape == (B, D, ROWS, COLUMNS)
    tokens = stem(images)
    assert tokens.shape == (B, ROWS * COLUMNS, D) == (B, stem.n_patches, D)
    assert torch.allclose(tokens, expected.flatten(2).mT, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (16, 24), (24, 8), (32, 32)])
def test_a_token_stands_for_eight_by_eight_pixels(height, width):
    stem = build().eval()
    assert stem(pictures(height, width)).shape == (B, height * width // 64, D)
    assert ConvolutionStem((height, width), CHANNELS, D).grid_size == (height // 8, width // 8)


def test_a_token_has_seen_its_own_pixels_and_some_around_them():
    stem, images = build().eval(), pictures(32, 32).requires_grad_()
    stem(images)[:, 5].sum().backward()  # row 1, column 1 of 4 × 4
    rows = images.grad.abs().sum((0, 1, 3)).nonzero().flatten()
    assert rows.min() < 8
    assert rows.max() > 15
    assert rows.max() < 31


def test_evaluation_does_not_depend_on_the_batch_and_training_does():
    stem, images = build(), pictures()
    stem(images)
    before = {name: x.clone() for name, x in stem.state_dict().items()}
    stem.eval()
    alone = torch.cat([stem(image[None]) for image in images])
    assert torch.allclose(alone, stem(images), rtol=0, atol=1e-12)
    assert torch.equal(stem(images), stem(images))
    assert all(torch.equal(x, before[name]) for name, x in stem.state_dict().items())
    stem.train()
    assert not torch.allclose(stem(images)[:2], stem(images[:2]))
    assert int(stem.norm_1.num_batches_tracked) == 3


def test_N24_pictures_in_any_memory_order_give_the_same_and_stay_as_they_are():
    stem, images = build().eval(), pictures()
    kept, expected = images.clone(), stem(images)
    last = images.contiguous(memory_format=torch.channels_last)
    for other in (last, images.mT.contiguous().mT, images[:1].expand(B, -1, -1, -1)):
        given = stem(other)
        assert torch.allclose(given[:1], expected[:1], rtol=0, atol=1e-12)
    assert torch.equal(images, kept)


def test_N23_an_empty_batch_is_legal_in_evaluation():
    assert build().eval()(pictures(b=0)).shape == (0, ROWS * COLUMNS, D)


# Refusals


def test_pictures_and_sizes_that_do_not_fit_are_refused():
    for size, channels, d_model, words in (
        (20, 3, 8, "image height is 20, which patch height=8 does not divide; take .*=16"),
        ((16, 9), 3, 8, "image width is 9, which patch width=8 does not divide"),
        (0, 3, 8, "image_size height must be at least 1, got 0"),
        (16, 0, 8, "channels must be at least 1, got 0"),
        (16, 3, 0, "d_model must be at least 1, got 0"),
        (16, 3, 7, "d_model must be even with a stem of convolutions, got 7; take d_model=8"),
    ):
        with pytest.raises(ValueError, match=words):
            ConvolutionStem(size, channels, d_model)
    stem = build()
    for call in (stem, stem.whiten):
        with pytest.raises(ValueError, match=r"with channels=2, got \(5, 1, 16, 24\)"):
            call(pictures()[:, :1])
        with pytest.raises(ValueError, match="image height is 15, which patch height=8"):
            call(pictures()[:, :, 1:])
        with pytest.raises(TypeError, match="images must hold floating-point numbers"):
            call(pictures().byte())
    with pytest.raises(ValueError, match=r"at least 4 × 4 pixels, got \(5, 2, 3, 24\)"):
        whitening_filters(pictures()[:, :, :3])
    with pytest.raises(ValueError, match=r"at least 4 × 4 pixels, got \(0, 2, 16, 24\)"):
        whitening_filters(pictures(b=0))

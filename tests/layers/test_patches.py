"""PatchEmbedding: one convolution, equal to cutting by hand and multiplying."""

import pytest
import torch

from clearhead.layers import PatchEmbedding, cut_patches

B, CHANNELS, D = 2, 3, 5


def cut_by_hand(images, height, width):
    """Patches from left to right, then the next row; in each, channel by channel, row by row."""
    batch = []
    for image in images:
        patches = []
        for top in range(0, image.size(1), height):
            for left in range(0, image.size(2), width):
                numbers = [
                    image[channel, top + row, left + column]
                    for channel in range(image.size(0))
                    for row in range(height)
                    for column in range(width)
                ]
                patches.append(torch.stack(numbers))
        batch.append(torch.stack(patches))
    return torch.stack(batch)


def test_a_small_picture_cut_by_hand():
    image = torch.arange(8.0).view(1, 1, 2, 4)
    assert cut_patches(image, 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    assert cut_patches(image, (1, 2)).tolist() == [[[0, 1], [2, 3], [4, 5], [6, 7]]]


@pytest.mark.parametrize(("size", "patch"), [((4, 6), (2, 3)), ((6, 4), (2, 2)), ((3, 8), (3, 4))])
def test_cut_patches_cuts_as_by_hand(size, patch):
    images = torch.randn(B, CHANNELS, *size)
    assert torch.equal(cut_patches(images, patch), cut_by_hand(images, *patch))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("size", "patch"), [(6, 2), ((4, 6), (2, 3)), ((6, 4), 2)])
def test_the_convolution_is_cutting_and_a_linear_layer(size, patch, bias):
    embed = PatchEmbedding(size, patch, CHANNELS, D, bias=bias).double()
    images = torch.randn(B, CHANNELS, *embed.image_size, dtype=torch.float64, requires_grad=True)
    patches = cut_by_hand(images, *embed.patch_size)
    expected = torch.nn.functional.linear(patches, embed.conv.weight.flatten(1), embed.conv.bias)
    assert torch.allclose(embed(images), expected)
    seen = torch.randn_like(expected)
    for wanted in (images, embed.conv.weight):
        (ours,) = torch.autograd.grad(embed(images), wanted, seen)
        (theirs,) = torch.autograd.grad(expected, wanted, seen, retain_graph=True)
        assert torch.allclose(ours, theirs)


def test_a_cifar_picture_becomes_64_tokens_of_48_numbers_and_then_128():
    images = torch.randn(B, 3, 32, 32)
    embed = PatchEmbedding(32, 4, 3, 128)
    assert cut_patches(images, 4).shape == (B, 64, 48)
    assert embed.conv.weight.flatten(1).shape == (128, 48)
    assert embed(images).shape == (B, 64, 128)
    assert embed.n_patches == 64
    assert embed.grid_size == (8, 8)


def test_other_sizes_that_patches_divide_are_welcome():
    embed = PatchEmbedding((4, 6), 2, CHANNELS, D)
    assert embed.n_patches == 6
    images = torch.randn(B, CHANNELS, 8, 4)
    assert embed(images).shape == (B, 8, D)
    assert embed(images)[:, :4].allclose(embed(images[:, :, :4]), atol=1e-6)


def test_sizes_that_patches_do_not_divide_are_refused():
    with pytest.raises(
        ValueError, match="image height is 30, which patch height=4 does not divide"
    ):
        PatchEmbedding(30, 4, 3, D)
    with pytest.raises(ValueError, match="image width is 30, which patch width=4 does not divide"):
        PatchEmbedding((32, 30), 4, 3, D)
    with pytest.raises(ValueError, match="image width is 7, which patch width=4 does not divide"):
        PatchEmbedding(32, 4, 3, D)(torch.zeros(B, 3, 8, 7))
    with pytest.raises(ValueError, match="image height is 7, which patch height=4 does not divide"):
        cut_patches(torch.zeros(B, 3, 7, 8), 4)


def test_other_mistakes_are_refused():
    embed = PatchEmbedding(8, 4, 3, D)
    with pytest.raises(ValueError, match=r"with channels=3, got \(2, 1, 8, 8\)"):
        embed(torch.zeros(B, 1, 8, 8))
    with pytest.raises(
        ValueError, match=r"images must have at least 4 axes, got shape \(3, 8, 8\)"
    ):
        embed(torch.zeros(3, 8, 8))
    with pytest.raises(
        TypeError, match=r"images must hold floating-point numbers, got torch\.uint8"
    ):
        embed(torch.zeros(B, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ValueError, match="patch_size height must be at least 1, got 0"):
        PatchEmbedding(8, 0, 3, D)
    with pytest.raises(ValueError, match="patch_size must be a whole number or"):
        PatchEmbedding(8, (4, 4, 4), 3, D)


def test_an_empty_batch_keeps_its_shape():
    assert PatchEmbedding(8, 4, 3, D)(torch.zeros(0, 3, 8, 8)).shape == (0, 4, D)
    assert cut_patches(torch.zeros(0, 3, 8, 8), 4).shape == (0, 4, 48)

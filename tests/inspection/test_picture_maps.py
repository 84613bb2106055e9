"""Heat maps of a VisionTransformer, and the curves that test them."""

import pytest
import torch
from model_cases import H, L, build_case, gpt
from torch import Tensor, nn

from clearhead.inspection import (
    class_token_map,
    measure_covering,
    measure_faithfulness,
    patch,
    picture_map,
    record,
)
from clearhead.inspection.picture_maps import cover_patches
from clearhead.models import VisionTransformer, ViTConfig


def looking_at(cell: int) -> tuple[VisionTransformer, Tensor]:
    """A model whose class 1 is the mean brightness of one of 2 × 3 patches, and one picture.

    Positions are one-hot; the class token attends to the patch at one position and copies its mean.
    """
    D = 8
    config = ViTConfig(
        n_classes=2,
        image_size=(4, 6),
        patch_size=2,
        channels=1,
        d_model=D,
        n_layers=1,
        n_heads=1,
        norm="none",
        bias=False,
        head_bias=False,
    )
    model = VisionTransformer(config).eval()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    state = model.state_dict()
    weight = next(name for name in state if name.startswith("patches") and name.endswith("weight"))
    model.get_parameter(weight).data[7].fill_(0.25)  # direction 7: the mean of a patch
    model.positions.weight.data[:, :7] = torch.eye(7)
    attention = model.stack.blocks[0].attention
    attention.proj_q.weight.data[0, 0] = 200.0  # the class token asks
    attention.proj_k.weight.data[0, 1 + cell] = 1.0  # one position answers
    attention.proj_v.weight.data[7, 7] = 1.0
    attention.proj_out.weight.data[7, 7] = 1.0
    model.head.weight.data[1, 7] = 5.0
    return model, torch.rand(1, 1, 4, 6, generator=torch.Generator().manual_seed(0)) + 1


@pytest.mark.parametrize("method", ["mean", "rollout", "gradient"])
@pytest.mark.parametrize("cell", [0, 4])
def test_a_map_is_highest_at_the_only_patch_that_counts(method: str, cell: int) -> None:
    model, image = looking_at(cell)
    heat = picture_map(model, image, method)
    assert heat.shape == (1, 2, 3)
    assert int(heat.flatten().argmax()) == cell


def test_the_mean_map_is_that_of_the_class_token() -> None:
    model, (images,) = build_case("vit")
    with record(model) as trace:
        model(images)
    expected = class_token_map(trace, (2, 2))
    torch.testing.assert_close(picture_map(model, images), expected.detach())


def test_without_a_class_token_there_is_a_map_too() -> None:
    config = ViTConfig(
        n_classes=3,
        image_size=8,
        patch_size=4,
        channels=1,
        d_model=8,
        n_layers=2,
        n_heads=2,
        class_token=False,
        pool="mean",
    )
    for method in ("mean", "rollout", "gradient"):
        heat = picture_map(VisionTransformer(config), torch.randn(2, 1, 8, 8), method)
        assert heat.shape == (2, 2, 2)
        assert heat.isfinite().all()


def test_the_map_of_a_pooled_model_is_that_of_its_patches_not_of_its_class_token() -> None:
    model, (images,) = build_case("pooled vit")
    assert model.config.class_token
    with record(model) as trace:
        model(images)
    attention = torch.stack(trace.weights()).mean(dim=(0, 2))  # (B, T, T)
    expected = attention[:, 1:, 1:].mean(dim=1).unflatten(1, (2, 2))
    torch.testing.assert_close(picture_map(model, images), expected.detach())


def test_a_gradient_map_is_the_formula_written_out() -> None:
    """R ← R + Ā R, Ā = mean over heads of max(0, weights ⊙ ∂logit/∂weights)."""
    model, (images,) = build_case("vit")
    names = [f"stack.blocks.{layer}.attention" for layer in range(L)]
    zeros = [torch.zeros(2, H, 5, 5, dtype=torch.float64, requires_grad=True) for _ in names]
    add = {f"{name}.weights": zero.add for name, zero in zip(names, zeros, strict=True)}
    with patch(model, add), record(model) as trace:
        model(images)[:, 3].sum().backward()
    expected = torch.eye(5, dtype=torch.float64).repeat(2, 1, 1)
    for name, zero in zip(names, zeros, strict=True):
        terms = trace[name].weights * zero.grad
        expected = expected + torch.where(terms > 0, terms, 0).mean(dim=1) @ expected
    found = picture_map(model, images, "gradient", torch.tensor([3, 3]))
    torch.testing.assert_close(found.flatten(1), expected[:, 0, 1:])


def test_a_gradient_map_needs_no_parameter_with_a_gradient_and_works_inside_inference_mode() -> (
    None
):
    model, (images,) = build_case("vit")
    expected = picture_map(model, images, "gradient")
    with torch.inference_mode():
        torch.testing.assert_close(picture_map(model, images.clone(), "gradient"), expected)
    model.requires_grad_(False)
    torch.testing.assert_close(picture_map(model, images, "gradient"), expected)


def test_the_right_order_is_more_faithful_than_its_reverse() -> None:
    model, image = looking_at(cell=4)
    heat = picture_map(model, image, "gradient")
    right = measure_faithfulness(model, image, heat, torch.tensor([1]))
    wrong = measure_faithfulness(model, image, -heat, torch.tensor([1]))
    assert right.deletion.shape == right.insertion.shape == (1, 7)
    # Covering the one patch that counts changes the answer at the first step, or at the last.
    steps = (right.deletion[0].diff().abs() > 1e-6).nonzero().flatten().tolist()
    assert steps == [0]
    assert (wrong.deletion[0].diff().abs() > 1e-6).nonzero().flatten().tolist() == [5]
    torch.testing.assert_close(right.deletion[:, 0], right.insertion[:, -1])
    torch.testing.assert_close(right.deletion[:, -1], right.insertion[:, 0])


def test_covering_paints_whole_patches_in_the_mean_colour() -> None:
    images = torch.arange(48.0).reshape(1, 2, 4, 6)
    covered = torch.zeros(1, 6, dtype=torch.bool)
    covered[0, 4] = True
    painted = cover_patches(images, covered, (2, 3))
    mean = images.mean(dim=(-2, -1), keepdim=True)
    assert (painted[..., 2:4, 2:4] == mean).all()
    changed = painted != images
    assert not changed[..., :2, :].any()
    assert not changed[..., 2:, [0, 1, 4, 5]].any()


def test_covering_the_only_patch_that_counts_costs_what_it_adds_to_the_logit() -> None:
    model, image = looking_at(cell=4)
    cover = torch.full_like(image[0], 0.25)
    lost = measure_covering(model, image, torch.tensor([1]), cover)
    expected = torch.zeros(1, 2, 3)
    expected[0, 1, 1] = 5 * (image[0, 0, 2:4, 2:4].mean() - 0.25)
    torch.testing.assert_close(lost, expected)
    own = measure_covering(model, image)[0, 1, 1]  # the answer is class 1; covered by the mean
    torch.testing.assert_close(own, 5 * (image[0, 0, 2:4, 2:4].mean() - image.mean()))


def test_a_cover_is_seen_where_a_patch_is_covered_also_in_the_curves() -> None:
    model, image = looking_at(cell=4)
    cover = torch.arange(24.0).reshape(1, 4, 6)
    covered = torch.tensor([[False, True, False, False, True, False]])
    painted = cover_patches(image, covered, (2, 3), cover)
    assert torch.equal(painted[0, :, :, 2:4], cover[:, :, 2:4])
    assert torch.equal(painted[..., [0, 1, 4, 5]], image[..., [0, 1, 4, 5]])
    curves = measure_faithfulness(model, image, torch.rand(1, 2, 3), cover=cover)
    expected = model(cover[None]).softmax(-1)[0, 1]
    torch.testing.assert_close(curves.deletion[0, -1], expected.detach())


def test_small_batches_give_the_same_curves() -> None:
    model, (images,) = build_case("vit")
    maps = torch.randn(2, 2, 2)
    whole, small = (measure_faithfulness(model, images, maps, max_rows=n) for n in (99, 3))
    torch.testing.assert_close(whole.deletion, small.deletion)


def test_bad_input_is_named() -> None:
    model, (images,) = build_case("vit")
    with pytest.raises(TypeError, match="must be a VisionTransformer"):
        picture_map(gpt(), images)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"maps must have shape \(2, 2, 2\)"):
        measure_faithfulness(model, images, torch.zeros(2, 3, 3))
    with pytest.raises(TypeError, match=r"maps must be a torch\.Tensor, got list"):
        measure_faithfulness(model, images, [[1.0]])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a VisionTransformer"):
        measure_covering(gpt(), images)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"cover must be one picture of shape .* got \(3, 3\)"):
        measure_covering(model, images, cover=torch.zeros(3, 3))
    with pytest.raises(ValueError, match="target must hold one class from 0 to 4"):
        picture_map(model, images, "gradient", torch.tensor([0, 5]))
    with pytest.raises(ValueError, match="method must be one of"):
        picture_map(model, images, "grad-cam")

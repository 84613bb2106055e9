"""Which patches does a VisionTransformer use? Heat maps, and measures of their faithfulness.

    mean       the attention of the class token, averaged over heads and layers
    rollout    the product of the attention matrices of all layers (measures.py)
    gradient   R ← R + Ā R for each layer, beginning with R = I; Ā = mean over heads of
               max(0, weights ⊙ ∂logit/∂weights): attention that raises the logit (Chefer 2021)

The effect of a patch can be measured: cover it, and see by how much the logit falls. A map is
faithful if it agrees with the measured effects. There are two other tests (Petsiuk et al. 2018).
Deletion: covering the patches that the map ranks first should lower the probability of the answer
quickly. Insertion: showing only these patches should raise it quickly. Compare every result with a
random order and with the brightness of the patches: `clearhead lab faithful`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.inspection.edits import capture
from clearhead.inspection.measures import mean_attention, rollout
from clearhead.inspection.record import record
from clearhead.inspection.residual import gradient_mode
from clearhead.inspection.sites import find_layers
from clearhead.models.model import evaluation_mode
from clearhead.models.vit import VisionTransformer
from clearhead.shapes import (
    check_choice,
    check_float_tensor,
    check_int_tensor,
    check_positive,
    format_shape,
)

METHODS = ("mean", "rollout", "gradient")


def picture_map(
    model: VisionTransformer, images: Tensor, method: str = "mean", target: Tensor | None = None
) -> Tensor:
    """Heat maps of the patches: images (B, channels, height, width) → (B, rows, columns).

    method: "mean", "rollout" or "gradient", as above. target (B,): the classes whose logits are
    differentiated for "gradient"; by default the most likely ones. For a model that pools all
    patches instead of using a class token, the map is the mean over the attention of all patches.
    """
    _check_model(model)
    check_choice("method", method, METHODS)
    if method == "gradient":
        tokens = _roll_out_gradient(model, images, target)
    else:
        with evaluation_mode(model), record(model) as trace:
            model(images)
        tokens = (rollout if method == "rollout" else mean_attention)(trace)  # (B, T, T)
    first = int(model.config.class_token)  # index of the first patch
    read = tokens[:, :1] if model.config.pool == "class" else tokens[:, first:]
    return read.mean(dim=1)[:, first:].unflatten(-1, model.grid_of(images))


def build_untrained(model: VisionTransformer) -> VisionTransformer:
    """A model with the same config and newly initialised weights, for comparison of maps."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return VisionTransformer(model.config).to(model.device)


def _roll_out_gradient(model: VisionTransformer, images: Tensor, target: Tensor | None) -> Tensor:
    """The matrix R − I of the method "gradient": output tokens by input tokens, (B, T, T)."""
    names = [f"{site.name}.weights" for sites in find_layers(model).values() for site in sites]
    with gradient_mode(model), capture(model, names) as values:
        logits = model(images.clone())  # a copy, because inference tensors have no gradient
        chosen = logits.gather(1, _read_target(target, logits)[:, None]).sum()
        gradients = torch.autograd.grad(chosen, [values[name] for name in names])
    T = values[names[0]].size(-1)
    product = torch.eye(T, device=images.device, dtype=images.dtype).expand(len(images), T, T)
    for name, gradient in zip(names, gradients, strict=True):
        layer = (values[name].detach() * gradient).clamp(min=0).mean(dim=1)
        product = product + layer @ product
    return product - torch.eye(T, device=images.device, dtype=images.dtype)


def measure_covering(
    model: VisionTransformer,
    images: Tensor,
    target: Tensor | None = None,
    cover: Tensor | None = None,
) -> Tensor:
    """By how much the logit falls when one patch is covered, for each patch: (B, rows, columns).

    target (B,): the classes of the logits; by default the model's answers. cover: as in
    cover_patches. Needs one forward pass for each patch.
    """
    _check_model(model)
    grid = model.grid_of(images)
    with evaluation_mode(model):
        logits = model(images)
        ids = _read_target(target, logits)[:, None]
        lost = []
        for patch in torch.eye(grid[0] * grid[1], dtype=torch.bool, device=images.device):
            covered = cover_patches(images, patch.expand(len(images), -1), grid, cover)
            lost.append((logits - model(covered)).gather(1, ids))
    return torch.cat(lost, dim=1).unflatten(1, grid)


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """The probability of the answer as patches are covered in the order of a map.

    deletion (B, P + 1): with the first 0, 1, …, P patches covered. insertion (B, P + 1): with all
    patches covered except the first 0, 1, …, P. Patches with the highest values in the map come
    first, so a faithful map has a low deletion curve and a high insertion curve.
    """

    deletion: Tensor
    insertion: Tensor

    @property
    def score(self) -> float:
        """The mean height of the insertion curve minus that of the deletion curve."""
        return float(self.insertion.mean() - self.deletion.mean())


def measure_faithfulness(
    model: VisionTransformer,
    images: Tensor,
    maps: Tensor,
    target: Tensor | None = None,
    *,
    cover: Tensor | None = None,
    max_rows: int = 512,
) -> Faithfulness:
    """Cover patches in the order of maps (B, rows, columns), and uncover them in the same order.

    target (B,): the classes whose probability is measured; by default the model's answers. cover:
    as in cover_patches. max_rows: the largest batch size, if it is at least B.
    """
    _check_model(model)
    grid = model.grid_of(images)
    check_float_tensor("maps", maps)
    if maps.shape != (len(images), *grid):
        raise ValueError(
            f"maps must have shape {(len(images), *grid)}, a cell for each patch, "
            f"got {format_shape(maps)}"
        )
    check_positive(max_rows=max_rows)
    P = grid[0] * grid[1]
    rank = maps.flatten(1).argsort(dim=1, descending=True).argsort(dim=1)  # (B, P), 0 = first
    steps = torch.arange(P + 1, device=images.device)[:, None, None]
    with evaluation_mode(model):
        ids = _read_target(target, model(images))

        def measure(covered: Tensor) -> Tensor:
            """covered (P + 1, B, P) → the probability of the target, (B, P + 1)."""
            size = max(1, max_rows // len(images))
            parts = []
            for chunk in covered.split(size):
                pictures = images.repeat(len(chunk), 1, 1, 1)
                logits = model(cover_patches(pictures, chunk.flatten(0, 1), grid, cover))
                probs = logits.softmax(-1).gather(1, ids.repeat(len(chunk))[:, None])
                parts.append(probs.unflatten(0, (len(chunk), len(images))).squeeze(-1))
            return torch.cat(parts).T

        return Faithfulness(measure(rank < steps), measure(rank >= steps))


def cover_patches(
    images: Tensor, covered: Tensor, grid: tuple[int, int], cover: Tensor | None = None
) -> Tensor:
    """Replace patches of images (B, channels, height, width); returns images of the same shape.

    covered (B, P): True for the patches to replace. cover (channels, height, width): the picture
    shown there, such as the mean of a data set; by default the mean colour of each picture.
    """
    rows, columns = grid
    cells = covered.unflatten(1, grid).unsqueeze(1)  # (B, 1, rows, columns)
    height, width = images.size(-2) // rows, images.size(-1) // columns
    pixels = cells.repeat_interleave(height, dim=-2).repeat_interleave(width, dim=-1)
    if cover is None:
        cover = images.mean(dim=(-2, -1), keepdim=True)
    elif cover.shape != images.shape[1:]:
        raise ValueError(
            f"cover must be one picture of shape {tuple(images.shape[1:])}, "
            f"got {format_shape(cover)}"
        )
    return torch.where(pixels, cover, images)


def _check_model(model: VisionTransformer) -> None:
    if not isinstance(model, VisionTransformer):
        raise TypeError(
            f"model must be a VisionTransformer, which reads patches, got {type(model).__name__}"
        )


def _read_target(target: Tensor | None, logits: Tensor) -> Tensor:
    """Check the target classes (B,); by default the most likely class of each row."""
    if target is None:
        return logits.argmax(-1)
    check_int_tensor("target", target)
    if target.shape != logits.shape[:1] or not bool(
        ((target >= 0) & (target < logits.size(1))).all()
    ):
        raise ValueError(
            f"target must hold one class from 0 to {logits.size(1) - 1} for each of "
            f"{len(logits)} pictures, got {format_shape(target)}"
        )
    return target.long()

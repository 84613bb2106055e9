"""Patch embedding: a picture is cut into squares, and each becomes a token by one linear layer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.readings import assign
from clearhead.exercises.weights import Assignment, Linear, Role

PROJECTION = "proj projection conv patch embed linear"
ORDERS = ("channels first", "channels last")  # of the numbers in a flat patch; each is accepted


def cut_patches(images: Tensor, patch_size: int) -> Tensor:
    """(B, channels, height, width) → (B, rows, columns, channels, patch_size, patch_size)."""
    x = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
    return x.permute(0, 2, 3, 1, 4, 5)


def flatten_patch(patches: Tensor, order: str) -> Tensor:
    """(..., channels, p, p) → (..., channels · p · p), the channels as the slowest or fastest."""
    return (patches if order == ORDERS[0] else patches.movedim(-3, -1)).flatten(-3)


def assign_projection(
    parameters: Sequence[Any], shape: tuple[int, int], roles: Mapping[str, Role] | None = None
) -> Sequence[Assignment]:
    """The projection of patches as a convolution, or else as a linear layer; with other roles."""
    for kind in ("flat conv", "linear"):
        found = assign(parameters, {"project": Role(kind, shape, PROJECTION), **(roles or {})})
        if found:
            return found
    return []


class PatchEmbedding(Exercise):
    """By one strided convolution, or by cutting patches and a linear layer.

    The order of the numbers in a flat patch is free (channels first or last); the order of the
    patches is fixed: row by row.
    """

    name = "patch_embedding"
    title = "Patch embedding"
    formula = "token[r · columns + c] = flatten(patch in row r and column c) Wᵀ + b"
    signature = "PatchEmbed(img_size, patch_size, in_channels, embed_dim)(images)"
    page = "layers.md"
    names = ("PatchEmbed", "PatchEmbedding", "PatchEmbeddings", "Patchify", "ImageToPatches")
    terms = {
        "cut": "the patches, row by row",
        "flatten": "the numbers of a patch as one vector",
        "arrange": "the output (batch, patches, width)",
    }
    parameters = {"images": "images x X image img imgs pixel_values input inputs"}
    constructor = {
        "image_size": "img_size image_size size img_dim input_size resolution",
        "patch_size": "patch_size patch p patch_dim patch_len",
        "channels": "in_chans in_channels channels n_channels nin c num_channels in_ch",
        "d": "embed_dim d_model dim d emb_dim nout num_hiddens hidden_dim hidden_size emb_size"
        " out_channels n_embd embedding_dim out_dim",
    }
    optional = ("image_size", "channels")

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        n_values = sizes["channels"] * sizes["patch_size"] ** 2
        return assign_projection(parameters, (sizes["d"], n_values))

    def roles(self, channels: int, patch_size: int, d: int, **_: Any) -> dict[str, Role]:
        return {"project": Role("linear", (d, channels * patch_size**2), PROJECTION)}

    # The formula: images (B, channels, height, width) → (B, patches, d)

    def answer(self, images: Tensor, project: Linear, patch_size: int, order: str) -> Tensor:
        patches = self.cut(images, patch_size)  # (B, rows, columns, channels, p, p)
        return self.arrange(project(self.flatten(patches, order)))

    def cut(self, images: Tensor, patch_size: int) -> Tensor:
        return cut_patches(images, patch_size)

    def flatten(self, patches: Tensor, order: str) -> Tensor:
        return flatten_patch(patches, order)

    def arrange(self, grid: Tensor) -> Tensor:
        return grid.flatten(1, 2)

    # Mistakes

    @mistake(
        "cut",
        "the patches are numbered column by column instead of row by row",
        line=("permute", "transpose", "rearrange", "for "),
    )
    def column_major(self, images: Tensor, patch_size: int) -> Tensor:
        return cut_patches(images, patch_size).transpose(1, 2)

    @mistake(
        "cut",
        "the picture is reshaped without moving the axes: a patch holds parts of a few rows, and "
        "channels are mixed",
        line=("view", "reshape"),
    )
    def viewed_not_cut(self, images: Tensor, patch_size: int) -> Tensor:
        B, C, height, width = images.shape
        p = patch_size
        return images.reshape(B, height // p, width // p, C, p, p)

    @mistake(
        "cut",
        "the patches overlap: the stride must be the size of a patch",
        line=("stride", "Conv2d", "unfold"),
    )
    def overlapping_patches(self, images: Tensor, patch_size: int) -> Tensor:
        x = images.unfold(2, patch_size, 1).unfold(3, patch_size, 1)
        return x.permute(0, 2, 3, 1, 4, 5)

    @mistake(
        "cut",
        "rows and columns of the picture are swapped: it is transposed before it is cut",
        line=("transpose", "permute", ".mT", ".T"),
    )
    def picture_transposed(self, images: Tensor, patch_size: int) -> Tensor:
        return cut_patches(images.mT, patch_size)

    @mistake(
        "arrange",
        "(B, d, patches) is viewed as (B, patches, d) where it must be transposed: each token "
        "holds one feature of many patches",
        line=("view", "reshape"),
    )
    def viewed_not_transposed(self, grid: Tensor) -> Tensor:
        B, rows, columns, d = grid.shape
        return grid.permute(0, 3, 1, 2).reshape(B, rows * columns, d)

    @mistake(
        "arrange",
        "the output is (B, d, patches): the last two axes must be swapped",
        line=("flatten", "view", "reshape", "return"),
    )
    def features_before_patches(self, grid: Tensor) -> Tensor:
        return grid.flatten(1, 2).mT

    @mistake(
        "arrange",
        "the grid of patches is not flattened: the output is (B, d, rows, columns)",
        line=("return",),
    )
    def grid_kept(self, grid: Tensor) -> Tensor:
        return grid.permute(0, 3, 1, 2)

    @mistake(
        "arrange",
        "the pictures of the batch are joined into one long sequence of patches",
        line=("view", "reshape", "flatten"),
    )
    def batch_flattened(self, grid: Tensor) -> Tensor:
        return grid.flatten(0, 2)

    # Cases

    def ask(self, student: Any, case: Case) -> Answer | None:
        answer: Answer | None = student.ask(self, case)
        if answer is not None:
            more = {"patch_size": case.sizes["patch_size"]}
            answer.choices = [{**c, **more, "order": o} for c in answer.choices for o in ORDERS]
        return answer

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, side: int, p: int, C: int, d: int, **m: Any) -> Case:
            return Case(says, term, {"images": draw.normal(B, C, side, side)},
                        _sizes(side, p, C, d), **m)  # fmt: skip

        yield case("a picture of one patch is one token", "flatten", 1, 3, 3, 2, 5)
        even = draw.normal(2, 3, 1, 1).expand(2, 3, 4, 4).contiguous()
        shape = "equal patches give equal tokens"
        yield Case(shape, "arrange", {"images": even}, _sizes(4, 2, 3, 5))
        yield case("the patches go row by row", "cut", 2, 6, 2, 3, 5)
        yield case("the gradient reaches the picture", "cut", 3, 8, 4, 2, 7, gradient=True)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for side, p, C, d in ((1, 1, 1, 2), (2, 1, 1, 1), (2, 1, 1, 3), (4, 2, 2, 3)):
            inputs = {"images": draw.small(1, C, side, side)}
            yield Case("a small example", "cut", inputs, _sizes(side, p, C, d))
        yield from self.cases(draw)


def _sizes(side: int, p: int, channels: int, d: int) -> dict[str, int]:
    return {"image_size": side, "patch_size": p, "channels": channels, "d": d}

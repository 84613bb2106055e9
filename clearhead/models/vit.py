"""The Vision Transformer (Dosovitskiy et al. 2021): a picture is a sequence of patches.

    x = [class token, patch 1 … patch P] + positions → blocks, pre-norm → norm → head(x[class])

The class token is learned and comes first; the head reads its output. The positions are a learned
vector for the class token and one for each cell of the grid of patches. For a picture of another
size the grid is resized like a picture (section 3.2 of the paper), so one set of weights serves all
sizes that the patches divide.

On small data sets of small pictures a stem of convolutions instead of patches, no class token and
the mean of all tokens learn faster: stem="convolution", class_token=False, pool="mean".
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from clearhead.layers import ConvolutionStem, PatchEmbedding, StackConfig
from clearhead.layers.stem import check_even
from clearhead.models.model import Model
from clearhead.positions import LearnedPositions
from clearhead.shapes import (
    can_read_values,
    check_choice,
    check_divides,
    check_float_tensor,
    check_int_tensor,
    check_last_axis,
    check_positive,
    format_shape,
)

# The standard deviation at which class token and positions start, about that of embedded patches.
# On drawn digits 0.02 learns more slowly: 600 steps reach 75–80 % instead of 83 %.
START = 0.2


@dataclass(frozen=True)
class ViTConfig(StackConfig):
    """The settings of a VisionTransformer, and those of its stack; the defaults fit CIFAR-10.

    image_size and patch_size: a number for a square, or (height, width). stem: how patches become
    tokens, "patch" by one strided convolution, "convolution" by ConvolutionStem, whose patches are
    8 × 8. pool: what the head reads, "class" the class token, "mean" the mean of the patches.
    bias=False: no bias anywhere but in the norms of the stem. head_bias: whether the head has one,
    as `bias` unless given. class_position=False: positions are added to the patches only.
    """

    n_classes: int = 10
    image_size: int | tuple[int, int] = 32
    patch_size: int | tuple[int, int] = 4
    channels: int = 3
    d_model: int = 128
    n_layers: int = 6
    n_heads: int = 4
    d_ff: int | None = None
    stem: str = "patch"
    class_token: bool = True
    pool: str = "class"
    qk_norm: bool = False
    norm: str = "layer"
    norm_eps: float = 1e-5
    activation: str = "gelu"
    bias: bool = True
    dropout: float = 0.0
    _: KW_ONLY
    head_bias: bool | None = None
    class_position: bool = True

    def check(self) -> None:
        super().check()
        check_choice("pool", self.pool, ("class", "mean"))
        check_choice("stem", self.stem, ("patch", "convolution"))
        if self.stem == "convolution":
            check_even(self.d_model)
            if _pair(self.patch_size) != (8, 8):
                raise ValueError(
                    f"patch_size must be 8 with stem='convolution', got {self.patch_size}"
                )
        if self.pool == "class" and not self.class_token:
            raise ValueError(
                "pool='class' reads the class token; set class_token=True or pool='mean'"
            )
        patch, image = _pair(self.patch_size), _pair(self.image_size)
        check_divides("patch height", patch[0], "image height", image[0])
        check_divides("patch width", patch[1], "image width", image[1])
        check_positive(channels=self.channels, n_classes=self.n_classes)


class VisionTransformer(Model):
    """Pictures (B, channels, height, width) → logits (B, n_classes)."""

    config_type = ViTConfig
    config: ViTConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        c = config
        self.patches = _build_stem(c)
        self.class_token = nn.Parameter(START * torch.randn(c.d_model)) if c.class_token else None
        n_positions = (c.class_token and c.class_position) + self.patches.n_patches
        self.positions = LearnedPositions(n_positions, c.d_model)
        nn.init.normal_(self.positions.weight, std=START)
        self.dropout = nn.Dropout(c.dropout)
        self.stack = c.build_stack()
        head_bias = c.bias if c.head_bias is None else c.head_bias
        self.head = nn.Linear(c.d_model, c.n_classes, bias=head_bias)

    def forward(self, images: Tensor, *, kept: Tensor | None = None) -> Tensor:
        """images (B, channels, height, width) of any size that the patches divide → (B, C).

        kept (B, K): the numbers of the patches that are read, in any order; all unless given.
        """
        x = self.embed(images)
        x = self.stack(x if kept is None else self._keep_patches(x, kept))
        first = int(self.config.class_token)  # index of the first patch
        return self.head(x[:, 0] if self.config.pool == "class" else x[:, first:].mean(dim=1))

    def embed(self, images: Tensor) -> Tensor:
        """The input of the first block: the class token, then the patches, (B, 1 + P, D)."""
        self._check(images)
        x = self.patches(images)  # (B, P, D)
        table = resize_positions(
            self.positions.weight, self.patches.grid_size, self.grid_of(images)
        )
        if self.class_token is None:
            return self.dropout(x + table)
        token = self.class_token.expand(x.size(0), 1, -1)
        if not self.config.class_position:
            return self.dropout(torch.cat((token, x + table), dim=1))
        return self.dropout(torch.cat((token, x), dim=1) + table)

    def _keep_patches(self, x: Tensor, kept: Tensor) -> Tensor:
        """The class token and the kept patches: (B, 1 + P, D) → (B, 1 + K, D)."""
        check_int_tensor("kept", kept)
        first = int(self.config.class_token)
        if kept.ndim != 2 or len(kept) != len(x):
            raise ValueError(
                f"kept must have shape (B, K), a row for each of the {len(x)} images, "
                f"got {format_shape(kept)}"
            )
        n_patches = x.size(1) - first
        if can_read_values(kept) and not bool(((kept >= 0) & (kept < n_patches)).all()):
            raise ValueError(f"kept must hold numbers of patches, 0 … {n_patches - 1}")
        numbers = (kept.long() + first)[..., None].expand(-1, -1, x.size(-1))  # (B, K, D)
        return torch.cat((x[:, :first], x.gather(1, numbers)), dim=1)

    def grid_of(self, images: Tensor) -> tuple[int, int]:
        """Rows and columns of patches in these pictures."""
        height, width = self.patches.patch_size
        return images.size(-2) // height, images.size(-1) // width

    def _check(self, images: Tensor) -> None:
        if isinstance(images, Tensor) and images.dtype == torch.uint8:
            raise TypeError(
                "images hold bytes from 0 to 255 but the model reads floating-point numbers; "
                "use clearhead.data.images.to_float(images)"
            )
        check_float_tensor("images", images, min_axes=4)
        # For its checks of dtype and device; images may have any width.
        check_last_axis("images", images, "width", images.size(-1), like=self.positions.weight)


def resize_positions(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Resize the positions (1 + P, D) of an old grid of patches to a new one, (1 + new P, D).

    The first row, that of the class token, stays, if there is one. The others are an image of D
    channels, resized by cubic interpolation. The same grid gives the same table.
    """
    if old == new:
        return table
    first = len(table) - old[0] * old[1]
    grid = table[first:].mT.unflatten(-1, old).unsqueeze(0)  # (1, D, rows, columns)
    resized = interpolate(grid, size=new, mode="bicubic", align_corners=False)
    return torch.cat((table[:first], resized[0].flatten(1).mT))


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _build_stem(c: ViTConfig) -> PatchEmbedding | ConvolutionStem:
    if c.stem == "convolution":
        return ConvolutionStem(c.image_size, c.channels, c.d_model)
    return PatchEmbedding(c.image_size, c.patch_size, c.channels, c.d_model, bias=c.bias)

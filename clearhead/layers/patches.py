"""Pictures as sequences (Dosovitskiy et al. 2021): cut into patches, each patch a token.

    token[p] = W · patch[p] + b             patch[p] holds channels · height · width numbers

Cutting and multiplying is one convolution whose stride is its size. Patches are read like a page:
from left to right, then the next row.
"""

from torch import Tensor, nn

from clearhead.shapes import check_divides, check_float_tensor, check_positive, shape_text

Size = int | tuple[int, int]


def cut_patches(images: Tensor, patch_size: Size) -> Tensor:
    """images (B, channels, height, width) → the numbers of each patch, (B, P, channels · p · p).

    A patch's numbers are in the order of a convolution's weight, `conv.weight.flatten(1)`.
    """
    check_float_tensor("images", images, min_axes=4)
    height, width = height_and_width("patch_size", patch_size)
    check_divides("patch height", height, "image height", images.size(-2))
    check_divides("patch width", width, "image width", images.size(-1))
    grid = images.unflatten(-1, (-1, width)).unflatten(-3, (-1, height))
    # (B, channels, rows, height, columns, width) → (B, rows, columns, channels, height, width)
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # (B, P, channels · p · p)


class PatchEmbedding(nn.Module):
    """Patches → tokens of width d_model, by one strided convolution."""

    def __init__(
        self, image_size: Size, patch_size: Size, channels: int, d_model: int, *, bias: bool = True
    ) -> None:
        """image_size and patch_size: a number for a square, or (height, width)."""
        super().__init__()
        check_positive(channels=channels, d_model=d_model)
        self.image_size = height_and_width("image_size", image_size)
        self.patch_size = height_and_width("patch_size", patch_size)
        self.channels = channels
        self.grid_size = self._grid(*self.image_size)
        self.conv = nn.Conv2d(channels, d_model, self.patch_size, stride=self.patch_size, bias=bias)

    @property
    def n_patches(self) -> int:
        """How many tokens a picture of the built size becomes."""
        rows, columns = self.grid_size
        return rows * columns

    def forward(self, images: Tensor) -> Tensor:
        """images (B, channels, height, width) → (B, P, D); any size that the patches divide."""
        check_float_tensor("images", images, min_axes=4)
        if images.ndim != 4 or images.size(1) != self.channels:
            raise ValueError(
                f"images must have shape (B, channels, height, width) with channels="
                f"{self.channels}, got {shape_text(images)}"
            )
        self._grid(*images.shape[-2:])
        return self.conv(images).flatten(2).mT.contiguous()  # (B, D, rows, columns) → (B, P, D)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of patches in a picture."""
        check_divides("patch height", self.patch_size[0], "image height", height)
        check_divides("patch width", self.patch_size[1], "image width", width)
        return height // self.patch_size[0], width // self.patch_size[1]

    def extra_repr(self) -> str:
        return f"image_size={self.image_size}, n_patches={self.n_patches}"


def height_and_width(name: str, size: Size) -> tuple[int, int]:
    """(height, width) of a number or a pair."""
    if not isinstance(size, int) and (not isinstance(size, tuple) or len(size) != 2):
        raise ValueError(f"{name} must be a whole number or (height, width), got {size!r}")
    height, width = (size, size) if isinstance(size, int) else size
    check_positive(**{f"{name} height": height, f"{name} width": width})
    return height, width

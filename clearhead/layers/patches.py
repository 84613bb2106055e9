"""Pictures as sequences (Dosovitskiy et al. 2021): cut into patches, each patch a token.

    token[p] = W · patch[p] + b             patch[p] holds channels · height · width numbers

Cutting and multiplying is one convolution whose stride is its size. Patches are in reading order:
from left to right, then the next row.
"""

from torch import Tensor, nn

from clearhead.shapes import check_divides, check_float_tensor, check_positive, format_shape

Size = int | tuple[int, int]


def cut_patches(images: Tensor, patch_size: Size) -> Tensor:
    """images (B, channels, height, width) → the numbers of each patch, (B, P, channels · p · p).

    A patch's numbers are in the order of a convolution's weight, `conv.weight.flatten(1)`.
    """
    check_float_tensor("images", images, min_axes=4)
    patch = read_size("patch_size", patch_size)
    count_patches(patch, images.shape[-2:])  # refuses a size that the patches do not divide
    grid = images.unflatten(-1, (-1, patch[1])).unflatten(-3, (-1, patch[0]))
    # (B, channels, rows, height, columns, width) → (B, rows, columns, channels, height, width)
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # (B, P, channels · p · p)


class PatchGrid(nn.Module):
    """The base of layers that turn pictures (B, channels, height, width) into tokens (B, P, D)."""

    def __init__(self, image_size: Size, patch_size: Size, channels: int, d_model: int) -> None:
        """image_size and patch_size: a number for a square, or (height, width)."""
        super().__init__()
        check_positive(channels=channels, d_model=d_model)
        self.image_size = read_size("image_size", image_size)
        self.patch_size = read_size("patch_size", patch_size)
        self.channels = channels
        self.grid_size = count_patches(self.patch_size, self.image_size)

    @property
    def n_patches(self) -> int:
        """The number of tokens of a picture of size image_size."""
        rows, columns = self.grid_size
        return rows * columns

    def check_images(self, images: Tensor) -> None:
        """Floating-point pictures with these channels, of any size that the patches divide."""
        check_float_tensor("images", images, min_axes=4)
        if images.ndim != 4 or images.size(1) != self.channels:
            raise ValueError(
                f"images must have shape (B, channels, height, width) with channels="
                f"{self.channels}, got {format_shape(images)}"
            )
        count_patches(self.patch_size, images.shape[-2:])

    def extra_repr(self) -> str:
        return f"image_size={self.image_size}, n_patches={self.n_patches}"


class PatchEmbedding(PatchGrid):
    """Patches → tokens of width d_model, by one strided convolution."""

    def __init__(
        self, image_size: Size, patch_size: Size, channels: int, d_model: int, *, bias: bool = True
    ) -> None:
        super().__init__(image_size, patch_size, channels, d_model)
        self.conv = nn.Conv2d(channels, d_model, self.patch_size, stride=self.patch_size, bias=bias)

    def forward(self, images: Tensor) -> Tensor:
        """images (B, channels, height, width) → (B, P, D); any size that the patches divide."""
        self.check_images(images)
        return self.conv(images).flatten(2).mT.contiguous()  # (B, D, rows, columns) → (B, P, D)


def read_size(name: str, size: Size) -> tuple[int, int]:
    """(height, width) of a number or a pair."""
    if not isinstance(size, int) and (not isinstance(size, tuple) or len(size) != 2):
        raise ValueError(f"{name} must be a whole number or (height, width), got {size!r}")
    height, width = (size, size) if isinstance(size, int) else size
    check_positive(**{f"{name} height": height, f"{name} width": width})
    return height, width


def count_patches(patch: tuple[int, ...], image: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of patches (height, width) in an image (height, width)."""
    check_divides("patch height", patch[0], "image height", image[0])
    check_divides("patch width", patch[1], "image width", image[1])
    return image[0] // patch[0], image[1] // patch[1]

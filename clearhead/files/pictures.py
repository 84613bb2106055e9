"""PNG and JPEG pictures as tensors; every other format is refused by name.

The size in the header is checked before a pixel is decoded: 16 million pixels at most. All kinds
become red, green and blue of 8 bits:

    grey, black and white       three equal channels
    palette                     its colours
    transparent                 laid on white
    16 bits a channel           the upper 8
    CMYK                        each of red, green, blue = (1 − ink)(1 − black)
    turned by an EXIF note      turned as a viewer would show it

The content decides, not the extension. An animated PNG is refused; of a JPEG that holds several
pictures, as some cameras write, the first is read. `fit_picture` brings any picture to the size and
channels of a model's input.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO

import numpy
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from clearhead.files.reading import BadFile, quote, read_bytes

FORMATS = ("PNG", "JPEG")
MAX_PIXELS = 16 << 20
MAX_BYTES = 64 << 20
STRIP = 1 << 20  # pixels that are converted at once
MAX_SCANS = 100  # a progressive JPEG usually has ten; each passes over all pixels again
ORIENTATION = 0x0112  # the number of the EXIF note
TURNS: dict[int, Callable[[Tensor], Tensor]] = {  # how a viewer shows what is stored
    2: lambda x: x.flip(2),
    3: lambda x: x.flip(1, 2),
    4: lambda x: x.flip(1),
    5: lambda x: x.mT,
    6: lambda x: x.mT.flip(2),
    7: lambda x: x.mT.flip(1, 2),
    8: lambda x: x.mT.flip(1),
}
GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue look (ITU-R BT.601)


def read_picture(path: str | os.PathLike[str]) -> Tensor:
    """Read a picture: uint8 (3, height, width)."""
    return decode_picture(read_bytes(path, MAX_BYTES), quote(path))


def decode_picture(data: bytes, name: str) -> Tensor:
    """The picture in the bytes of a PNG or JPEG file; errors begin with the name."""
    if data.startswith(b"\xff\xd8") and data.count(b"\xff\xda") > MAX_SCANS:
        raise BadFile(f"{name} is a JPEG with more than {MAX_SCANS} passes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pixels, turn = _decode(data, name)
            return TURNS.get(turn, lambda x: x)(pixels).contiguous()
    except BadFile:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadFile(f"{name} has more than the {MAX_PIXELS:,} pixels that are read") from None
    except Exception as reason:  # whatever a decoder raises, the file is the cause
        words = str(reason).splitlines()[0][:120] if str(reason) else type(reason).__name__
        words = words.partition(" <")[0]  # "cannot identify image file <_io.BytesIO object at …>"
        raise BadFile(f"{name} is not a complete PNG or JPEG picture: {words.lower()}") from None


def _decode(data: bytes, name: str) -> tuple[Tensor, int]:
    """The pixels as stored, (3, height, width), and the EXIF note of how they are turned.

    Converted in strips: the picture as decoded and the result are all the memory it takes.
    """
    with Image.open(BytesIO(data), formats=FORMATS) as picture:
        width, height = picture.size
        if not 0 < width * height <= MAX_PIXELS:
            raise BadFile(
                f"{name} has {width:,} × {height:,} pixels; at least one and at most "
                f"{MAX_PIXELS:,} in all are read"
            )
        if picture.format == "PNG" and getattr(picture, "is_animated", False):
            raise BadFile(f"{name} is animated; save one of its frames")
        picture.load()
        pixels = torch.empty(3, height, width, dtype=torch.uint8)
        n_rows = max(1, STRIP // width)
        for top in range(0, height, n_rows):
            strip = picture.crop((0, top, width, min(top + n_rows, height)))
            colours = torch.from_numpy(numpy.array(_convert_to_rgb(strip)))  # (rows, width, 3)
            pixels[:, top : top + n_rows] = colours.permute(2, 0, 1)
        return pixels, picture.getexif().get(ORIENTATION, 1)


def _convert_to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):  # grey of 16 bits
        grey = (numpy.array(picture).astype("int64") >> 8).clip(0, 255).astype("uint8")
        picture = Image.fromarray(grey)
    if "transparency" in picture.info or picture.mode in ("LA", "PA", "RGBA", "La", "RGBa"):
        picture = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(paper, picture)
    return picture.convert("RGB")


def fit_picture(picture: Tensor, channels: int, size: Sequence[int]) -> Tensor:
    """Crop and resize a picture of bytes: (3, height, width) → (channels, *size).

    The largest central part with the proportions of `size` is resized, each new pixel a weighted
    mean of those it covers and their neighbours; for one channel colours become grey. A picture of
    the right size stays as it is.
    """
    height, width = picture.shape[-2:]
    rows = max(1, min(height, round(width * size[0] / size[1])))
    columns = max(1, min(width, round(height * size[1] / size[0])))
    top, left = (height - rows) // 2, (width - columns) // 2
    x = picture[None, :, top : top + rows, left : left + columns].float()
    if channels == 1:
        x = (x * torch.tensor(GREY).view(3, 1, 1)).sum(1, keepdim=True)
    if (rows, columns) != tuple(size):
        x = interpolate(x, size=tuple(size), mode="bilinear", antialias=True)
    return x[0].round().clamp(0, 255).byte()

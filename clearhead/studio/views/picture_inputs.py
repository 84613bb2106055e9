"""The picture of a question: the number of a validation picture, or a file.

A file is PNG or JPEG, as base64 text. Files are read by clearhead.files, which refuses bad ones.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearhead.files.pictures import decode_picture, fit_picture
from clearhead.files.reading import BadFile
from clearhead.layers.patches import read_size
from clearhead.models import VisionTransformer
from clearhead.studio.sources import Opened, Sources
from clearhead.training.tasks.picture_predictor import PicturePredictor

MAX_FILE = 1 << 20  # characters of a file
FILE = "picture.png"  # the name of a picture dropped on the page, in the Python lines


@dataclass(frozen=True, eq=False)
class PictureInput:
    """A picture and the model that looks at it. lines: the Python lines that read both."""

    model: VisionTransformer
    predictor: PicturePredictor
    image: Tensor  # bytes (channels, height, width)
    label: int | None  # None for a file, whose class is unknown
    lines: list[str]

    @property
    def x(self) -> Tensor:
        """What the model reads: (1, channels, height, width)."""
        return self.predictor.normalise(self.image[None].to(self.model.device))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.model.grid_of(self.image)


def open_picture_model(sources: Sources, id: str) -> tuple[Opened, PicturePredictor]:
    """The model, and the predictor that prepares its pictures."""
    opened = sources.open(id)
    if opened.kind != "VisionTransformer":
        raise ValueError(
            f"{id} is a {type(opened.model).__name__}, but this view shows models that read "
            f"pictures, such as a run of vit-digits"
        )
    if opened.predictor is not None:
        return opened, opened.predictor
    c = opened.model.config  # weights of other projects: normalised as in the paper's checkpoints
    half = [0.5] * c.channels
    return opened, PicturePredictor([f"class {i}" for i in range(c.n_classes)], half, half)


def get_task(opened: Opened) -> Any:
    """The task of a run, which holds its validation pictures."""
    if opened.run is None:
        raise ValueError(
            f"{opened.source.id} was not trained here, so it has no validation pictures; "
            f"choose a file"
        )
    return opened.run.task


def read_picture(sources: Sources, id: str, number: int | None, file: str | None) -> PictureInput:
    """A validation picture by its number, or a picture in a file."""
    opened, predictor = open_picture_model(sources, id)
    if (number is None) == (file is None):
        raise ValueError("give the number of a validation picture, or a file, not both")
    lines = [*opened.lines, *_write_predictor(opened, predictor)]
    if number is not None:
        pictures = get_task(opened).validation
        check_picture(number, len(pictures))
        image, label = pictures.images[number], int(pictures.labels[number])
        lines.append(f"image = run.task.validation.images[{number}]")
    else:
        image, label = _decode(opened.model, predictor, file or ""), None
        lines.append(f'image = predictor.read(model, "{FILE}")  # the file on the page')
    lines.append("x = predictor.normalise(image[None].to(model.device))")
    return PictureInput(opened.model, predictor, image, label, lines)


def _write_predictor(opened: Opened, predictor: PicturePredictor) -> list[str]:
    if opened.run is not None:
        return ["predictor = run.predictor"]
    n, half = len(predictor.class_names), predictor.mean
    return [
        "from clearhead.training.tasks.picture_predictor import PicturePredictor",
        f"names = [f'class {{i}}' for i in range({n})]",
        f"predictor = PicturePredictor(names, {half}, {half})",
    ]


def _decode(model: VisionTransformer, predictor: PicturePredictor, file: str) -> Tensor:
    """A base64 file as bytes (channels, height, width) of the size that the model reads."""
    if len(file) > MAX_FILE:
        raise ValueError(f"file has {len(file):,} characters, more than the {MAX_FILE:,} read here")
    try:
        picture = decode_picture(base64.b64decode(file, validate=True), "the file")
    except binascii.Error:
        raise ValueError("file must be the bytes of a PNG or JPEG picture as base64") from None
    except BadFile as fault:
        raise ValueError(str(fault)) from None
    size = read_size("image_size", model.config.image_size)
    return fit_picture(picture, len(predictor.mean), size)


def check_picture(number: int, n: int) -> None:
    """Raise ValueError unless there is a validation picture with this number."""
    if not 0 <= number < n:
        raise ValueError(f"there is no validation picture {number}: they go from 0 to {n - 1}")


def check_patch(name: str, patch: int, n: int) -> None:
    """Raise ValueError unless there is a patch with this number."""
    if not 0 <= patch < n:
        raise ValueError(f"{name}: there is no patch {patch}; patches go from 0 to {n - 1}")

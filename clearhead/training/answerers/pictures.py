"""A picture, or the file of one → the class that it shows."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from clearhead.data.images import to_float
from clearhead.files.pictures import fit_picture, read_picture
from clearhead.files.reading import prefix_errors
from clearhead.files.strict_json import write_json
from clearhead.layers.patches import height_and_width
from clearhead.models import VisionTransformer
from clearhead.models.model import at_rest
from clearhead.training.answerers.answerer import Answerer, read_values

PICTURES = "pictures.json"


class PictureAnswerer(Answerer):
    """Names pictures. mean and std: of each channel of the training pictures, as shares of 255."""

    files = (PICTURES,)

    def __init__(self, classes: Sequence[str], mean: Sequence[float], std: Sequence[float]) -> None:
        _check("classes", classes, "names", lambda name: isinstance(name, str))
        _check("mean", mean, "numbers", _is_number)
        _check("std", std, "positive numbers", lambda x: _is_number(x) and x > 0)
        if len(mean) != len(std):
            raise ValueError(
                f"mean and std must have a number for each channel, got {len(mean)} and {len(std)}"
            )
        self.class_names, self.mean, self.std = tuple(classes), list(mean), list(std)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote."""
        values = read_values(folder / PICTURES, "classes", "mean", "std")
        with prefix_errors(folder / PICTURES):
            return cls(**values)

    @property
    def decided(self) -> dict[str, Any]:
        return {"n_classes": len(self.class_names), "channels": len(self.mean)}

    def normalised(self, images: Tensor) -> Tensor:
        """Bytes (B, channels, height, width) → what the model reads."""
        return to_float(images, self.mean, self.std)

    def predict(self, model: VisionTransformer, text: str) -> dict[str, Any]:
        """text: the path of a PNG or JPEG file, of which the square in the middle is looked at."""
        answer, p = self.name_of(model, self.read(model, text))
        return {"input": text, "answer": answer, "probability": p}

    def read(self, model: VisionTransformer, path: str) -> Tensor:
        """The middle of a picture in a file, as bytes of the size that the model looks at."""
        size = height_and_width("image_size", model.config.image_size)
        return fit_picture(read_picture(path), len(self.mean), size)

    def name_of(self, model: VisionTransformer, image: Tensor) -> tuple[str, float]:
        """The class of a picture of the right size, and how probable the model thinks it is."""
        device = model.device
        with at_rest(model):
            p, best = model(self.normalised(image[None].to(device)))[0].softmax(-1).max(-1)
        return self.class_names[int(best)], float(p)

    def save(self, folder: Path) -> None:
        values = {"classes": list(self.class_names), "mean": self.mean, "std": self.std}
        write_json(folder / PICTURES, values)


def _check(name: str, values: Any, of: str, fits: Callable[[Any], bool]) -> None:
    if not isinstance(values, list | tuple) or not values or not all(map(fits, values)):
        raise ValueError(f"{name} must be a list of {of}, got {values!a:.80}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)

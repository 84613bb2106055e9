"""Name what a picture shows, after training: PicturePredictor is kept in the run folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from clearhead.data.images import to_float
from clearhead.files.pictures import fit_picture, read_picture
from clearhead.files.reading import prefix_errors
from clearhead.files.strict_json import write_json
from clearhead.layers.patches import read_size
from clearhead.models import VisionTransformer
from clearhead.models.model import evaluation_mode
from clearhead.shapes import is_number
from clearhead.training.tasks.task import Predictor, read_values

PICTURES, EXAMPLE = "pictures.json", "example.png"


class PicturePredictor(Predictor):
    """Names pictures. mean and std: of each channel of the training pictures, as shares of 255."""

    files = (PICTURES,)

    def __init__(self, classes: Sequence[str], mean: Sequence[float], std: Sequence[float]) -> None:
        for name, values, kind, fits in (
            ("classes", classes, "names", lambda x: isinstance(x, str)),
            ("mean", mean, "numbers", is_number),
            ("std", std, "positive numbers", lambda x: is_number(x) and x > 0),
        ):
            if not isinstance(values, list | tuple) or not values or not all(map(fits, values)):
                raise ValueError(f"{name} must be a list of {kind}, got {values!r:.80}")
        if len(mean) != len(std):
            raise ValueError(
                f"mean and std must have a number for each channel, got {len(mean)} and {len(std)}"
            )
        self.class_names, self.mean, self.std = tuple(classes), list(mean), list(std)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        values = read_values(folder / PICTURES, "classes", "mean", "std")
        with prefix_errors(folder / PICTURES):
            return cls(**values)

    def save(self, folder: Path) -> None:
        values = {"classes": list(self.class_names), "mean": self.mean, "std": self.std}
        write_json(folder / PICTURES, values)

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"n_classes": len(self.class_names), "channels": len(self.mean)}

    def normalise(self, images: Tensor) -> Tensor:
        """Bytes (B, channels, height, width) → what the model reads."""
        return to_float(images, self.mean, self.std)

    def predict(self, model: VisionTransformer, text: str) -> dict[str, Any]:
        """text: the path of a PNG or JPEG file, whose central square is looked at."""
        answer, p = self.classify(model, self.read(model, text))
        return {"input": text, "answer": answer, "probability": p}

    def read(self, model: VisionTransformer, path: str) -> Tensor:
        """The centre of a picture in a file, as bytes of the size that the model reads."""
        size = read_size("image_size", model.config.image_size)
        return fit_picture(read_picture(path), len(self.mean), size)

    def classify(self, model: VisionTransformer, image: Tensor) -> tuple[str, float]:
        """The most probable class of a picture of the right size, and its probability."""
        with evaluation_mode(model):
            logits = model(self.normalise(image[None].to(model.device)))[0]
        p, best = logits.softmax(-1).max(-1)
        return self.class_names[int(best)], float(p)

"""The base of every model: it is built from a config, and describes its layers in a table.

config = GPTConfig(vocab_size=65, max_len=64, d_model=128, n_layers=2, n_heads=4)
model = GPT(config)
GPTConfig.from_dict(config.to_dict()) == config         # how a saved model is built again
print(model.describe())                                 # each layer, its shapes, its parameters
"""

import html
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from clearhead.config import Config


class Model(nn.Module):
    """The base of all models; a subclass names its config and builds its layers from it."""

    config_type: ClassVar[type[Config]]
    renamed_layers: ClassVar[Mapping[str, str]] = {}  # old name → new name, for old checkpoints

    def __init__(self, config: Config) -> None:
        super().__init__()
        if not isinstance(config, self.config_type):
            raise TypeError(
                f"{type(self).__name__} is built from a {self.config_type.__name__}, "
                f"got {type(config).__name__}"
            )
        config.check_complete()
        self.config: Any = config

    @classmethod
    def from_config(cls, config: Config | Mapping[str, Any]) -> Self:
        """A new model from its config or from the plain values of one."""
        return cls(cls.config_type.from_dict(config) if isinstance(config, Mapping) else config)

    @classmethod
    def translate_names(cls, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a model or an optimizer, with old layer names replaced by today's."""
        names = cls.renamed_layers
        return {
            ".".join(names.get(part, part) for part in name.split(".")): tensor
            for name, tensor in tensors.items()
        }

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """As in PyTorch; layers may have the names of an earlier release."""
        return super().load_state_dict(self.translate_names(state_dict), strict, assign)

    @property
    def n_parameters(self) -> int:
        """The number of learned numbers; a shared table counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def describe(self) -> "Description":
        """A table of the layers that have parameters: name, class, shapes, number of parameters."""
        rows = [("layer", "kind", "shapes", "parameters"), *_describe_layers(self)]
        rows.append((type(self).__name__, "", "", f"{self.n_parameters:,}"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = (
            f"{name:{widths[0]}}  {kind:{widths[1]}}  {shapes:{widths[2]}}  {count:>12}"
            for name, kind, shapes, count in rows
        )
        return Description("\n".join(line.rstrip() for line in lines))


class Description(str):
    """A text of several lines, which Python's prompt and notebooks show as it is."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


def _describe_layers(model: nn.Module) -> Iterator[tuple[str, str, str, str]]:
    """A row of the table for each layer, or several rows for one with many parameters."""
    seen: dict[int, str] = {}
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if not own:
            continue
        fresh = {key: value for key, value in own.items() if id(value) not in seen}
        shared = [seen[id(value)] for value in own.values() if id(value) in seen]
        shapes = [f"{key} {'×'.join(map(str, value.shape))}" for key, value in own.items()]
        seen.update({id(value): f"{name}.{key}" for key, value in fresh.items()})
        count = f"{sum(value.numel() for value in fresh.values()):,}"
        note = f" (= {', '.join(shared)})" if shared else ""
        yield name, type(module).__name__, ", ".join(shapes[:2]) + note, count
        for i in range(2, len(shapes), 2):  # a GRU has many
            yield "", "", ", ".join(shapes[i : i + 2]), ""


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout and gradients off inside a `with`; afterwards every module is as before.

    The mode belongs to the model, not to a thread: a thread that trains the same model meanwhile
    would train without dropout. It needs a model of its own, `copy.deepcopy(model)`.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def load_weights(model: Model, tensors: Mapping[str, Tensor]) -> None:
    """Set all weights of a model; `tensors` holds each of them in its shape, and nothing else."""
    check_weights(model, tensors)
    model.load_state_dict(tensors)


def check_weights(model: Model, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not exactly the weights of a model, by name and shape."""
    own, tensors = model.state_dict(), model.translate_names(tensors)
    if odd := sorted(own.keys() ^ tensors.keys()):
        word = "is missing" if odd[0] in own else "is not part of the model"
        raise ValueError(f"the weights do not fit the config: {odd[0]!r} {word}")
    for name, tensor in own.items():
        if tensors[name].shape != tensor.shape:
            raise ValueError(
                f"the weights do not fit the config: {name!r} has shape "
                f"{tuple(tensors[name].shape)}, not {tuple(tensor.shape)}"
            )

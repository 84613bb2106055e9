"""Build the model a config describes.

    build_model(GPTConfig(vocab_size=65, max_len=64, d_model=128, n_layers=2, n_heads=4))   a GPT

A file that names a config therefore names a model. A model of your own is a subclass of Model with
a `config_type` of its own, by which it is found.

The numbers of a config decide how much memory is taken, so that of a file is checked on the meta
device first, where tensors have shapes and no memory.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clearhead.config import Config
from clearhead.models.classifier import SequenceClassifier
from clearhead.models.encoder import TextEncoder
from clearhead.models.gpt import GPT
from clearhead.models.model import Model, check_weights
from clearhead.models.seq2seq_gru import Seq2SeqGRU
from clearhead.models.seq2seq_transformer import Seq2SeqTransformer
from clearhead.models.smallest.torch_form import TorchTransformer
from clearhead.models.vit import VisionTransformer
from clearhead.shapes import check_at_most

MODELS: tuple[type[Model], ...] = (
    *(SequenceClassifier, VisionTransformer, GPT, TextEncoder),
    *(Seq2SeqGRU, Seq2SeqTransformer, TorchTransformer),
)

MAX_PARAMETERS = 1 << 31  # 8 GB of float32, as much as a file of tensors holds


def build_model(config: Config) -> Model:
    """A new model from its config."""
    return _find_kind(config)(config)


def check_config(config: Config, tensors: Mapping[str, Tensor] | None = None) -> None:
    """Refuse a config whose model is too large, or has other weights than these tensors.

    Takes no memory. Only our own models are checked: another may not be built on the meta device.
    """
    if not any(type(config) is kind.config_type for kind in MODELS):
        return
    _check_numbers(config)
    try:
        model = build_on_meta(_find_kind(config), config)
    except RuntimeError as reason:
        raise _too_large("too many for PyTorch to count") from reason
    if tensors is not None:
        check_weights(model, tensors)
    if model.n_parameters > MAX_PARAMETERS:
        raise _too_large(f"{model.n_parameters:,}")


def _too_large(n_parameters: str) -> ValueError:
    return ValueError(
        f"the model may have up to {MAX_PARAMETERS:,} parameters, but by its config it has "
        f"{n_parameters}; choose smaller sizes"
    )


def _check_numbers(config: Config) -> None:
    """Refuse sizes beyond all limits one by one: their products may be too large to count."""
    for name, value in config.to_dict().items():
        for number in value if isinstance(value, list) else [value]:
            if type(number) is int:
                check_at_most(MAX_PARAMETERS, **{name: number})


def _find_kind(config: Config) -> type[Model]:
    for model in (*MODELS, *_find_subclasses(Model)):
        if type(config) is vars(model).get("config_type"):
            return model
    known = ", ".join(model.config_type.__name__ for model in MODELS)
    raise TypeError(
        f"a model is built from its config, one of {known} or the config_type of a Model of your "
        f"own, got a {type(config).__name__}"
    )


def _find_subclasses(kind: type[Model]) -> Iterator[type[Model]]:
    """All classes below this one, the newest first: a cell of a notebook may be run again."""
    for model in reversed(kind.__subclasses__()):
        yield model
        yield from _find_subclasses(model)


class _SkipRandomNumbers(TorchFunctionMode):
    """Draw nothing. The meta device has no numbers to draw, but trying to makes PyTorch import its
    compiler, which takes a second or more."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        if func in (Tensor.mul, Tensor.__mul__, Tensor.__rmul__):  # scales a drawn tensor
            return next(arg for arg in args if isinstance(arg, Tensor))
        return (torch.empty if func is torch.randn else func)(*args, **(kwargs or {}))


def build_on_meta(kind: type[Model], config: Config) -> Model:
    """Build a model on the meta device: shapes without memory, to be filled from a file."""
    with torch.device("meta"), _SkipRandomNumbers():
        return kind(config)

"""Tensors become the parameters of a model that was built without memory."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from clearhead.files import BadFile
from clearhead.models import Model
from clearhead.shapes import all_finite

ModelType = TypeVar("ModelType", bound=Model)


def check_dtype(dtype: torch.dtype) -> None:
    """Refuse a dtype that cannot hold parameters."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating-point type such as torch.float32, got {dtype!r}")


def cast_to(dtype: torch.dtype, tensor: Tensor, name: str) -> Tensor:
    """Convert a tensor; refuse numbers outside the range of the dtype."""
    cast = tensor.to(dtype)
    if cast is not tensor and not all_finite(cast):
        raise BadFile(f"{name} has numbers too large for {str(dtype)[6:]}; take a wider dtype")
    return cast


def get_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a model, by name."""
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def find_first_names(model: Model) -> dict[str, str]:
    """Map each parameter's name to the first name of the same parameter: other if it is shared."""
    seen: dict[int, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {name: seen.setdefault(id(parameter), name) for name, parameter in named}


def fill_model(model: ModelType, tensors: Mapping[str, Tensor]) -> ModelType:
    """Give a model without memory its tensors, and return it; shared parameters stay shared.

    The model is in evaluation mode afterwards, as its logits are compared with the original's;
    `model.train()` switches its dropout on.
    """
    first = find_first_names(model)
    own = {name: nn.Parameter(tensor) for name, tensor in tensors.items()}
    model.load_state_dict({name: own[first[name]] for name in first}, assign=True)
    return model.eval()

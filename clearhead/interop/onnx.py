"""Write a model as an ONNX file, which other runtimes compute without Python.

    export_onnx(model, "gpt.onnx", tokens)      tokens (B, T) → logits (B, T, V)
    export_onnx(vit, "vit.onnx", images)        images (B, channels, height, width) → logits (B, C)

PyTorch traces the model on an example input. The batch size stays dynamic, and so does the length
of tokens, up to the context length; pictures must have the size of the example. It needs the
packages of `pip install "clearhead[onnx]"`.
"""

import os
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from clearhead.files.writing import replace_file
from clearhead.models import Model
from clearhead.models.model import evaluation_mode

NEEDED = ("onnx", "onnxscript")


def export_onnx(model: Model, path: str | os.PathLike[str], example: Tensor) -> None:
    """Write the graph from an input like `example` to the output of model(example).

    example: tokens (B, T) with T ≥ 2, or pictures. The input of the graph is called "input", its
    output "output". Dropout is off. The file is replaced whole or not at all.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a Model of clearhead, got {type(model).__name__}")
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ModuleNotFoundError(
            f"writing ONNX needs {' and '.join(missing)}, which is not installed; "
            f'install it: pip install "clearhead[onnx]"'
        )
    if example.size(0) == 1:  # PyTorch would treat a batch size of 1 as a constant
        example = example.repeat_interleave(2, dim=0)
    with evaluation_mode(model):
        program = torch.onnx.export(
            model,
            (example,),
            dynamo=True,
            dynamic_shapes=(find_dynamic_axes(model, example),),
            input_names=["input"],
            output_names=["output"],
            verbose=False,
        )
    assert program is not None
    with replace_file(path) as file:
        file.write(program.model_proto.SerializeToString())


def find_dynamic_axes(model: Model, example: Tensor) -> dict[int, Any]:
    """The axes with dynamic sizes: the batch, and the length of tokens up to the context length."""
    axes = {0: torch.export.Dim("batch")}
    if not example.is_floating_point():
        if example.size(1) < 2:
            raise ValueError(
                f"example must have at least 2 tokens in a row, got {example.size(1)}: PyTorch "
                f"would treat a length of 1 as a constant"
            )
        axes[1] = torch.export.Dim("length", max=model.config.max_len)
    return axes

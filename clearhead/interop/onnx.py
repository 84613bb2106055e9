"""Write a model as an ONNX file, which other runtimes compute without Python.

    export_onnx(model, "gpt.onnx", tokens)      tokens (B, T) → logits (B, T, V)
    export_onnx(vit, "vit.onnx", images)        images (B, channels, height, width) → logits (B, C)

PyTorch records what the model computes for an example input. The batch stays free; every other size
is that of the example. The packages of the extra are needed: `pip install "clearhead[onnx]"`.
"""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

from clearhead.files.writing import replace_file
from clearhead.models import Model
from clearhead.models.model import evaluation_mode

NEEDED = ("onnx", "onnxscript")


def export_onnx(model: Model, path: str | os.PathLike[str], example: Tensor) -> None:
    """Write the graph from an input like `example` to the output of model(example).

    The graph takes any batch size; its input is called "input", its output "output". Dropout is
    off. The file is replaced whole or not at all.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a Model of clearhead, got {type(model).__name__}")
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ModuleNotFoundError(
            f"writing ONNX needs {' and '.join(missing)}, which is not installed; "
            f'install it: pip install "clearhead[onnx]"'
        )
    with evaluation_mode(model):
        program = torch.onnx.export(
            model,
            (example,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=["input"],
            output_names=["output"],
            verbose=False,
        )
    assert program is not None
    with replace_file(path) as file:
        file.write(program.model_proto.SerializeToString())

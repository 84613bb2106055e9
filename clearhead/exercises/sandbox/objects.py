"""A student's file in memory: run its cells, build its objects, call its functions.

Part of the untrusted side: inputs are known here, expected values never. A value {"make": …} in the
arguments of a request is replaced by an object built here: see `Student.resolve`. The zygote reads
this file, so it imports nothing of clearhead.
"""

import __future__

import contextlib
import inspect
import os
import sys
import traceback
import types
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

FILE = "student.py"
LAZY_ANNOTATIONS = __future__.annotations.compiler_flag  # their packages may be absent here
EXPECTED_STOPS = (KeyboardInterrupt, SystemExit, Exception)


class Student:
    """The names a student's file defines, and the objects built from them."""

    def __init__(self) -> None:
        self.module = types.ModuleType("student")
        self.module.__file__ = FILE
        sys.modules["student"] = self.module
        self.objects: dict[str, Any] = {}

    def load(
        self,
        cells: list[list[Any]],
        helpers: str = "",
        files: Mapping[str, str] = MappingProxyType({}),
        forbidden: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Run the cells in order; a cell that fails is reported and the next one is run."""
        for name in forbidden:
            _forbid(name)
        _write_files(files)
        failures = []
        for line, source in [*cells, *([[0, helpers]] if helpers else [])]:
            try:
                code = compile("\n" * (line - 1) + source, FILE, "exec", LAZY_ANNOTATIONS)
                exec(code, self.module.__dict__)
            except EXPECTED_STOPS as fault:
                failures.append(describe_error(fault))
        return {"failures": failures, "names": [n for n in vars(self.module) if n[:2] != "__"]}

    def find(self, path: str) -> Any:
        """The object of a label, or the one the file defines under a dotted name."""
        if path in self.objects:
            return self.objects[path]
        first, *rest = path.split(".")
        found = vars(self.module).get(first)
        if found is None:
            raise NameError(f"name {first!r} is not defined")
        for name in rest:
            found = getattr(found, name)
        return found

    def build(self, name: str, args: list[Any], kwargs: dict[str, Any], label: str) -> Any:
        """Build an object of a class; put a module in evaluation mode and list its parameters."""
        found = self.find(name)(*self.resolve(args), **self.resolve(kwargs))
        if isinstance(found, torch.nn.Module):
            found.eval()
        self.objects[label] = found
        return {"type": type(found).__name__, **_describe_parameters(found)}

    def set(self, label: str, weights: dict[str, Any]) -> Any:
        """Set parameters to these values."""
        module = self.objects[label]
        if not isinstance(module, torch.nn.Module):
            return None
        named = dict(torch.nn.Module.named_parameters(module))
        with torch.no_grad():
            for name, value in weights.items():
                named[name].copy_(value)
        return None

    def call(
        self,
        target: str,
        args: list[Any],
        kwargs: dict[str, Any],
        method: str | None = None,
        gradient: bool = False,
        train: bool | None = None,
        count: bool = False,
    ) -> dict[str, Any]:
        """Call a function or a method; gradient: also of the sum of cosines times the output.

        count: also how many numbers PyTorch's operations wrote, a measure of the work.
        """
        args, kwargs = self.resolve(args), self.resolve(kwargs)
        inputs = [x for x in [*args, *kwargs.values()] if isinstance(x, torch.Tensor)]
        leaves = [x for x in inputs if gradient and x.is_floating_point()]
        copies = [x.clone() for x in inputs]
        function = self.find(target)
        if train is not None and isinstance(function, torch.nn.Module):
            function.train(train)
        if method:
            function = getattr(function, method)
        sources = [x.clone().requires_grad_() for x in leaves]
        # Copies, since PyTorch refuses to change the sources themselves in place.
        used = {id(x): source.clone() for x, source in zip(leaves, sources, strict=True)}
        args = [used.get(id(x), x) for x in args]
        kwargs = {name: used.get(id(x), x) for name, x in kwargs.items()}
        counter = _WorkCounter()
        with counter if count else contextlib.nullcontext():
            output = function(*args, **kwargs)
        after = [used.get(id(x), x) for x in inputs]
        reply = {"output": output, "is_changed": _differ(copies, after)}
        if count:
            reply["work"] = counter.total
        if gradient:
            reply["gradients"] = _differentiate(output, sources)
        return reply

    def parameters(self, label: str) -> dict[str, Any]:
        """Name, shape and class of the owner of each parameter of a module."""
        return _describe_parameters(self.objects[label])

    def get(self, name: str) -> Any:
        """A value that the file defines."""
        return self.find(name)

    def describe(self, name: str, method: str | None = None) -> dict[str, Any]:
        """The parameters of a function or class, as Python knows them."""
        found = self.find(name)
        if method:
            found = getattr(found, method, None) or found.__call__
        elif isinstance(found, torch.nn.Module):  # attention = Attention()
            found = found.forward
        return {"parameters": _read_signature(found)}

    def resolve(self, value: Any) -> Any:
        """Replace {"make": name, "args": […]} by the object it describes, at any depth."""
        if isinstance(value, dict):
            if "make" in value:
                made = self.find(value["make"])
                if "args" in value:
                    made = made(*self.resolve(value["args"]), **value.get("kwargs", {}))
                return made
            return {key: self.resolve(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.resolve(each) for each in value)
        return value


class _WorkCounter(TorchDispatchMode):
    """Counts the numbers that operations write; unlike seconds, the count is always the same."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for each in output if isinstance(output, list | tuple) else [output]:
            self.total += each.numel() if isinstance(each, torch.Tensor) else 0
        return output


def _write_files(files: Mapping[str, str]) -> None:
    """Write the files of a submission, so that the cells can import them."""
    folders = []
    for name, text in files.items():
        folder = os.path.join(os.getcwd(), os.path.dirname(name))
        os.makedirs(folder, exist_ok=True)
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        folders.append(folder.rstrip("/"))
    if files:
        sys.path.insert(0, os.getcwd())
        sys.path += dict.fromkeys(folders)  # at the end: their names may be those of Python's


def _read_signature(function: Any) -> list[list[Any]]:
    """(name, kind, has a default) of each parameter."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [[p.name, p.kind.name, p.default is not p.empty] for p in parameters]


def _describe_parameters(module: Any) -> dict[str, Any]:
    """Name, shape and class of the owner of each parameter of a module."""
    if not isinstance(module, torch.nn.Module):
        return {}
    owners = dict(module.named_modules())
    found = []
    for name, p in module.named_parameters(remove_duplicate=False):
        owner = owners.get(name.rpartition(".")[0])
        is_lazy = isinstance(p, torch.nn.parameter.UninitializedParameter)
        found.append([name, None if is_lazy else list(p.shape), type(owner).__name__])
    return {"parameters": found}


def _differ(before: list[Any], after: list[Any]) -> bool:
    return any(
        a.shape != b.shape or not torch.equal(a.detach().nan_to_num(), b.detach().nan_to_num())
        for a, b in zip(before, after, strict=True)
    )


def _differentiate(output: Any, leaves: list[Any]) -> list[Any] | None:
    """The gradient of Σ cos(i) output_i at the inputs; None if the output has no gradient."""
    first = output[0] if isinstance(output, list | tuple) else output
    if not isinstance(first, torch.Tensor) or not first.requires_grad:
        return None
    n = torch.arange(first.numel(), dtype=first.dtype)
    total = (first.reshape(-1) * torch.cos(n)).sum()
    return list(torch.autograd.grad(total, leaves, allow_unused=True))


def _forbid(name: str) -> None:
    """Replace a function or class of PyTorch, in every module that has it, by one that refuses."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{name} is not allowed in this exercise: write it yourself")

    *path, last = name.split(".")
    owner: Any = torch
    for part in path[1:]:
        owner = getattr(owner, part)
    original = getattr(owner, last)
    stub = type(last, (), {"__init__": refuse}) if isinstance(original, type) else refuse
    for module in [m for n, m in sys.modules.items() if n.split(".")[0] == "torch"]:
        if vars(module).get(last) is original:
            setattr(module, last, stub)


def describe_error(fault: BaseException) -> dict[str, Any]:
    """Type, message and the line of the student's file."""
    frames_ = traceback.extract_tb(fault.__traceback__)
    lines = [frame.lineno for frame in frames_ if frame.filename == FILE]
    line = lines[-1] if lines else None
    if isinstance(fault, SyntaxError) and fault.filename == FILE:
        line = fault.lineno
    try:
        message = str(fault)[:400]
    except Exception:  # the student's own __str__ may fail
        message = ""
    return {"type": type(fault).__name__, "message": message, "line": line}

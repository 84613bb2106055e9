"""Record what the attention and the blocks of a model compute, from outside.

    with record(model) as trace:
        model(tokens)
    trace["blocks.0.attention"].weights                         # (B, H, T, S), computed when asked
    trace["blocks.0.attention"].weights_of(heads=2, rows=-1)    # (B, 1, 1, S), and no more

The recorder hooks every attention mechanism and every block and keeps the arguments of each call.
The model is not changed: the fused kernel runs as always, and the result is the same bit for bit.
Calls that other threads make meanwhile are not recorded.
A fused kernel never holds the weights, so the textbook form computes them from the same queries and
keys when they are asked for.
"""

import difflib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.attention.inputs import dense_mask
from clearhead.attention.masks import MaskLike
from clearhead.attention.mechanisms import Mechanism
from clearhead.inspection.sites import HEAD_IN_BLOCK, Selection, find_recorded
from clearhead.shapes import format_shape


@dataclass(frozen=True, eq=False, repr=False)
class AttentionCall:
    """The arguments of one call of a mechanism, and its output.

    q (B, H, T, Dh), k (B, H, S, Dh), v (B, H, S, Dv), output (B, H, T, Dv), or all without H.
    These are the model's own tensors, detached but not copied.
    """

    mechanism: Mechanism
    q: Tensor
    k: Tensor
    v: Tensor
    mask: MaskLike
    bias: Tensor | None
    output: Tensor
    autocast: torch.dtype | None = None
    versions: tuple[int, ...] | None = None  # of the mechanism's parameters during the call

    @property
    def weights(self) -> Tensor:
        """How much each query takes from each key, before dropout: (B, H, T, S) or (B, T, S)."""
        return self._weights(self.q, self.k, self.mask, self.bias)

    def weights_of(self, heads: Selection = None, rows: Selection = None) -> Tensor:
        """The weights of some heads and query rows only: (B, heads asked, rows asked, S).

        Each is a number, a slice or a list; None means all. Only the selected weights are computed.
        """
        q, k, bias = self.q, self.k, self.bias
        allowed = dense_mask(self.mask, (*q.shape[:-1], k.size(-2)), q.device)
        if rows is not None:
            index = _index("rows", rows, q.size(-2), q.device)
            q = q.index_select(-2, index)
            allowed, bias = (_broadcast_select(x, -2, index) for x in (allowed, bias))
        if heads is not None:
            if q.ndim < 4:
                raise ValueError(
                    f"heads={heads!r} was asked but this call has no heads: q is "
                    f"{format_shape(q)}; leave heads out"
                )
            index = _index("heads", heads, q.size(-3), q.device)
            q, k = q.index_select(-3, index), k.index_select(-3, index)
            allowed, bias = (_broadcast_select(x, -3, index) for x in (allowed, bias))
        return self._weights(q, k, allowed, bias)

    def _weights(self, q: Tensor, k: Tensor, mask: MaskLike, bias: Tensor | None) -> Tensor:
        if self.versions not in (None, _versions(self.mechanism)):
            raise RuntimeError(
                f"the parameters of {type(self.mechanism).__name__} have changed since this call, "
                f"so its weights cannot be computed any more; ask before the optimizer's step"
            )
        # The weights have the precision of the recorded call, whatever autocast is active now.
        with torch.no_grad(), _set_autocast(q.device.type, self.autocast):
            return self.mechanism.weights(q, k, mask=mask, bias=bias)

    def __repr__(self) -> str:
        shapes = (f"{name} {format_shape(getattr(self, name))}" for name in ("q", "k", "v"))
        return f"{type(self.mechanism).__name__}  {'  '.join(shapes)} → {format_shape(self.output)}"


@dataclass(frozen=True, eq=False, repr=False)
class BlockCall:
    """The embedded tokens before and after one block, each (B, T, D)."""

    input: Tensor
    output: Tensor

    def __repr__(self) -> str:
        return f"Block  {format_shape(self.input)} → {format_shape(self.output)}"


class Trace(Mapping[str, Any]):
    """The recorded calls by module name, in the model's order.

    A mapping from each name to the last call of that module: an AttentionCall or a BlockCall.
    `trace.calls(name)` lists all calls, for instance one for each step of generation. A trace stays
    readable after the recording has ended.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._calls: dict[str, list[Any]] = {name: [] for name in names}

    def calls(self, name: str) -> list[Any]:
        """Every call of one module, oldest first; empty if it was never called."""
        if name not in self._calls:
            near = difflib.get_close_matches(str(name), self._calls, n=3, cutoff=0.0)
            raise KeyError(f"no attention and no block is called {name!r}; the nearest are {near}")
        return list(self._calls[name])

    def __getitem__(self, name: str) -> Any:
        calls = self.calls(name)
        if not calls:
            raise KeyError(
                f"{name!r} was not called while recording: run the model inside "
                f"`with record(model)`; of a compiled model, record and run the plain one"
            )
        return calls[-1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, calls in self._calls.items() if calls)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def attention(self) -> dict[str, AttentionCall]:
        """The last call of each attention, in the model's order."""
        return {name: call for name, call in self.items() if isinstance(call, AttentionCall)}

    @property
    def blocks(self) -> dict[str, BlockCall]:
        """The last call of each block, in the model's order."""
        return {name: call for name, call in self.items() if isinstance(call, BlockCall)}

    @property
    def layers(self) -> dict[str, Tensor]:
        """The weights of every attention that was called: (B, H, T, S); H = 1 without heads.

        JoinedHeads inside a block are one layer.
        """
        layers: dict[str, list[Tensor]] = {}
        for name, call in self.attention.items():
            weights = call.weights
            heads = weights.unsqueeze(1) if weights.ndim == 3 else weights
            layers.setdefault(HEAD_IN_BLOCK.sub("", name), []).append(heads)
        return {n: h[0] if len(h) == 1 else torch.cat(h, dim=1) for n, h in layers.items()}

    def weights(self) -> list[Tensor]:
        """The same without names."""
        return list(self.layers.values())

    def __repr__(self) -> str:
        width = max(map(len, map(repr, self._calls)))
        lines = [f"Trace of {len(self.attention)} attentions and {len(self.blocks)} blocks"]
        for name, calls in self._calls.items():
            times = f"  ({len(calls)} calls, the last)" if len(calls) > 1 else ""
            lines.append(f"  {name!r:<{width}}  {calls[-1] if calls else 'not called'}{times}")
        return "\n".join(lines)


@contextmanager
def record(model: nn.Module) -> Iterator[Trace]:
    """Record every attention and every block of the model inside a `with`.

    An attention has the name of the module whose `.mechanism` it is. Every call is kept until the
    trace is deleted, so record a few passes, not a whole training.
    """
    watched = find_recorded(model)
    if not watched:
        raise ValueError(
            f"model {type(model).__name__} holds no attention Mechanism and no Block, so there is "
            f"nothing to record; build its attention with a clearhead mechanism"
        )
    trace = Trace([name for holders in watched.values() for name in holders])
    with ExitStack() as hooks:  # removes them in any case, also when the model raises
        for module, holders in watched.items():
            watch = _Watch(trace._calls, next(iter(holders)))
            hooks.enter_context(module.register_forward_hook(watch.keep, with_kwargs=True))
            if len(holders) > 1:
                for name, holder in holders.items():
                    hooks.enter_context(holder.register_forward_pre_hook(watch.called_from(name)))
        yield trace


class _Watch:
    """Adds the calls of one module to the trace, under the name of the attention that called it."""

    def __init__(self, calls: dict[str, list[Any]], name: str) -> None:
        self.calls, self.name, self.thread = calls, name, threading.get_ident()

    def called_from(self, name: str) -> Callable[..., None]:
        """A hook for the holder of this name: the next call of the module comes from there."""

        def hook(*_: Any) -> None:
            if threading.get_ident() == self.thread:
                self.name = name

        return hook

    def keep(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        """A forward hook that keeps each call of its own thread and changes nothing."""
        if threading.get_ident() != self.thread:
            return
        if isinstance(module, Mechanism):
            self.calls[self.name].append(_attention_call(module, output, *args, **kwargs))
        else:
            x = args[0] if args else kwargs["x"]
            self.calls[self.name].append(BlockCall(x.detach(), output.detach()))


def _attention_call(
    mechanism: Mechanism,
    output: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: MaskLike = None,
    bias: Tensor | None = None,
) -> AttentionCall:
    q, k, v, output = (x.detach() for x in (q, k, v, output))
    bias = None if bias is None else bias.detach()
    autocast, versions = _autocast_dtype(q.device.type), _versions(mechanism)
    return AttentionCall(mechanism, q, k, v, mask, bias, output, autocast, versions)


def _autocast_dtype(device: str) -> torch.dtype | None:
    """The dtype of the autocast that is active now, or None."""
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def _set_autocast(device: str, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    """Autocast to this dtype inside a `with`; None switches it off."""
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(device, dtype, enabled=dtype is not None)


def _versions(module: nn.Module) -> tuple[int, ...]:
    """How often each parameter has been changed."""
    return tuple(p._version for p in module.parameters() if not p.is_inference())


def _index(
    name: str, selection: int | slice | Sequence[int], n: int, device: torch.device
) -> Tensor:
    """A number, slice or list as a tensor of indices from 0 to n − 1."""
    if isinstance(selection, slice):
        selection = range(n)[selection]
    indices = [selection] if isinstance(selection, int) else [int(i) for i in selection]
    for i in indices:
        if not -n <= i < n:
            raise IndexError(f"{name} has no {i}: this call has {n} {name}, from 0 to {n - 1}")
    return torch.tensor([i % n for i in indices], dtype=torch.long, device=device)


def _broadcast_select(x: Tensor | None, axis: int, index: Tensor) -> Tensor | None:
    """The selected entries of an axis; an axis of size 1 is broadcast and stays as it is."""
    if x is None or x.ndim < -axis or x.size(axis) == 1:
        return x
    return x.index_select(axis, index)

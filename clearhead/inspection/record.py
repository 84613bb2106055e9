"""Looking inside a model while it runs, from outside.

    with record(model) as trace:
        model(tokens)
    trace["blocks.0.attention"].weights                         # (B, H, T, S), computed when asked
    trace["blocks.0.attention"].weights_of(heads=2, rows=-1)    # (B, 1, 1, S), and no more

The recorder hooks every attention mechanism and every block and keeps references to what each was
called with. The model is not changed: the fused kernel runs as always and the result is the same to
the bit. A fused kernel never holds the weights, so they are computed from the same queries and keys
by the textbook form, when they are asked for.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.attention.masks import MaskLike, dense_mask
from clearhead.attention.mechanisms import Mechanism
from clearhead.layers.block import Block
from clearhead.shapes import format_shape

Chosen = int | slice | Sequence[int] | None


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
    versions: tuple[int, ...] | None = None  # of the mechanism's parameters at the time of the call

    @property
    def weights(self) -> Tensor:
        """How much each query takes from each key, before dropout: (B, H, T, S) or (B, T, S)."""
        return self._weights(self.q, self.k, self.mask, self.bias)

    def weights_of(self, heads: Chosen = None, rows: Chosen = None) -> Tensor:
        """The weights of some heads and query rows only: (B, heads asked, rows asked, S).

        Each is a number, a slice or a list; None means all. Work and memory are those of the part.
        """
        q, k, bias = self.q, self.k, self.bias
        allowed = dense_mask(self.mask, (*q.shape[:-1], k.size(-2)), q.device)
        if rows is not None:
            index = _index("rows", rows, q.size(-2), q.device)
            q = q.index_select(-2, index)
            allowed, bias = (
                _broadcast_select(allowed, -2, index),
                _broadcast_select(bias, -2, index),
            )
        if heads is not None:
            if q.ndim < 4:
                raise ValueError(
                    f"heads={heads!r} was asked but this call has no heads: q is "
                    f"{format_shape(q)}; leave heads out"
                )
            index = _index("heads", heads, q.size(-3), q.device)
            q, k = q.index_select(-3, index), k.index_select(-3, index)
            allowed, bias = (
                _broadcast_select(allowed, -3, index),
                _broadcast_select(bias, -3, index),
            )
        return self._weights(q, k, allowed, bias)

    def _weights(self, q: Tensor, k: Tensor, mask: MaskLike, bias: Tensor | None) -> Tensor:
        if self.versions not in (None, _versions(self.mechanism)):
            raise RuntimeError(
                f"the parameters of {type(self.mechanism).__name__} have changed since this call, "
                f"so its weights cannot be computed any more; ask before the optimizer's step"
            )
        # Whatever precision surrounds the question, the answer is in that of the call.
        precision = _precision(q.device.type, self.autocast)
        with torch.no_grad(), precision:
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
    """The recorded calls, by the names of the model's modules, in the model's order.

    A mapping from names to an AttentionCall or, for a block, a BlockCall: the last call of that
    module. `trace.calls(name)` are all of them, for instance one for each step of generation. It
    stays readable after the recording has ended.
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

    def weights(self) -> list[Tensor]:
        """The weights of every attention that was called: (B, H, T, S), H = 1 where it had none."""
        return [_with_heads(call.weights) for call in self.attention.values()]

    def __repr__(self) -> str:
        width = max(map(len, map(repr, self._calls)))
        lines = [f"Trace of {len(self.attention)} attentions and {len(self.blocks)} blocks"]
        for name, calls in self._calls.items():
            times = f"  ({len(calls)} calls, the last)" if len(calls) > 1 else ""
            lines.append(f"  {name!r:<{width}}  {calls[-1] if calls else 'not called'}{times}")
        return "\n".join(lines)


@contextmanager
def record(model: nn.Module) -> Iterator[Trace]:
    """Watch every attention and every block of the model for the length of a `with`.

    An attention goes by the name of the module that holds it as `.mechanism`. Every call is kept
    until the trace is deleted, so record a few passes, not a whole training.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    places = _find_watched(model)
    if not places:
        raise ValueError(
            f"model {type(model).__name__} holds no attention Mechanism and no Block, so there is "
            f"nothing to record; build its attention with a clearhead mechanism"
        )
    trace = Trace([name for named in places.values() for name in named])
    with ExitStack() as hooks:  # unhooks in any case, also when the model raises
        for module, named in places.items():
            watch = _Watch(trace._calls, next(iter(named)))
            handle = module.register_forward_hook(watch.keep, with_kwargs=True)
            hooks.callback(handle.remove)
            if len(named) > 1:
                for name, holder in named.items():
                    hooks.callback(holder.register_forward_pre_hook(watch.called_from(name)).remove)
        yield trace


def _find_watched(model: nn.Module) -> dict[nn.Module, dict[str, nn.Module]]:
    """Each module to watch, with its names and, for each name, the module that holds it there.

    One mechanism may serve several attentions: then it has a name for each of them.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    watched = {name for name, module in modules.items() if isinstance(module, Mechanism | Block)}
    places: dict[nn.Module, dict[str, nn.Module]] = {}
    for name in modules:  # in the model's order
        if name not in watched:
            continue
        module, (above, _, own) = modules[name], name.rpartition(".")
        known = places.setdefault(module, {})
        if known and (isinstance(module, Block) or modules[above] in known.values()):
            continue  # the same part of the model, reached by another way
        known[above if own == "mechanism" and above not in watched else name] = modules[above]
    return places


class _Watch:
    """Adds the calls of one module to the trace, under the name of the attention that made them."""

    def __init__(self, calls: dict[str, list[Any]], name: str) -> None:
        self.calls, self.name = calls, name

    def called_from(self, name: str) -> Callable[..., None]:
        """A hook for the module that holds the watched one: the next call comes from there."""

        def hook(*_: Any) -> None:
            self.name = name

        return hook

    def keep(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        """A forward hook that keeps each call and changes nothing."""
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
    device = q.device.type
    return AttentionCall(
        mechanism,
        q.detach(),
        k.detach(),
        v.detach(),
        mask,
        None if bias is None else bias.detach(),
        output.detach(),
        torch.get_autocast_dtype(device) if _autocast(device) else None,
        _versions(mechanism),
    )


def _precision(device: str, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    """The autocast of the call, or none."""
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(device, dtype, enabled=dtype is not None)


def _autocast(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _versions(module: nn.Module) -> tuple[int, ...]:
    """How often each parameter has been written to."""
    return tuple(p._version for p in module.parameters() if not p.is_inference())


def _with_heads(weights: Tensor) -> Tensor:
    return weights.unsqueeze(1) if weights.ndim == 3 else weights


def _index(name: str, chosen: Chosen, n: int, device: torch.device) -> Tensor:
    """A number, slice or list as a tensor of places from 0 to n − 1."""
    if isinstance(chosen, slice):
        return torch.arange(n, device=device)[list(range(n)[chosen])]
    if chosen is None:
        return torch.arange(n, device=device)
    places = [chosen] if isinstance(chosen, int) else [int(place) for place in chosen]
    for place in places:
        if not -n <= place < n:
            raise IndexError(f"{name} has no {place}: this call has {n} {name}, from 0 to {n - 1}")
    return torch.tensor([place % n for place in places], dtype=torch.long, device=device)


def _broadcast_select(x: Tensor | None, axis: int, index: Tensor) -> Tensor | None:
    """The chosen places of an axis, or the axis as it is where it is only broadcast."""
    if x is None or x.ndim < -axis or x.size(axis) == 1:
        return x
    return x.index_select(axis, index)

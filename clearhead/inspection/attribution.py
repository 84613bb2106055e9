"""Direct logit attribution: which part of a model raises or lowers a logit, and by how much.

    logit = norm(x_L) · w + b        x_L = embedding + Σ_l (Σ_h head_lh + feed_forward_l)

A norm divides by a scale that depends on the whole sum. With the scale fixed at its actual value
the norm is linear, so the logit is exactly the sum of the contributions of all terms. Only direct
contributions count: what a later layer computes from a term is the contribution of that layer. In
a model with post-norm blocks, such as BERT, each term passes through all later norms, with their
scales fixed as well.
"""

import re
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from clearhead.inspection.edits import capture
from clearhead.inspection.residual import Arguments, Stream, as_arguments, find_stream
from clearhead.inspection.sites import find_layers
from clearhead.layers.block import Block
from clearhead.layers.norm import LayerNorm, RMSNorm
from clearhead.models.model import evaluation_mode
from clearhead.shapes import check_int_tensor, check_whole, format_shape

Terms = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Attribution:
    """One logit of each row as a sum: name of a part → its contribution, (B,)."""

    terms: Terms
    target: Tensor = field(repr=False)  # (B,): the token or class of the logit

    @property
    def total(self) -> Tensor:
        """The sum of all terms, (B,): the logit, before soft-capping if the model has it."""
        return torch.stack(list(self.terms.values())).sum(dim=0)

    @property
    def heads(self) -> Tensor:
        """The contribution of each head, (B, L, H); 0 where a layer has fewer heads."""
        found = {name: re.fullmatch(r"layer (\d+) head (\d+)", name) for name in self.terms}
        cells = {name: (int(m[1]), int(m[2])) for name, m in found.items() if m}
        L, H = (1 + max(cell[axis] for cell in cells.values()) for axis in (0, 1))
        table = self.total.new_zeros(len(self.target), L, H)
        for name, (layer, head) in cells.items():
            table[:, layer, head] = self.terms[name]
        return table

    def __repr__(self) -> str:
        """The terms of the first row, the largest first."""
        rows = sorted(self.terms.items(), key=lambda item: -abs(float(item[1][0])))
        width = max(map(len, self.terms))
        lines = [f"{name:<{width}}  {float(value[0]):+9.4f}" for name, value in rows]
        return "\n".join([*lines, f"{'logit':<{width}}  {float(self.total[0]):+9.4f}"])


def attribution(
    model: nn.Module,
    tokens: Arguments,
    target: int | Tensor | None = None,
    *,
    against: int | Tensor | None = None,
    position: int = -1,
) -> Attribution:
    """Split one logit of each row into the contributions of embedding, heads and feed-forwards.

    tokens: as in logit_lens. target: a token or class, or one for each row (B,); by default the
    most likely one. against: another token or class; the logit is then the difference target −
    against. position: the position whose logits are split; not used for a VisionTransformer, which
    has one row of logits for each picture.
    """
    stream = find_stream(model)
    with evaluation_mode(model):
        with capture(model, _list_names(stream)) as values:
            logits = model(*as_arguments(tokens))
        stream.check_end(values[stream.named_blocks[-1][0]], logits)
        if not stream.is_pooled:
            logits = logits[:, _check_position(position, logits.size(1))]  # (B, V)
        ids = logits.argmax(-1) if target is None else _read_ids("target", target, logits)
        weight, bias = _read_head(stream, ids)
        if against is not None:
            other_weight, other_bias = _read_head(stream, _read_ids("against", against, logits))
            weight, bias = weight - other_weight, bias - other_bias
        read = {name: stream.select_read(value, position) for name, value in values.items()}
        terms = _split_stream(stream, read)  # (B, P, D) each
        shares = {name: (x.mean(-2) * weight).sum(-1) for name, x in terms.items()}
    return Attribution(shares | {"head bias": bias}, ids)


# The residual stream as a sum of terms, each (B, P, D), at the P tokens of Stream.select_read


def _list_names(stream: Stream) -> list[str]:
    """The names of all activations that are needed to compute the terms."""
    mixtures = [site.name for sites in find_layers(stream.model).values() for site in sites]
    names = [name for name in mixtures if name.startswith(f"{stream.name}.")]
    names.append(stream.named_blocks[-1][0])
    for name, block in stream.named_blocks:
        norms = ["norm_attention", "norm_feed_forward", *(["norm_cross"] if block.cross else [])]
        names += [f"{name}.{norm}.input" for norm in norms]
        names += [f"{name}.input", f"{name}.feed_forward"]
    return names if stream.stack.norm is None else [*names, f"{stream.name}.norm.input"]


def _split_stream(stream: Stream, values: Terms) -> Terms:
    """Split the stream after its last norm into terms: name of a part → (B, P, D)."""
    terms = {"embedding": values[f"{stream.named_blocks[0][0]}.input"]}
    for layer, (name, block) in enumerate(stream.named_blocks):
        feed_forward = {f"layer {layer} feed-forward": values[f"{name}.feed_forward"]}
        branches = [("norm_attention", _split_attention(f"{name}.attention", layer, block, values))]
        if block.cross:
            cross = _split_attention(f"{name}.cross_attention", layer, block, values)
            branches.append(("norm_cross", cross))
        branches.append(("norm_feed_forward", feed_forward))
        for norm, branch in branches:
            terms = terms | branch
            if not block.pre_norm:
                before = values[f"{name}.{norm}.input"]
                terms = _normalize(terms, block.get_submodule(norm), before)
    if stream.stack.norm is None:
        return terms
    return _normalize(terms, stream.stack.norm, values[f"{stream.name}.norm.input"])


def _split_attention(name: str, layer: int, block: Block, values: Terms) -> Terms:
    """The terms of one attention: each head's output times its columns of proj_out; the bias."""
    kind = "cross head" if name.endswith("cross_attention") else "head"
    projection = cast(nn.Linear, block.get_submodule(f"{name.rpartition('.')[2]}.proj_out"))
    mixtures = [values[name]] if name in values else _list_joined(name, values)
    heads = [h for x in mixtures for h in (x.unbind(1) if x.ndim == 4 else [x])]  # (B, P, Dv)
    columns = projection.weight.split([x.size(-1) for x in heads], dim=1)
    terms = {
        f"layer {layer} {kind} {h}": linear(x, weight)
        for h, (x, weight) in enumerate(zip(heads, columns, strict=True))
    }
    if projection.bias is not None:
        terms[f"layer {layer} {kind.removesuffix('head')}attention bias"] = (
            projection.bias.expand_as(terms[f"layer {layer} {kind} 0"])
        )
    return terms


def _list_joined(name: str, values: Terms) -> list[Tensor]:
    """The mixtures of JoinedHeads, in their order."""
    return [value for key, value in values.items() if key.startswith(f"{name}.heads.")]


def _normalize(terms: Terms, norm: nn.Module, before: Tensor) -> Terms:
    """Apply a norm to every term, with the scale that it has for `before`, the sum of all terms."""
    if isinstance(norm, nn.Identity):
        return terms
    if not isinstance(norm, LayerNorm | RMSNorm):
        raise TypeError(
            f"a norm must be LayerNorm or RMSNorm to be split into terms, got {type(norm).__name__}"
        )
    if isinstance(norm, LayerNorm):
        variance = before.var(-1, correction=0, keepdim=True)
        terms = {name: x - x.mean(-1, keepdim=True) for name, x in terms.items()}
    else:
        variance = before.square().mean(-1, keepdim=True)
    scale = norm.gain / torch.sqrt(variance + norm.eps)
    terms = {name: x * scale for name, x in terms.items()}
    if isinstance(norm, LayerNorm) and norm.shift is not None:
        old = terms.get("norm shifts", torch.zeros_like(before))
        terms["norm shifts"] = old + norm.shift
    return terms


# The output layer, and which of its rows


def _read_head(stream: Stream, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of the output layer for these tokens or classes: weight (B, D) and bias (B,)."""
    weight, bias = stream.head.weight[ids], stream.head.bias
    return weight, weight.new_zeros(len(ids)) if bias is None else bias[ids]


def _read_ids(name: str, ids: Any, logits: Tensor) -> Tensor:
    """Check one token or class, or one for each row; return them as (B,)."""
    B, V = logits.shape
    if not isinstance(ids, Tensor):
        for i in ids if isinstance(ids, list | tuple) else [ids]:
            check_whole(name, i)
        ids = torch.tensor(ids, device=logits.device)
    check_int_tensor(name, ids)
    if ids.shape not in ((), (B,)):
        raise ValueError(f"{name} must be one number or have shape ({B},), got {format_shape(ids)}")
    if not bool(((ids >= 0) & (ids < V)).all()):
        raise ValueError(f"{name} must be from 0 to {V - 1}, got {ids.tolist()}")
    return ids.long().expand(B)


def _check_position(position: int, T: int) -> int:
    check_whole("position", position)
    if not -T <= position < T:
        raise IndexError(f"position must be from {-T} to {T - 1}, got {position}")
    return position

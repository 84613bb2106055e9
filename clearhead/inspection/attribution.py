"""Direct logit attribution: which part of a model raises or lowers a logit, and by how much.

    logit = norm(x_L) · w + b        x_L = embedding + Σ_l (Σ_h head_lh + feed_forward_l)

A norm divides by a number that depends on the whole sum. With that number kept as it was, the norm
is linear, so the logit is exactly the sum of what each term contributes. What a term causes in
later layers counts for those layers. With norms after each sum, as in BERT, every term passes
through all later norms in the same way.
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
    """One logit of each row as a sum: name of a part → what it contributes, (B,)."""

    terms: Terms
    target: Tensor = field(repr=False)  # (B,): whose logit it is

    @property
    def total(self) -> Tensor:
        """The sum of all terms, (B,): the logit, before a soft cap."""
        return torch.stack(list(self.terms.values())).sum(dim=0)

    @property
    def heads(self) -> Tensor:
        """What each head contributes, (B, L, H); 0 for a head that a layer does not have."""
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

    tokens: as in logit_lens. target: a token or class, or one for each row (B,); the most likely
    unless given. against: another one, whose logit is subtracted. position: which token's logits;
    a VisionTransformer has one row of logits for each picture, so position is not used.
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


# The residual stream as a sum of terms, each (B, P, D): P is the number of tokens the head reads


def _list_names(stream: Stream) -> list[str]:
    """The places whose values the terms are made of."""
    mixtures = [site.name for sites in find_layers(stream.model).values() for site in sites]
    names = [name for name in mixtures if name.startswith(f"{stream.name}.")]
    names.append(stream.named_blocks[-1][0])
    for name, block in stream.named_blocks:
        norms = ["norm_attention", "norm_feed_forward", *(["norm_cross"] if block.cross else [])]
        names += [f"{name}.{norm}.input" for norm in norms]
        names += [f"{name}.input", f"{name}.feed_forward"]
    return names if stream.stack.norm is None else [*names, f"{stream.name}.norm.input"]


def _split_stream(stream: Stream, values: Terms) -> Terms:
    """The terms of the stream after its last norm."""
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
    """What each head adds: its mixture times its own columns of the output projection."""
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
    """Every term through a norm that divides by what it divided `before` by, their sum."""
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


# The logit that is split


def _read_head(stream: Stream, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The head's weight (B, D) and bias (B,) for these tokens."""
    weight, bias = stream.head.weight[ids], stream.head.bias
    return weight, weight.new_zeros(len(ids)) if bias is None else bias[ids]


def _read_ids(name: str, ids: Any, logits: Tensor) -> Tensor:
    """One token or class for each row, (B,)."""
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

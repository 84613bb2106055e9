"""The parts of a mask: one small class for each rule.

Each part keeps its rule – "causal", "these lengths" – and writes it out by `dense` as a boolean
matrix: (T, S) if it is the same for every batch element, else (B, T or 1, S). True = query t may
attend to key s. Queries are the last T of the S positions: query t has position t + S − T. masks.py
joins the parts.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.positions.tables import offsets
from clearhead.shapes import can_read_values, check_int_tensor, format_shape, read_flags

if TYPE_CHECKING:
    from clearhead.attention.masks import Mask


def _check_one_per_key(name: str, x: Tensor, S: int) -> None:
    if x.size(-1) != S:
        raise ValueError(
            f"{name} has {x.size(-1)} columns (shape {format_shape(x)}) but there are {S} keys; "
            f"give one entry per key, cached ones included"
        )


@dataclass(frozen=True, eq=False)
class Causal:
    """No looking ahead."""

    def dense(self, T: int, S: int, device: torch.device | None) -> Tensor:
        return torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)

    def __repr__(self) -> str:
        return "Mask.causal()"


@dataclass(frozen=True, eq=False)
class Window:
    """Only keys less than `n` positions away, to either side."""

    n: int

    def dense(self, T: int, S: int, device: torch.device | None) -> Tensor:
        return offsets(T, S, device).abs() < self.n

    def __repr__(self) -> str:
        return f"Mask.window({self.n})"


@dataclass(frozen=True, eq=False)
class Padding:
    """Only the first `valid_lens` keys: (B,), or (B, T) with a length for each query."""

    valid_lens: Tensor

    @property
    def for_all_queries(self) -> bool:
        return self.valid_lens.ndim == 1

    def dense(self, T: int, S: int, device: torch.device | None) -> Tensor:
        lens = self.valid_lens.to(device)
        if lens.ndim == 2 and lens.size(1) != T:
            raise ValueError(
                f"valid_lens has shape {format_shape(lens)} but there are {T} queries; "
                f"give (B,) lengths, or (B, {T}) with one for each query"
            )
        if can_read_values(lens):
            longest = int(lens.max()) if lens.numel() else 0
            if longest > S:
                raise ValueError(
                    f"valid_lens has {longest} but there are only {S} keys; clamp it to {S}"
                )
        per_query = lens.unsqueeze(1) if lens.ndim == 1 else lens  # (B, 1 or T)
        return torch.arange(S, device=device) < per_query.unsqueeze(-1)

    def __repr__(self) -> str:
        return f"Mask.padding({_describe(self.valid_lens)})"


@dataclass(frozen=True, eq=False)
class Tokens:
    """Only real tokens: token_mask (B, S), True = real."""

    token_mask: Tensor

    def dense(self, T: int, S: int, device: torch.device | None) -> Tensor:
        _check_one_per_key("token_mask", self.token_mask, S)
        return self.token_mask.to(device)[:, None, :]

    def __repr__(self) -> str:
        return f"Mask.tokens({_describe(self.token_mask)})"


@dataclass(frozen=True, eq=False)
class Segments:
    """Only tokens of the same packed document: ids (B, S); a negative id is padding."""

    ids: Tensor

    def check_ids(self, S: int) -> Tensor:
        """The ids (B, S), if there is one for each of S keys."""
        _check_one_per_key("segment ids", self.ids, S)
        return self.ids.long()

    def dense(self, T: int, S: int, device: torch.device | None) -> Tensor:
        ids = self.check_ids(S).to(device)
        queries = last_columns(ids, T, fill=-1)
        return (queries[:, :, None] == ids[:, None, :]) & (ids >= 0)[:, None, :]

    def __repr__(self) -> str:
        return f"Mask.segments({_describe(self.ids)})"


@dataclass(frozen=True, eq=False)
class Given:
    """A matrix given as a tensor: (T, S), (B, T, S) or (B, H, T, S)."""

    allowed: Tensor

    def dense(self, T: int, S: int, device: torch.device | None) -> Tensor:
        rows, columns = self.allowed.shape[-2:]
        if rows not in (1, T) or columns not in (1, S):
            raise ValueError(
                f"mask has shape {format_shape(self.allowed)}, whose last two axes must be "
                f"(T, S) = ({T}, {S}); for a (B, S) mask of real tokens use Mask.tokens(...)"
            )
        return self.allowed.to(device)

    def __repr__(self) -> str:
        return f"Mask.of({_describe(self.allowed)})"


@dataclass(frozen=True, eq=False)
class Inverse:
    """Where another mask does not allow it."""

    mask: "Mask"

    def __repr__(self) -> str:
        inverses = [part for part in self.mask.parts if isinstance(part, Inverse)]
        if len(inverses) == len(self.mask.parts) > 1:  # ¬(¬a ∧ ¬b) was written as a | b
            return f"({' | '.join(repr(part.mask) for part in inverses)})"
        return f"~({self.mask})" if len(self.mask.parts) > 1 else f"~{self.mask}"


Part = Causal | Window | Padding | Tokens | Segments | Given | Inverse


def write_out(part: Part, T: int, S: int, axes: int, device: torch.device | None) -> Tensor:
    """A part as a boolean tensor that broadcasts to scores (..., T, S) with these axes."""
    if isinstance(part, Inverse):
        return ~part.mask.broadcastable(T, S, axes=axes, device=device)
    return match_axes(part, part.dense(T, S, device), axes)


def read_matrix(name: str, x: object, true_means: str = "may attend") -> Tensor:
    """A boolean tensor from booleans, or from integers that are all 0 or 1."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a Mask or a boolean torch.Tensor, got {type(x).__name__}")
    if x.is_floating_point() or x.is_complex():
        raise TypeError(
            f"{name} must be boolean with True = {true_means}, got {x.dtype}: a float mask could "
            f"mean 0/1 flags or numbers to add to the scores. "
            f"For 1 = {true_means} use {name}.bool(); numbers to add go to bias="
        )
    return read_flags(name, x, true_means)


def read_lengths(valid_lens: Any) -> Tensor:
    """Whole numbers of at least 0, (B,) or (B, T), from a tensor or a list."""
    if isinstance(valid_lens, list | tuple):
        try:
            valid_lens = torch.tensor(valid_lens, dtype=None if valid_lens else torch.long)
        except (TypeError, ValueError) as fault:
            raise TypeError(
                f"valid_lens must be a tensor or a list of whole numbers such as [7, 4], "
                f"got {valid_lens!r:.80}"
            ) from fault
    check_int_tensor("valid_lens", valid_lens)
    if valid_lens.ndim not in (1, 2):
        raise ValueError(
            f"valid_lens must have shape (B,) or (B, T), got {format_shape(valid_lens)}; "
            f"for a mask of real tokens use Mask.tokens(...)"
        )
    if can_read_values(valid_lens) and valid_lens.numel() and int(valid_lens.min()) < 0:
        raise ValueError(
            f"valid_lens must not be negative, got {int(valid_lens.min())}; 0 means no key"
        )
    return valid_lens


def match_axes(part: Part, allowed: Tensor, axes: int) -> Tensor:
    """A part's matrix with the axes of the scores; an ambiguous one is refused."""
    if allowed.ndim == 2:
        return allowed
    if axes == 2:
        raise ValueError(
            f"{part} differs by batch element but q has no batch axis; use q.unsqueeze(0)"
        )
    if not isinstance(part, Given):  # (B, T or 1, S): the same for every head
        return allowed.reshape(allowed.size(0), *[1] * (axes - 3), *allowed.shape[1:])
    if allowed.ndim == 4 and axes == 3 and allowed.size(1) == 1:
        return allowed.squeeze(1)
    if allowed.ndim != axes:
        raise ValueError(
            f"mask has {allowed.ndim} axes (shape {format_shape(allowed)}) but the scores have "
            f"{axes}; write (T, S), or all {axes} axes: mask[:, None] for one matrix per batch "
            f"element, mask[None] for one per head"
        )
    return allowed


def last_columns(x: Tensor, T: int, fill: int) -> Tensor:
    """The last T columns of (B, S); columns before the first are `fill`."""
    if x.size(-1) < T:
        return torch.nn.functional.pad(x, (T - x.size(-1), 0), value=fill)
    return x[:, x.size(-1) - T :]


def count_positions(real: Tensor, document: Tensor | None) -> Tensor:
    """The position of each token in its document, (B, S); padding gets 0 or its predecessor's."""
    if document is None:
        document = real.new_zeros(real.shape, dtype=torch.long)
    real, document = (x.contiguous() for x in torch.broadcast_tensors(real, document))
    # Sorted by document, the tokens of each stand together. A position is the number of real
    # tokens up to this one, minus those of documents sorted before its own, minus 1.
    order = document.argsort(dim=-1, stable=True)  # (B, S)
    count = real.gather(-1, order).cumsum(-1)  # real tokens up to here, sorted
    first = torch.searchsorted(document.gather(-1, order), document)  # start of its document
    before = torch.nn.functional.pad(count, (1, 0)).gather(-1, first)  # before it
    positions = torch.empty_like(count).scatter_(-1, order, count) - before - 1
    return positions.clamp(min=0)


def _describe(x: Tensor) -> str:
    if x.ndim == 1 and x.numel() <= 8 and x.device.type == "cpu":  # no device to wait for
        return str(x.tolist())
    return f"{str(x.dtype).removeprefix('torch.')} {format_shape(x)}"

"""Who may attend to whom: one small algebra for every mask.

    mask = Mask.causal() & Mask.padding(torch.tensor([3, 5]))
    mask.dense(T, S)                     # True = query t may attend to key s

A mask is a list of parts (mask_parts.py); a query may attend to a key if every part allows it. A
part keeps its rule – "causal", "these lengths" – instead of a T × S matrix, so that a kernel can
use it: a purely causal mask takes the fused causal kernel, and linear attention serves causal and
padding by running sums. `dense` writes the matrix out where it is needed.

Queries are the *last* T of the S positions: query t has position t + S − T. So one causal rule
serves training (T = S) and generation with cached keys (T = 1); the last query sees every key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.attention.mask_parts import (
    Causal,
    Given,
    Inverse,
    Padding,
    Part,
    Segments,
    Tokens,
    Window,
    count_positions,
    last_columns,
    read_lengths,
    read_matrix,
    write_out,
)
from clearhead.attention.mask_pictures import draw_mask, write_html
from clearhead.shapes import check_int_tensor, check_positive, format_shape


@dataclass(frozen=True, eq=False, repr=False)
class Mask:
    """Who may attend to whom: True = may attend. Immutable; joined by `&` and `|`."""

    parts: tuple[Part, ...] = ()

    # Constructors

    @staticmethod
    def causal() -> "Mask":
        """No looking ahead; the last query sees every key."""
        return Mask((Causal(),))

    @staticmethod
    def window(n: int) -> "Mask":
        """Keys less than n positions away: `causal() & window(2)` is a token and the one before."""
        check_positive(n=n)
        return Mask((Window(n),))

    @staticmethod
    def padding(valid_lens: Tensor | Sequence[Any]) -> "Mask":
        """The first valid_lens keys: (B,), such as [7, 4], or (B, T) for each query its own."""
        return Mask((Padding(read_lengths(valid_lens).clone()),))

    @staticmethod
    def tokens(token_mask: Tensor) -> "Mask":
        """The real tokens, (B, S) boolean or 0/1, True = real; padding may be anywhere."""
        token_mask = read_matrix("token_mask", token_mask)
        if token_mask.ndim != 2:
            raise ValueError(
                f"token_mask must have shape (B, S), got {format_shape(token_mask)}; "
                f"for a (T, S) matrix use Mask.of(...)"
            )
        return Mask((Tokens(token_mask.clone()),))

    @staticmethod
    def segments(ids: Tensor) -> "Mask":
        """Packed documents: tokens attend within their own id (B, S); a negative id is padding."""
        check_int_tensor("segment ids", ids)
        if ids.ndim != 2:
            raise ValueError(f"segment ids must have shape (B, S), got {format_shape(ids)}")
        return Mask((Segments(ids.clone()),))

    @staticmethod
    def of(allowed: "Tensor | Mask") -> "Mask":
        """Any boolean matrix: (T, S), (B, T, S) for scores without heads, or (B, H, T, S).

        Integers 0 and 1 are read as False and True. A Mask stays as it is.
        """
        if isinstance(allowed, Mask):
            return allowed
        allowed = read_matrix("mask", allowed)
        if allowed.ndim < 2:
            raise ValueError(
                f"mask must have shape (T, S), (B, T, S) or (B, H, T, S), got "
                f"{format_shape(allowed)}"
            )
        return Mask((Given(allowed),))

    @staticmethod
    def from_mha(
        attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, *, n_heads: int = 1
    ) -> "Mask":
        """From torch.nn.MultiheadAttention's arguments, where True means "must not attend".

        attn_mask (T, S) or (B · n_heads, T, S); key_padding_mask (B, S).
        """
        check_positive(n_heads=n_heads)
        mask = Mask()
        if attn_mask is not None:
            allowed = ~read_matrix("attn_mask", attn_mask, "must not attend")
            if allowed.ndim == 3:
                if allowed.size(0) % n_heads:
                    raise ValueError(
                        f"attn_mask has {allowed.size(0)} matrices, which n_heads={n_heads} does "
                        f"not divide; give the n_heads of the nn.MultiheadAttention it is for"
                    )
                allowed = allowed.unflatten(0, (-1, n_heads))
            mask = mask & Mask.of(allowed)
        if key_padding_mask is not None:
            is_padding = read_matrix("key_padding_mask", key_padding_mask, "must not attend")
            mask = mask & Mask.tokens(~is_padding)
        return mask

    def to_mha(self, T: int, S: int, *, n_heads: int) -> Tensor:
        """The attn_mask of torch.nn.MultiheadAttention, True = must not attend.

        (T, S), or (B · n_heads, T, S) if it differs by batch element.
        """
        check_positive(n_heads=n_heads)
        allowed = self.dense(T, S)
        if allowed.ndim == 3:
            allowed = allowed.unsqueeze(1)
        if allowed.ndim == 4:
            if allowed.size(1) not in (1, n_heads):
                raise ValueError(
                    f"n_heads is {n_heads} but the mask was made for {allowed.size(1)} heads"
                )
            allowed = allowed.expand(-1, n_heads, -1, -1).flatten(0, 1)
        return ~allowed

    def __and__(self, other: "Mask | Tensor | None") -> "Mask":
        """A query may attend to a key if both masks allow it."""
        if other is None:
            return self
        new = Mask.of(other).parts
        if self.is_causal:  # one causal part is enough
            new = tuple(part for part in new if not isinstance(part, Causal))
        return Mask(self.parts + new)

    __rand__ = __and__

    def __or__(self, other: "Mask | Tensor | None") -> "Mask":
        """Either may allow it: `causal() | padding(prompt_lens)` also sees the whole prompt.

        A mask of real tokens loses that meaning here; join it by & afterwards: `(a | b) & tokens`.
        """
        if other is None:
            return Mask()
        return Mask((Inverse(Mask((Inverse(self), Inverse(Mask.of(other))))),))  # ¬(¬a ∧ ¬b)

    __ror__ = __or__

    def __invert__(self) -> "Mask":
        """Where this mask does not allow it; a mask of real tokens is refused."""
        if any(isinstance(part, Padding | Tokens | Segments) for part in self.parts):
            raise TypeError(
                f"~ of {self} would attend to padding and to nothing else; for a tensor with "
                f"True = padding use Mask.tokens(~tensor), else Mask.of(~mask.dense(T, S))"
            )
        if len(self.parts) == 1 and isinstance(self.parts[0], Inverse):
            return self.parts[0].mask
        return Mask((Inverse(self),))

    # Reading a mask

    def dense(self, T: int, S: int, *, device: torch.device | str | None = None) -> Tensor:
        """The matrix written out, True = may attend.

        (T, S) if it is the same for every batch element, else (B, 1, T, S) – (B, H, T, S) if it
        differs by head – so that it broadcasts to scores (B, H, T, S).
        """
        has_no_heads = any(isinstance(p, Given) and p.allowed.ndim == 3 for p in self.rules())
        dense = self.broadcastable(T, S, axes=3 if has_no_heads else 4, device=device)
        return dense.expand(*dense.shape[:-2], T, S).contiguous()

    def broadcastable(
        self, T: int, S: int, *, axes: int, device: torch.device | str | None = None
    ) -> Tensor:
        """The smallest boolean tensor that broadcasts to scores with this number of axes."""
        device = self._device() if device is None else torch.device(device)
        dense = torch.ones((1, 1), dtype=torch.bool, device=device)
        for part in self.parts:
            allowed = write_out(part, T, S, axes, device)
            batches = zip(dense.shape[:-2], allowed.shape[:-2], strict=False)
            if any(m != n and 1 not in (m, n) for m, n in batches):
                raise ValueError(
                    f"masks that are joined must agree in their batch, got shapes "
                    f"{format_shape(dense)} and {format_shape(allowed)} in {self}"
                )
            dense = dense & allowed
        return dense

    @property
    def is_causal(self) -> bool:
        """Whether one of its parts forbids looking ahead."""
        return any(isinstance(part, Causal) for part in self.parts)

    @property
    def is_only_causal(self) -> bool:
        """Whether it has no other part: then the fused causal kernel serves it."""
        return len(self.parts) == 1 and isinstance(self.parts[0], Causal)

    def real_keys(self, S: int) -> Tensor | None:
        """Which keys are real tokens, (B, S), by padding (B,), tokens and segments; None = all."""
        real = None
        for part in self.parts:
            if isinstance(part, Segments):
                found = part.check_ids(S) >= 0
            elif isinstance(part, Tokens) or (isinstance(part, Padding) and part.for_all_queries):
                found = part.dense(1, S, self._device())[:, 0]
            else:
                continue
            real = found if real is None else real & found
        return real

    def documents(self, S: int) -> Tensor | None:
        """The packed document of each key, (B, S), negative for none; None if not packed."""
        documents = None
        for part in self.parts:
            if isinstance(part, Segments):
                ids = part.check_ids(S)
                if documents is None:
                    documents = ids
                elif ids.numel():  # two packings: each pair of ids is a document
                    pairs = documents * (ids.amax() + 1) + ids
                    documents = pairs.masked_fill((documents < 0) | (ids < 0), -1)
        return documents

    def positions(
        self, T: int, S: int | None = None, *, device: torch.device | str | None = None
    ) -> Tensor:
        """The position of each of the last T of S tokens: (T,), or (B, T) if the batch differs.

        Padding is not counted and packed documents start again at 0, so a left-padded sequence has
        the positions it would have alone. Padding itself gets 0 or its predecessor's position.
        """
        S = T if S is None else S
        real, document = self.real_keys(S), self.documents(S)
        if real is None:
            return last_columns(torch.arange(S, device=device).unsqueeze(0), T, fill=0)[0]
        return last_columns(count_positions(real, document), T, fill=0).to(device)

    def picture(self, T: int | None = None, S: int | None = None) -> str:
        """The mask as text: a row for each query, ■ where it may attend."""
        return draw_mask(self, T, S)

    def _repr_html_(self) -> str:
        return write_html(self)

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.parts)) or "Mask()"

    def rules(self) -> Iterator[Part]:
        """The parts, and those inside of `~` and `|`."""
        for part in self.parts:
            yield from part.mask.rules() if isinstance(part, Inverse) else (part,)

    def _device(self) -> torch.device | None:
        fields = (field for part in self.rules() for field in vars(part).values())
        return next((field.device for field in fields if isinstance(field, Tensor)), None)


MaskLike = Mask | Tensor | None

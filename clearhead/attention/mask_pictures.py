"""A mask as a picture of characters, for a terminal and for a notebook.

Mask.causal() & Mask.window(2)   rows: 3 queries, columns: 3 keys
■ · ·
■ ■ ·
· ■ ■
"""

from html import escape
from typing import TYPE_CHECKING

from clearhead.attention.mask_parts import Given, Padding, Segments, Tokens

if TYPE_CHECKING:
    from clearhead.attention.masks import Mask

MOST_SHOWN = 64  # rows and columns of a picture in a notebook


def draw_mask(mask: "Mask", T: int | None = None, S: int | None = None) -> str:
    """A row for each query, ■ where it may attend; matrices of a batch side by side.

    T, S: queries and keys; None takes numbers that show the mask well.
    """
    fitting_T, fitting_S = find_size(mask)
    S = S or T or fitting_S
    T = T or fitting_T or S
    matrices = mask.dense(T, S).reshape(-1, T, S).tolist()
    drawn = [["".join("■ " if cell else "· " for cell in row) for row in m] for m in matrices]
    lines = ["  ".join(rows).rstrip() for rows in zip(*drawn, strict=True)]
    return "\n".join([f"{mask}   rows: {T} queries, columns: {S} keys", *lines])


def write_html(mask: "Mask") -> str:
    """The picture of a mask for a notebook; for a mask too large to draw, its name alone."""
    T, S = find_size(mask)
    is_small = max(T or S, S) <= MOST_SHOWN
    return f'<pre style="line-height:1">{escape(draw_mask(mask) if is_small else repr(mask))}</pre>'


def find_size(mask: "Mask") -> tuple[int | None, int]:
    """How many queries, if the mask fixes that, and keys a picture should show."""
    T, S = None, 8
    for part in mask.rules():
        if isinstance(part, Given):
            return part.allowed.size(-2), part.allowed.size(-1)
        if isinstance(part, Padding):
            S = max(S, int(part.valid_lens.max()))
            T = T if part.for_all_queries else part.valid_lens.size(1)
        elif isinstance(part, Tokens):
            return T, part.token_mask.size(-1)
        elif isinstance(part, Segments):
            return T, part.ids.size(-1)
    return T, S

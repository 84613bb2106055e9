"""Where a token stands. Attention alone sees a set; each scheme is one way to tell it the order.

    scheme.py        what every scheme can do: add to x, rotate q and k, or bias the scores
    learned.py       a table of vectors, one for each position, added to x       limited by max_len
    sinusoidal.py    waves of many lengths, added to x                           any length
    rotary.py        q and k turned by an angle that grows with the position     any length
    toeplitz.py      one learned number per head and distance, added to q kᵀ     limited by max_len
    alibi.py         a fixed penalty by distance, added to the scores            any length
    by_name.py       the table of names, positions="rotary", and the builder
    tables.py        what schemes share: angles, distances, cached tables, checks

`positions` are integers (T,) or (B, T); None means 0 … T−1. Give them for padded or packed tokens
and for tokens after a cache. A bias by distance does not take them: padding on the left changes no
distance.
"""

from clearhead.positions.alibi import AlibiBias
from clearhead.positions.by_name import SCHEMES, build_positions
from clearhead.positions.learned import LearnedPositions
from clearhead.positions.rotary import RotaryPositions
from clearhead.positions.scheme import PositionScheme
from clearhead.positions.sinusoidal import SinusoidalPositions, sinusoid_table
from clearhead.positions.toeplitz import ToeplitzBias

__all__ = [
    "SCHEMES",
    "AlibiBias",
    "LearnedPositions",
    "PositionScheme",
    "RotaryPositions",
    "SinusoidalPositions",
    "ToeplitzBias",
    "build_positions",
    "sinusoid_table",
]

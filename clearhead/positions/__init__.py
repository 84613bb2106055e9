"""Where a token stands. Attention alone sees a set; each file is one way to tell it the order.

    learned.py       a table of vectors, one for each position, added to x       limited by max_len
    sinusoidal.py    waves of many lengths, added to x                           any length
    toeplitz.py      one learned number for each head and distance, in q kᵀ      limited by max_len
    alibi.py         a fixed penalty by distance, added to the scores            any length
    rotary.py        q and k turned by an angle that grows with the position     any length
    distance.py      how far apart a query and a key stand

`positions` are integers (T,) or (B, T), and None means 0 … T−1: padded or packed tokens and tokens
after a cache say where they stand. A bias by distance needs none: padding on the left changes no
distance.
"""

from clearhead.positions.alibi import AlibiBias
from clearhead.positions.learned import LearnedPositions
from clearhead.positions.rotary import RotaryPositions
from clearhead.positions.sinusoidal import SinusoidalPositions, sinusoid_table
from clearhead.positions.toeplitz import ToeplitzBias

__all__ = [
    "AlibiBias",
    "LearnedPositions",
    "RotaryPositions",
    "SinusoidalPositions",
    "ToeplitzBias",
    "sinusoid_table",
]

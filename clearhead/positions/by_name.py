"""The schemes by the names that configs use: positions="rotary"."""

from clearhead.positions.alibi import AlibiBias
from clearhead.positions.learned import LearnedPositions
from clearhead.positions.rotary import RotaryPositions, Scaling
from clearhead.positions.scheme import PositionScheme
from clearhead.positions.sinusoidal import SinusoidalPositions
from clearhead.positions.toeplitz import ToeplitzBias
from clearhead.shapes import check_choice

SCHEMES: dict[str, type[PositionScheme]] = {
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
    "rotary": RotaryPositions,
    "alibi": AlibiBias,
    "toeplitz": ToeplitzBias,
    "none": PositionScheme,
}


def build_positions(
    name: str,
    *,
    d_model: int,
    n_heads: int,
    d_head: int | None = None,
    max_len: int,
    rotary_base: float = 10000.0,
    rotary_scaling: Scaling = None,
    scale_input: bool = False,
) -> PositionScheme:
    """Build the scheme of this name for a model of these sizes.

    d_head: d_model / n_heads unless given. rotary_base and rotary_scaling are for rotary positions,
    scale_input for sinusoidal ones.
    """
    check_choice("positions", name, tuple(SCHEMES))
    match name:
        case "learned":
            return LearnedPositions(max_len, d_model)
        case "sinusoidal":
            return SinusoidalPositions(d_model, scale_input=scale_input)
        case "rotary":
            width = d_head or d_model // n_heads
            return RotaryPositions(width, base=rotary_base, scaling=rotary_scaling)
        case "alibi":
            return AlibiBias(n_heads)
        case "toeplitz":
            return ToeplitzBias(n_heads, max_len)
        case _:
            return PositionScheme()

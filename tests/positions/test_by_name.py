"""The names of the schemes, as configs use them."""

import pytest

from clearhead.positions import SCHEMES, build_positions
from clearhead.positions.rotary import RotaryPositions

SIZES = {"d_model": 12, "n_heads": 3, "max_len": 7}


def test_every_name_builds_the_scheme_of_the_table():
    for name, kind in SCHEMES.items():
        assert type(build_positions(name, **SIZES)) is kind


def test_a_scheme_has_the_sizes_of_the_model():
    def describe(name, **more):
        return build_positions(name, **SIZES, **more).extra_repr()

    assert describe("learned") == "max_len=7, d_model=12"
    assert describe("toeplitz") == "n_heads=3, max_len=7"
    assert describe("alibi") == "n_heads=3"
    assert describe("rotary", rotary_base=500.0) == "d_head=4, base=500"
    assert describe("sinusoidal") == "d_model=12, scale_input=False, dropout=0.0"
    assert describe("sinusoidal", scale_input=True).startswith("d_model=12, scale_input=True")
    assert isinstance(build_positions("rotary", **SIZES), RotaryPositions)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="positions must be one of 'learned', 'sinusoidal'"):
        build_positions("absolute", **SIZES)

"""Small drawn digits: labelled pictures that need no download.

A digit is a few strokes, each a chain of short lines. A drawing bends, stretches, shears, turns and
moves them, and inks every pixel by its distance to the nearest line:

    ink(pixel) = clamp(half the stroke's width + ½ − distance, 0, 1)        soft edge, one pixel

then chooses the shades of ink and paper and adds noise. Each picture is a function of (seed, index)
alone: picture 1000 is the same drawn alone or in a batch, so a training set has no end and no file.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.data.images import Pictures
from clearhead.data.randomness import check_index, draw_bits
from clearhead.shapes import check_positive

Floats = NDArray[np.float64]

CHUNK = 8  # pictures drawn together: their distances stay in the processor's cache


def draw_digits(
    n: int, *, seed: int = 0, start: int = 0, size: int = 28, channels: int = 1
) -> Pictures:
    """Draw the pictures start … start + n − 1 of this seed, (n, channels, size, size).

    For validation use another seed, or other indices. With several channels ink and paper have
    colours.
    """
    check_positive(n=n, size=size, channels=channels)
    n, size, channels, start = int(n), int(size), int(channels), check_index("start", start)
    images = np.empty((n, channels, size, size), np.uint8)
    labels = np.empty(n, np.int64)
    for first in range(0, n, CHUNK):
        part = slice(first, min(first + CHUNK, n))
        numbers = np.arange(start + part.start, start + part.stop)
        images[part], labels[part] = _draw(seed, numbers, size, channels)
    return Pictures(torch.from_numpy(images), torch.from_numpy(labels), tuple("0123456789"))


def _draw(
    seed: int, numbers: NDArray[np.int64], size: int, channels: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures (N, channels, size, size) and their digits (N,)."""
    counters = np.arange(14 + 2 * channels + channels * size * size)
    words = draw_bits(seed, "digits", numbers[:, None], counters)
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # [0, 1)
    chance, shades, grain = np.split(uniform, (14, 14 + 2 * channels), axis=1)
    digit = (chance[:, 0] * 10).astype(np.int64)
    variant = (chance[:, 1] * VARIANTS[digit]).astype(np.int64)
    strokes = _transform(GLYPHS[FIRST[digit] + variant], chance[:, 2:12], size)
    ink = _ink(strokes, size * (0.025 + 0.035 * chance[:, 12]), size)[:, None]
    paper, colour = (s[:, :, None, None] for s in np.split(shades, 2, axis=1))
    noise = 0.3 * chance[:, 13, None, None, None] * (grain.reshape(-1, channels, size, size) - 0.5)
    shade = 0.35 * paper * (1 - ink) + (0.6 + 0.4 * colour) * ink + noise
    return (shade.clip(0, 1) * 255).round().astype(np.uint8), digit


def _transform(strokes: Floats, chance: Floats, size: int) -> Floats:
    """Lines (N, K, 2 ends, 2) in the unit square → in pixels, changed by chance (N, 10)."""
    spread = (2 * chance - 1).T[:, :, None, None]  # 10 × (N, 1, 1), each −1 … 1
    x, y = strokes[..., 0] - 0.5, strokes[..., 1] - 0.5
    # A slow wave across each direction bends the strokes and keeps their ends together.
    x = x + 0.05 * spread[0] * np.sin(6 * y + 3 * spread[1])
    y = y + 0.05 * spread[2] * np.sin(6 * x + 3 * spread[3])
    height, ratio = size * (0.68 + 0.17 * spread[4]), 1 + 0.2 * spread[5]
    x, y = height * ratio * (x + 0.25 * spread[6] * y), height * y
    angle = 0.25 * spread[7]
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = x * cos - y * sin, x * sin + y * cos
    room = (size - height) / 2
    return np.stack((x + size / 2 + room * spread[8], y + size / 2 + room * spread[9]), axis=-1)


def _ink(strokes: Floats, half_width: Floats, size: int) -> Floats:
    """Lines (N, K, 2 ends, 2) in pixels → the ink of each pixel, (N, size, size), 0 … 1."""
    start, along = strokes[:, :, 0], strokes[:, :, 1] - strokes[:, :, 0]  # (N, K, 2)
    ax, ay = _split_axes(start)
    dx, dy = _split_axes(along)
    sx, sy = _split_axes(along / np.maximum((along**2).sum(-1, keepdims=True), 1e-12))
    centre = np.arange(size, dtype=np.float32) + np.float32(0.5)
    px, py = centre - ax, centre[:, None] - ay  # (N, K, 1, size) and (N, K, size, 1)
    nearest = px * sx + py * sy  # the point on each line nearest to each pixel, 0 … 1
    np.clip(nearest, 0, 1, out=nearest)  # in place, like all that follows: twice as fast
    x2 = nearest * dx  # (N, K, size, size)
    np.square(np.subtract(px, x2, out=x2), out=x2)
    y2 = np.multiply(nearest, dy, out=nearest)
    np.square(np.subtract(py, y2, out=y2), out=y2)
    distance = np.sqrt(np.add(x2, y2, out=x2).min(axis=1).astype(np.float64))
    return (half_width[:, None, None] + 0.5 - distance).clip(0, 1)


def _split_axes(vectors: Floats) -> list[NDArray[np.float32]]:
    """x and y of vectors (N, K, 2), each (N, K, 1, 1)."""
    return [vectors[..., axis, None, None].astype(np.float32) for axis in (0, 1)]


# The digits


def _arc(x: float, y: float, rx: float, ry: float, first: float, last: float) -> Floats:
    """Points on an ellipse from one angle to another, in degrees; 0 is right, 90 is down."""
    angle = np.radians(np.linspace(first, last, 2 + int(abs(last - first) // 30)))
    return np.stack((x + rx * np.cos(angle), y + ry * np.sin(angle)), axis=1)


def _chain(*parts: Floats | tuple[float, float]) -> Floats:
    """The lines of one stroke through points and arcs, (K, 2 ends, 2)."""
    points = np.concatenate([np.atleast_2d(part) for part in parts])
    return np.stack((points[:-1], points[1:]), axis=1)


_six = [_chain(_arc(0.72, 0.62, 0.48, 0.54, -95, -180), _arc(0.5, 0.66, 0.26, 0.26, 180, -180))]

# One to three ways to write each digit, in a unit square with y down.
_DIGITS: list[list[list[Floats]]] = [
    [[_chain(_arc(0.5, 0.5, 0.28, 0.42, 0, 360))]],
    [
        [_chain((0.36, 0.26), (0.52, 0.08), (0.52, 0.92))],
        [_chain((0.36, 0.26), (0.52, 0.08), (0.52, 0.92)), _chain((0.34, 0.92), (0.7, 0.92))],
        [_chain((0.5, 0.08), (0.5, 0.92))],
    ],
    [
        [_chain(_arc(0.5, 0.32, 0.26, 0.24, -180, 30), (0.24, 0.92), (0.78, 0.92))],
    ],
    [
        [
            _chain(_arc(0.47, 0.29, 0.25, 0.21, -150, 90)),
            _chain(_arc(0.47, 0.71, 0.29, 0.22, -90, 150)),
        ],
        [_chain((0.26, 0.08), (0.74, 0.08), (0.48, 0.42), _arc(0.48, 0.67, 0.28, 0.25, -90, 150))],
    ],
    [
        [_chain((0.62, 0.92), (0.62, 0.08), (0.2, 0.66), (0.82, 0.66))],
        [_chain((0.3, 0.08), (0.26, 0.56), (0.78, 0.56)), _chain((0.66, 0.3), (0.66, 0.92))],
    ],
    [[_chain((0.74, 0.08), (0.34, 0.08), (0.3, 0.47), _arc(0.48, 0.65, 0.28, 0.27, -130, 150))]],
    [_six],
    [
        [_chain((0.22, 0.08), (0.78, 0.08), (0.42, 0.92))],
        [_chain((0.22, 0.08), (0.78, 0.08), (0.42, 0.92)), _chain((0.4, 0.5), (0.72, 0.5))],
    ],
    [[_chain(_arc(0.5, 0.29, 0.21, 0.21, 90, 450)), _chain(_arc(0.5, 0.71, 0.26, 0.21, -90, 270))]],
    [
        [1 - stroke for stroke in _six],
        [_chain(_arc(0.48, 0.34, 0.25, 0.25, 360, 0), (0.68, 0.92))],
    ],
]


def _build_glyphs() -> Floats:
    """Every way to write every digit, (ways, K, 2 ends, 2), padded by repeating the last line."""
    ways = [np.concatenate(strokes) for digit in _DIGITS for strokes in digit]
    K = max(map(len, ways))
    return np.stack([np.concatenate((way, way[-1:].repeat(K - len(way), 0))) for way in ways])


GLYPHS = _build_glyphs()
VARIANTS = np.array([len(digit) for digit in _DIGITS])
FIRST = np.cumsum(VARIANTS) - VARIANTS

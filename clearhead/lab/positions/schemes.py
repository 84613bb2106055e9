"""How attention depends on the order of tokens: without positions, and with five schemes.

    permute the tokens      without positions the outputs are permuted with them, and nothing more
    shift all tokens        a relative scheme gives the same outputs, an absolute one does not
    by distance             how similar two positions are, or what is added to their score

Sine and cosine come in pairs because sin a sin b + cos a cos b = cos(a − b): the product of two
encodings then depends on their distance alone, and one linear map, a rotation of every pair, takes
PE[p] to PE[p + d] for all p. With sines alone neither is true. rule.py trains small models, which
are then tested beyond the length they were trained on; report.py writes tables and picture.
"""

from collections.abc import Callable
from statistics import fmean
from typing import TypeVar

import torch
from torch import Tensor, nn

from clearhead.attention import Mask, MultiHeadAttention
from clearhead.lab import EXPERIMENTS
from clearhead.lab.positions.report import Numbers, describe, draw, tabulate
from clearhead.lab.positions.rule import KINDS, LIMITED, TRAINED, learn, score
from clearhead.lab.tools.finding import Finding
from clearhead.models.gpt import GPT
from clearhead.positions import (
    AlibiBias,
    LearnedPositions,
    PositionScheme,
    RotaryPositions,
    ToeplitzBias,
    build_positions,
    sinusoid_table,
)

Module = TypeVar("Module", bound=nn.Module)

WIDTH, HEADS = 32, 4  # as in the models that are trained
SHIFT = 8  # positions by which a sequence is shifted
FAR = 4096  # positions that one linear map is fitted to; over fewer, slow waves look alike


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Test what attention knows of order with each scheme, and how far trained models reach."""
    lengths = [TRAINED, 2 * TRAINED, 4 * TRAINED]
    seeds, steps = range(100 * seed, 100 * seed + (5 if full else 2)), 500 if full else 160
    models = {kind: [learn(kind, each, steps, device) for each in seeds] for kind in KINDS}
    generator = torch.Generator().manual_seed(seed)
    matrices = {
        "sinusoidal": similarity(sinusoid_table(TRAINED, WIDTH, torch.float64)),
        "learned": similarity(_find_module(models["learned"][0], LearnedPositions).weight),
        "rotary": rotary_similarity(generator),
        "toeplitz": _learned_bias(_find_module(models["toeplitz"][0], ToeplitzBias)),
        "alibi": AlibiBias(HEADS).double()(TRAINED)[0],
    }
    numbers: Numbers = {
        **measure_order(generator, seed),
        **{f"{kind}_by_distance": by_distance(matrix) for kind, matrix in matrices.items()},
        **{f"{kind}_spread": spread(matrix) for kind, matrix in matrices.items()},
        **compare_pairs_with_sines(),
        **score_models(models, lengths, seed),
    }
    return Finding(
        claim=EXPERIMENTS["positions"],
        tables=tabulate(numbers, lengths, try_one_token_more()),
        seen=describe(numbers, lengths),
        numbers=numbers,
        picture=draw(numbers, lengths, matrices, sinusoid_table(lengths[-1], WIDTH)),
    )


# Permuted and shifted


def measure_order(generator: torch.Generator, seed: int) -> Numbers:
    """How much an output changes when tokens are permuted, and when all of them are shifted."""
    x = torch.randn(1, TRAINED - SHIFT, WIDTH, generator=generator, dtype=torch.float64)
    before = torch.randn(1, SHIFT, WIDTH, generator=generator, dtype=torch.float64)
    order = torch.randperm(x.size(1), generator=generator)
    real = torch.arange(TRAINED)[None] >= SHIFT  # the tokens in front are masked
    numbers: Numbers = {}
    for kind in KINDS:
        attend = attention_with(kind, seed)
        with torch.no_grad():
            output, moved = attend(x, None), attend(torch.cat([before, x], 1), Mask.tokens(real))
            permuted = attend(x[:, order], None) - output[:, order]
        numbers[f"{kind}_permuted"] = permuted.abs().max().item()
        numbers[f"{kind}_moved"] = (moved[:, SHIFT:] - output).abs().max().item()
    return numbers


def attention_with(kind: str, seed: int) -> Callable[[Tensor, Mask | None], Tensor]:
    """Attention in float64 with these positions, their parameters drawn from N(0, 1)."""
    scheme = _build_scheme(kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inside = None if scheme.acts_on == "x" else scheme
        attention = MultiHeadAttention(WIDTH, HEADS, positions=inside).double()
        for parameter in scheme.double().parameters():
            nn.init.normal_(parameter)
    return lambda x, mask: attention(scheme.add(x), mask=mask)


def _build_scheme(kind: str) -> PositionScheme:
    return build_positions(kind, d_model=WIDTH, n_heads=HEADS, max_len=TRAINED)


# By distance


def similarity(table: Tensor) -> Tensor:
    """The cosine of every two rows, (n, D) → (n, n)."""
    rows = nn.functional.normalize(table.detach().cpu().double(), dim=-1)
    return rows @ rows.mT


def rotary_similarity(generator: torch.Generator, draws: int = 256) -> Tensor:
    """The cosine of a vector rotated to position i and to j: the mean over draws, (n, n)."""
    contents = torch.randn(draws, 1, WIDTH, generator=generator, dtype=torch.float64)
    rotated = RotaryPositions(WIDTH)(contents.expand(-1, TRAINED, -1))  # (draws, n, D)
    return torch.stack([similarity(rows) for rows in rotated]).mean(dim=0)


def _learned_bias(module: ToeplitzBias) -> Tensor:
    """What the head with the largest bias adds to a score after the division by √Dh, (n, n)."""
    bias = module(TRAINED).detach().cpu().double() / (WIDTH // HEADS) ** 0.5
    return bias[bias.abs().amax(dim=(1, 2)).argmax()]


def by_distance(matrix: Tensor) -> list[float]:
    """The mean over all pairs of a query and the key d before it, for every d."""
    return [matrix.diagonal(-d).mean().item() for d in range(len(matrix))]


def spread(matrix: Tensor) -> float:
    """The largest difference between two pairs of equal distance: 0 if only distance counts."""
    diagonals = (matrix.diagonal(-d) for d in range(len(matrix)))
    return max((x.max() - x.min()).item() for x in diagonals)


def compare_pairs_with_sines() -> Numbers:
    """The spread and the error of the best linear map, with and without the cosines."""
    table = sinusoid_table(FAR + SHIFT, WIDTH, torch.float64)
    sines = table[:, ::2]
    return {
        "sines_spread": spread(sines[:TRAINED] @ sines[:TRAINED].mT / (WIDTH // 2)),
        "pairs_missed": _best_map_error(table),
        "sines_missed": _best_map_error(sines),
    }


def _best_map_error(table: Tensor) -> float:
    """The error of the best linear map from PE[p] to PE[p + SHIFT], relative (RMS)."""
    here, there = table[:FAR], table[SHIFT:]
    best = torch.linalg.lstsq(here, there, driver="gelsd").solution
    return ((here @ best - there).norm() / there.norm()).item()


# Beyond the trained length


def score_models(models: dict[str, list[GPT]], lengths: list[int], seed: int) -> Numbers:
    """Loss and share of right answers by length: mean over trainings, range of the loss."""
    numbers: Numbers = {}
    for kind, trained in models.items():
        tried = lengths[:1] if kind in LIMITED else lengths
        by_model = (score(model, tried, 100 * seed + 99) for model in trained)
        scores = list(zip(*by_model, strict=True))  # a row for each length
        losses = [[each.loss for each in row] for row in scores]
        numbers |= {
            f"{kind}_loss": [fmean(row) for row in losses],
            f"{kind}_loss_low": [min(row) for row in losses],
            f"{kind}_loss_high": [max(row) for row in losses],
            f"{kind}_right": [fmean(each.right for each in row) for row in scores],
        }
    return numbers


def try_one_token_more() -> dict[str, str]:
    """How each scheme reacts to one token more than in training: "accepted", or its error."""
    T, d_head = TRAINED + 1, WIDTH // HEADS
    answers = {}
    for kind in KINDS[1:]:
        scheme = _build_scheme(kind)
        try:
            scheme.add(torch.zeros(1, T, WIDTH))
            scheme.rotate(torch.zeros(1, T, d_head))
            scheme.bias(T, T)
            answers[kind] = "accepted"
        except ValueError as refusal:
            answers[kind] = str(refusal)
    return answers


def _find_module(model: GPT, kind: type[Module]) -> Module:
    return next(module for module in model.modules() if isinstance(module, kind))

"""Where a token stands: what attention knows without it, five ways to say it, and how far they go.

    permute the tokens      without positions the outputs are permuted with them, and nothing more
    move all of them        a relative scheme notices nothing, an absolute one does
    by distance             how alike two positions are, or what is added to their score

Sine and cosine come in pairs because sin a sin b + cos a cos b = cos(a − b): the product of two
encodings then depends on their distance alone, and one linear map, a turn of every pair, takes
PE[p] to PE[p + d] for all p. With sines alone neither is true. position_rule.py trains small models
and asks them beyond the length they know; position_report.py tells.
"""

from collections.abc import Callable
from statistics import fmean
from typing import TypeVar

import torch
from torch import Tensor, nn

from clearhead.attention import Mask, MultiHeadAttention
from clearhead.lab import EXPERIMENTS
from clearhead.lab.positions.report import Numbers, draw, story, tables
from clearhead.lab.positions.rule import KINDS, LIMITED, TRAINED, learn, score
from clearhead.lab.tools.finding import Finding
from clearhead.models.gpt import GPT
from clearhead.positions import (
    AlibiBias,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
    ToeplitzBias,
    sinusoid_table,
)

Module = TypeVar("Module", bound=nn.Module)

WIDTH, HEADS = 32, 4  # as in the models that are trained
STEP = 8  # how far a sequence is moved
FAR = 4096  # positions over which one linear map must serve; over fewer, slow waves look alike


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Without positions a sentence is a bag; five ways to say where a token stands."""
    lengths = [TRAINED, 2 * TRAINED, 4 * TRAINED]
    seeds, steps = range(100 * seed, 100 * seed + (5 if full else 2)), 500 if full else 160
    models = {kind: [learn(kind, each, steps, device) for each in seeds] for kind in KINDS}
    generator = torch.Generator().manual_seed(seed)
    matrices = {
        "sinusoidal": likeness(sinusoid_table(TRAINED, WIDTH, torch.float64)),
        "learned": likeness(_found(models["learned"][0], LearnedPositions).weight),
        "rotary": turned_likeness(generator),
        "toeplitz": _learned_bias(_found(models["toeplitz"][0], ToeplitzBias)),
        "alibi": AlibiBias(HEADS).double()(TRAINED)[0],
    }
    numbers: Numbers = {
        **laws(generator, seed),
        **{f"{kind}_by_distance": by_distance(matrix) for kind, matrix in matrices.items()},
        **{f"{kind}_spread": spread(matrix) for kind, matrix in matrices.items()},
        **pairs(),
        **answers(models, lengths, seed),
    }
    return Finding(
        claim=EXPERIMENTS["positions"],
        tables=tables(numbers, lengths, refusals()),
        seen=story(numbers, lengths),
        numbers=numbers,
        picture=draw(numbers, lengths, matrices, sinusoid_table(lengths[-1], WIDTH)),
    )


# Permuted and moved


def laws(generator: torch.Generator, seed: int) -> Numbers:
    """How much an output changes when tokens change places, and when all of them move on."""
    x = torch.randn(1, TRAINED - STEP, WIDTH, generator=generator, dtype=torch.float64)
    before = torch.randn(1, STEP, WIDTH, generator=generator, dtype=torch.float64)
    order = torch.randperm(x.size(1), generator=generator)
    real = torch.arange(TRAINED)[None] >= STEP  # nobody may attend to what stands before
    numbers: Numbers = {}
    for kind in KINDS:
        attend = attention_with(kind, seed)
        with torch.no_grad():
            output, moved = attend(x, None), attend(torch.cat([before, x], 1), Mask.tokens(real))
            permuted = attend(x[:, order], None) - output[:, order]
        numbers[f"{kind}_permuted"] = permuted.abs().max().item()
        numbers[f"{kind}_moved"] = (moved[:, STEP:] - output).abs().max().item()
    return numbers


def attention_with(kind: str, seed: int) -> Callable[[Tensor, Mask | None], Tensor]:
    """Attention in float64 with these positions; what they learn is drawn from N(0, 1)."""
    inside: RotaryPositions | ToeplitzBias | AlibiBias | None = None
    added: nn.Module = nn.Identity()
    if kind == "sinusoidal":
        added = SinusoidalPositions(WIDTH)
    elif kind == "learned":
        added = LearnedPositions(TRAINED, WIDTH)
    elif kind == "rotary":
        inside = RotaryPositions(WIDTH // HEADS)
    elif kind == "toeplitz":
        inside = ToeplitzBias(HEADS, TRAINED)
    elif kind == "alibi":
        inside = AlibiBias(HEADS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        attention = MultiHeadAttention(WIDTH, HEADS, positions=inside).double()
        for parameter in (*added.double().parameters(), *(inside or nn.Identity()).parameters()):
            nn.init.normal_(parameter)
    return lambda x, mask: attention(added(x), mask=mask)


# By distance


def likeness(table: Tensor) -> Tensor:
    """The cosine of every two rows, (n, D) → (n, n)."""
    rows = nn.functional.normalize(table.detach().cpu().double(), dim=-1)
    return rows @ rows.mT


def turned_likeness(generator: torch.Generator, draws: int = 256) -> Tensor:
    """The cosine of a vector turned to position i and turned to j: the mean over draws, (n, n)."""
    contents = torch.randn(draws, 1, WIDTH, generator=generator, dtype=torch.float64)
    turned = RotaryPositions(WIDTH)(contents.expand(-1, TRAINED, -1))  # (draws, n, D)
    return torch.stack([likeness(rows) for rows in turned]).mean(dim=0)


def _learned_bias(module: ToeplitzBias) -> Tensor:
    """What the head with the largest bias adds to a score after the division by √Dh, (n, n)."""
    bias = module(TRAINED).detach().cpu().double() / (WIDTH // HEADS) ** 0.5
    return bias[bias.abs().amax(dim=(1, 2)).argmax()]


def by_distance(matrix: Tensor) -> list[float]:
    """The mean over all pairs of a query and the key d before it, for every d."""
    return [matrix.diagonal(-d).mean().item() for d in range(len(matrix))]


def spread(matrix: Tensor) -> float:
    """How far two pairs of one distance differ at most: 0 if only the distance counts."""
    diagonals = (matrix.diagonal(-d) for d in range(len(matrix)))
    return max((x.max() - x.min()).item() for x in diagonals)


def pairs() -> Numbers:
    """What is lost where the cosines are left out."""
    table = sinusoid_table(FAR + STEP, WIDTH, torch.float64)
    sines = table[:, ::2]
    return {
        "sines_spread": spread(sines[:TRAINED] @ sines[:TRAINED].mT / (WIDTH // 2)),
        "pairs_missed": _missed(table),
        "sines_missed": _missed(sines),
    }


def _missed(table: Tensor) -> float:
    """What the best linear map from PE[p] to PE[p + STEP] leaves, as a share (RMS)."""
    here, there = table[:FAR], table[STEP:]
    best = torch.linalg.lstsq(here, there, driver="gelsd").solution
    return ((here @ best - there).norm() / there.norm()).item()


# Beyond the trained length


def answers(models: dict[str, list[GPT]], lengths: list[int], seed: int) -> Numbers:
    """Loss and share of right answers by length: the mean over trainings, and the extremes."""
    numbers: Numbers = {}
    for kind, trained in models.items():
        tried = lengths[:1] if kind in LIMITED else lengths
        scores = list(
            zip(*(score(model, tried, 100 * seed + 99) for model in trained), strict=True)
        )
        losses = [[each.loss for each in row] for row in scores]  # a row for each length
        numbers |= {
            f"{kind}_loss": [fmean(row) for row in losses],
            f"{kind}_loss_low": [min(row) for row in losses],
            f"{kind}_loss_high": [max(row) for row in losses],
            f"{kind}_right": [fmean(each.right for each in row) for row in scores],
        }
    return numbers


def refusals() -> dict[str, str]:
    """What each scheme says to one token more than there was in training."""
    x = torch.zeros(1, TRAINED + 1, WIDTH)
    calls: dict[str, Callable[[], Tensor]] = {
        "sinusoidal": lambda: SinusoidalPositions(WIDTH)(x),
        "learned": lambda: LearnedPositions(TRAINED, WIDTH)(x),
        "rotary": lambda: RotaryPositions(WIDTH)(x),
        "toeplitz": lambda: ToeplitzBias(HEADS, TRAINED)(x.size(1)),
        "alibi": lambda: AlibiBias(HEADS)(x.size(1)),
    }
    said = {}
    for kind, call in calls.items():
        try:
            call()
            said[kind] = "goes on"
        except ValueError as refusal:
            said[kind] = str(refusal)
    return said


def _found(model: GPT, kind: type[Module]) -> Module:
    return next(module for module in model.modules() if isinstance(module, kind))

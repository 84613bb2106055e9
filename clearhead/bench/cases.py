"""What we measure: one function per claim, each a list of rows.

`clearhead bench` runs them all; docs/measurements.md keeps the figures and the ideas that failed.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from clearhead.attention import (
    DotProductAttention,
    EluFeatures,
    FourierFeatures,
    LinearAttention,
    Mask,
    MultiHeadAttention,
    PositiveFeatures,
    QuadraticFeatures,
)
from clearhead.bench import language, training
from clearhead.bench.row import Row
from clearhead.inspection import record
from clearhead.positions import ToeplitzBias
from clearhead.timing import best_seconds

Rows = list[Row]


def _normal(*shape: int, grad: bool = False) -> Tensor:
    return torch.randn(shape, requires_grad=grad)


def attention(seconds: float) -> Rows:
    """The mechanism against the fused function it calls: what masks and shielding cost."""
    B, H, T, Dh = 8, 6, 256, 64
    q, k, v = (_normal(B, H, T, Dh) for _ in range(3))
    lens = torch.arange(T, T - B * 16, -16)
    causal, padding = Mask.causal(), Mask.padding(lens)
    keys = padding.dense(T, T)[:, :, :1]
    ours = DotProductAttention()
    best = best_seconds(
        {
            "causal": lambda: ours(q, k, v, mask=causal),
            "torch causal": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
            "padding": lambda: ours(q, k, v, mask=padding),
            "torch padding": lambda: scaled_dot_product_attention(q, k, v, attn_mask=keys),
        },
        seconds=2 * seconds,
    )
    fused = "fused function, called directly"
    return [
        Row(
            "DotProductAttention, causal",
            best["causal"],
            fused,
            best["torch causal"],
            "aim ≤ 1.05×",
        ),
        Row(
            "DotProductAttention, padding",
            best["padding"],
            fused,
            best["torch padding"],
            "aim ≤ 1.15×",
        ),
    ]


def heads(seconds: float) -> Rows:
    """MultiHeadAttention forward and backward against torch.nn.MultiheadAttention."""
    rows = []
    for T in (256, 1024):
        B, D, H = 2048 // T, 384, 6
        ours, theirs = MultiHeadAttention(D, H), nn.MultiheadAttention(D, H, batch_first=True)
        x, grad = _normal(B, T, D, grad=True), _normal(B, T, D)

        def train(module: nn.Module, x: Tensor = x, grad: Tensor = grad, **options: bool) -> None:
            inputs = (x,) if isinstance(module, MultiHeadAttention) else (x, x, x)
            output = module(*inputs, **options)
            output = output if isinstance(output, Tensor) else output[0]
            torch.autograd.grad(output, [x, *module.parameters()], grad)

        def train_recorded(module: nn.Module = ours, train: Callable[..., None] = train) -> None:
            with record(module):
                train(module)

        best = best_seconds(
            {
                "ours": lambda m=ours, f=train: f(m),  # type: ignore[misc]
                "recorded": train_recorded,
                "theirs": lambda m=theirs, f=train: f(m, need_weights=False),  # type: ignore[misc]
                "weights": lambda m=theirs, f=train: f(m, need_weights=True),  # type: ignore[misc]
            },
            seconds=2 * seconds,
        )
        what = f"MultiHeadAttention, T={T}, forward+backward"
        other = "nn.MultiheadAttention"
        rows += [
            Row(what, best["ours"], other, best["theirs"], "aim ≤ 1.0×"),
            Row(
                "  … recorded", best["recorded"], f"{other}, weights", best["weights"], "aim ≤ 0.6×"
            ),
        ]
    return rows


def toeplitz(seconds: float) -> Rows:
    """Building the Toeplitz bias, and attention that learns it against attention without."""
    B, H, n, Dh = 8, 8, 256, 64
    module, ours = ToeplitzBias(H, n), DotProductAttention()
    nn.init.normal_(module.weight)
    q, k, v = (_normal(B, H, n, Dh, grad=True) for _ in range(3))
    grad = _normal(B, H, n, Dh)

    def filled() -> Tensor:
        bias = torch.empty(H, n, n)
        for head in range(H):
            for distance in range(1 - n, n):
                bias[head].diagonal(distance).fill_(numbers[head][n + distance])
        return bias

    def summed() -> Tensor:
        bias = torch.zeros(H, n, n)
        for distance in range(1 - n, n):
            diagonal = module.weight[:, n + distance, None].expand(H, n - abs(distance))
            bias += torch.diag_embed(diagonal, distance)
        return bias

    def with_bias() -> None:
        output = ours(q, k, v, bias=module(n))
        torch.autograd.grad(output, (q, k, v, module.weight), grad)

    numbers = module.weight.tolist()
    with torch.no_grad():
        ways = {"ours": lambda: module(n), "filled": filled, "summed": summed}
        built = best_seconds(ways, seconds=2 * seconds)
    best = best_seconds(
        {
            "with": with_bias,
            "without": lambda: torch.autograd.grad(ours(q, k, v), (q, k, v), grad),
        },
        seconds=2 * seconds,
    )
    what = "Toeplitz bias, n=256, 8 heads"
    learned = "attention + learned Toeplitz, fwd+bwd"
    return [
        Row(what, built["ours"], "diagonals summed in a loop", built["summed"], "aim 500×"),
        Row(what, built["ours"], "diagonals filled in a loop", built["filled"]),
        Row(learned, best["with"], "without", best["without"], "aim ≤ 1.3×"),
    ]


MAPS = {
    "elu+1": EluFeatures(),
    "Fourier, 128 frequencies": FourierFeatures(64, 256, seed=0),
    "positive, 256 features": PositiveFeatures(64, 256, seed=0),
    "quadratic, 2145 features": QuadraticFeatures(),
}


def _against_softmax(name: str, T: int, seconds: float, aim: str = "") -> Row:
    """One feature map against the fused softmax kernel, causal, four heads of width 64."""
    q, k, v = (_normal(1, 4, T, 64) for _ in range(3))
    ours, mask = LinearAttention(MAPS[name]), Mask.causal()
    with torch.no_grad():
        best = best_seconds(
            {
                "ours": lambda: ours(q, k, v, mask=mask),
                "softmax": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
            },
            seconds=seconds,
            rounds=3,
        )
    return Row(f"linear, {name}, T={T}", best["ours"], "fused softmax", best["softmax"], aim)


def linear(seconds: float) -> Rows:
    """Causal linear attention against fused causal softmax attention at T = 8192."""
    aims = {"elu+1": "aim ≥ 10×", "Fourier, 128 frequencies": "aim ≥ 3.5×"}
    return [_against_softmax(name, 8192, seconds, aims.get(name, "")) for name in MAPS]


def crossover(seconds: float) -> Rows:
    """From which length on each feature map is faster than fused causal softmax attention."""
    rows = []
    for name in MAPS:
        for T in (128, 256, 512, 1024, 2048, 4096, 8192, 16384):
            rows.append(_against_softmax(name, T, seconds / 3))
            if rows[-1].ratio < 0.9:
                break
    return rows


def memory(seconds: float) -> Rows:
    """Peak memory of causal linear attention when the length doubles, and against T × T weights."""
    maps = {"elu+1": "EluFeatures()", "Fourier, 128 frequencies": "FourierFeatures(64, 256)"}
    rows = []
    for name, feature_map in maps.items():
        short, long = (_printed(_LINEAR.format(T=T, map=feature_map))[0] for T in (8192, 16384))
        what, matrix = f"peak memory, {name}, T=16384", 4.0 * 4 * 16384**2
        rows += [
            Row(what, long, "T=8192", short, "linear is 2×", unit="MB"),
            Row(what, long, "weights of 4 heads", matrix, unit="MB"),
        ]
    return rows


_LINEAR = """
import resource, torch
from clearhead.attention import EluFeatures, FourierFeatures, LinearAttention, Mask
attention, mask = LinearAttention({map}), Mask.causal()
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
with torch.no_grad():
    attention(*torch.randn(3, 1, 4, 256, 64), mask=mask)
    q, k, v = torch.randn(3, 1, 4, {T}, 64)
    before = peak()
    attention(q, k, v, mask=mask)
print(peak() - before)
"""


def _printed(program: str, **environment: str) -> list[float]:
    """The numbers that a program prints in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return [float(word) for word in run.stdout.split()]


def threads(seconds: float) -> Rows:
    """What a busy neighbour does to two threads that spin or sleep while they wait."""
    program = "from clearhead.runtime import *; t = measure_threads((1, 2)); print(t[1], t[2])"
    rows = []
    for policy in ("active", "passive"):
        for neighbours in (0, 1):
            with _busy(neighbours):
                one, two = _printed(program, OMP_WAIT_POLICY=policy)
            what = f"1 thread, {neighbours} busy neighbour(s)"
            taken = f"auto takes {1 if one <= two else 2}"
            rows.append(Row(what, one, f"2 threads that wait {policy}ly", two, taken))
    return rows


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


CASES: dict[str, Callable[[float], Rows]] = {
    "attention": attention,
    "heads": heads,
    "toeplitz": toeplitz,
    "linear": linear,
    "memory": memory,
    "crossover": crossover,
    "threads": threads,
    "decode": language.decode,
    "int8": language.int8,
    "batch32": language.batch32,
    "dialogue": language.dialogue,
    "vocabulary": language.vocabulary,
    "words": language.words,
    "loop": training.loop,
    "start": training.start,
}

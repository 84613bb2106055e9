"""What we measure: one function per claim, each with a list of rows as its result.

The list of all cases stands at the end. `clearhead bench` runs them; docs/measurements.md keeps the
figures and the ideas that failed.
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
from clearhead.bench import (
    inspection,
    language,
    plan,
    processes,
    saving,
    sharding,
    studio,
    training,
)
from clearhead.bench.row import Row, Rows, Work
from clearhead.inspection import record
from clearhead.positions import ToeplitzBias
from clearhead.timing import best_seconds

# Lengths T.
SHORT, LONG = 256, 8192
HEADS, MEMORY = (256, 1024), (8192, 16384)
CROSSOVER = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def _normal(*shape: int, grad: bool = False) -> Tensor:
    return torch.randn(shape, requires_grad=grad)


def attention(seconds: float) -> Rows:
    """The mechanism against the fused function it calls: what masks and shielding cost."""
    B, H, T, Dh = 8, 6, SHORT, 64
    q, k, v = (_normal(B, H, T, Dh) for _ in range(3))
    causal, padding = Mask.causal(), Mask.padding(T - T // 16 * torch.arange(B))
    keys, ours = padding.dense(T, T)[:, :, :1], DotProductAttention()
    best = best_seconds(
        {
            "causal": lambda: ours(q, k, v, mask=causal),
            "torch causal": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
            "padding": lambda: ours(q, k, v, mask=padding),
            "torch padding": lambda: scaled_dot_product_attention(q, k, v, attn_mask=keys),
        },
        seconds=2 * seconds,
    )
    fused = "the fused function, called directly"
    return [
        Row(f"DotProductAttention, {name}", best[name], fused, best[f"torch {name}"], aim)
        for name, aim in (("causal", "aim ≤ 1.05×"), ("padding", "aim ≤ 1.15×"))
    ]


def heads(seconds: float) -> Rows:
    """MultiHeadAttention forward and backward against torch.nn.MultiheadAttention."""
    rows, other = [], "nn.MultiheadAttention"
    for T in HEADS:
        best = best_seconds(_build_heads_works(2048 // T, T, 384, 6), seconds=2 * seconds)
        what, recorded = f"MultiHeadAttention, T={T}, forward+backward", best["recorded"]
        rows += [
            Row(what, best["ours"], other, best["theirs"], "aim ≤ 1.0×"),
            Row("  … recorded", recorded, f"{other}, weights", best["weights"], "aim ≤ 0.6×"),
        ]
    return rows


def _build_heads_works(B: int, T: int, D: int, H: int) -> dict[str, Work]:
    ours, theirs = MultiHeadAttention(D, H), nn.MultiheadAttention(D, H, batch_first=True)
    x, grad = _normal(B, T, D, grad=True), _normal(B, T, D)

    def train(module: nn.Module, output: Tensor) -> None:
        torch.autograd.grad(output, [x, *module.parameters()], grad)

    def train_recorded() -> None:
        with record(ours):
            train(ours, ours(x))

    return {
        "ours": lambda: train(ours, ours(x)),
        "recorded": train_recorded,
        "theirs": lambda: train(theirs, theirs(x, x, x, need_weights=False)[0]),
        "weights": lambda: train(theirs, theirs(x, x, x, need_weights=True)[0]),
    }


def toeplitz(seconds: float) -> Rows:
    """Building the Toeplitz bias, and attention that learns it against attention without."""
    B, H, n, Dh = 8, 8, SHORT, 64
    module, ours = ToeplitzBias(H, n), DotProductAttention()
    nn.init.normal_(module.weight)
    numbers = module.weight.tolist()
    q, k, v = (_normal(B, H, n, Dh, grad=True) for _ in range(3))
    grad = _normal(B, H, n, Dh)

    def fill() -> Tensor:
        bias = torch.empty(H, n, n)
        for head in range(H):
            for distance in range(1 - n, n):
                bias[head].diagonal(distance).fill_(numbers[head][n + distance])
        return bias

    def add() -> Tensor:
        bias = torch.zeros(H, n, n)
        for distance in range(1 - n, n):
            diagonal = module.weight[:, n + distance, None].expand(H, n - abs(distance))
            bias += torch.diag_embed(diagonal, distance)
        return bias

    def with_bias() -> None:
        output = ours(q, k, v, bias=module(n))
        torch.autograd.grad(output, (q, k, v, module.weight), grad)

    def without_bias() -> None:
        torch.autograd.grad(ours(q, k, v), (q, k, v), grad)

    with torch.no_grad():
        ways: dict[str, Work] = {"ours": lambda: module(n), "fill": fill, "add": add}
        built = best_seconds(ways, seconds=2 * seconds)
    best = best_seconds({"with": with_bias, "without": without_bias}, seconds=2 * seconds)
    what = f"Toeplitz bias, n={n}, {H} heads"
    learned = "attention, learned Toeplitz, forward+backward"
    return [
        Row(what, built["ours"], "diagonals added in a loop", built["add"], "aim 500×"),
        Row(what, built["ours"], "diagonals filled in a loop", built["fill"]),
        Row(learned, best["with"], "attention without a bias", best["without"], "aim ≤ 1.3×"),
    ]


# Linear attention

MAPS = {
    "elu+1": EluFeatures(),
    "Fourier, 128 frequencies": FourierFeatures(64, 256, seed=0),
    "positive, 256 features": PositiveFeatures(64, 256, seed=0),
    "quadratic, 2145 features": QuadraticFeatures(),
}


def linear(seconds: float) -> Rows:
    """Causal linear attention against fused causal softmax attention at a long T."""
    aims = {"elu+1": "aim ≥ 10×", "Fourier, 128 frequencies": "aim ≥ 3.5×"}
    return [_compare_with_softmax(name, LONG, seconds, aims.get(name, "")) for name in MAPS]


def crossover(seconds: float) -> Rows:
    """From which length on each feature map is faster than fused causal softmax attention."""
    rows = []
    for name in MAPS:
        for T in CROSSOVER:
            rows.append(_compare_with_softmax(name, T, seconds / 3))
            if (ratio := rows[-1].ratio) is not None and ratio < 0.9:
                break
    return rows


def _compare_with_softmax(name: str, T: int, seconds: float, aim: str = "") -> Row:
    """One feature map against the fused softmax kernel, causal, four heads of width 64."""
    q, k, v = (_normal(1, 4, T, 64) for _ in range(3))
    ours, mask = LinearAttention(MAPS[name]), Mask.causal()
    works: dict[str, Work] = {
        "ours": lambda: ours(q, k, v, mask=mask),
        "softmax": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
    }
    with torch.no_grad():
        best = best_seconds(works, seconds=seconds, rounds=3)
    return Row(f"linear, {name}, T={T}", best["ours"], "fused softmax", best["softmax"], aim)


def memory(seconds: float) -> Rows:
    """Peak memory of causal linear attention when the length doubles, and against T × T weights."""
    maps = {"elu+1": "EluFeatures()", "Fourier, 128 frequencies": "FourierFeatures(64, 256)"}
    rows, (T, double) = [], MEMORY
    for name, feature_map in maps.items():
        short, long = (_run_program(_PEAK.format(T=n, map=feature_map))[0] for n in (T, double))
        what, matrix = f"peak memory, {name}, T={double}", 4.0 * 4 * double**2
        rows += [
            Row(what, long, f"the same at T={T}", short, "linear is 2×", unit="MB"),
            Row(what, long, "the weights of 4 heads", matrix, unit="MB"),
        ]
    return rows


# On Linux ru_maxrss includes what the parent held when it started the process, which would hide
# the memory of a small process beside a large parent. VmHWM starts at zero with the program.
_PEAK = """
import pathlib, sys, torch
from clearhead.attention import EluFeatures, FourierFeatures, LinearAttention, Mask
attention, mask = LinearAttention({map}), Mask.causal()
status = pathlib.Path("/proc/self/status")
def peak():
    if status.exists():
        line, = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
with torch.no_grad():
    attention(*torch.randn(3, 1, 4, 256, 64), mask=mask)
    q, k, v = torch.randn(3, 1, 4, {T}, 64)
    before = peak()
    attention(q, k, v, mask=mask)
print(peak() - before)
"""


def _run_program(program: str, **environment: str) -> list[float]:
    """Run a program in a process of its own; returns the numbers it prints."""
    command, variables = [sys.executable, "-c", program], {**os.environ, **environment}
    output = subprocess.check_output(command, text=True, env=variables)
    return [float(word) for word in output.split()]


# Threads


def threads(seconds: float) -> Rows:
    """What a busy neighbour does to two threads that spin or sleep while they wait."""
    program = "from clearhead.runtime import *; t = measure_threads((1, 2)); print(t[1], t[2])"
    rows = []
    for policy, waiting in (("active", "spin"), ("passive", "sleep")):
        for n_busy, neighbour in enumerate(("a quiet machine", "one busy neighbour")):
            with _keep_busy(n_busy):
                one, two = _run_program(program, OMP_WAIT_POLICY=policy)
            choice = f"auto chooses {1 if one <= two else 2}"
            other = f"2 threads that {waiting} while waiting"
            rows.append(Row(f"1 thread, {neighbour}", one, other, two, choice))
    return rows


@contextmanager
def _keep_busy(n_processes: int) -> Iterator[None]:
    command = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(command) for _ in range(n_processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


_CASES = [attention, heads, toeplitz, linear, memory, crossover, threads]
_CASES += [language.decode, language.int8, language.batch32]
_CASES += [language.dialogue, language.vocabulary, language.words]
_CASES += [training.loop, training.start, inspection.inspection, studio.studio]
_CASES += [saving.saving, processes.processes, sharding.sharding, plan.plan]
CASES: dict[str, Callable[[float], Rows]] = {case.__name__: case for case in _CASES}

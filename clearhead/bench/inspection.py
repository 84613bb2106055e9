"""What looking inside costs: recording, a silenced head while generating, a sweep of patches."""

import torch

from clearhead.bench.row import Row, Rows
from clearhead.generation import generate
from clearhead.inspection import ablate, logit_difference, patch_sweep, record
from clearhead.models import GPT, GPTConfig
from clearhead.timing import best_seconds

LENGTH, NEW = 64, 32  # tokens read, tokens generated
MODEL = GPTConfig(vocab_size=65, max_len=128, d_model=384, n_layers=6, n_heads=6)


def inspection(seconds: float) -> Rows:
    """A 6 × 6 GPT of width 384: recorded, silenced and patched, against the plain calls."""
    torch.manual_seed(0)
    model = GPT(MODEL).eval()
    n_heads = MODEL.n_layers * MODEL.n_heads
    clean, corrupted = torch.randint(MODEL.vocab_size, (2, 1, LENGTH))
    rows, metric = corrupted.repeat(n_heads, 1), logit_difference(1, 2)

    def record_one() -> None:
        with record(model):
            model(corrupted)

    def generate_without() -> None:
        with ablate(model, layer=3, head=2):
            generate(model, corrupted, NEW)

    with torch.no_grad():
        best = best_seconds(
            {
                "plain": lambda: model(corrupted),
                "recorded": record_one,
                "generate": lambda: generate(model, corrupted, NEW),
                "without": generate_without,
                "rows": lambda: model(rows),
                "sweep": lambda: patch_sweep(model, clean, corrupted, metric),
            },
            seconds=2 * seconds,
        )
    return [
        Row("recorded pass", best["recorded"], "plain pass", best["plain"], "aim ≤ 1.1×"),
        Row(
            "generate without a head", best["without"], "generate", best["generate"], "aim ≤ 1.15×"
        ),
        Row(
            f"{n_heads} heads patched",
            best["sweep"],
            f"one pass of {n_heads} rows",
            best["rows"],
            "aim ≤ 1.6×",
        ),
    ]

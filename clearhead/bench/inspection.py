"""What looking inside costs: recording, a silenced head while generating, a sweep of patches."""

import torch

from clearhead.bench.row import Row, Rows
from clearhead.generation import generate
from clearhead.inspection import ablate, logit_difference, patch_sweep, record
from clearhead.models import GPT, GPTConfig
from clearhead.timing import best_seconds

LENGTH, NEW = 64, 32  # tokens read, tokens generated


def inspection(seconds: float) -> Rows:
    """A 6 × 6 GPT of width 384: recorded, silenced and patched, against the plain calls."""
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=65, max_len=128, d_model=384, n_layers=6, n_heads=6)
    model = GPT(config).eval()
    clean, corrupted = torch.randint(65, (2, 1, LENGTH))
    rows, metric = corrupted.repeat(36, 1), logit_difference(1, 2)

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
        Row("36 heads patched", best["sweep"], "one pass of 36 rows", best["rows"], "aim ≤ 1.6×"),
    ]

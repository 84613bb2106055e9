"""Cases of language models: decoding, batches of speeches, the vocabulary loss, words.

Decoding is compared with the libraries in peers.py that are installed. Our models are packed before
the clock starts, as theirs are converted before it; docs/generation.md says what packing costs.
"""

from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from clearhead.attention import Mask
from clearhead.bench.peers import Generate, ctranslate2_gpt2, transformers_gpt2
from clearhead.bench.row import Row, Rows, Work
from clearhead.data import Dialogue, WordTokenizer
from clearhead.data.batch import Batch
from clearhead.generation import generate, pack
from clearhead.models import GPT, GPTConfig
from clearhead.timing import best_seconds, measure_seconds
from clearhead.training import losses, losses_fast

SHAPES = {
    "GPT-2 small": GPTConfig(50257, 1024, 768, n_layers=12, n_heads=12, activation="gelu_tanh"),
    "6×384, V 12k": GPTConfig(12000, 1024, 384, n_layers=6, n_heads=6, activation="gelu_tanh"),
}
PROMPT, NEW = 16, 48  # tokens


def decode(seconds: float) -> Rows:
    """Greedy decoding of one text, per token, against other libraries and against memory."""
    rows = []
    for name, config in SHAPES.items():
        model = GPT(config).eval()
        rows += _compare_with_peers(f"{name}, float", model, seconds)
        ours, limit = rows[-1].ours, _measure_reading(4 * model.n_parameters)
        rows.append(Row(f"{name}, float, a token", ours, "reading the weights once", limit))
    return rows


def int8(seconds: float) -> Rows:
    """The same with weights in 8 bits."""
    rows = []
    for name, config in SHAPES.items():
        model = GPT(config).eval()
        rows += _compare_with_peers(f"{name}, int8", model, seconds, weights="int8")
    return rows


def batch32(seconds: float) -> Rows:
    """Greedy decoding of 32 texts at once."""
    rows = []
    name = next(iter(SHAPES))
    model = GPT(SHAPES[name]).eval()
    for weights in ("float", "int8"):
        what = f"{name}, {weights}, 32 texts"
        rows += _compare_with_peers(what, model, seconds, weights=weights, n_texts=32)
    return rows


def _compare_with_peers(
    what: str, model: GPT, seconds: float, *, weights: str = "float", n_texts: int = 1
) -> Rows:
    config = model.config
    prompts = torch.randint(config.vocab_size, (n_texts, PROMPT))
    packed = pack(model, weights=weights, n_rows=n_texts)
    competitors: dict[str, Generate] = {"ours": partial(generate, packed)}
    if find_spec("transformers"):
        competitors["transformers, float"] = transformers_gpt2(config)
    if find_spec("ctranslate2"):
        kind = "float32" if weights == "float" else "int8"
        competitors[f"CTranslate2, {kind}"] = ctranslate2_gpt2(config, kind)
    works = {name: partial(run, prompts, NEW) for name, run in competitors.items()}
    best = best_seconds(works, seconds=seconds * len(works), rounds=3)
    mine = best.pop("ours") / NEW
    best = best or {"no peer (pip install 'clearhead[peers]')": mine * NEW}
    return [Row(f"{what}, a token", mine, name, other / NEW) for name, other in best.items()]


def _measure_reading(n_bytes: int) -> float:
    """Seconds to read this many bytes, measured by a product larger than any processor cache."""
    weight, x = torch.ones(8192, 16384), torch.ones(16384)
    best = best_seconds({"read": lambda: weight @ x}, seconds=1.0)
    return best["read"] * n_bytes / (4 * weight.numel())


def dialogue(seconds: float) -> Rows:
    """Time of a real token, forward and backward: padded against bucketed and packed batches.

    The speeches are of invented words and as long as Shakespeare's: half are shorter than 22
    tokens, a few have hundreds. The plain loss also computes the logits of padding; the fast one
    does not.
    """
    speeches = _make_speeches(512)
    tokenizer = WordTokenizer.of(speeches)
    data = Dialogue(speeches, tokenizer, max_len=256)
    model = GPT(GPTConfig(tokenizer.vocab_size, 256, 128, n_layers=4, n_heads=4))
    n_real = sum(len(row) for row in data.rows)

    def train(batches: Iterable[Batch], loss: Callable[..., Tensor]) -> None:
        for batch in batches:
            mask = None if batch.segments is None else Mask.segments(batch.segments)
            x = model.hidden(batch.inputs, token_mask=batch.token_mask, mask=mask)
            loss(x, model.head.weight, batch.targets).backward()

    plain, fast = losses.vocabulary_loss, losses_fast.vocabulary_loss
    ways: dict[str, Work] = {
        "padded, plain loss": lambda: train(data.batches(32), plain),
        "padded, fast loss": lambda: train(data.batches(32), fast),
        "bucketed": lambda: train(data.bucketed_batches(max_tokens=2048), fast),
        "packed": lambda: train(data.packed_batches(256, 8), fast),
    }
    times = best_seconds(ways, seconds=seconds, rounds=2)
    best = {name: time / n_real for name, time in times.items()}
    return [
        Row(f"{ours} speeches, a real token", best[ours], padded, best[padded], aim)
        for ours in ("bucketed", "packed")
        for padded, aim in (("padded, plain loss", "aim ≥ 4×"), ("padded, fast loss", ""))
    ]


def _make_speeches(n: int) -> list[str]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randn(n, generator=generator).mul(1.05).add(3.0).exp().int().clamp(2, 500)
    words = torch.rand(int(lengths.sum()), generator=generator).pow(4).mul(13000).int()
    parts = words.split(lengths.tolist())
    return [" ".join(f"w{word}" for word in part.tolist()) for part in parts]


def vocabulary(seconds: float) -> Rows:
    """The vocabulary loss with its gradients, 2,048 rows and 13,000 words."""
    rows = []
    for width in (128, 256):
        x = torch.randn(2048, width, requires_grad=True)
        weight = (0.1 * torch.randn(13000, width)).requires_grad_()
        targets = torch.randint(13000, (2048,))
        ways = {
            name: partial(_differentiate, loss.vocabulary_loss, x, weight, targets)
            for name, loss in (("fast", losses_fast), ("plain", losses))
        }
        best = best_seconds(ways, seconds=2 * seconds)
        what = f"vocabulary loss, width {width}"
        rows.append(Row(what, best["fast"], "plain", best["plain"], "aim ≤ 0.75×"))
    return rows


def _differentiate(loss: Callable[..., Tensor], x: Tensor, weight: Tensor, targets: Tensor) -> None:
    torch.autograd.grad(loss(x, weight, targets), (x, weight))


def words(seconds: float) -> Rows:
    """Text to ids by words, a million characters."""
    text = "\n\n".join(_make_speeches(8000))[:1_000_000]
    tokenizer = WordTokenizer.of(text)
    elapsed = measure_seconds(lambda: tokenizer.encode(text))
    return [Row("a MB of text to ids of words", elapsed, "1 MB/s", 1.0, "aim ≤ 1.0×")]

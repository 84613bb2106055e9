"""The studio: what it computes before the page can draw, many clients, the page in a browser."""

import torch

from clearhead.bench.row import Row, Rows
from clearhead.bench.studio_load import load
from clearhead.bench.studio_page import page
from clearhead.data import CharTokenizer
from clearhead.models import GPT, GPTConfig
from clearhead.studio.frames import encode_answer
from clearhead.studio.sources import Opened, Source, Sources
from clearhead.studio.views.changes import Change
from clearhead.studio.views.effects import measure_heads
from clearhead.studio.views.text import attend
from clearhead.timing import best_seconds

LENGTH = 128  # tokens
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MODEL = GPTConfig(vocab_size=len(LETTERS), max_len=256, d_model=384, n_layers=6, n_heads=6)


def studio(seconds: float) -> Rows:
    """The computations, then the page in a browser, then 50 clients for 20 times as long."""
    return [*answers(seconds), *page(), *load(20 * seconds)]


def answers(seconds: float) -> Rows:
    """A GPT with 6 layers of 6 heads, width 384, reads 128 tokens: answers against a plain pass."""
    torch.manual_seed(0)
    model = GPT(MODEL).eval()
    tokenizer = CharTokenizer(LETTERS, cls=None)
    sources = Sources([])
    sources.add_loaded(Opened(Source("model", "", is_run=False), model, tokenizer, None, []))
    text = "".join(LETTERS[i] for i in torch.randint(len(LETTERS), (LENGTH,)).tolist())
    tokens = torch.tensor([tokenizer.encode(text)])
    silence = [Change("silence", layer=2, head=3)]
    with torch.no_grad():
        best = best_seconds(
            {
                "plain": lambda: model(tokens),
                "attend": lambda: encode_answer(attend(sources, "model", text)),
                "silence": lambda: encode_answer(attend(sources, "model", text, changes=silence)),
                "heads": lambda: measure_heads(sources, "model", text),
            },
            seconds=2 * seconds,
        )
    plain = "one plain pass"
    return [
        Row("attention of 36 heads, as bytes", best["attend"], plain, best["plain"]),
        Row("the same without one head", best["silence"], plain, best["plain"]),
        Row("effect of each of 36 heads", best["heads"], plain, best["plain"]),
    ]

"""A text as tokens: their ids, their names, and how many of them a view can show."""

import math
from collections.abc import Sequence
from typing import Any

from clearhead.data.tokenizers import WordPieceTokenizer
from clearhead.inspection.sites import count_heads, find_layers
from clearhead.studio.page_views import TEXT_KINDS
from clearhead.studio.sources import Opened, Sources
from clearhead.studio.views.writers import MAX_CHARACTERS, name_tokens

MAX_TOKENS = 512
MAX_WEIGHTS = 40_000_000  # numbers of all attention maps together, 160 MB
MAX_FOUND = 200  # tokens of a vocabulary that are listed at once


def open_text_model(sources: Sources, id: str) -> Opened:
    """A model that reads one text; any other is refused."""
    opened = sources.open(id)
    if opened.kind not in TEXT_KINDS:
        raise ValueError(
            f"{id} is a {type(opened.model).__name__}, but this view shows models that read one "
            f"text: {', '.join(TEXT_KINDS)}"
        )
    return opened


def read_tokens(opened: Opened, text: str, tokens: list[int] | None = None) -> list[int]:
    """The ids that the model reads: those of the text, or `tokens` if they are given."""
    ids = encode_text(opened, text) if tokens is None else tokens
    name = "the text" if tokens is None else "tokens"
    if not ids:
        raise ValueError(f"{name} is empty and this model has no start token; type something")
    limit, reason = _find_limit(opened)
    if len(ids) > limit:
        raise ValueError(f"{name} has {len(ids)} tokens, but {reason} {limit}; shorten it")
    return ids


def encode_text(opened: Opened, text: str) -> list[int]:
    """The ids of a text. A GPT continues it, so an end token is left out."""
    if opened.tokenizer is None:
        raise ValueError(
            f"{opened.source.id} has no tokenizer, so it cannot read a text; put tokenizer.json "
            f"beside its weights and open it again"
        )
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"the text has {len(text):,} characters, but at most {MAX_CHARACTERS:,} are read here "
            f"and {_find_limit(opened)[0]} tokens are shown; shorten it"
        )
    ids = opened.tokenizer.encode(text)
    has_end = bool(ids) and ids[-1] == opened.tokenizer.end_id
    return ids[:-1] if has_end and opened.kind == "GPT" else ids


def write_tokens(opened: Opened, text: str, ids: list[int]) -> str:
    """The Python expression for these ids as a batch of one row."""
    encoded = opened.tokenizer.encode(text) if opened.tokenizer is not None else []
    row = str(ids)
    if ids == encoded:
        row = f"tokenizer.encode({text!r})"
    elif ids == encoded[:-1]:
        row = f"tokenizer.encode({text!r})[:-1]"
    return f"torch.tensor([{row}], device=model.device)"


def spell_tokens(opened: Opened, ids: Sequence[int]) -> list[str]:
    """The name of each token as a view shows it, special tokens included."""
    if isinstance(opened.tokenizer, WordPieceTokenizer):  # ##ing: decoding would drop the ##
        return opened.tokenizer.spell(ids, specials=True)
    return name_tokens(opened.tokenizer, ids)


def _find_limit(opened: Opened) -> tuple[int, str]:
    """The largest number of tokens that can be shown, and the reason, as an error words it."""
    model = opened.model
    layers = find_layers(model).values()
    n_heads = sum(count_heads(sites, model) or 1 for sites in layers)
    limits = [
        (MAX_TOKENS, "this view shows at most"),
        (math.isqrt(MAX_WEIGHTS // n_heads), f"with {n_heads} heads this view shows at most"),
    ]
    if opened.kind != "SequenceClassifier" or model.config.scheme.has_limit:
        limits.append((model.config.max_len, "this model reads at most"))
    return min(limits)


def find_tokens(sources: Sources, model: str, contains: str = "") -> dict[str, Any]:
    """Tokens of a model's vocabulary whose text contains this, the shortest first."""
    opened = open_text_model(sources, model)
    if opened.tokenizer is None:
        raise ValueError(
            f"{model} has no tokenizer, so its tokens have no names; put tokenizer.json beside it"
        )
    n = opened.tokenizer.vocab_size
    texts = spell_tokens(opened, range(n))
    found = [i for i in range(n) if contains.lower() in texts[i].lower()]
    if contains:
        found.sort(key=lambda i: len(texts[i]))
    shown = found[:MAX_FOUND]
    return {
        "ids": shown,
        "texts": [texts[i] for i in shown],
        "n_found": len(found),
        "vocab_size": n,
    }

"""All heads on one interactive web page, which contains its data and loads nothing.

    attention_view(trace, tokens=["the", "cat", "sat"]).save("attention.html")

The template viewer.html has two placeholders: the title, and the data as JSON. Tokens are inserted
as text, never as HTML. A weight is stored as a whole number of ten-thousandths.
"""

import base64
import hashlib
import html
import json
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.inspection.matrices import readable_token, token_names
from clearhead.inspection.measures import Layers, check_one_size, name_layers
from clearhead.inspection.picture import write_whole

MAX_WEIGHTS = 4_000_000


class AttentionView:
    """An interactive page: a notebook displays it, `save` writes it as one .html file."""

    def __init__(self, page: str, height: int) -> None:
        self.page, self.height = page, height

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, whole or not at all, and return its path."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"path must end in .html, got {path.name!r}")
        return write_whole(path, self.page.encode())

    def _repr_html_(self) -> str:
        # In a frame, neither page can change the other's style, and scripts stay inside.
        return (
            f'<iframe title="attention" sandbox="allow-scripts" srcdoc="{html.escape(self.page)}" '
            f'style="width:100%;height:{self.height}px;border:0"></iframe>'
        )


def attention_view(
    layers: Layers,
    tokens: Sequence[str],
    source_tokens: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    *,
    batch: int = 0,
    title: str = "attention",
) -> AttentionView:
    """Choose among all heads of all layers; point at a query to see what it attends to.

    layers: a Trace, a mapping from names, or a list of (B, H, T, S) tensors or arrays. tokens name
    the queries and source_tokens the keys; without source_tokens, tokens name all S keys, and the
    queries are the last T.
    """
    named = name_layers(layers, names)
    T, S = check_one_size(named)
    queries, keys = token_names(T, S, tokens, source_tokens)
    n_weights = sum(weights.size(1) * T * S for weights in named.values())
    if n_weights > MAX_WEIGHTS:
        raise ValueError(
            f"layers hold {n_weights:,} weights but a page shows at most {MAX_WEIGHTS:,}; ask for "
            f"fewer layers, heads or tokens, such as [weights[:, :2, -100:] for weights in layers]"
        )
    data = {
        "queries": [readable_token(token) for token in queries or []],
        "keys": [readable_token(token) for token in keys or []],
        "layers": [
            {"name": name or "attention", "heads": [*map(_round, _select(weights, batch))]}
            for name, weights in named.items()
        ],
    }
    height = 330 + 24 * max(T, S) + 75 * len(named)
    return AttentionView(_fill_template(title, data), min(height, 900))


def _read_template() -> str:
    return resources.files("clearhead.inspection").joinpath("viewer.html").read_text("utf-8")


def _fill_template(title: str, data: dict[str, Any]) -> str:
    template = _read_template()
    # Inside <script>, only "<" could end the data early; as \u003c it is the same JSON.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    before, _, rest = template.partition("{{data}}")
    return before.replace("{{title}}", html.escape(title)) + text + rest


def hash_script() -> str:
    """The script of every page, as a Content-Security-Policy names it to allow no other."""
    script = _read_template().rpartition("<script>")[2].partition("</script>")[0]
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _select(weights: Tensor, batch: int) -> Tensor:
    """One element of the batch: (B, H, T, S) → (H, T, S)."""
    if not -weights.size(0) <= batch < weights.size(0):
        raise IndexError(
            f"batch={batch} does not exist: the layers have {weights.size(0)} elements"
        )
    return weights[batch]


def _round(head: Tensor) -> list[int | None]:
    """(T, S) weights row by row, in ten-thousandths; None, in JSON null, if not finite."""
    flat = head.detach().double().flatten()
    whole = (flat.nan_to_num(0.0, 0.0, 0.0) * 10_000).round().long().tolist()
    return [n if ok else None for n, ok in zip(whole, flat.isfinite().tolist(), strict=True)]

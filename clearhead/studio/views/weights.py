"""The weights of a model as histograms, and the lengths and cosines of its embeddings.

summarise_weights    mean, spread, range and histogram of each parameter; norms and cosines
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from clearhead.studio.sources import Opened, Sources
from clearhead.studio.views.tokens import spell_tokens

N_BINS = 41
MAX_ROWS = 128  # rows of an embedding whose cosines are shown
N_NORMS = 400  # rows of an embedding whose norms are shown

LINES = f"""\
parameters = {{name: p.detach().float() for name, p in model.named_parameters()}}
moments = {{name: (p.mean(), p.std(correction=0)) for name, p in parameters.items()}}
counts = {{
    name: torch.histc(p, {N_BINS}, p.min().item(), p.max().item())
    for name, p in parameters.items()
}}
embeddings = {{
    name: part.weight.detach() if isinstance(part, torch.nn.Embedding) else part.weight.detach().T
    for name, part in model.named_modules()
    if isinstance(part, torch.nn.Embedding)
    or (name.endswith("embedding") and isinstance(part, torch.nn.Linear))
}}
norms = {{name: table.norm(dim=1) for name, table in embeddings.items()}}
cosines = {{
    name: torch.nn.functional.cosine_similarity(table[:, None], table[None], dim=-1)
    for name, table in embeddings.items()
    if len(table) <= {MAX_ROWS}
}}"""


def summarise_weights(sources: Sources, model: str) -> dict[str, Any]:
    """A histogram of each parameter; the norms of embedding rows, and their cosines if few."""
    opened = sources.open(model)
    tables = _find_embeddings(opened.model)
    return {
        "parameters": [_summarise(name, p) for name, p in opened.model.named_parameters()],
        "embeddings": [
            _describe_table(name, table, _name_rows(opened, name, len(table)))
            for name, table in tables.items()
        ],
        "python": "\n".join([*opened.lines, "", LINES]),
    }


def _summarise(name: str, parameter: Tensor) -> dict[str, Any]:
    """A parameter in numbers; its histogram has bins of equal width from low to high."""
    values = parameter.detach().float()
    low, high = values.min().item(), values.max().item()
    return {
        "name": name,
        "shape": list(values.shape),
        "mean": values.mean().item(),
        "std": values.std(correction=0).item(),
        "low": low,
        "high": high,
        "counts": torch.histc(values, N_BINS, low, high),
    }


def _find_embeddings(model: nn.Module) -> dict[str, Tensor]:
    """The embedding tables (rows, D), a row for each token or position; also linear embeddings."""
    found = {}
    for name, part in model.named_modules():
        if isinstance(part, nn.Embedding):
            found[name] = part.weight.detach()
        elif isinstance(part, nn.Linear) and name.endswith("embedding"):
            found[name] = part.weight.detach().T
    return found


def _name_rows(opened: Opened, name: str, n_rows: int) -> list[str]:
    """The tokens of the first rows; their numbers if the rows are not tokens."""
    shown = range(min(n_rows, N_NORMS))
    sides = {"encoder": "source", "decoder": "target"}  # of a translator
    own = getattr(opened.predictor, sides.get(name.partition(".")[0], ""), opened.tokenizer)
    if not name.endswith("embedding") or own is None or own.vocab_size != n_rows:
        return [str(i) for i in shown]
    return spell_tokens(replace(opened, tokenizer=own), shown)


def _describe_table(name: str, table: Tensor, rows: Sequence[str]) -> dict[str, Any]:
    norms = table.norm(dim=1)
    entry: dict[str, Any] = {
        "name": name,
        "shape": list(table.shape),
        "rows": list(rows),
        "norms": norms[:N_NORMS],
        "cosines": None,
    }
    if len(table) <= MAX_ROWS:
        entry["cosines"] = cosine_similarity(table[:, None], table[None], dim=-1)
    return entry

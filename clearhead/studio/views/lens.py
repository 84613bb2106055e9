"""The logit lens of the Generate view: the next token as each layer predicts it."""

from typing import Any

import torch

from clearhead.inspection.measures import entropy
from clearhead.inspection.residual import read_stream
from clearhead.shapes import check_whole
from clearhead.studio.sources import Sources
from clearhead.studio.views.changes import Change, change_model
from clearhead.studio.views.generation import BITS, MAX_SHOWN
from clearhead.studio.views.generation_lines import write_lens
from clearhead.studio.views.writers import name_tokens, open_writer, read_ids

N_SHOWN = 6


def read_lens(
    sources: Sources,
    model: str,
    tokens: list[int],
    position: int | None = None,
    n_shown: int = N_SHOWN,
    changes: list[Change] | None = None,
) -> dict[str, Any]:
    """The likeliest next tokens at one position, before the first layer and after each.

    position: None means the last. Row 0 comes from the embedding alone, row L is the output of the
    model. inspection.logit_lens computes the same at all positions at once.
    """
    opened, changes = open_writer(sources, model), changes or []
    text = read_ids(opened, tokens)
    position = len(tokens) - 1 if position is None else position
    check_whole("position", position, least=0, most=len(tokens) - 1)
    check_whole("n_shown", n_shown, least=1, most=MAX_SHOWN)
    with change_model(opened, tokens, changes, grows=True), torch.no_grad():
        stream, states = read_stream(opened.model, text)
        logits = torch.stack([stream.read_logits(x[0, position]) for x in states]).float()
    probs = logits.softmax(-1)  # (L + 1, V)
    best, ids = probs.topk(min(n_shown, probs.size(-1)))
    answer = int(ids[-1, 0])
    return {
        "position": position,
        "name": name_tokens(opened.tokenizer, [tokens[position]])[0],
        "ids": ids,
        "labels": [name_tokens(opened.tokenizer, row) for row in ids.tolist()],
        "probs": best,
        "entropy": entropy(probs) * BITS,
        "answer": {"id": answer, "name": name_tokens(opened.tokenizer, [answer])[0]},
        "answer_probs": probs[:, answer],
        "python": write_lens(opened, tokens, position, best.size(-1), changes),
    }

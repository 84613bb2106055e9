"""Why a weight is what it is: the score of one query and one key, term by term.

    dot product    terms_d = q[t, d] · k[s, d]                        scale 1/√Dh
    additive       terms_f = w[f] · tanh(W_q q_t + W_k k_s)[f]        scale 1

    score   = (Σ terms + bias) · scale
    weights = softmax over the scores of all keys that the query may attend to

The numbers are those of a recorded call (record.py), in the precision of its queries and keys.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.attention.inputs import dense_mask
from clearhead.attention.mechanisms import AdditiveAttention, DotProductAttention
from clearhead.inspection.record import AttentionCall
from clearhead.models.encoder_decoder import ProjectedKeysAttention
from clearhead.runtime import widen


@dataclass(frozen=True, eq=False)
class ScoreTerms:
    """How the score and the weight of one query and one key are computed.

    terms, bias: of this query and key; the other fields: of this query and all keys.
    """

    terms: Tensor  # (Dh,), or (F,) of the hidden layer of additive attention
    bias: float
    scale: float
    scores: Tensor  # (S,); −inf for a key that the query may not attend to
    weights: Tensor  # (S,)


def score_terms(call: AttentionCall, row: int, column: int, head: int = 0) -> ScoreTerms:
    """The score of query `row` and key `column` in a head, for the first element of the batch."""
    T, S = call.q.size(-2), call.k.size(-2)
    n_heads = call.q.size(1) if call.q.ndim == 4 else 1
    for name, value, size in (("head", head, n_heads), ("row", row, T), ("column", column, S)):
        if not 0 <= value < size:
            raise IndexError(f"{name} is {value}, but this call has {size}: 0 to {size - 1}")
    place = (0, head) if call.q.ndim == 4 else (0,)
    q, k = call.q[(*place, row)], call.k[place]  # (Dh,), (S, Dh)
    with torch.no_grad():
        every, scale = _multiply(call, widen(q), widen(k))  # (S, terms)
        shape = (*call.q.shape[:-1], S)  # of all scores
        bias = every.new_zeros(S) if call.bias is None else call.bias.expand(shape)[(*place, row)]
        scores = (every.sum(-1) + bias) * scale
        allowed = dense_mask(call.mask, shape, q.device)
        if allowed is not None:
            scores = scores.masked_fill(~allowed.expand(shape)[(*place, row)], -torch.inf)
    weights = call.weights_of(rows=row, heads=head if call.q.ndim == 4 else None)
    return ScoreTerms(every[column], float(bias[column]), scale, scores, weights[0].flatten())


def _multiply(call: AttentionCall, q: Tensor, k: Tensor) -> tuple[Tensor, float]:
    """The terms of one query with every key, (S, terms), and the scale of their sum."""
    mechanism = call.mechanism
    if isinstance(mechanism, AdditiveAttention):
        projected = isinstance(mechanism, ProjectedKeysAttention)  # its keys already are
        hidden = (mechanism.proj_q(q) + (k if projected else mechanism.proj_k(k))).tanh()
        return hidden * mechanism.proj_score.weight[0], 1.0
    if isinstance(mechanism, DotProductAttention):
        return q * k, 1 / math.sqrt(q.size(-1))
    raise TypeError(
        f"the scores of {type(mechanism).__name__} are not a sum of terms; only those of "
        f"DotProductAttention and AdditiveAttention are explained"
    )

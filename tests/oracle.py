"""Attention in float64 by nested loops over numbers: what every faster form is compared with.

Nothing here knows a Mask, broadcasts or vectorises. `allowed` is a boolean tensor or None (all
allowed), `bias` a float tensor or None; both are read entry by entry, an axis of size 1 answering
for every index of the scores. All mechanisms share one shape: a score or similarity for each pair,
weights for each query, a mixture of the values.

    weights[t][s] = e_ts / Σ_s' e_ts'      over the allowed s'; an empty row is zeros
    dP_ts = g_t · v_s                      g the gradient of the output
    dS_ts = P_ts (dP_ts − Σ_s' P_ts' dP_ts')
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

Vector = list[float]
Matrix = list[Vector]
Similarity = Callable[[Vector, Vector], tuple[float, Vector, Vector]]
"""The similarity of one query and one key, and its derivatives by the query and by the key."""


class Gradients(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None = None
    parameters: tuple[Tensor, ...] = ()
    largest_term: float = (
        0.0  # of the sums: rounding errors are of its size, though the terms cancel
    )


# Numbers in and out of tensors


def matrices(x: Tensor) -> list[Matrix]:
    """(..., rows, columns) as a list of matrices of Python floats."""
    count = math.prod(x.shape[:-2])
    return x.detach().double().reshape(count, *x.shape[-2:]).tolist()


def _tensor(numbers: list, shape: tuple[int, ...]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def _places(shape: tuple[int, ...], scores_shape: tuple[int, ...]) -> Iterator[int]:
    """For each entry of the scores, in order, the place of its answer in a flat list."""
    shape = (1,) * (len(scores_shape) - len(shape)) + tuple(shape)
    for index in itertools.product(*map(range, scores_shape)):
        place = 0
        for i, size in zip(index, shape, strict=True):
            place = place * size + (i if size > 1 else 0)
        yield place


def _whole(x: Tensor | None, scores_shape: tuple[int, ...], default: Any) -> list:
    """Every entry of the scores' mask or bias, written out."""
    *_, T, S = scores_shape
    count = math.prod(scores_shape[:-2])
    if x is None:
        return [[[default] * S for _ in range(T)] for _ in range(count)]
    flat = x.detach().flatten().tolist()
    entries = iter([flat[place] for place in _places(x.shape, scores_shape)])
    return [[[next(entries) for _ in range(S)] for _ in range(T)] for _ in range(count)]


def _dot(x: Vector, y: Vector) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def _softmax(scores: Vector, allowed: list[bool]) -> Vector:
    live = [score for score, may in zip(scores, allowed, strict=True) if may]
    if not live:
        return [0.0] * len(scores)
    largest = max(live)
    exps = [math.exp(x - largest) if may else 0.0 for x, may in zip(scores, allowed, strict=True)]
    return [e / sum(exps) for e in exps]


def _mixture(weights: Vector, v: Matrix, allowed: list[bool], d_value: int) -> Vector:
    """Σ_s weights[s] v[s] over the allowed keys only, so that a forbidden NaN is never touched."""
    output = [0.0] * d_value
    for s, may in enumerate(allowed):
        for d in range(d_value if may else 0):
            output[d] += weights[s] * v[s][d]
    return output


def _attend(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, rows: Callable
) -> tuple[Tensor, Tensor]:
    """rows(matrix number, query number, q_t, keys, allowed keys) → the weights of one query."""
    shape = (*q.shape[:-1], k.size(-2))
    may = _whole(allowed, shape, True)
    outputs, weights = [], []
    for n, (qn, kn, vn) in enumerate(zip(matrices(q), matrices(k), matrices(v), strict=True)):
        for t, query in enumerate(qn):
            taken = rows(n, t, query, kn, may[n][t])
            weights.append(taken)
            outputs.append(_mixture(taken, vn, may[n][t], v.size(-1)))
    return _tensor(outputs, (*q.shape[:-1], v.size(-1))), _tensor(weights, shape)


# Dot product


def _scale(q: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(q.size(-1)) if scale is None else scale


def dot_product(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax((q·k + bias) · scale): output (..., T, Dv) and weights (..., T, S)."""
    added, factor = _whole(bias, (*q.shape[:-1], k.size(-2)), 0.0), _scale(q, scale)

    def row(n: int, t: int, query: Vector, keys: Matrix, may: list[bool]) -> Vector:
        scores = [
            (_dot(query, key) + added[n][t][s]) * factor if may[s] else 0.0
            for s, key in enumerate(keys)
        ]
        return _softmax(scores, may)

    return _attend(q, k, v, allowed, row)


def dot_product_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    allowed: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Gradients:
    """Of Σ grad ∘ output, by hand.

    dq_t = scale Σ_s dS_ts k_s,   dk_s = scale Σ_t dS_ts q_t,   dbias_ts = scale dS_ts
    """
    factor = _scale(q, scale)
    _, weights = dot_product(q, k, v, allowed, bias, scale)

    def pair(query: Vector, key: Vector) -> tuple[Vector, Vector]:
        return [factor * x for x in key], [factor * x for x in query]

    grads, grad_scores = _softmax_gradients(q, k, v, grad, weights, allowed, pair)
    if bias is None:
        return grads
    total = [0.0] * bias.numel()
    for place, number in zip(_places(bias.shape, weights.shape), grad_scores, strict=True):
        total[place] += factor * number
    return grads._replace(bias=_tensor(total, tuple(bias.shape)))


def _softmax_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    weights: Tensor,
    allowed: Tensor | None,
    pair: Callable,
) -> tuple[Gradients, Vector]:
    """dq, dk, dv, and every dS; pair(q_t, k_s) gives the score's derivatives by q_t and k_s."""
    grad_q, grad_k, grad_v, grad_scores = [], [], [], []
    largest = 0.0
    may = _whole(allowed, tuple(weights.shape), True)
    tables = zip(*map(matrices, (q, k, v, grad, weights)), strict=True)
    for n, (qn, kn, vn, gn, pn) in enumerate(tables):
        dq = [[0.0] * q.size(-1) for _ in qn]
        dk = [[0.0] * k.size(-1) for _ in kn]
        dv = [[0.0] * v.size(-1) for _ in vn]
        for t in range(len(qn)):
            live = [s for s in range(len(kn)) if may[n][t][s]]
            dp = {s: _dot(gn[t], vn[s]) for s in live}
            mean = sum(pn[t][s] * dp[s] for s in live)
            size = max((abs(x) for x in dp.values()), default=0.0)
            for s in range(len(kn)):
                if s not in dp:
                    grad_scores.append(0.0)
                    continue
                ds = pn[t][s] * (dp[s] - mean)
                grad_scores.append(ds)
                by_query, by_key = pair(qn[t], kn[s])
                largest = max(
                    largest, pn[t][s] * size * max(map(abs, (*by_query, *by_key)), default=0.0)
                )
                for d, x in enumerate(by_query):
                    dq[t][d] += ds * x
                for d, x in enumerate(by_key):
                    dk[s][d] += ds * x
                for d, x in enumerate(gn[t]):
                    dv[s][d] += pn[t][s] * x
        grad_q.append(dq)
        grad_k.append(dk)
        grad_v.append(dv)
    shapes = tuple(q.shape), tuple(k.shape), tuple(v.shape)
    q_, k_, v_ = (_tensor(x, s) for x, s in zip((grad_q, grad_k, grad_v), shapes, strict=True))
    return Gradients(q_, k_, v_, largest_term=largest), grad_scores


# Additive


def _hidden(query: Vector, key: Vector, w_q: Matrix, w_k: Matrix) -> Vector:
    return [math.tanh(_dot(a, query) + _dot(b, key)) for a, b in zip(w_q, w_k, strict=True)]


def additive(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w: Tensor,
    allowed: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(wᵀ tanh(W_q q + W_k k) + bias)."""
    added = _whole(bias, (*q.shape[:-1], k.size(-2)), 0.0)
    a, b, c = w_q.tolist(), w_k.tolist(), w.tolist()

    def row(n: int, t: int, query: Vector, keys: Matrix, may: list[bool]) -> Vector:
        scores = [
            _dot(c, _hidden(query, key, a, b)) + added[n][t][s] if may[s] else 0.0
            for s, key in enumerate(keys)
        ]
        return _softmax(scores, may)

    return _attend(q, k, v, allowed, row)


def additive_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w: Tensor,
    grad: Tensor,
    allowed: Tensor | None = None,
    bias: Tensor | None = None,
) -> Gradients:
    """As dot_product_gradients, through h = tanh(…):  dw = Σ dS h,  d(pre) = dS w (1 − h²)."""
    _, weights = additive(q, k, v, w_q, w_k, w, allowed, bias)
    a, b, c = w_q.tolist(), w_k.tolist(), w.tolist()

    def pair(query: Vector, key: Vector) -> tuple[Vector, Vector]:
        slope = [x * (1 - h * h) for x, h in zip(c, _hidden(query, key, a, b), strict=True)]
        by_query = [
            sum(g * row[d] for g, row in zip(slope, a, strict=True)) for d in range(len(query))
        ]
        by_key = [sum(g * row[d] for g, row in zip(slope, b, strict=True)) for d in range(len(key))]
        return by_query, by_key

    grads, grad_scores = _softmax_gradients(q, k, v, grad, weights, allowed, pair)
    da = [[0.0] * w_q.size(1) for _ in a]
    db = [[0.0] * w_k.size(1) for _ in b]
    dc = [0.0] * len(c)
    numbers = iter(grad_scores)
    may = _whole(allowed, tuple(weights.shape), True)
    for n, (qn, kn) in enumerate(zip(matrices(q), matrices(k), strict=True)):
        for t, s in itertools.product(range(len(qn)), range(len(kn))):
            ds = next(numbers)
            if not may[n][t][s]:
                continue
            for f, h in enumerate(_hidden(qn[t], kn[s], a, b)):
                dc[f] += ds * h
                for d, x in enumerate(qn[t]):
                    da[f][d] += ds * c[f] * (1 - h * h) * x
                for d, x in enumerate(kn[s]):
                    db[f][d] += ds * c[f] * (1 - h * h) * x
    parameters = tuple(_tensor(x, tuple(w_.shape)) for x, w_ in ((da, w_q), (db, w_k), (dc, w)))
    return grads._replace(parameters=parameters)


# Argmax


def argmax(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The value of the allowed key with the largest q·k + bias; of equal ones the first."""
    added = _whole(bias, (*q.shape[:-1], k.size(-2)), 0.0)

    def row(n: int, t: int, query: Vector, keys: Matrix, may: list[bool]) -> Vector:
        best, best_score = None, -math.inf
        for s, key in enumerate(keys):
            if may[s]:
                score = _dot(query, key) + added[n][t][s]
                if best is None or score > best_score:
                    best, best_score = s, score
        return [1.0 if s == best else 0.0 for s in range(len(keys))]

    return _attend(q, k, v, allowed, row)


def argmax_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    allowed: Tensor | None = None,
    bias: Tensor | None = None,
) -> Gradients:
    """Zero for queries and keys; a value gets the gradient of every query that took it."""
    _, weights = argmax(q, k, v, allowed, bias)
    nothing = _softmax_gradients(q, k, v, grad, weights, allowed, lambda query, key: ([], []))[0]
    return nothing if bias is None else nothing._replace(bias=torch.zeros_like(bias).double())


# Kernels


def kernel(
    q: Tensor, k: Tensor, v: Tensor, similarity: Similarity, allowed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Σ_s sim(q_t, k_s) v_s / Σ_s sim(q_t, k_s) over the allowed keys."""

    def row(n: int, t: int, query: Vector, keys: Matrix, may: list[bool]) -> Vector:
        sims = [similarity(query, key)[0] if may[s] else 0.0 for s, key in enumerate(keys)]
        total = sum(sims)
        return [x / total if any(may) else 0.0 for x in sims]

    return _attend(q, k, v, allowed, row)


def kernel_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    similarity: Similarity,
    grad: Tensor,
    allowed: Tensor | None = None,
) -> Gradients:
    """As for softmax, whose score is log sim: its derivatives are those of sim divided by sim."""
    _, weights = kernel(q, k, v, similarity, allowed)

    def pair(query: Vector, key: Vector) -> tuple[Vector, Vector]:
        sim, by_query, by_key = similarity(query, key)
        return [x / sim for x in by_query], [x / sim for x in by_key]

    return _softmax_gradients(q, k, v, grad, weights, allowed, pair)[0]


def quadratic(query: Vector, key: Vector) -> tuple[float, Vector, Vector]:
    """(q·k + 1)²."""
    root = _dot(query, key) + 1
    return root * root, [2 * root * x for x in key], [2 * root * x for x in query]


def elu_plus_one(query: Vector, key: Vector) -> tuple[float, Vector, Vector]:
    """φ(q)·φ(k) with φ(x) = x + 1 for x > 0, else eˣ."""

    def phi(x: float) -> float:
        return x + 1 if x > 0 else math.exp(x)

    def slope(x: float) -> float:
        return 1.0 if x > 0 else math.exp(x)

    sim = sum(phi(x) * phi(y) for x, y in zip(query, key, strict=True))
    by_query = [slope(x) * phi(y) for x, y in zip(query, key, strict=True)]
    by_key = [phi(x) * slope(y) for x, y in zip(query, key, strict=True)]
    return sim, by_query, by_key


def fourier(frequencies: Tensor) -> Similarity:
    """exp((‖q‖² + ‖k‖²)/2s²) · mean of cos(w·(q − k)) over the frequencies w, with s² = √D."""
    rows = frequencies.double().tolist()

    def similarity(query: Vector, key: Vector) -> tuple[float, Vector, Vector]:
        s2 = math.sqrt(len(query))
        factor = math.exp((_dot(query, query) + _dot(key, key)) / (2 * s2)) / len(rows)
        angles = [_dot(w, query) - _dot(w, key) for w in rows]
        sim = factor * sum(map(math.cos, angles))
        turn = [
            factor * sum(math.sin(angle) * w[d] for angle, w in zip(angles, rows, strict=True))
            for d in range(len(query))
        ]
        by_query = [sim * x / s2 - t for x, t in zip(query, turn, strict=True)]
        by_key = [sim * x / s2 + t for x, t in zip(key, turn, strict=True)]
        return sim, by_query, by_key

    return similarity


def positive(frequencies: Tensor) -> Similarity:
    """Mean of exp(w·(q + k) − (‖q‖² + ‖k‖²)/2s²) over the frequencies w, with s² = √D."""
    rows = frequencies.double().tolist()

    def similarity(query: Vector, key: Vector) -> tuple[float, Vector, Vector]:
        s2 = math.sqrt(len(query))
        norms = (_dot(query, query) + _dot(key, key)) / (2 * s2)
        terms = [math.exp(_dot(w, query) + _dot(w, key) - norms) / len(rows) for w in rows]
        sim = sum(terms)
        pull = [sum(e * w[d] for e, w in zip(terms, rows, strict=True)) for d in range(len(query))]
        by_query = [p - sim * x / s2 for x, p in zip(query, pull, strict=True)]
        by_key = [p - sim * x / s2 for x, p in zip(key, pull, strict=True)]
        return sim, by_query, by_key

    return similarity

"""The sums of kernel attention in O(T): keys are added up once, and every query reads the sum.

    all keys    sums_t = φ(q_t) · Σ_s φ(k_s) v_sᵀ
    causal      sums_t = φ(q_t) · Σ_{s≤t} φ(k_s) v_sᵀ

The sum over the keys so far, (C, W) for C features and values of width W, is the state. The causal
form works on chunks of positions: a query takes the keys of its own chunk pair by pair, and those
before the chunk from the state:

    sums = tril(φ(q) φ(k)ᵀ) v  +  φ(q) state        state ← state + φ(k)ᵀ v

Several chunks make a block, which is computed at once. Batch and heads are one axis here, N.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from clearhead.attention.features import FeatureMap

BLOCK = 1024  # positions computed at once, of one head or several: they fit into the CPU's cache

State = list[Tensor]  # for each slice of features, the sum φ(k)ᵀ values so far, (N, C, W)
Result = TypeVar("Result")


class Keys(NamedTuple):
    """Keys with their values, and a 1 for each key that counts."""

    k: Tensor  # (N, S, D)
    v: Tensor  # (N, S, Dv)
    ones: Tensor  # (N, S, 1), or (N, S, 0) if no denominator is needed

    def values(self) -> Tensor:
        """[v, 1] (N, S, W): summed with the same weights, the column of ones gives the denominator.

        It is repeated until W is a multiple of 16, which fills the processor's vectors.
        """
        if self.ones.size(-1) == 0:
            return self.v
        return torch.cat([self.v, self.ones.expand(-1, -1, 16 - self.v.size(-1) % 16)], dim=-1)

    def rows(self, start: int, stop: int, heads: slice = slice(None)) -> "Keys":
        return Keys(*(x[heads, start:stop] for x in self))


@dataclass(frozen=True)
class Chunks:
    """How a block of L positions is cut into n chunks, and what passes from one to the next.

    Here everything passes; PackedChunks stops it at the borders of documents.
    """

    n: int
    diagonal: int = 0  # −1 leaves out a query's own key

    def split(self, x: Tensor) -> Tensor:
        """(N, L, ·) → (N·n, L/n, ·)."""
        N, L, width = x.shape
        return x.reshape(N * self.n, L // self.n, width)

    def hide_pairs(self, pairs: Tensor) -> Tensor:
        """Zero the pairs (N·n, L/n, L/n) of a chunk that are not allowed, in place."""
        return pairs.tril_(self.diagonal)

    def hide_values(self, values: Tensor) -> Tensor:
        """Zero the values (N·n, L/n, W) that later chunks may not receive."""
        return values

    def hide_queries(self, queries: Tensor) -> Tensor:
        """Zero the queries (N·n, L/n, C) that may not read the state."""
        return queries

    def pass_on(self, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """The state before each chunk (N·n, C, W) and after the last one (N, C, W).

        old (N, C, W) is the state before the block, new (N·n, C, W) what each chunk adds to it.
        """
        old, new = old.unsqueeze(1), new.unflatten(0, (len(old), self.n))
        earlier = new.new_ones(self.n, self.n).tril_(-1).expand(len(old), -1, -1)
        before = add_earlier(old, new, earlier)
        return before.flatten(0, 1), before[:, -1] + new[:, -1]


def add_earlier(old: Tensor, new: Tensor, earlier: Tensor) -> Tensor:
    """Each chunk's state: old (N, 1 or n, C, W) plus `new` (N, n, C, W) of the chunks before it.

    earlier[:, i, j] is 1 where chunk i receives what chunk j adds, else 0.
    """
    n = new.size(1)
    if n == 1:
        return old
    return torch.baddbmm(old.flatten(2), earlier, new.flatten(2)).unflatten(2, new.shape[2:])


Cut = Callable[[slice, int, int, int], Chunks]  # heads, start, stop, number of chunks


def _cut_evenly(heads: slice, start: int, stop: int, n: int) -> Chunks:
    """n chunks, without borders between documents."""
    return Chunks(n)


@dataclass(frozen=True)
class FeatureSums:
    """Σ φ(q_t)·φ(k_s) values_s over the keys s that query t may see.

    The sums are yielded in blocks (·, ·, W), whose rows `join` puts together to (N, T, W).
    """

    feature_map: FeatureMap
    shift: Tensor | None  # of the exponents of all keys, (N, 1, 1)
    chunk: int  # positions taken pair by pair

    def total(self, q: Tensor, keys: Keys) -> Iterator[Tensor]:
        """Every query sees every key: q (N, T, D)."""
        state = self.collect(keys)
        # Split only if N = 1: `join` puts blocks one after the other, and would mix several heads.
        for block in q.split(BLOCK, dim=1) if q.size(0) == 1 else [q]:
            yield self._run(self._read, block, state)

    def causal(self, q: Tensor, keys: Keys) -> Iterator[Tensor]:
        """Query t of T sees the first t + 1 + S − T keys: q (N, T, D)."""
        (N, T, _), S = q.shape, keys.k.size(1)
        n = min(T, S)  # the last n queries have the positions of the last n keys
        state = self.collect(keys.rows(0, S - n))
        blocks = self.running(q[:, T - n :], keys.rows(S - n, S), state)
        if n == T and n > 0:
            yield from blocks
        else:  # the first T − n queries see nothing: zeros, with a gradient of 0 to q
            early = q[:, : T - n].masked_fill(torch.tensor(True, device=q.device), 0.0)
            sums = self._run(self._read, early, state)
            yield torch.cat([sums, join(blocks, N, n)], dim=1) if n else sums

    def running(
        self, q: Tensor, keys: Keys, state: State, cut: Cut = _cut_evenly
    ) -> Iterator[Tensor]:
        """The causal sums for T = S, after the keys that `state` holds."""
        N, T, _ = q.shape
        for heads in self._groups(N, T):
            shift = None if self.shift is None else self.shift[heads]
            group, group_state, sums = replace(self, shift=shift), [x[heads] for x in state], []
            for start, stop, n in self._blocks(T):
                block = q[heads, start:stop], keys.rows(start, stop, heads)
                chunks = cut(heads, start, stop, n)
                block_sums, group_state = self._run(group._step, *block, group_state, chunks)
                sums.append(block_sums)
            if len(sums) > 1 and sums[0].size(0) > 1:  # several heads: put each one's rows together
                sums = [torch.cat(sums, dim=1)]
            yield from sums

    def collect(self, keys: Keys) -> State:
        """The state after these keys, of which there may be none."""
        S = keys.k.size(1)
        state = self._run(self._add_up, keys.rows(0, BLOCK))
        for start in range(BLOCK, S, BLOCK):
            added = self._run(self._add_up, keys.rows(start, start + BLOCK))
            state = [a + b for a, b in zip(state, added, strict=True)]
        return state

    # One block

    def _add_up(self, keys: Keys) -> State:
        """The state after these keys alone."""
        values = keys.values()
        return [x.mT @ values for x in self.feature_map.key_slices(keys.k, self.shift)]

    def _read(self, q: Tensor, state: State) -> Tensor:
        """φ(q) state: (N, L, D) → (N, L, W)."""
        sums = state[0].new_zeros(())
        for queries, total in zip(self.feature_map.query_slices(q), state, strict=True):
            sums = sums + queries @ total
        return sums

    def _step(self, q: Tensor, keys: Keys, state: State, chunks: Chunks) -> tuple[Tensor, State]:
        """The sums (N, L, W) of a block of L positions, and the state after it."""
        N, L, _ = q.shape
        shift = self.shift
        if shift is not None and chunks.n > 1:  # (N, 1, 1) → (N·n, 1, 1)
            shift = shift.expand(-1, chunks.n, 1).reshape(-1, 1, 1)
        q, k, values = (chunks.split(x) for x in (q, keys.k, keys.values()))
        # A transposed copy of the keys pays: both products with them then run at full speed.
        k_slices = (x.mT.contiguous() for x in self.feature_map.key_slices(k, shift))
        slices: Iterable[tuple[Tensor, Tensor]]
        slices = zip(self.feature_map.query_slices(q), k_slices, strict=True)
        if self.feature_map.is_sliced:  # needs no features for the pairs
            pairs = self.feature_map.similarity(q, k)
        else:
            slices = list(slices)
            pairs = _multiply(slices)
        sums = chunks.hide_pairs(pairs) @ values  # (N·n, L/n, W)
        passed, after = chunks.hide_values(values), []
        for old, (phi_q, phi_k) in zip(state, slices, strict=True):
            before, last = chunks.pass_on(old, phi_k @ passed)
            sums = sums.baddbmm_(chunks.hide_queries(phi_q), before)
            after.append(last)
        return sums.reshape(N, L, sums.size(-1)), after

    def _run(self, function: Callable[..., Result], *args: object) -> Result:
        """function(*args), without keeping the features of a sliced map for the gradient."""
        if self.feature_map.is_sliced and torch.is_grad_enabled():
            return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
        return function(*args)

    # How large a block is

    @property
    def _block_size(self) -> int:
        return BLOCK if self.feature_map.is_wide else 2 * BLOCK

    def _groups(self, N: int, T: int) -> Iterator[slice]:
        """As many heads as fill a block, each with all T positions or, if sliced, one chunk."""
        span = max(1, min(T, self.chunk) if self.feature_map.is_sliced else T)
        size = max(1, self._block_size // span)
        return (slice(start, start + size) for start in range(0, max(N, 1), size))

    def _blocks(self, T: int) -> Iterator[tuple[int, int, int]]:
        """Start, stop and number of chunks of each block; positions left over are a short chunk."""
        most = 1 if self.feature_map.is_sliced else max(1, self._block_size // self.chunk)
        start = 0
        while start < T:
            n = max(1, min(most, (T - start) // self.chunk))
            stop = min(start + n * self.chunk, T)
            yield start, stop, n
            start = stop


def _multiply(slices: list[tuple[Tensor, Tensor]]) -> Tensor:
    """φ(q) φ(k)ᵀ from the slices of both, (N, L, ·) and (N, ·, L): (N, L, L)."""
    pairs = slices[0][0] @ slices[0][1]
    for phi_q, phi_k in slices[1:]:
        pairs = pairs.baddbmm_(phi_q, phi_k)
    return pairs


def join(blocks: Iterable[Tensor], N: int, T: int) -> Tensor:
    """The rows of all blocks, as (N, T, W)."""
    rows = [block.flatten(0, 1) for block in blocks]
    return torch.cat(rows).reshape(N, T, rows[0].size(-1))

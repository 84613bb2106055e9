"""The sums of kernel attention for packed documents: a query sees only keys of its own document.

The documents of a sequence may lie in any order, even interleaved. A stable sort brings the tokens
of each together. Then one causal pass of running sums serves all documents, if the state passes
from chunk to chunk only within a document. Without a causal mask a second pass, from the end to the
start, adds the keys after each query.
"""

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from clearhead.attention.running_sums import Chunks, FeatureSums, Keys, add_earlier, join


def sum_documents(
    sums: FeatureSums, q: Tensor, keys: Keys, documents: Tensor, causal: bool
) -> Tensor:
    """The sums (N, S, W) over the keys of each query's own document; q (N, S, D), documents (N, S).

    documents holds a number for each token, the same for all tokens of one document.
    """
    order = documents.argsort(dim=-1, stable=True)
    documents, q, *sorted_keys = (_reorder(x, order) for x in (documents, q, *keys))
    keys = Keys(*sorted_keys)
    N, S = documents.shape
    empty = sums.collect(keys.rows(0, 0))  # the state before the first key
    forwards = sums.running(q, keys, empty, partial(_cut, documents, 0))
    output = join(forwards, N, S)
    if not causal:  # in the reversed sequence, later keys come before the query
        documents, q, *reversed_keys = (x.flip(1) for x in (documents, q, *keys))
        backwards = sums.running(q, Keys(*reversed_keys), empty, partial(_cut, documents, -1))
        output = output + join(backwards, N, S).flip(1)
    return _reorder(output, order.argsort(dim=-1))


@dataclass(frozen=True, kw_only=True)
class PackedChunks(Chunks):
    """A block of n chunks, L positions in all, with borders between documents in it."""

    same: Tensor  # (N·n, L/n, L/n): query and key belong to one document
    reads: Tensor  # (N·n, L/n, 1): the query belongs to the document its chunk begins with
    keeps: Tensor  # (N·n, L/n, 1): the key belongs to the document its chunk ends with
    links: Tensor  # (N, n, n): the chunk begins with the document that an earlier chunk ends with
    carries: Tensor  # (N, n, 1, 1): the chunk begins with the document the block before ends with
    through: Tensor  # (N, 1, 1): the last chunk begins and ends with the same document

    def hide_pairs(self, pairs: Tensor) -> Tensor:
        return super().hide_pairs(pairs).masked_fill(~self.same, 0.0)

    def hide_values(self, values: Tensor) -> Tensor:
        return values.masked_fill(~self.keeps, 0.0)

    def hide_queries(self, queries: Tensor) -> Tensor:
        return queries.masked_fill(~self.reads, 0.0)

    def pass_on(self, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        new = new.unflatten(0, (len(old), self.n))
        before = add_earlier(old.unsqueeze(1) * self.carries, new, self.links.to(new.dtype))
        return before.flatten(0, 1), before[:, -1] * self.through + new[:, -1]


def _cut(
    documents: Tensor, diagonal: int, heads: slice, start: int, stop: int, n: int
) -> PackedChunks:
    """The chunks of the block from start to stop, with the borders between documents in it."""
    documents = documents[heads]
    chunks = documents[:, start:stop].unflatten(1, (n, (stop - start) // n))  # (N, n, L/n)
    first, last = chunks[:, :, :1], chunks[:, :, -1:]  # (N, n, 1)
    before = documents[:, max(start - 1, 0), None, None]
    tokens = chunks.flatten(0, 1)  # (N·n, L/n)
    return PackedChunks(
        n,
        diagonal,
        same=tokens[:, :, None] == tokens[:, None, :],
        reads=(chunks == first).flatten(0, 1).unsqueeze(-1),
        keeps=(chunks == last).flatten(0, 1).unsqueeze(-1),
        links=(first == last.mT).tril(-1),
        carries=(first == before).unsqueeze(-1),
        through=(first == last)[:, -1:],
    )


def _reorder(x: Tensor, order: Tensor) -> Tensor:
    """The rows of (N, S, ...) in this order (N, S)."""
    return x.take_along_dim(order.reshape(*order.shape, *[1] * (x.ndim - 2)), dim=1)

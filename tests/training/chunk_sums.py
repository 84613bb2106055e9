"""Sums over chunks, by several processes in turn."""

import torch

from clearhead.training.chunks import add_tree, list_subtrees, share_chunks


def spread(n, length, seed):
    """Vectors of float32 from 1e-12 to 1e12: any other order of their sum gives other bits."""
    g = torch.Generator().manual_seed(seed)
    powers = torch.rand(n, length, generator=g) * 24 - 12
    return torch.randn(n, length, generator=g) * 10**powers


def sum_over(vectors, size):
    """By so many processes, each of which adds up its own chunks first."""
    n, parts = len(vectors), {}
    for rank in range(size):
        own = iter([vectors[chunk].clone() for chunk in share_chunks(n, rank, size)])

        def find(span, own=own):
            return next(own) if span[1] - span[0] == 1 else None

        for span in list_subtrees(share_chunks(n, rank, size), (0, n)):
            parts[span] = add_tree(span, find)
        assert next(own, None) is None
    return add_tree((0, n), parts.get)

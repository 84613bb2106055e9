"""The next token of each row of a batch.

Row r has a random generator of its own, seeded by seed + r, so it draws the same numbers alone and
in any batch. For the repetition penalty the sampler remembers which tokens each row contains.
"""

import torch
from torch import Tensor

from clearhead.generation.sampling import Sampling, choose


class RowSampler:
    """Chooses tokens (B,) from logits (B, V); tokens and token_mask (B, T) are the prompts."""

    def __init__(
        self,
        sampling: Sampling,
        seed: int | None,
        tokens: Tensor,
        token_mask: Tensor | None,
        vocab_size: int,
        forbidden: Tensor | None = None,
    ) -> None:
        """forbidden (n,): ids that are never chosen."""
        self.sampling, self.forbidden = sampling, forbidden
        self.generators = make_generators(seed, tokens.size(0) if sampling.temperature > 0 else 0)
        self.seen: Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            self.seen = find_seen(tokens, token_mask, vocab_size)

    def choose(self, logits: Tensor) -> Tensor:
        """logits (B, V) → tokens (B,), which count as seen from now on."""
        draws = [float(torch.rand((), generator=generator)) for generator in self.generators]
        chosen = choose(
            logits, self.sampling, torch.tensor(draws), self.seen, forbidden=self.forbidden
        )
        if self.seen is not None:
            self.seen.scatter_(1, chosen[:, None], True)
        return chosen


def make_generators(seed: int | None, n_rows: int) -> list[torch.Generator]:
    """One generator per row, seeded by seed + row, or at random without a seed."""
    generators = [torch.Generator() for _ in range(n_rows)]
    if seed is None:
        for generator in generators:
            generator.seed()
        return generators
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    if not -(2**63) <= seed < 2**63 - n_rows:
        raise ValueError(f"seed must fit 64 bits, got {seed}; take one below 2**63")
    return [generator.manual_seed(seed + row) for row, generator in enumerate(generators)]


def find_seen(tokens: Tensor, token_mask: Tensor | None, vocab_size: int) -> Tensor:
    """Which tokens each row of tokens (B, T) contains, (B, V); padding does not count."""
    if token_mask is not None:  # the last token is real, so repeating it adds nothing
        tokens = torch.where(token_mask, tokens, tokens[:, -1:])
    seen = torch.zeros(tokens.size(0), vocab_size, dtype=torch.bool, device=tokens.device)
    return seen.scatter_(1, tokens, True)

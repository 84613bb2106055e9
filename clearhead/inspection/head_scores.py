"""What kind of head is it? Scores on a repeated random sequence (Olsson et al. 2022).

    tokens      r_1 … r_n r_1 … r_n     the second half can be predicted only by the repetition
    previous    weight on the previous token
    duplicate   weight on the earlier copy of the same token
    induction   weight on the token after the earlier copy

Each score is the mean over all queries of the second half. A head that does nothing else scores 1;
uniform attention scores 1 / (2n), or about 0.7 / n with a causal mask.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.inspection.measures import distance, entropy
from clearhead.inspection.record import record
from clearhead.models.model import Model, evaluation_mode
from clearhead.shapes import check_choice, check_positive


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Scores of every head, (L, H) each.

    previous, duplicate, induction: as above. entropy (nats) and distance (tokens) are means over
    all queries: how spread out the attention is, and how far back it reaches.
    """

    previous: Tensor
    duplicate: Tensor
    induction: Tensor
    entropy: Tensor
    distance: Tensor

    def best(self, score: str = "induction") -> tuple[int, int]:
        """Layer and number of the head with the highest score."""
        check_choice("score", score, tuple(vars(self)))
        table: Tensor = getattr(self, score)
        layer, head = divmod(int(table.argmax()), table.size(1))
        return layer, head

    def __repr__(self) -> str:
        lines = ["layer head   previous  duplicate  induction    entropy   distance"]
        columns = (self.previous, self.duplicate, self.induction, self.entropy, self.distance)
        for layer, head in torch.cartesian_prod(*map(torch.arange, self.previous.shape)).tolist():
            cells = "".join(f"{float(column[layer, head]):11.3f}" for column in columns)
            lines.append(f"{layer:5} {head:4}{cells}")
        return "\n".join(lines)


def head_scores(
    model: Model,
    *,
    n_tokens: int | None = None,
    batch_size: int = 8,
    start: int | None = None,
    seed: int = 0,
) -> HeadScores:
    """Score every head of a model that reads tokens, such as a GPT.

    n_tokens: the length n of one copy; by default half the context length, but at most 50. start:
    the id of a start token to put first, for a model that expects one.
    """
    tokens = draw_repeated(model, n_tokens, batch_size, seed, start)
    n = tokens.size(1) // 2
    with evaluation_mode(model), record(model) as trace:
        model(tokens)
    weights = torch.stack(trace.weights())  # (L, B, H, T, T)
    if start is not None:
        weights = weights[..., 1:, 1:]  # without the start token
    second = weights[..., n:, :]  # the queries of the second copy

    def look_back(steps: int) -> Tensor:
        """The mean weight on the key this many tokens earlier: (L, H)."""
        return second.diagonal(n - steps, dim1=-2, dim2=-1)[..., :n].mean(dim=(1, 3))

    return HeadScores(
        look_back(1),
        look_back(n),
        look_back(n - 1),
        entropy(weights).mean(dim=(1, 3)),
        distance(weights).mean(dim=(1, 3)),
    )


def draw_repeated(
    model: Model, n_tokens: int | None, batch_size: int, seed: int, start: int | None = None
) -> Tensor:
    """Rows of random tokens, each repeated once, after the start token if there is one.

    Returns (batch_size, 2 n_tokens), or (batch_size, 1 + 2 n_tokens) with a start token, which is
    not drawn again.
    """
    config = getattr(model, "config", None)
    vocab_size = getattr(config, "vocab_size", None) or getattr(config, "d_input", None)
    if config is None or not vocab_size or not hasattr(config, "max_len"):
        raise ValueError(
            f"{type(model).__name__} does not read tokens, so it cannot be scored on "
            f"repeated tokens; entropy and distance in clearhead.inspection take any weights"
        )
    n_before = 0 if start is None else 1
    n = min((config.max_len - n_before) // 2, 50) if n_tokens is None else n_tokens
    check_positive(n_tokens=n, batch_size=batch_size)
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(vocab_size - n_before, (batch_size, n), generator=generator)
    if start is None:
        return torch.cat((once, once), dim=1).to(model.device)
    if not 0 <= start < vocab_size:
        raise ValueError(f"start must be an id below {vocab_size}, got {start}")
    once += once >= start
    first = torch.full((batch_size, 1), start)
    return torch.cat((first, once, once), dim=1).to(model.device)

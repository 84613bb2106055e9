"""Checks that several models share: of token ids, of masks for biases by distance, of results."""

from torch import Tensor

from clearhead.attention import Mask
from clearhead.shapes import all_finite, can_read_values, check_int_tensor, format_shape


def check_tokens(name: str, tokens: Tensor, vocab_size: int, max_len: int | None = None) -> None:
    """Token ids (B, T): whole numbers from 0 to vocab_size − 1, at most max_len of them."""
    check_int_tensor(name, tokens)
    if tokens.ndim != 2:
        raise ValueError(
            f"{name} must have shape (B, T), got {format_shape(tokens)}; "
            f"one sequence is {name}[None]"
        )
    if max_len is not None and tokens.size(1) > max_len:
        raise ValueError(
            f"{name} has length {tokens.size(1)} but max_len is {max_len}; "
            f"shorten it or build the model with max_len={tokens.size(1)}"
        )
    if not can_read_values(tokens) or tokens.numel() == 0:
        return
    lowest, highest = (int(value) for value in tokens.aminmax())
    if lowest < 0 or highest >= vocab_size:
        wrong = (tokens < 0) | (tokens >= vocab_size)
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{name}[{row}, {column}] is {int(tokens[row, column])}, but ids go from 0 to "
            f"{vocab_size - 1}; encode with the tokenizer of this model"
        )


def check_distances(mask: Mask, S: int) -> None:
    """Refuse a mask with padding between the real tokens of a document, for a bias by distance.

    Such a bias counts padding as distance, while other positions count real tokens only. Without
    padding in between, both counts are equal.
    """
    real = mask.real_keys(S)
    if real is None or not can_read_values(real):
        return
    document = mask.documents(S)
    document = real.long() if document is None else document
    ids, index = document.masked_fill(~real, -1).sort(dim=-1, stable=True)
    together = (ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] >= 0)
    holes = together & (index.diff(dim=-1) != 1)
    if bool(holes.any()):
        row = int(holes.any(dim=-1).nonzero()[0])
        raise ValueError(
            f"the mask has padding between real tokens in row {row}, but Toeplitz and ALiBi biases "
            f"count every token; put padding at the ends, or use other positions"
        )


def check_finite(x: Tensor) -> Tensor:
    """x itself, after checking that a model's output has neither NaN nor infinity."""
    if not all_finite(x):
        raise ValueError(
            "the model gives NaN or infinity for these tokens; its weights hold broken numbers"
        )
    return x

"""The checks of a prompt and of how much to generate, all made before the first token."""

from torch import Tensor

from clearhead.models import GPTConfig
from clearhead.models.checks import check_tokens
from clearhead.shapes import check_count, read_token_mask


def read_prompt(
    config: GPTConfig, tokens: Tensor, token_mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """tokens (B, T) that the model can read, T > 0; token_mask (B, T) padded on the left.

    Returns copies, of type long and bool: an open stream does not follow the caller's tensors.
    """
    check_tokens("tokens", tokens, config.vocab_size, config.max_len)
    if tokens.size(1) == 0:
        raise ValueError("tokens is empty; begin with at least one, such as the start token")
    tokens = tokens.long().clone()
    if token_mask is None:
        return tokens, None
    token_mask = read_token_mask(token_mask, tokens.shape)
    if bool((token_mask[:, :-1] & ~token_mask[:, 1:]).any()) or not bool(token_mask[:, -1].all()):
        raise ValueError(
            "token_mask must be padded on the left, so that new tokens stand next to the prompt; "
            "use pad_left of clearhead.data"
        )
    return tokens, token_mask.clone()


def count_new_tokens(length: int, n_tokens: int | None, max_len: int, roll: bool) -> int:
    """How many tokens to generate after a prompt; None: up to the context length."""
    room = max_len - length
    if n_tokens is None:
        return room
    check_count(n_tokens=n_tokens)
    if n_tokens > room and not roll:
        raise ValueError(
            f"tokens has length {length} and n_tokens is {n_tokens}, but max_len is {max_len}; "
            f"ask for at most {room}, for None, which is as many as fit, or for roll=True, which "
            f"drops the oldest tokens"
        )
    return n_tokens

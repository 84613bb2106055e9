"""Open a model that writes text, encode its prompts, name its tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.data.tokenizers import Tokenizer
from clearhead.models.checks import check_tokens
from clearhead.studio.sources import Opened, Sources

MAX_CHARACTERS = 200_000  # of a prompt: tokenizing more would keep other questions waiting
INCOMPLETE = "\ufffd"  # what a decoder writes for bytes that are not a character


def open_writer(sources: Sources, model: str) -> Opened:
    """Open a model, which must be a GPT."""
    opened = sources.open(model)
    if opened.kind != "GPT":
        raise ValueError(f"model {model!r} is a {opened.kind}, which writes no text; choose a GPT")
    return opened


def encode_prompt(opened: Opened, text: str, name: str = "text") -> list[int]:
    """The ids of a prompt, without an end token, because the text continues; at least one."""
    tokenizer, max_len = opened.tokenizer, opened.model.config.max_len
    if tokenizer is None:
        raise ValueError(f"model {opened.source.id!r} has no tokenizer; give {name} as token ids")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"{name} has {len(text):,} characters, more than the {MAX_CHARACTERS:,} read here, and "
            f"the model reads at most {max_len} tokens; shorten it"
        )
    try:
        ids = tokenizer.encode(text)
    except ValueError as fault:  # such as a character that is not in the alphabet
        raise ValueError(str(fault).replace("text", name, 1)) from None
    if ids and ids[-1] == tokenizer.end_id:
        ids.pop()
    return check_length(opened, ids, name)


def check_length(opened: Opened, ids: list[int], name: str) -> list[int]:
    """The ids themselves, if the model can read them: at least one, at most its max_len."""
    max_len = opened.model.config.max_len
    if not ids:
        raise ValueError(
            f"{name} is empty; the model reads 1 to {max_len} tokens, so give at least a word"
        )
    if len(ids) > max_len:
        raise ValueError(
            f"{name} has {len(ids):,} tokens, but the model reads at most {max_len}; shorten it"
        )
    return ids


def read_ids(opened: Opened, ids: list[int], name: str = "tokens") -> Tensor:
    """The ids as a tensor (1, T), each of them one that the model knows."""
    check_length(opened, ids, name)
    tokens = torch.tensor([ids])
    check_tokens(name, tokens, opened.model.config.vocab_size)
    return tokens


def name_tokens(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[str]:
    """The text of each token alone, with a leading blank if it has one; #id if it has no text."""
    return [_name_token(tokenizer, id) for id in ids]


def _name_token(tokenizer: Tokenizer | None, id: int) -> str:
    if tokenizer is None or id >= tokenizer.vocab_size:  # a model may have more ids
        return f"#{id}"
    text = tokenizer.decode([id], specials=True)
    spelled = tokenizer.spell([id], specials=True)[0].replace("▁", " ")
    # Some decoders drop the leading blank, and cannot decode a part of a character.
    is_lossy = not text or INCOMPLETE in text or spelled == " " + text
    return spelled if is_lossy else text

"""The tokens of a generated text: how words are written, which end it, which are left out."""

from clearhead.data import Tokenizer, WordTokenizer
from clearhead.generation.row_text import Decoder


class Prose:
    """Decodes words as people write them, for a text that grows.

    How an apostrophe is set depends on the next word, so a last one waits for it.
    """

    def __init__(self, tokenizer: WordTokenizer, n_prompt: int) -> None:
        self.tokenizer, self.n_prompt = tokenizer, n_prompt
        self.waiting = ""  # the text that decode has left out

    def decode(self, ids: list[int]) -> str:
        n = len(ids)
        while n > self.n_prompt and self.tokenizer.spell(ids[n - 1 : n])[:1] in (["'"], ["’"]):
            n -= 1
        text = self.tokenizer.detokenize(ids[:n])
        self.waiting = self.tokenizer.detokenize(ids)[len(text) :]
        return text


def make_writer(tokenizer: Tokenizer, n_prompt: int) -> Decoder:
    """The decoder of the text to show: for words, one that writes them as prose."""
    return Prose(tokenizer, n_prompt) if isinstance(tokenizer, WordTokenizer) else tokenizer


def find_unknown(tokenizer: Tokenizer) -> set[int]:
    """The id of <unk> in a tokenizer of words: it stands for unknown words and is not one."""
    unknown = tokenizer.unk_id if isinstance(tokenizer, WordTokenizer) else None
    return set() if unknown is None else {unknown}


def find_stop_ids(tokenizer: Tokenizer) -> set[int]:
    """The tokens that end a text; some models mark the end by the start of the next text."""
    return {mark for mark in (tokenizer.end_id, tokenizer.start_id) if mark is not None}

"""Scored pieces, the tokenizer of Llama (SentencePiece's BPE model, Kudo & Richardson 2018).

    " " + text → characters → neighbours merged whose union is a token, the highest score first

There are no words: a space is a character like others, and one is put before the text. A character
that is not a token becomes its UTF-8 bytes, which have the ids from 3 to 258. So nothing is lost:
`decode(encode(text)) == text`. Ids 0, 1, 2 are unknown, start and end. Hugging Face saves the same
tokenizer as a list of merges in order, without scores.
"""

import math
import re
from collections.abc import Sequence
from functools import lru_cache

from clearhead.data.tokenizers.merges import merge_pairs, read_merges
from clearhead.data.tokenizers.subword_tokenizer import SubwordTokenizer, check_vocabulary
from clearhead.data.tokenizers.tokenizer import Ids
from clearhead.shapes import is_number

FIRST_BYTE, FIRST_PIECE = 3, 259
ROLES = {"unk": 0, "start": 1, "end": 2}
WORD, WORD_END = re.compile(" +[^ ]*|[^ ]+"), re.compile("[^ ] ")
SPACE = "▁"  # how merges write a space, since a plain one separates the two tokens


def format_byte(byte: int) -> str:
    """A byte as a vocabulary writes it: <0x0A>."""
    return f"<0x{byte:02X}>"


class SentencePieceTokenizer(SubwordTokenizer):
    """Llama's tokenizer. `encode` puts <s> first, but no </s> last: a prompt is continued."""

    kind = "scored pairs"
    options = ("scores", "merges")

    def __init__(
        self,
        tokens: Sequence[str],
        scores: Sequence[float] | None = None,
        merges: Sequence[str] | None = None,
    ) -> None:
        """tokens: unknown, start, end, <0x00> … <0xFF>, then pieces, a space written as a space.

        Either scores, one for each token, or merges "left right" with ▁ for a space.
        """
        check_vocabulary(tokens)
        byte_ids = {format_byte(byte): FIRST_BYTE + byte for byte in range(256)}
        super().__init__(tokens, ROLES | byte_ids)
        for name, i in byte_ids.items():
            if i >= len(tokens) or tokens[i] != name:
                raise ValueError(f"id {i} must be the byte {name}")
        if "" in self._ids:
            raise ValueError(f"token {self._ids['']} is empty")
        if (scores is None) == (merges is None):
            raise ValueError("give either scores or merges; they say which pair is joined first")
        self.scores = None if scores is None else self._check_scores(scores)
        self.merges = None if merges is None else list(merges)
        # If no token has a space after another character, no merge crosses the end of a word.
        self._word_by_word = not any(WORD_END.search(token) for token in self._ids)
        self._cached = lru_cache(maxsize=50_000)(self._split_part)
        written = {token.replace(" ", SPACE) for token in self._ids}
        self._ranks = {
            (left.replace(SPACE, " "), right.replace(SPACE, " ")): rank
            for (left, right), rank in read_merges(self.merges or [], written).items()
        }

    def _check_scores(self, scores: Sequence[float]) -> list[float]:
        if len(scores) != self.vocab_size:
            raise ValueError(f"there are {self.vocab_size:,} tokens but {len(scores):,} scores")
        for i, score in enumerate(scores):
            if not is_number(score) or not math.isfinite(score):
                raise ValueError(f"the score of token {i} must be a finite number, got {score!r}")
        return [float(score) for score in scores]

    def _split(self, text: str) -> list[int]:
        whole = " " + text if text else ""
        parts = WORD.findall(whole) if self._word_by_word else [whole]
        return [ROLES["start"], *(i for part in parts for i in self._cached(part))]

    def _split_part(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in merge_pairs(text, self._rank):
            if part in self._ids:
                ids.append(self._ids[part])
            else:
                ids += [FIRST_BYTE + byte for byte in part.encode("utf-8")]
        return ids

    def _rank(self, left: str, right: str) -> float | None:
        if self.scores is None:
            return self._ranks.get((left, right))
        i = self._ids.get(left + right)
        return None if i is None else -self.scores[i]

    def decode(self, ids: Ids, *, specials: bool = False) -> str:
        """The text of these ids, without the space that `encode` put before it."""
        parts = []
        for i in self._check_ids(ids):
            if FIRST_BYTE <= i < FIRST_PIECE:
                parts.append(bytes([i - FIRST_BYTE]))
            elif i >= FIRST_PIECE or specials:
                parts.append(self._spelling[i].encode("utf-8"))
        return b"".join(parts).decode("utf-8", errors="replace").removeprefix(" ")

"""The interface of both translators: encode the source once, then decode the target word by word.

    p(target | source) = Π_t p(target_t | target_1 … target_{t−1}, source)     Sutskever et al. 2014

    state         = model.encode(source)                   once for each source
    logits, state = model.decode_step(tokens, state)       one word in, scores of the next out
    logits        = model(source, target_inputs)           all words at once, for training
    tokens        = model.generate(source, n_tokens)       the most likely word at each step

`target_inputs` is the target shifted right by one: the start token, then all words but the last
(teacher forcing, Williams & Zipser 1989). Step by step or at once, the numbers are the same.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from clearhead.attention import Mask
from clearhead.attention.mask_parts import Padding, Part, Tokens
from clearhead.attention.masks import MaskLike
from clearhead.config import Config
from clearhead.models.checks import check_finite, check_tokens
from clearhead.models.forbidden import make_forbidden, rule_out
from clearhead.models.model import Model, evaluation_mode
from clearhead.shapes import check_int_tensor, check_positive, format_shape, read_token_mask


@dataclass(frozen=True)
class Seq2SeqConfig(Config):
    """The settings of every translator: two vocabularies, and three tokens of the target's.

    start_id: the input before the first word; end_id: the last word of every target; pad_id: fills
    a row of `generate` after its end.
    """

    source_vocab_size: int
    target_vocab_size: int
    start_id: int
    end_id: int
    pad_id: int

    def check(self) -> None:
        super().check()
        check_positive(
            source_vocab_size=self.source_vocab_size, target_vocab_size=self.target_vocab_size
        )
        for name in ("start_id", "end_id", "pad_id"):
            if not 0 <= (value := getattr(self, name)) < self.target_vocab_size:
                raise ValueError(
                    f"{name} is {value}, but ids of the target go from 0 to "
                    f"{self.target_vocab_size - 1}; take it from the target's tokenizer"
                )


class State(Protocol):
    """What a translator knows of the source and of the words so far, for each of B rows.

    A step may change the state it is given; continue with the one it returns.
    """

    @property
    def batch_size(self) -> int:
        """B."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows (B′,), in this order and in place; a row may be taken twice."""
        ...


class Seq2Seq(Model):
    """The base of translators; a subclass defines `encode`, `decode_step` and `forward`."""

    config: Seq2SeqConfig

    def encode(self, source: Tensor, source_mask: MaskLike = None) -> Any:
        """Read the source (B, S) into a State; source_mask as in `find_real_tokens`."""
        raise NotImplementedError(f"{type(self).__name__} must define encode")

    def decode_step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The next word of each row (B,) → logits (B, V) of the one after it, and the new State."""
        raise NotImplementedError(f"{type(self).__name__} must define decode_step")

    def forward(
        self, source: Tensor, target_inputs: Tensor, source_mask: MaskLike = None
    ) -> Tensor:
        """source (B, S), target_inputs (B, T) → logits (B, T, V): row t scores word t + 1."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    @property
    def alignment_name(self) -> str:
        """The name of the attention whose weights align target and source, as in a trace."""
        raise NotImplementedError(f"{type(self).__name__} must define alignment_name")

    @property
    def max_len(self) -> int | None:
        """The length limit of a target; None if there is none."""
        return None

    def generate(
        self,
        source: Tensor,
        n_tokens: int,
        *,
        source_mask: MaskLike = None,
        forbid: Collection[int] = (),
        prefix: Tensor | None = None,
    ) -> Tensor:
        """source (B, S) → (B, ≤ n_tokens): the most likely word at each step, until the end token.

        The result has no start token; pad_id follows the end token. It stops when every row has
        ended. forbid: ids that are never written, such as <unk>. prefix (B, P): words that each row
        begins with, whatever their probability; they are part of the result. Dropout is off,
        whatever mode the model is in.
        """
        self.check_n_tokens(n_tokens)
        forbidden = self.make_forbidden(forbid)
        with evaluation_mode(self):
            state = self.encode(source, source_mask)
            given = self._read_prefix(prefix, state, n_tokens)
            tokens = self.start_tokens(state)
            ended = torch.zeros_like(tokens, dtype=torch.bool)
            written = [tokens.unsqueeze(1)[:, :0]]
            while len(written) <= n_tokens and not bool(ended.all()):
                logits, state = self.decode_step(tokens, state)
                tokens = rule_out(check_finite(logits), forbidden).argmax(dim=-1)
                if len(written) <= len(given):
                    tokens = given[len(written) - 1]
                tokens = tokens.masked_fill(ended, self.config.pad_id)
                written.append(tokens.unsqueeze(1))
                ended = ended | (tokens == self.config.end_id)
        return torch.cat(written, dim=1)

    def start_tokens(self, state: State) -> Tensor:
        """The start token for each row of a state: (B,)."""
        return torch.full((state.batch_size,), self.config.start_id, device=self.device)

    def check_n_tokens(self, n_tokens: int) -> None:
        """A whole number of at least 1, within max_len."""
        check_positive(n_tokens=n_tokens)
        if self.max_len is not None and n_tokens > self.max_len:
            raise ValueError(
                f"n_tokens is {n_tokens} but max_len is {self.max_len}; "
                f"ask for fewer or build the model with max_len={n_tokens}"
            )

    def make_forbidden(self, forbid: Collection[int]) -> Tensor | None:
        """The ids that are never written, (n,); None if there are none. The end stays possible."""
        forbidden = make_forbidden(forbid, self.config.target_vocab_size, self.device)
        if self.config.end_id in forbid:
            raise ValueError(
                f"forbid holds {self.config.end_id}, the end token, without which no sentence "
                f"ends; leave it out"
            )
        return forbidden

    def _read_prefix(self, prefix: Tensor | None, state: State, n_tokens: int) -> list[Tensor]:
        """The words of a prefix (B, P), one (B,) for each step."""
        if prefix is None:
            return []
        self._check_targets(prefix, state, "prefix")
        if prefix.size(1) > n_tokens:
            raise ValueError(
                f"prefix has {prefix.size(1)} words but n_tokens is {n_tokens}; ask for more tokens"
            )
        return list(prefix.long().unbind(dim=1))

    def _check_source(self, source: Tensor) -> None:
        check_tokens("source", source, self.config.source_vocab_size, self.max_len)

    def _check_targets(
        self, target_inputs: Tensor, state: State, name: str = "target_inputs"
    ) -> None:
        check_tokens(name, target_inputs, self.config.target_vocab_size, self.max_len)
        if target_inputs.size(0) != state.batch_size:
            raise ValueError(
                f"{name} must have a row for each source, {state.batch_size}, "
                f"got shape {format_shape(target_inputs)}"
            )

    def _check_step(self, tokens: Tensor, state: State) -> None:
        check_int_tensor("tokens", tokens)
        if tokens.shape != (state.batch_size,):
            raise ValueError(
                f"tokens must hold one word for each row of the state, "
                f"shape {(state.batch_size,)}, got {format_shape(tokens)}"
            )
        check_tokens("tokens", tokens.unsqueeze(1), self.config.target_vocab_size)


def find_real_tokens(source: Tensor, source_mask: MaskLike) -> Tensor | None:
    """Which tokens of the source are real, (B, S) boolean; None = all.

    source_mask: such a tensor, as from pad_right, also of integers 0 and 1, or Mask.tokens or
    Mask.padding(lengths).
    """
    if source_mask is None:
        return None
    if isinstance(source_mask, Mask):
        if not all(map(_is_about_tokens, source_mask.parts)):
            raise ValueError(
                f"source_mask must say which tokens are real, by Mask.tokens(token_mask) or "
                f"Mask.padding(lengths) of shape (B,), got {source_mask}"
            )
        source_mask = source_mask.real_keys(source.size(1))
        if source_mask is None:
            return None
    return read_token_mask(source_mask, source.shape, "source_mask", "source").clone()


def _is_about_tokens(part: Part) -> bool:
    return isinstance(part, Tokens) or (isinstance(part, Padding) and part.for_all_queries)

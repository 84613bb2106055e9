"""Trained and compiled models behind one interface: texts in, yes or no out.

Position 0 is [CLS] in a trained model, and the start token in a compiled one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead import programs
from clearhead.data.tokenizers.characters import CharTokenizer
from clearhead.inspection import Trace, record
from clearhead.lab.algorithm.texts import NEEDLES, SEPARATOR
from clearhead.models import SequenceClassifier
from clearhead.programs import Part

GROUPS = ("haystack", "needle", "answer")


@dataclass(frozen=True)
class Subject:
    """A model that answers yes or no to each text, at the position `answers_at`."""

    model: SequenceClassifier
    encode: Callable[[Sequence[str]], Tensor]  # ids (B, T)
    decode: Callable[[Tensor], Tensor]  # logits at one token (B, C) → True for yes (B,)
    answers_at: int
    heads: tuple[Part, ...] = ()  # of a compiled program: the heads it uses

    @torch.no_grad()
    def answer(self, ids: Tensor) -> Tensor:
        """ids (B, T) → True for yes, (B,)."""
        return self.decode(self.model(ids)[:, self.answers_at])

    @torch.no_grad()
    def trace(self, ids: Tensor) -> Trace:
        """The values of one forward pass."""
        with record(self.model) as trace:
            self.model(ids)
        return trace

    def find_positions(self, group: str, n_tokens: int) -> list[int]:
        """The positions of a group: "haystack", "needle", "letters" (both) or "answer"."""
        haystack = list(range(1, SEPARATOR))
        needle = list(range(SEPARATOR + 1, n_tokens))
        groups = {"haystack": haystack, "needle": needle, "letters": haystack + needle}
        return groups.get(group, [self.answers_at])


def make_trained(model: SequenceClassifier, tokenizer: CharTokenizer) -> Subject:
    """A trained model: one logit at [CLS], above 0 for yes."""

    def encode(texts: Sequence[str]) -> Tensor:
        return torch.tensor([tokenizer.encode(text) for text in texts], device=model.device)

    return Subject(model.eval(), encode, lambda logits: logits[:, 0] > 0, answers_at=0)


def make_compiled(program: programs.Sequence, device: torch.device | str) -> Subject:
    """A compiled program. All tokens give the same answer; it is read at the separator."""
    compiled = programs.compile(program, "abc|", SEPARATOR + max(NEEDLES))
    compiled.model.to(device)
    assert compiled.values is not None
    yes = compiled.values.index(True)
    return Subject(
        compiled.model,
        lambda texts: compiled.encode(texts)[0],
        lambda logits: logits.argmax(-1) == yes,
        SEPARATOR,
        tuple(part for part in compiled.circuit if part.is_used and part.head is not None),
    )

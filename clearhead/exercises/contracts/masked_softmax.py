"""A softmax over the first entries of each row: masked_softmax(X, valid_lens)."""

import copy
import math
from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.conventions import LENGTHS, to_array_form
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake

FILL = ("masked_fill", "where", "-1e6", "mask")


class MaskedSoftmax(Exercise):
    name = "masked_softmax"
    title = "A softmax with valid lengths"
    formula = "softmax over the first valid_lens entries of each row, 0 for the others"
    signature = "masked_softmax(X, valid_lens) with valid_lens of shape (B,) or (B, queries)"
    page = "attention.md#masks-one-algebra-true--may-attend"
    names = ("masked_softmax", "softmax_with_lengths", "sequence_softmax", "MaskedSoftmax")
    terms = {
        "share": "the length of each row: (B,) has one per example, (B, queries) one per query",
        "allow": "which entries a length allows",
        "hide": "entries past the length become −∞ before the softmax",
        "weigh": "the softmax along the last axis",
        "combine": "the order of mask and softmax",
    }
    parameters = {"x": "x scores logits inputs input", "valid_lens": LENGTHS}
    forbidden = ("torch.masked.softmax",)
    hidden = -math.inf  # the score of a hidden entry
    undefined = math.nan  # the weight where the softmax is 0 / 0

    # The formula: X (B, T, S), valid_lens (B,), (B, T) or None → (B, T, S)

    def answer(self, x: Tensor, valid_lens: Tensor | None) -> Tensor:
        if valid_lens is None:
            return self.weigh(x)
        weights = self.combine(x, self.allow(self.share(valid_lens, x), x.size(-1)))
        return weights.masked_fill(weights.isnan(), self.undefined)

    def combine(self, x: Tensor, allowed: Tensor) -> Tensor:
        return self.weigh(self.hide(x, allowed))

    def share(self, lengths: Tensor, x: Tensor) -> Tensor:
        """A length for each row, (B, T)."""
        return lengths if lengths.dim() == 2 else lengths.unsqueeze(1).expand(x.shape[:2])

    def allow(self, lengths: Tensor, n: int) -> Tensor:
        return torch.arange(n) < lengths.unsqueeze(-1)

    def hide(self, x: Tensor, allowed: Tensor) -> Tensor:
        return x.masked_fill(~allowed, self.hidden)

    def weigh(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def forms(self, case: Case) -> Iterable[Case]:
        yield case
        yield to_array_form(case)

    def dialects(self) -> Iterable[Self]:
        """Hidden scores may be −1e6 instead of −∞, and NaN may become 0 after the softmax."""
        yield self
        for hidden, undefined in ((-1e6, math.nan), (-math.inf, 0.0)):
            other = copy.copy(self)
            other.hidden, other.undefined = hidden, undefined
            yield other

    def ask(self, student: Any, case: Case) -> Answer | None:
        """Call the code; a case without lengths does not count if the code raises for None."""
        answer: Answer | None = student.ask(self, case)
        takes_none = answer is None or answer.error is None
        return answer if takes_none or case.inputs["valid_lens"] is not None else None

    # Mistakes

    @mistake(
        "allow",
        "one entry too many is allowed: entry j counts if j < length, since entries start at 0",
        line=("<=", "arange", "valid_len"),
    )
    def lengths_too_long(self, lengths: Tensor, n: int) -> Tensor:
        return torch.arange(n) <= lengths.unsqueeze(-1)

    @mistake(
        "allow",
        "the last valid entry is hidden: a length of n means the entries 0 … n−1",
        line=("<", "arange", "valid_len"),
    )
    def lengths_too_short(self, lengths: Tensor, n: int) -> Tensor:
        return torch.arange(n) < lengths.unsqueeze(-1) - 1

    @mistake(
        "combine",
        "the mask is inverted: the valid entries are hidden and the others are used",
        line=FILL,
    )
    def mask_inverted(self, x: Tensor, allowed: Tensor) -> Tensor:
        return self.weigh(x.masked_fill(allowed, self.hidden))

    @mistake(
        "share",
        "lengths of shape (B,) are repeated with repeat instead of repeat_interleave, so rows get "
        "the length of another example",
        line=("repeat(", ".tile(", "tile("),
    )
    def lengths_repeated_wrongly(self, lengths: Tensor, x: Tensor) -> Tensor:
        if lengths.dim() == 2:
            return lengths
        return lengths.repeat(x.size(1)).view(x.shape[:2])

    @mistake(
        "share",
        "every query gets the length of the first one, although valid_lens (B, queries) has "
        "one for each",
        line=("valid_len", "[:, 0]"),
    )
    def first_query_for_all(self, lengths: Tensor, x: Tensor) -> Tensor:
        first = lengths if lengths.dim() == 1 else lengths[:, 0]
        return first.unsqueeze(1).expand(x.shape[:2])

    @mistake(
        "share",
        "every example of the batch gets the length of the first one",
        line=("valid_len", "[0]"),
    )
    def first_example_for_all(self, lengths: Tensor, x: Tensor) -> Tensor:
        first = lengths[:1] if lengths.dim() == 2 else lengths[:1].unsqueeze(1)
        return first.expand(x.shape[:2])

    @mistake(
        "combine",
        "the lengths hide queries instead of keys: the mask is on the wrong axis",
        line=FILL,
        variants=("lengths_only_on_queries", "each_length_on_its_query"),
    )
    def lengths_on_queries(self, x: Tensor, allowed: Tensor) -> Tensor:
        if not torch.equal(allowed, allowed[:, :1].expand_as(allowed)):  # a length for each query
            return MaskedSoftmax.combine(self, x, allowed)
        lengths = allowed[:, 0].sum(-1)  # (B,)
        queries = torch.arange(x.size(1)) < lengths.unsqueeze(-1)
        return self.weigh(x.masked_fill(~queries.unsqueeze(-1), self.hidden))

    def lengths_only_on_queries(self, x: Tensor, allowed: Tensor) -> Tensor:
        if torch.equal(allowed, allowed[:, :1].expand_as(allowed)):
            return MaskedSoftmax.lengths_on_queries(self, x, allowed)
        queries = torch.arange(x.size(1)) < allowed.sum(-1).unsqueeze(1)
        return self.weigh(x.masked_fill(~queries.unsqueeze(-1), self.hidden))

    def each_length_on_its_query(self, x: Tensor, allowed: Tensor) -> Tensor:
        queries = torch.arange(x.size(1)) < allowed.sum(-1)  # (B, T)
        return self.weigh(x.masked_fill(~queries.unsqueeze(-1), self.hidden))

    @mistake(
        "hide",
        "hidden entries are set to 0 (or to 1e-6, or multiplied by the mask) before the softmax: "
        "e⁰ = 1 is a full share",
        line=FILL,
    )
    def mask_value_zero(self, x: Tensor, allowed: Tensor) -> Tensor:
        return x * allowed

    @mistake("hide", "hidden entries are set to −1 instead of −∞, so they get weight", line=FILL)
    def mask_value_minus_one(self, x: Tensor, allowed: Tensor) -> Tensor:
        return x.masked_fill(~allowed, -1.0)

    @mistake(
        "hide",
        "hidden entries are set to a number such as −1e4, and a real score can be lower, so a "
        "hidden entry can win; use −∞ or −1e6",
        line=("e4", "e3", "100", *FILL),
        variants=("mask_value_thousand", "mask_value_hundred"),
    )
    def mask_value_too_small(self, x: Tensor, allowed: Tensor) -> Tensor:
        return x.masked_fill(~allowed, -1e4)

    def mask_value_thousand(self, x: Tensor, allowed: Tensor) -> Tensor:
        return x.masked_fill(~allowed, -1e3)

    def mask_value_hundred(self, x: Tensor, allowed: Tensor) -> Tensor:
        return x.masked_fill(~allowed, -100.0)

    @mistake(
        "hide",
        "the 0/1 mask is added to the scores, which makes a hidden entry only 1 lower; hidden "
        "scores must become −∞",
        line=("+", "mask"),
    )
    def mask_added(self, x: Tensor, allowed: Tensor) -> Tensor:
        return x + allowed

    @mistake("hide", "the lengths are accepted but never used", line=FILL)
    def mask_ignored(self, x: Tensor, allowed: Tensor) -> Tensor:
        return x

    @mistake(
        "combine",
        "the mask is applied after the softmax, so the rows do not sum to 1: hidden entries have "
        "already taken their share",
        line=FILL,
    )
    def mask_after_softmax(self, x: Tensor, allowed: Tensor) -> Tensor:
        return self.weigh(x) * allowed

    @mistake(
        "weigh",
        "the softmax runs over the queries (dim=1) instead of the last axis",
        line=("softmax", "sum("),
    )
    def softmax_over_queries(self, x: Tensor) -> Tensor:
        return x.softmax(-2)

    @mistake(
        "weigh",
        "the softmax runs over the batch (dim=0) instead of the last axis",
        line=("softmax", "sum("),
    )
    def softmax_over_batch(self, x: Tensor) -> Tensor:
        return x.softmax(0)

    @mistake(
        "weigh",
        "the softmax overflows: exp of a large score is infinite, and inf / inf is NaN; subtract "
        "the greatest score of each row first",
        line=("exp(", ".exp"),
        variants=("no_max_subtraction_sliced", "no_max_subtraction_double"),
    )
    def no_max_subtraction(self, x: Tensor) -> Tensor:
        return x.exp() / x.exp().sum(-1, keepdim=True)

    def no_max_subtraction_sliced(self, x: Tensor) -> Tensor:
        weights = x.exp() / x.exp().sum(-1, keepdim=True)
        return weights.masked_fill(x == self.hidden, 0.0)  # only the valid entries are computed

    def no_max_subtraction_double(self, x: Tensor) -> Tensor:
        """NumPy computes in float64, which overflows later."""
        weights = x.double().exp()
        return (weights / weights.sum(-1, keepdim=True)).to(x.dtype)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, lengths: Tensor | None, **more: Any) -> Case:
            scale = more.pop("scale", 1.0)
            inputs = {"x": draw.normal(3, 4, 7, scale=scale), "valid_lens": lengths}
            return Case(says, term, inputs, **more)

        one, each = torch.tensor([2, 6, 4]), draw.whole(2, 6, 3, 4)
        each[0, 0], each[0, 1] = 3, 5  # so that no single length fits every row
        yield case("without lengths it is a softmax", "weigh", None)
        yield case(
            "a length equal to the number of entries hides none", "allow", torch.tensor([7, 7, 7])
        )
        yield case("one length for all examples", "hide", torch.tensor([3, 3, 3]))
        yield case("lengths (B,) hold one length per example", "share", one)
        yield case("lengths (B, queries) hold one length per query", "share", each)
        yield case("scores as large as 1000 stay finite", "weigh", one, scale=1000.0)
        low = draw.whole(-2, 2, 3, 4, 7) - 20_000.0
        yield Case("low scores leave hidden entries hidden", "hide", {"x": low, "valid_lens": one})
        yield case("the gradient reaches the scores", "weigh", each, gradient=True)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for B, T, S in ((1, 1, 2), (1, 2, 3), (2, 2, 3), (2, 3, 4)):
            for shape in ((B,), (B, T), (B,), (B, T)):
                inputs = {"x": draw.small(B, T, S), "valid_lens": draw.whole(1, S, *shape)}
                yield Case("a small example", "hide", inputs)
        yield from self.cases(draw)

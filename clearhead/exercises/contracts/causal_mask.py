"""The causal mask: a token may attend to itself and to earlier tokens."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.student import Student

TRIANGLE = ("tril", "triu", "arange", "range(", "<", ">")


class CausalMask(Exercise):
    name = "causal_mask"
    title = "The causal mask"
    formula = "mask[i, j] = 1 if j ≤ i else 0"
    signature = "causal_mask(n) → (n, n), 1 or True = may attend; or 0 and −∞, to be added"
    page = "attention.md#masks-one-algebra-true--may-attend"
    names = (
        "causal_mask",
        "make_causal_mask",
        "create_causal_mask",
        "get_causal_mask",
        "subsequent_mask",
        "look_ahead_mask",
        "create_look_ahead_mask",
        "generate_square_subsequent_mask",
    )
    terms = {
        "compare": "which keys a query may see: j ≤ i",
        "align": "the alignment: with more keys than queries, the last query is at the last key",
    }
    parameters = {
        "n": "n T size sz seq_len length n_tokens n_queries seq_length L t q_len"
        " x tokens input_ids",
        "n_keys": "n_keys S k_len kv_len m total_len key_len",
        "n_cached": "n_cached n_past past past_len past_length cache_len offset start_pos start",
        "device": "device",
    }
    optional = ("n_keys", "n_cached", "device")

    # The formula: (n, n), or (n, n_keys)

    def answer(self, n: int, n_keys: int | None = None, **_: Any) -> Tensor:
        n_keys = n if n_keys is None else n_keys
        i, j = torch.arange(n).unsqueeze(1), torch.arange(n_keys)
        return self.compare(self.align(i, n_keys - n), j).float()

    def align(self, i: Tensor, n_cached: int) -> Tensor:
        return i + n_cached

    def compare(self, i: Tensor, j: Tensor) -> Tensor:
        return j <= i

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Pass the number of keys as n_keys, or as n_cached, those before the first query."""
        names = [name.lower() for name, _ in student.signature(student.name)]
        given: dict[str, Any] = dict(case.inputs)
        if "n_keys" in given and set(names) & set(self.parameters["n_cached"].split()):
            given["n_cached"] = given.pop("n_keys") - given["n"]
        if "device" in names:
            given["device"] = "cpu"
        return student.ask(self, replace(case, given=given))

    def forms(self, case: Case) -> Iterable[Case]:
        """One size, or the sizes of queries and keys, or tokens (1, n)."""
        yield case
        given = dict(case.inputs if case.given is None else case.given)
        if "n_keys" not in case.inputs:
            yield replace(case, given={**given, "n_keys": given["n"]})
            yield replace(case, given={**given, "n": torch.zeros(1, given["n"], dtype=torch.long)})

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Bool, 0/1, or 0 and −∞; leading axes of 1 are accepted."""
        output = torch.as_tensor(output) if hasattr(output, "__array__") else output
        output = torch.tensor(output) if isinstance(output, list) else output
        if not isinstance(output, Tensor):
            return {"output": output}
        while output.dim() > 2 and output.size(0) == 1:
            output = output[0]
        if output.dtype != torch.bool and bool((output < -1e3).any()):
            is_clear = bool(((output == 0) | (output < -1e3)).all())
            output = (output == 0) if is_clear else output
        return {"output": output.float()}

    # Mistakes

    @mistake(
        "compare",
        "the mask is inverted: it marks the later tokens, which must be hidden; True or 1 "
        'must mean "may attend"',
        line=TRIANGLE,
    )
    def mask_inverted(self, i: Tensor, j: Tensor) -> Tensor:
        return j > i

    @mistake(
        "compare",
        "the mask is the upper triangle instead of the lower one: a token sees itself and "
        "later tokens, not earlier ones",
        line=TRIANGLE,
    )
    def mask_transposed(self, i: Tensor, j: Tensor) -> Tensor:
        return j >= i

    @mistake(
        "compare",
        "a token may not see itself: the diagonal is hidden, and the first token sees nothing",
        line=("diagonal", *TRIANGLE),
    )
    def diagonal_hidden(self, i: Tensor, j: Tensor) -> Tensor:
        return j < i

    @mistake(
        "compare",
        "a token may see the next one, which it has to predict: the diagonal is off by one",
        line=("diagonal", *TRIANGLE),
    )
    def sees_next(self, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + 1

    @mistake("compare", "nothing is hidden: every token sees every other", line=("ones", "full"))
    def nothing_hidden(self, i: Tensor, j: Tensor) -> Tensor:
        return (i >= 0) | (j >= 0)

    @mistake("compare", "a token sees only itself: the mask is the identity", line=("eye", "=="))
    def only_itself(self, i: Tensor, j: Tensor) -> Tensor:
        return i == j

    @mistake(
        "align",
        "the triangle starts at the first key: with cached keys the last query must see all of "
        "them, so query i stands at position i + S − T",
        line=TRIANGLE,
    )
    def aligned_at_start(self, i: Tensor, n_cached: int) -> Tensor:
        return i

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        for n in (3, 4, 5, draw.number(6, 9)):
            yield Case("a token sees itself and earlier ones", "compare", {"n": n})
        yield Case("cached keys are seen by every query", "align", {"n": 3, "n_keys": 7})
        yield Case("as many keys as queries", "align", {"n": 4, "n_keys": 4})

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        yield from (Case("a small example", "compare", {"n": n}) for n in (3, 4))
        yield Case("a small example", "align", {"n": 2, "n_keys": 3})
        yield from self.cases(draw)

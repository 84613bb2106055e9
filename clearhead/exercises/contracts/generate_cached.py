"""Greedy generation with a cache: the model reads each token once."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import Tensor

from clearhead.exercises.contracts.generate import Generate
from clearhead.exercises.contracts.shared.language_models import CACHED_MODEL, cached_logits
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, mistake


class GenerateCached(Generate):
    """The model is called as `logits, cache = model(tokens, cache, start)`.

    tokens are those that the cache does not hold yet, cache is None at first, and start is the
    position of the first token; without start the model counts for itself.
    """

    name = "generate_cached"
    title = "Greedy generation with a cache"
    formula = "logits, cache = model(new, cache, start), new = argmax(logits[:, −1])"
    signature = "generate_cached(model, tokens, n), model(tokens, cache, start) → logits, cache"
    page = "generation.md"
    names = (
        "generate_cached",
        "generate_with_cache",
        "cached_generate",
        "greedy_generate_cached",
        "generate_kv_cache",
        "generate_with_kv_cache",
        "generate_fast",
        "cached_generation",
        "*.generate_cached",
    )
    terms = {
        "feed": "the model's input: the prompt once, then each new token alone, with the cache",
        "position": "the position of the new token",
        "keep": "the cache, which grows with each step",
        "choose": "the most likely token by the logits of the last position",
        "append": "the new token at the end of each sequence",
        "count": "the number of new tokens",
    }
    helpers = CACHED_MODEL
    maker = "_CachedModel"
    returns = ("pair",)
    impossible = (
        "position_before_last",
        "least_likely",
        "second_likeliest",
        "mean_of_positions",
        "argmax_over_batch",
        "first_sequence_decides",
        "last_token_only",
        "prompt_only",
        "oldest_dropped",
        "put_in_front",
    )

    # The formula

    def answer(  # type: ignore[override]
        self, tokens: Tensor, n: int, table: Tensor, mix: Tensor, is_new: bool
    ) -> dict[str, Any]:
        found, cache, n_read, T = tokens, None, 0, tokens.size(1)
        for _ in range(self.count(n)):
            new, old = self.feed(found, cache)
            start = self.position(0 if old is None else found.size(1) - 1, T)
            logits, seen = cached_logits((new, old, start), table, mix)
            n_read += new.size(1)
            cache = self.keep(cache, seen)
            found = self.append(found, self.choose(logits))
        return {"output": found[:, T:] if is_new else found, "is_cached": n_read <= _limit(T, n)}

    def feed(self, found: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return (found if cache is None else found[:, -1:]), cache

    def position(self, start: int, n_prompt: int) -> int:
        return start

    def keep(self, cache: Tensor | None, seen: Tensor) -> Tensor:
        return seen

    # Mistakes

    @mistake(
        "position",
        "the cache is used without a position offset: every new token is read as if it were the "
        "first one",
        line=("start=0", ", 0)", "start", "0"),
    )
    def no_position_offset(self, start: int, n_prompt: int) -> int:
        return 0

    @mistake(
        "position",
        "the position is one too high: the new token at index t has position t, not t + 1",
        line=("+ 1", "shape[1]", "size(1)", "len("),
    )
    def position_one_too_far(self, start: int, n_prompt: int) -> int:
        return start + 1 if start else 0

    @mistake(
        "position",
        "the position is counted from the end of the prompt; it must count from the prompt's "
        "first token",
        line=("start", "step", "i"),
    )
    def position_without_prompt(self, start: int, n_prompt: int) -> int:
        return start - n_prompt if start >= n_prompt else start

    @mistake(
        "feed",
        "the whole sequence is read again although the cache already holds it, so the model "
        "sees it twice",
        line=("model(", "self("),
    )
    def whole_sequence_again(
        self, found: Tensor, cache: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        return found, cache

    @mistake(
        "feed",
        "the cache is not used: the whole sequence is read at every step, which takes n times as "
        "long",
        line=("model(", "self("),
    )
    def cache_not_used(self, found: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return found, None

    @mistake(
        "feed",
        "the cache is not passed on: the model reads the new token without the earlier ones",
        line=("model(", "None"),
    )
    def cache_dropped(self, found: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return (found if cache is None else found[:, -1:]), None

    @mistake(
        "feed",
        "only the last token of the prompt is read; the cache must start with the whole prompt",
        line=("-1:", "[:, -1"),
    )
    def prompt_not_read(self, found: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return found[:, -1:], cache

    @mistake(
        "keep",
        "the cache is never updated: it holds the prompt alone",
        line=("_ =", "_, ", "cache"),
    )
    def cache_not_updated(self, cache: Tensor | None, seen: Tensor) -> Tensor:
        return seen if cache is None else cache

    # Cases

    def ask(self, student: Any, case: Case) -> Answer | None:
        """Also ask how many tokens the model has read."""
        answer = super().ask(student, case)
        if answer is not None and answer.results is not None:
            read = student.session.request("get", name="_READ")
            n_read = read[0] if isinstance(read, list) and read else None
            limit = _limit(case.inputs["tokens"].size(1), case.inputs["n"])
            is_cached = isinstance(n_read, int) and n_read <= limit
            answer.results = {**answer.results, "is_cached": is_cached}
        return answer

    def cases(self, draw: Draw) -> Iterable[Case]:
        for case in super().cases(draw):
            yield replace(case, term="feed") if case.term == "context" else case


def _limit(T: int, n: int) -> int:
    """How many tokens a model with a cache may read: at least T + n − 1, with room to spare."""
    return 2 * (T + n) + 2

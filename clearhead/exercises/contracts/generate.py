"""Greedy generation: append the most likely next token, n times."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.language_models import (
    MAX_LEN,
    PLAIN_MODEL,
    VOCAB,
    next_logits,
)
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.student import Student


class Generate(Exercise):
    """The function is given a model with model(tokens) → logits (B, T, V), tokens (B, T) and n.

    It returns tokens (B, T + n), or the n new ones alone. If the code needs `logits, _` or
    `.logits`, the model returns these; if it takes one sequence (T,) or a list, it is called for
    each row. A method generate of any class is called with our model as `self`.
    """

    name = "generate"
    title = "Greedy generation"
    formula = "n times: tokens = [tokens, argmax(model(tokens)[:, −1])]"
    signature = "generate(model, tokens, n)"
    page = "generation.md"
    names: tuple[str, ...] = (
        "generate",
        "greedy_generate",
        "generate_greedy",
        "greedy_decode",
        "greedy_decoding",
        "greedy_search",
        "generate_text",
        "generate_text_simple",
        "greedy",
        "sample_greedy",
        "*.generate",
    )
    terms = {
        "context": "the model's input: all tokens so far",
        "choose": "the most likely token by the logits of the last position",
        "append": "the new token at the end of each sequence",
        "count": "the number of new tokens",
    }
    parameters = {
        "model": "model lm net gpt decoder self transformer",
        "tokens": "tokens prompt idx input_ids ids x context prompt_ids start inputs token_ids",
        "n": "n max_new_tokens n_new num_tokens steps max_tokens n_tokens num_new_tokens length"
        " max_new n_steps",
        "limit": "context_size block_size context_length max_seq_len context_len max_context",
    }
    optional = ("limit",)
    helpers = PLAIN_MODEL
    maker = "_LanguageModel"
    returns: tuple[str, ...] = ("logits", "pair", "object")

    # The formula

    def answer(self, tokens: Tensor, n: int, table: Tensor, mix: Tensor, is_new: bool) -> Tensor:
        found = tokens
        for _ in range(self.count(n)):
            logits = next_logits(self.context(found, tokens), table, mix)
            found = self.append(found, self.choose(logits))
        return found[:, tokens.size(1) :] if is_new else found

    def count(self, n: int) -> int:
        return n

    def context(self, found: Tensor, prompt: Tensor) -> Tensor:
        return found

    def choose(self, logits: Tensor) -> Tensor:
        return logits[:, -1].argmax(-1)

    def append(self, found: Tensor, new: Tensor) -> Tensor:
        return torch.cat([found, new[:, None]], 1)

    # Mistakes

    @mistake(
        "choose",
        "the logits of the first position are used; the last one predicts the next token",
        line=("[:, 0", "[0", "argmax"),
    )
    def first_position(self, logits: Tensor) -> Tensor:
        return logits[:, 0].argmax(-1)

    @mistake(
        "choose",
        "the logits of the position before the last one are used: they predict a token that is "
        "already there",
        line=("-2", "argmax"),
    )
    def position_before_last(self, logits: Tensor) -> Tensor:
        return logits[:, -2].argmax(-1)

    @mistake(
        "choose",
        "the least likely token is chosen instead of the most likely one",
        line=("argmin", "min(", "sort"),
    )
    def least_likely(self, logits: Tensor) -> Tensor:
        return logits[:, -1].argmin(-1)

    @mistake(
        "choose",
        "the second most likely token is chosen instead of the most likely one",
        line=("topk", "sort", "kthvalue"),
    )
    def second_likeliest(self, logits: Tensor) -> Tensor:
        return logits[:, -1].topk(2).indices[:, 1]

    @mistake(
        "choose",
        "the logits of all positions are summed or averaged before the argmax",
        line=("mean", "sum"),
    )
    def mean_of_positions(self, logits: Tensor) -> Tensor:
        return logits.mean(1).argmax(-1)

    @mistake(
        "choose",
        "the argmax runs over the wrong axis: over the sequences of the batch, not the vocabulary",
        line=("argmax", "max("),
    )
    def argmax_over_batch(self, logits: Tensor) -> Tensor:
        return logits[:, -1].argmax(0)[: len(logits)]

    @mistake(
        "choose",
        "the token chosen for the first sequence is appended to every sequence",
        line=("[0", "item"),
    )
    def first_sequence_decides(self, logits: Tensor) -> Tensor:
        return logits[0, -1].argmax(-1).expand(len(logits))

    @mistake(
        "context",
        "the model reads the last token alone and loses the context; that works only with a cache",
        line=("-1:", "[:, -1", "next"),
    )
    def last_token_only(self, found: Tensor, prompt: Tensor) -> Tensor:
        return found[:, -1:]

    @mistake(
        "context",
        "the model reads the prompt again and again: it never gets the new tokens",
        line=("model(", "self("),
    )
    def prompt_only(self, found: Tensor, prompt: Tensor) -> Tensor:
        return prompt

    @mistake(
        "context",
        "the oldest token is dropped at each step although the context window is not full",
        line=("1:",),
    )
    def oldest_dropped(self, found: Tensor, prompt: Tensor) -> Tensor:
        return found[:, found.size(1) - prompt.size(1) :]

    @mistake("append", "the new token is put in front of the sequence", line=("cat", "insert"))
    def put_in_front(self, found: Tensor, new: Tensor) -> Tensor:
        return torch.cat([new[:, None], found], 1)

    @mistake("count", "one token too few is generated", line=("range", "while", "- 1"))
    def one_too_few(self, n: int) -> int:
        return n - 1

    @mistake("count", "one token too many is generated", line=("range", "while", "+ 1"))
    def one_too_many(self, n: int) -> int:
        return n + 1

    # Cases

    def forms(self, case: Case) -> Iterable[Case]:
        """The model returns logits, a pair or an object; a limit of the context may be given."""
        tokens = case.inputs["tokens"] if case.given is None else case.given["tokens"]
        for limit, returns in product(({}, {"limit": MAX_LEN}), self.returns):
            weights = [case.inputs["table"], case.inputs["mix"]]
            model = {"make": self.maker, "args": [*weights, returns]}
            given = {"model": model, "tokens": tokens, "n": case.inputs["n"], **limit}
            yield replace(case, given=given)

    def ask(self, student: Student, case: Case) -> Answer | None:
        student = _Unbound(**{each.name: getattr(student, each.name) for each in fields(student)})
        answer = student.ask(self, case)
        if answer is None or not _has_rows(answer, len(case.inputs["tokens"])):
            answer = self._ask_rows(student, case) or answer
        if answer is not None:
            answer.choices = [{**case.inputs, "is_new": each} for each in (False, True)]
        return answer

    def _ask_rows(self, student: Student, case: Case) -> Answer | None:
        """Ask for each row by itself, as a tensor (T,) or as a list; None if it raises."""
        for form in (lambda row: row, lambda row: row.tolist()):
            rows = [replace(case, given={"tokens": form(row)}) for row in case.inputs["tokens"]]
            answers = [student.ask(self, row) for row in rows]
            outputs = [((each and each.results) or {}).get("output") for each in answers]
            tensors = [each for each in outputs if isinstance(each, Tensor)]
            if len(tensors) == len(rows) and len({each.shape for each in tensors}) == 1:
                return Answer([], {"output": torch.cat(tensors)})
        return None

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tokens (B, T); one sequence is a batch of one."""
        output = output[0] if isinstance(output, tuple) else output
        if isinstance(output, list):
            with suppress(ValueError, TypeError, RuntimeError):
                output = torch.tensor(output)
        is_flat = isinstance(output, Tensor) and output.dim() == 1
        return {"output": output.unsqueeze(0) if is_flat else output}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, n: int) -> Case:
            return Case(says, term, draw_inputs(draw, B, T, n))

        yield case("the next token is the most likely one by the last logits", "choose", 1, 4, 1)
        yield case("every sequence of a batch gets its own token", "choose", 9, 5, 1)
        yield case("each new token is read in the next step", "context", 1, 4, 6)
        yield case("n tokens are added", "count", 4, 3, 7)
        yield case("a prompt of one token is enough", "context", 3, 1, 8)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for B, T, n in ((1, 1, 1), (1, 2, 1), (1, 2, 2), (1, 2, 3), (3, 2, 3)):
            yield Case("a small example", "choose", draw_inputs(draw, B, T, n))
        yield from self.cases(draw)


class _Unbound(Student):
    """A method called as a plain function, so that our model can be `self`."""

    @property
    def owner(self) -> str | None:
        return None


def _has_rows(answer: Answer, n: int) -> bool:
    """Whether the output has n rows: a list of tensors may be misread as one sequence."""
    output = (answer.results or {}).get("output")
    return isinstance(output, Tensor) and len(output) == n


def draw_inputs(draw: Draw, B: int, T: int, n: int) -> Mapping[str, Any]:
    """A prompt, the number of new tokens, and the weights of the model."""
    return {
        "tokens": draw.whole(0, VOCAB - 1, B, T),
        "n": n,
        "table": draw.normal(VOCAB, VOCAB),
        "mix": draw.normal(VOCAB, VOCAB),
    }

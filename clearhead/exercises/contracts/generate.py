"""Greedy generation: the likeliest next token is appended, again and again."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake

VOCAB = 11
MAX_LEN = 40

# The model that the student's function is given: each logit depends on all tokens before it and on
# the position. The same formula is in `next_logits`.
MODEL = f'''
import torch as _torch

class _LanguageModel(_torch.nn.Module):
    """model(tokens) → logits (B, T, {VOCAB})"""

    def __init__(self, table, mix, returns_tuple=False):
        super().__init__()
        self.table, self.mix, self.returns_tuple = table, mix, returns_tuple
        self.block_size = self.max_len = self.context_length = {MAX_LEN}

    def forward(self, tokens, *rest, **more):
        T = tokens.shape[1]
        age = _torch.arange(T)[:, None] - _torch.arange(T)[None]
        decay = _torch.where(age >= 0, 0.8 ** age, 0.0)
        wave = _torch.sin(1.7 * _torch.arange(T)[:, None] * (1 + _torch.arange({VOCAB})))
        logits = self.table[tokens] + decay @ self.mix[tokens] + wave
        return (logits, None) if self.returns_tuple else logits
'''


def next_logits(tokens: Tensor, table: Tensor, mix: Tensor, start: int = 0) -> Tensor:
    """tokens (B, T) → logits (B, T, V): what the model of the exercise computes."""
    T = tokens.size(1)
    age = torch.arange(T)[:, None] - torch.arange(T)
    decay = torch.where(age >= 0, 0.8**age, 0.0)
    wave = torch.sin(1.7 * (start + torch.arange(T))[:, None] * (1 + torch.arange(VOCAB)))
    return table[tokens] + decay @ mix[tokens] + wave


class Generate(Exercise):
    """The function is given a model with model(tokens) → logits (B, T, V), tokens (B, T) and n.

    It returns tokens (B, T + n), or the n new ones alone. If the code unpacks `logits, _`, the
    model returns a pair. Tokens may be asked for one sequence at a time, (1, T).
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
        "greedy",
        "sample_greedy",
    )
    terms = {
        "context": "what the model is given: all tokens so far",
        "choose": "the likeliest token by the logits of the last position",
        "append": "the new token at the end of each sequence",
        "count": "the number of new tokens",
    }
    parameters = {
        "model": "model lm net gpt decoder self transformer",
        "tokens": "tokens prompt idx input_ids ids x context prompt_ids start inputs token_ids",
        "n": "n max_new_tokens n_new num_tokens steps max_tokens n_tokens num_new_tokens length"
        " max_new n_steps",
    }
    helpers = MODEL
    maker = "_LanguageModel"

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
        "the least likely token is taken",
        line=("argmin", "min(", "sort"),
    )
    def least_likely(self, logits: Tensor) -> Tensor:
        return logits[:, -1].argmin(-1)

    @mistake(
        "choose",
        "the second likeliest token is taken",
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
        "the first sequence of the batch decides for all",
        line=("[0", "item"),
    )
    def first_sequence_decides(self, logits: Tensor) -> Tensor:
        return logits[0, -1].argmax(-1).expand(len(logits))

    @mistake(
        "context",
        "the model reads the last token alone, so it forgets what came before; that needs a cache",
        line=("-1:", "[:, -1", "next"),
    )
    def last_token_only(self, found: Tensor, prompt: Tensor) -> Tensor:
        return found[:, -1:]

    @mistake(
        "context",
        "the model reads the prompt again and again: the new tokens are not given back to it",
        line=("model(", "self("),
    )
    def prompt_only(self, found: Tensor, prompt: Tensor) -> Tensor:
        return prompt

    @mistake(
        "context",
        "the oldest token is dropped at each step although there is room",
        line=("1:",),
    )
    def oldest_dropped(self, found: Tensor, prompt: Tensor) -> Tensor:
        return found[:, found.size(1) - prompt.size(1) :]

    @mistake("append", "the new token is put in front of the sequence", line=("cat", "insert"))
    def put_in_front(self, found: Tensor, new: Tensor) -> Tensor:
        return torch.cat([new[:, None], found], 1)

    @mistake("count", "there is one token too few", line=("range", "while", "- 1"))
    def one_too_few(self, n: int) -> int:
        return n - 1

    @mistake("count", "there is one token too many", line=("range", "while", "+ 1"))
    def one_too_many(self, n: int) -> int:
        return n + 1

    # Cases

    def forms(self, case: Case) -> Iterable[Case]:
        """The model returns logits, or (logits, None)."""
        table, mix = case.inputs["table"], case.inputs["mix"]
        for is_pair in (False, True):
            model = {"make": self.maker, "args": [table, mix, is_pair]}
            tokens, n = case.inputs["tokens"], case.inputs["n"]
            yield replace(case, given={"model": model, "tokens": tokens, "n": n})

    def ask(self, student: Any, case: Case) -> Answer | None:
        answer: Answer | None = student.ask(self, case)
        if answer is not None:
            answer.choices = [{**case.inputs, "is_new": each} for each in (False, True)]
        return answer

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, n: int) -> Case:
            return Case(says, term, draw_inputs(draw, B, T, n))

        yield case("the next token is the likeliest by the last logits", "choose", 1, 4, 1)
        yield case("every sequence of a batch gets its own token", "choose", 3, 5, 1)
        yield case("new tokens are read again", "context", 1, 4, 6)
        yield case("n tokens are added", "count", 4, 3, 7)
        yield case("a prompt of one token is enough", "context", 3, 1, 8)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for B, T, n in ((1, 1, 1), (1, 2, 1), (1, 2, 2), (1, 2, 3), (3, 2, 3)):
            yield Case("a small example", "choose", draw_inputs(draw, B, T, n))
        yield from self.cases(draw)


def draw_inputs(draw: Draw, B: int, T: int, n: int) -> Mapping[str, Any]:
    """A prompt, the number of new tokens, and the weights of the model."""
    return {
        "tokens": draw.whole(0, VOCAB - 1, B, T),
        "n": n,
        "table": draw.normal(VOCAB, VOCAB),
        "mix": draw.normal(VOCAB, VOCAB),
    }

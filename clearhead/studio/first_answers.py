"""The answers with which a view of the page opens, for a page that has no server to ask.

    answers, state = answer_view(sources, "text", "substring", "abccab|cca")

answers: by key, which the page makes of a question and its arguments. state: the values of the
page's address. The questions and arguments are those of the page when it opens a view. A test opens
each view: it would show an error for a question without an answer.
"""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from clearhead.studio.arguments import read_arguments
from clearhead.studio.questions import find_question
from clearhead.studio.sources import Sources
from clearhead.studio.views.models import list_models

STRIP_LENGTH = 24  # pictures to choose from at once
MAX_COVERED = 100  # patches; with more, the page measures the effect of covering only on request

State = dict[str, str]


class Answers:
    """Asks questions, and stores the answers by the keys of the page (answerKey in api.js)."""

    def __init__(self, sources: Sources) -> None:
        self.sources, self.found = sources, dict[str, Any]()

    def ask(self, question: str, **arguments: Any) -> Any:
        """The answer to one question."""
        function = find_question(question)
        answer = function(self.sources, **read_arguments(function, arguments))
        pairs = [[name, arguments[name]] for name in sorted(arguments)]
        key = json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))
        self.found[f"{question} {key}"] = answer
        return answer


def answer_view(
    sources: Sources, view: str, id: str | None, text: str | None
) -> tuple[dict[str, Any], State]:
    """The first answers of a view, and the state of its address."""
    answers = Answers(sources)
    if id is None:
        answers.found["list_models"] = {"models": []}
        return answers.found, {"view": view, **ASK_WITHOUT_MODEL[view](answers, text)}
    (model,) = (each for each in list_models(sources)["models"] if each["id"] == id)
    answers.found["list_models"] = {"models": [model]}
    value = _read_picture(text) if view == "picture" else _read_text(model["examples"], text)
    state = ASK[view](answers, id, value)
    return answers.found, {"view": view, "model": id, **state}


def _read_picture(text: str | None) -> int:
    if text is not None and not text.isdecimal():
        raise ValueError(f"text must be the number of a validation picture, got {text!r:.80}")
    return int(text or 0)


def _read_text(examples: list[str], text: str | None) -> str:
    if text is None and not examples:
        raise ValueError("text is missing: give a text for the model to read")
    return examples[0] if text is None else text


# Views of a model


def _ask_text(answers: Answers, model: str, text: str) -> State:
    found = answers.ask("attend", model=model, text=text)
    last = {"position": len(found["names"]) - 1} if found["kind"] == "GPT" else {}
    with suppress(ValueError):  # a model without an answer, or too large: the panel is left out
        answers.ask("measure_heads", model=model, text=text, **last)
    return {"text": text}


def _ask_generate(answers: Answers, model: str, text: str) -> State:
    tokens = answers.ask("start_text", model=model, text=text)["tokens"]
    own: dict[str, Any] = {"model": model, "tokens": tokens}
    answers.ask("show_next", **own, n_prompt=len(tokens), temperature=1, seed=0)
    answers.ask("read_lens", **own, position=len(tokens) - 1, n_shown=6)
    return {"text": text}


def _ask_picture(answers: Answers, model: str, number: int) -> State:
    found = answers.ask("look_at_picture", model=model, number=number)
    if math.prod(found["grid"]) <= MAX_COVERED:
        answers.ask("measure_covering", model=model, number=number)
    start = number // STRIP_LENGTH * STRIP_LENGTH
    answers.ask("list_pictures", model=model, start=start, n=STRIP_LENGTH)
    return {"number": str(number)}


def _ask_translation(answers: Answers, model: str, text: str) -> State:
    answers.ask("translate", model=model, text=text)
    answers.ask("search_beams", model=model, text=text, n_beams=4, length_penalty=1)
    return {"text": text}


def _ask_smallest_run(answers: Answers, model: str, text: str) -> State:
    found = answers.ask("run_smallest", text=text, start="run", model=model)
    return {"text": text, "run": model, "letters": str(found["max_len"])}


ASK: dict[str, Callable[[Answers, str, Any], State]] = {
    "text": _ask_text,
    "generate": _ask_generate,
    "picture": _ask_picture,
    "translation": _ask_translation,
    "smallest": _ask_smallest_run,
}


# Views without a model


def _ask_smallest(answers: Answers, text: str | None) -> State:
    text = "CAB" if text is None else text
    design = {"rule": "first", "max_len": 4, "start": "by hand", "sharpness": 40}
    answers.ask("run_smallest", text=text, **design)
    return {"text": text}


def _ask_positions(answers: Answers, text: str | None) -> State:
    answers.ask("show_positions", scheme="sinusoidal", n=24, d=16, base=10_000)
    return {}


def _ask_kernels(answers: Answers, text: str | None) -> State:
    sizes = {"T": 24, "D": 16, "seed": 0, "length": 2}
    answers.ask("compare_kernels", features="positive", m=64, **sizes)
    answers.ask("measure_kernels", **sizes)
    return {}


ASK_WITHOUT_MODEL: dict[str, Callable[[Answers, str | None], State]] = {
    "smallest": _ask_smallest,
    "positions": _ask_positions,
    "kernels": _ask_kernels,
}

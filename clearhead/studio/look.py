"""The view of a model in a notebook, or as one file that needs no server.

    look(run, "abccab|cca")                            in a notebook: the view itself
    look(model, "Once upon", tokenizer).save("page.html")

The page contains the answer to the view's question, so maps, lines and the explanation of every
cell work in an exported notebook too. Controls that need a new computation are left out.
"""

from typing import Any

from clearhead.data.tokenizers import Tokenizer
from clearhead.inspection.viewer import AttentionView
from clearhead.interop import Loaded
from clearhead.runs import Run
from clearhead.studio.arguments import read_arguments
from clearhead.studio.questions import find_question
from clearhead.studio.sources import Opened, Source, Sources, write_run_lines
from clearhead.studio.views.models import list_models
from clearhead.studio.whole_page import write_whole

HEIGHT = 860
TEXT = ("text", "attend")
VIEWS = {  # kind of model → its view, and the question of that view
    "GPT": TEXT,
    "SequenceClassifier": TEXT,
    "TextEncoder": TEXT,
    "Seq2Seq": ("translation", "translate"),
    "VisionTransformer": ("picture", "look_at_picture"),
}


def look(model: Any, text: str | None = None, tokenizer: Tokenizer | None = None) -> AttentionView:
    """What a model attends to in a text: displayed by a notebook, or saved as .html.

    model: a run, what `interop.load` returns, or a model with its tokenizer. text: by default an
    example; for a model of pictures the number of a validation picture, such as "3".
    """
    sources = Sources([])
    return view_page(sources, sources.hold(_open(model, tokenizer)).id, text)


def view_page(sources: Sources, id: str, text: str | None = None) -> AttentionView:
    """The page of one view of one model on one input."""
    kind = sources.open(id).kind
    if kind not in VIEWS:
        kinds = ", ".join(VIEWS)
        raise ValueError(f"a {kind} needs a running studio; a page without a server shows {kinds}")
    view, name = VIEWS[kind]
    (model,) = (each for each in list_models(sources)["models"] if each["id"] == id)
    values = _read_input(kind, model["examples"], text)
    question = find_question(name)
    answer = question(sources, **read_arguments(question, {"model": id, **values}))
    answers = {"list_models": {"models": [model]}, name: answer}
    state = {"view": view, "model": id, **{key: str(value) for key, value in values.items()}}
    return AttentionView(write_whole(answers, state), HEIGHT)


def _read_input(kind: str, examples: list[str], text: str | None) -> dict[str, Any]:
    """The input of the question: a text, or the number of a picture."""
    if kind == "VisionTransformer":
        if text is not None and not text.isdecimal():
            raise ValueError(f"text must be the number of a validation picture, got {text!r:.80}")
        return {"number": int(text or 0)}
    if text is None and not examples:
        raise ValueError("text is missing: give a text for the model to read")
    return {"text": examples[0] if text is None else text}


def _open(model: Any, tokenizer: Tokenizer | None) -> Opened:
    """A model that is already loaded, as the questions of the studio expect it."""
    source = Source("model", "", is_run=False)
    if isinstance(model, Run):
        lines = write_run_lines(str(model.folder.path))
        return Opened(source, model.model, tokenizer or model.tokenizer, model, lines)
    lines = ["import torch", "# model and tokenizer: those given to look"]
    if isinstance(model, Loaded):
        model, tokenizer = model.model, tokenizer or model.tokenizer
    opened = Opened(source, model, tokenizer, None, lines)
    kind = opened.kind
    if kind == "unknown":
        raise TypeError(f"model must be a run or a model of clearhead, got {type(model).__name__}")
    if kind in VIEWS and VIEWS[kind] != TEXT:
        raise ValueError(
            f"a {kind} is shown with its run, which reads its input; give the run: "
            f'look(load_run("runs/…"))'
        )
    if kind in VIEWS and tokenizer is None:
        raise ValueError("tokenizer is missing: a bare model cannot read a text without it")
    return opened

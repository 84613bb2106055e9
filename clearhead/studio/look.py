"""The view of a model in a notebook, or as one file that needs no server.

    look(run, "abccab|cca")                            in a notebook: the view itself
    look(model, "Once upon", tokenizer).save("page.html")

The page contains the answer to the view's question, so maps, lines and the explanation of every
cell work in an exported notebook too. Most controls that need a new computation are left out.
"""

from typing import Any

from clearhead.data.tokenizers import Tokenizer
from clearhead.inspection.viewer import AttentionView
from clearhead.interop import Loaded
from clearhead.runs import Run
from clearhead.studio.first_answers import answer_view
from clearhead.studio.page_views import KINDS, SHOW_NO_MODEL, TEXT_KINDS
from clearhead.studio.sources import Opened, Source, Sources, write_run_lines
from clearhead.studio.whole_page import write_whole

HEIGHT = 860


def look(model: Any, text: str | None = None, tokenizer: Tokenizer | None = None) -> AttentionView:
    """What a model attends to in a text: displayed by a notebook, or saved as .html.

    model: a run, what `interop.load` returns, or a model with its tokenizer. text: by default an
    example; for a model of pictures the number of a validation picture, such as "3".
    """
    sources = Sources([])
    return view_page(sources, sources.add_loaded(_open(model, tokenizer)).id, text)


def view_page(
    sources: Sources, id: str | None, text: str | None = None, view: str | None = None
) -> AttentionView:
    """The page of one view of one model on one input. id: None for a view without a model.

    view: by default the first one that shows this kind of model.
    """
    if id is not None:
        view = _choose_view(sources.open(id), view)
    assert view is not None
    answers, state = answer_view(sources, view, id, text)
    return AttentionView(write_whole(answers, state), HEIGHT)


def _choose_view(opened: Opened, view: str | None) -> str:
    kind = opened.kind
    fitting = [name for name, kinds in KINDS.items() if kind in kinds]
    if not fitting:
        known = ", ".join(dict.fromkeys(kind for kinds in KINDS.values() for kind in kinds))
        raise ValueError(f"a {kind} needs a running studio; a page without a server shows {known}")
    if view in SHOW_NO_MODEL:
        raise ValueError(f"view {view} shows no model: leave out {opened.source.id}")
    if view is not None and view not in fitting:
        raise ValueError(f"view {view} does not show a {kind}; choose {' or '.join(fitting)}")
    return view or fitting[0]


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
    if kind in (*KINDS["picture"], *KINDS["translation"], *KINDS["smallest"]):
        raise ValueError(
            f"a {kind} is shown with its run, which reads its input; give the run: "
            f'look(load_run("runs/…"))'
        )
    if kind in TEXT_KINDS and tokenizer is None:
        raise ValueError("tokenizer is missing: a bare model cannot read a text without it")
    return opened

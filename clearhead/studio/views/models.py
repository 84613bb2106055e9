"""The models of the studio: what each one is, and inputs to try it with."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from clearhead.data.tokenizers import Tokenizer
from clearhead.files.reading import BadFile
from clearhead.runs.folder import RunFolder
from clearhead.studio.sources import Opened, Source, Sources

N_EXAMPLES = 6
N_WORDS = 5  # of a prompt that is the beginning of a line in a sample
PROMPTS = [
    "ROMEO:",
    "To be, or not to be",
    "Once upon a time",
    "The dog chased the cat, and the dog",
]
TASKS = {  # what the built-in models were trained for
    "substring": "Does the part after | occur in the part before it? It answers yes or no.",
    "shakespeare": "Which character comes next in a play by Shakespeare?",
    "digits": "Which digit is drawn?",
    "dates": "How is this date written in digits: year, month, day?",
}
STARTS = {"substring": {"layer": 0, "head": 3}}  # the head that is open at first


def list_models(sources: Sources) -> dict[str, Any]:
    """All models; each is opened, and for one that cannot be opened, "about" is the error."""
    return {"models": [_describe(sources, source) for source in sources.listed.values()]}


def add_run(sources: Sources, run: str) -> dict[str, Any]:
    """Add a run to the models, such as one begun after the page was opened; describe it."""
    return {"model": _describe(sources, sources.find(run))}


def _describe(sources: Sources, source: Source) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": source.id, "path": source.path, "is_run": source.is_run}
    try:
        opened = sources.open(source.id)
    except (ValueError, OSError) as fault:
        return {**entry, "kind": None, "about": str(fault), "examples": []}
    size = f"{type(opened.model).__name__}, {opened.model.n_parameters:,} parameters"
    about = size if opened.run is None else f"{opened.run.recipe.name}: {size}"
    name = Path(source.path).name
    own = {"task": TASKS[name], "start": STARTS.get(name)} if source.is_lecture else {}
    examples = _find_examples(opened)
    return {**entry, "kind": opened.kind, "about": about, "examples": examples, **own}


def _find_examples(opened: Opened) -> list[str]:
    """Inputs to try; pictures are chosen by their numbers instead."""
    if opened.kind == "VisionTransformer":
        return []
    if opened.run is None or opened.kind == "GPT":
        return _find_prompts(opened, PROMPTS) or _find_prompts(opened, _read_openings(opened))
    with suppress(BadFile, OSError):  # the data of the run may be gone
        task = opened.run.task
        texts = [text for text, _ in (*task.pictures(None), *task.examples(N_EXAMPLES))]
        return list(dict.fromkeys(texts))[:N_EXAMPLES]
    return []


def _find_prompts(opened: Opened, texts: Iterable[str]) -> list[str]:
    """The first few different texts that the model can read."""
    known = (text for text in dict.fromkeys(texts) if text and _can_read(opened.tokenizer, text))
    return list(islice(known, N_EXAMPLES))


def _read_openings(opened: Opened) -> list[str]:
    """The first words of each line in the last sample of a run; none for other weights."""
    if opened.run is None:
        return []
    with suppress(BadFile, OSError):
        samples = RunFolder(opened.source.path).read_samples()
        lines = [line for _, text in samples[-1:] for line in text.splitlines()]
        return [" ".join(line.split()[:N_WORDS]) for line in lines]
    return []


def _can_read(tokenizer: Tokenizer | None, text: str) -> bool:
    """Whether every token of the text is known."""
    if tokenizer is None:
        return False
    try:
        return tokenizer.unk_id not in tokenizer.encode(text)
    except ValueError:
        return False

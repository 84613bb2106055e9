"""Translation: what a translator writes, where it looks for each word, and its beam search.

The words are written one after the other: step t gives the probabilities of word t, and row t of
the alignment shows where the model looks in the source at that step.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.attention import AdditiveAttention
from clearhead.generation import beam_search
from clearhead.inspection import alignment_weights, entropy, record, score_terms
from clearhead.inspection.record import Trace
from clearhead.models import Seq2Seq
from clearhead.models.model import evaluation_mode
from clearhead.studio.sources import Sources
from clearhead.studio.views.beam_tree import BeamTree
from clearhead.studio.views.effects import MAX_WORK
from clearhead.training.tasks.translation_predictor import TranslationPredictor

MAX_SOURCE = 200  # tokens
MAX_WRITTEN = 100
MAX_BEAMS = 16
N_LIKELY = 12  # words whose probability is shown at each step


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence and its translator. lines: the Python lines that load and encode them."""

    model: Seq2Seq
    predictor: TranslationPredictor
    ids: list[int]
    note: str | None  # how the sentence differs from the training data
    lines: list[str]

    @property
    def source(self) -> Tensor:
        """(1, S)."""
        return torch.tensor([self.ids], device=self.model.device)

    @property
    def n_tokens(self) -> int:
        """The largest number of words in a translation."""
        return min(self.predictor.most_tokens(self.model), MAX_WRITTEN)

    def spell(self, ids: list[int]) -> list[str]:
        """The words of the target language with these ids."""
        return self.predictor.target.spell(ids, specials=True)


def translate(
    sources: Sources, model: str, text: str, prefix: list[int] | None = None
) -> dict[str, Any]:
    """The greedy translation, the likeliest words at each step, and the attention to the source.

    prefix: ids of the words it must begin with; the model continues them.
    """
    sentence = _read(sources, model, text)
    model_, source = sentence.model, sentence.source
    options, words = {}, ""
    if prefix:
        options["prefix"] = torch.tensor([prefix], device=model_.device)
        words = f", prefix=torch.tensor([{prefix}], device=model.device)"
    written = model_.generate(
        source, sentence.n_tokens, forbid=sentence.predictor.forbid, **options
    )
    logits, trace = _run_teacher_forcing(sentence, written)
    ids, probs = written[0].tolist(), logits.softmax(-1)  # (T,), (T, V)
    likely = probs.topk(min(N_LIKELY, probs.size(-1)))
    log_probs = logits.log_softmax(-1).gather(-1, written.mT)[:, 0]
    lines = [
        *sentence.lines,
        f"written = model.generate(source, {sentence.n_tokens}, forbid=predictor.forbid{words})",
        *_write_teacher_forcing("written"),
        "probs = logits.softmax(-1)  # (words, vocabulary)",
        "log_probs = logits.log_softmax(-1).gather(-1, written.mT)[:, 0]",
        "from clearhead.inspection import alignment_weights",
        f"names = {_list_names(trace, model_)}",
        "alignments = [alignment_weights(trace, name)[0] for name in names]",
    ]
    return {
        "source": sentence.predictor.source.spell(sentence.ids, specials=True),
        "target": sentence.spell(ids),
        "ids": ids,
        "text": sentence.predictor.decode(ids),
        "is_ended": model_.config.end_id in ids,
        "note": sentence.note,
        "likely": {
            "ids": likely.indices,
            "texts": [sentence.spell(row) for row in likely.indices.tolist()],
            "probs": likely.values,
        },
        "logits": logits.gather(-1, likely.indices),
        "probs": probs.gather(-1, written.mT)[:, 0],
        "log_probs": log_probs,
        "log_prob": float(log_probs.double().sum()),
        "entropy": entropy(probs) / math.log(2),  # in bits
        "layers": _get_alignments(trace, model_),
        "python": "\n".join(lines),
    }


def explain_alignment(
    sources: Sources,
    model: str,
    text: str,
    ids: list[int],
    step: int,
    place: int,
    layer: int = 0,
    head: int = 0,
) -> dict[str, Any]:
    """The terms of the weight that a step gives to the source token `place`. ids: words written."""
    sentence = _read(sources, model, text)
    if not 0 <= step < len(ids) <= MAX_WRITTEN:
        raise ValueError(
            f"step is {step}, but ids has {len(ids)} words; at most {MAX_WRITTEN} are explained"
        )
    written = torch.tensor([ids], device=sentence.model.device)
    _, trace = _run_teacher_forcing(sentence, written)
    names = _list_names(trace, sentence.model)
    if not 0 <= layer < len(names):
        raise IndexError(f"layer is {layer}, but there are {len(names)}: 0 to {len(names) - 1}")
    calls = trace.calls(names[layer])
    which, row = (step, 0) if len(calls) > 1 else (0, step)  # a GRU attends anew at each step
    found = score_terms(calls[which], row, place, head)
    lines = [
        *sentence.lines,
        f"written = torch.tensor([{ids}], device=model.device)",
        *_write_teacher_forcing("written"),
        "from clearhead.inspection import score_terms",
        f"call = trace.calls({names[layer]!r})[{which}]",
        f"found = score_terms(call, row={row}, column={place}, head={head})",
    ]
    is_additive = isinstance(calls[which].mechanism, AdditiveAttention)
    kind = "additive" if is_additive else "dot product"
    return {**vars(found), "kind": kind, "python": "\n".join(lines)}


def search_beams(
    sources: Sources, model: str, text: str, n_beams: int = 4, length_penalty: float = 1.0
) -> dict[str, Any]:
    """Beam search: the sentences found, and the beams that were kept at each step.

    "steps": for each step the beams kept, each with its place, the place of its parent in the step
    before, its last word and its log p. "path" of a sentence: the place of its beam at each step.
    """
    sentence = _read(sources, model, text)
    if not 1 <= n_beams <= MAX_BEAMS:
        raise ValueError(f"n_beams must be from 1 to {MAX_BEAMS} here, got {n_beams}")
    most = MAX_WORK // (2 * sentence.model.n_parameters * sentence.n_tokens)
    if n_beams > most:  # each beam reads one more word at each step
        raise ValueError(
            f"n_beams is {n_beams}, but for a model of this size and {sentence.n_tokens} words at "
            f"most {most} beams are searched here; use fewer, or beam_search in a notebook"
        )
    tree = BeamTree(sentence.model.config.end_id)
    found = beam_search(
        sentence.model,
        sentence.source,
        sentence.n_tokens,
        n_beams=n_beams,
        length_penalty=length_penalty,
        forbid=sentence.predictor.forbid,
        watch=tree.watch,
    )
    lines = [
        *sentence.lines,
        "from clearhead.generation import beam_search",
        "steps = []  # of each: words, parents and log p of the beams, (1, n_beams)",
        f"found = beam_search(model, source, {sentence.n_tokens}, n_beams={n_beams}, "
        f"length_penalty={length_penalty},",
        "                    forbid=predictor.forbid, watch=lambda *step: steps.append(step))",
    ]
    results = []
    for place, length in enumerate(found.lengths[0].tolist()):
        if length:
            ids = found.tokens[0, place, :length].tolist()
            results.append(
                {
                    "text": sentence.predictor.decode(ids),
                    "score": float(found.scores[0, place]),
                    "log_prob": float(found.log_probs[0, place]),
                    "length": length,
                    "path": tree.find_path(ids),
                }
            )
    return {
        "source": sentence.predictor.source.spell(sentence.ids, specials=True),
        "steps": tree.list_steps(sentence.spell),
        "results": results,
        "python": "\n".join(lines),
    }


def _read(sources: Sources, id: str, text: str) -> Sentence:
    """A sentence for a translator; an empty or too long one is refused."""
    opened = sources.open(id)
    if opened.kind != "Seq2Seq" or opened.run is None:
        raise ValueError(
            f"{id} is a {type(opened.model).__name__}, but this view shows translators trained "
            f"here, such as a run of translate-gru"
        )
    predictor, model = opened.predictor, opened.model
    if not text.strip():
        raise ValueError("the text is empty; type a sentence to translate")
    ids = predictor.source.encode(text)
    most = min(MAX_SOURCE, model.max_len or MAX_SOURCE)
    if len(ids) > most:
        raise ValueError(f"the text has {len(ids)} tokens, but at most {most} are read; shorten it")
    note = opened.run.recipe.data.describe_unfamiliar(predictor, model, text)
    lines = [
        *opened.lines,
        "predictor = run.predictor",
        f"source = torch.tensor([predictor.source.encode({text!r})], device=model.device)",
    ]
    return Sentence(model, predictor, ids, note, lines)


def _run_teacher_forcing(sentence: Sentence, written: Tensor) -> tuple[Tensor, Trace]:
    """The logits (T, V) and the attention when the decoder is given these words, (1, T)."""
    start = written.new_full((1, 1), sentence.model.config.start_id)
    inputs = torch.cat((start, written[:, :-1]), dim=1)
    with evaluation_mode(sentence.model), record(sentence.model) as trace:
        logits = sentence.model(sentence.source, inputs)[0]
    return logits, trace


def _write_teacher_forcing(written: str) -> list[str]:
    """The Python lines of _run_teacher_forcing."""
    return [
        "from clearhead.inspection import record",
        "from clearhead.models.model import evaluation_mode",
        f"start = {written}.new_full((1, 1), model.config.start_id)",
        "with evaluation_mode(model), record(model) as trace:",
        f"    logits = model(source, torch.cat((start, {written}[:, :-1]), dim=1))[0]",
    ]


def _list_names(trace: Trace, model: Seq2Seq) -> list[str]:
    """The names of the attentions to the source: one of a GRU, one per layer of a transformer."""
    kind = model.alignment_name.rpartition(".")[2]
    return [
        name for name in trace.attention if name.rpartition(".")[2] == kind and "decoder" in name
    ]


def _get_alignments(trace: Trace, model: Seq2Seq) -> list[dict[str, Any]]:
    """For each attention to the source: its weights (H, T, S), and their mean over the heads."""
    layers = []
    for name in _list_names(trace, model):
        weights = torch.cat([call.weights for call in trace.calls(name)], dim=-2)[0]
        heads = weights if weights.ndim == 3 else weights[None]
        layers.append({"name": name, "weights": heads, "mean": alignment_weights(trace, name)[0]})
    return layers

"""The smallest transformer: one sequence step by step, all sequences counted, and its training.

The matrices of a question are those of the page, or a start (smallest_starts.py). Nothing is kept
between two questions, so an edited cell is a question with other numbers.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from clearhead.data.batch import Batch
from clearhead.lab.learned_vs_designed.all_sequences import all_sequences
from clearhead.models.model import load_weights
from clearhead.models.smallest import NumpyTransformer, TorchTransformer, designs
from clearhead.shapes import check_whole
from clearhead.studio.sources import Sources
from clearhead.studio.views import smallest_starts as starts
from clearhead.studio.views.smallest_starts import Matrices, Rule, SmallestModel, Start
from clearhead.training.tasks.sequences import CLS, LETTERS, SequencePredictor

MAX_STEPS = 1000
STEPS_PER_ANSWER = 2  # so that 100 steps are 50 answers, which the page draws in about a second
N_MISTAKES = 12  # wrong sequences that are listed


def run_smallest(
    sources: Sources,
    text: str,
    rule: Rule = "identity",
    max_len: int = 4,
    start: Start = "by hand",
    sharpness: float = designs.SHARPNESS,
    seed: int = 0,
    model: str | None = None,
    matrices: Matrices | None = None,
) -> dict[str, Any]:
    """All matrices of one sequence, and how many of all sequences come out right.

    text: letters such as CAC. matrices, if given, are used in place of the start. sharpness: for
    "by hand"; seed: for "random"; model: the id of a run, for "run", which sets rule and max_len.

    "score": the count over all sequences of up to max_len letters. "topics": what the columns of
    Km and Qm mean in a design; "bound": the largest error that its sharpness allows.
    """
    if matrices is not None:
        smallest = starts.read_matrices(matrices, rule, max_len)
    elif start != "run":
        smallest = starts.make_start(rule, max_len, start, sharpness, seed)
    elif model is not None:
        smallest = starts.open_run(sources.open(model))
    else:
        raise ValueError("model is missing: the id of a run, for start='run'")
    is_by_hand, n = start == "by hand", smallest.predictor.max_len
    has_bound = is_by_hand and matrices is None
    return {
        **_describe(smallest, text),
        "topics": _name_topics(smallest) if is_by_hand else None,
        "bound": designs.error_bound(rule, sharpness, n) if has_bound else None,
        "python": _write_lines(smallest, text),
    }


def train_smallest(
    sources: Sources,
    text: str,
    matrices: Matrices,
    rule: Rule = "identity",
    max_len: int = 4,
    steps: int = 100,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """Train the matrices by the recipe of their rule; after every two steps an answer.

    An answer holds what run_smallest returns, for the matrices as they are now, and "loss": the
    mean since the last answer, each before its update. The learning rate rises and falls once
    within these steps.
    """
    check_whole("steps", steps, least=1, most=MAX_STEPS)
    start = starts.read_matrices(matrices, rule, max_len)
    settings = [f"training.{name}" for name in (f"steps={steps}", f"seed={seed}")]
    settings += ["training.log_every=1"]
    changes = starts.list_changes(rule, max_len, start.model, *settings)
    training = starts.begin_training(rule, max_len, changes)
    with starts.run_alone():
        load_weights(training.model, _to_weights(start.model))
    while not training.is_done:
        n_steps = min(STEPS_PER_ANSWER, steps - training.state.step)
        with starts.run_alone():
            for _ in range(n_steps):
                training.advance()
        step, metrics = training.state.step, training.storage.metrics[-n_steps:]
        lines = [
            *starts.write_training(rule, changes),
            *starts.write_matrices(start.model),
            "weights = TorchTransformer.from_numpy(model).float().state_dict()",
            "training.model.load_state_dict(weights)",
            f"for _ in range({step}):",
            "    training.advance()",
            "model = training.model.to_numpy()",
        ]
        smallest = SmallestModel(training.model.to_numpy(), start.predictor, lines)
        yield {
            **_describe(smallest, text),
            "step": step,
            "loss": sum(each["loss"] for each in metrics) / len(metrics),
            "python": _write_lines(smallest, text),
        }


def _to_weights(model: NumpyTransformer) -> dict[str, Tensor]:
    """The state_dict of the TorchTransformer with these matrices, in float32 for training."""
    return TorchTransformer.from_numpy(model).float().state_dict()


# What the matrices compute


def _describe(smallest: SmallestModel, text: str) -> dict[str, Any]:
    """All matrices of one sequence, and the score over all sequences."""
    model, predictor = smallest.model, smallest.predictor
    example = predictor.read(text)
    steps = model.steps(example.inputs[0].numpy())
    output = torch.from_numpy(steps.output)
    names = [*LETTERS, "CLS"]
    tokens = [names[i] for i in example.inputs[0].argmax(dim=-1)]
    return {
        "rule": predictor.rule,
        "max_len": predictor.max_len,
        "text": text,
        "tokens": tokens,
        "inputs": [*names[: model.d_input], *(f"place {i}" for i in range(model.d_pos))],
        "outputs": ["answer"] if predictor.rule == "unique" else [*LETTERS],
        "parameters": {"Km": model.Km, "Qm": model.Qm, "Vm": model.Vm, "pos": model.pos},
        "x": steps.x,
        "K": steps.K,
        "Q": steps.Q,
        "V": steps.V,
        "scores": steps.scores,
        "Attn": steps.attention,
        "Out": steps.output,
        "targets": example.targets[0],
        "is_right": predictor.is_right(output, example.targets[0]),
        "score": _count_right(model, predictor),
    }


def _count_right(model: NumpyTransformer, predictor: SequencePredictor) -> dict[str, Any]:
    """Over all sequences: how many have every token right, the largest error, some mistakes."""
    examples = _list_all(predictor.rule, predictor.max_len)
    real = examples.token_mask
    assert real is not None
    with torch.no_grad(), starts.run_alone():
        outputs = TorchTransformer.from_numpy(model)(examples.inputs, real)
    is_right = (predictor.is_right(outputs, examples.targets) | ~real).all(dim=1)
    wrong = (~is_right).nonzero()[:N_MISTAKES, 0].tolist()
    return {
        "n_right": int(is_right.sum()),
        "n": len(is_right),
        "worst": float((outputs - examples.targets).abs()[real].max()),
        "mistakes": [_spell(examples.inputs[i][real[i]]) for i in wrong],
    }


@cache
def _list_all(rule: str, max_len: int) -> Batch:
    return all_sequences(rule, max_len)


def _spell(rows: Tensor) -> str:
    """One-hot rows as letters, without CLS."""
    return "".join(LETTERS[i] for i in rows.argmax(dim=-1).tolist() if i != CLS)


def _name_topics(smallest: SmallestModel) -> list[str] | None:
    """What the columns of Km and Qm mean in a design; None for matrices of other shapes."""
    places = [f"place {i}" for i in range(1, smallest.predictor.max_len + 1)]
    topics = {
        "identity": [*LETTERS],
        "first": ["start"],
        "unique": [*LETTERS, "CLS", *places],
    }[smallest.predictor.rule]
    return topics if len(topics) == smallest.model.Km.shape[1] else None


def _write_lines(smallest: SmallestModel, text: str) -> str:
    rule, max_len = smallest.predictor.rule, smallest.predictor.max_len
    lines = [
        "from clearhead.lab.learned_vs_designed.all_sequences import all_sequences",
        "from clearhead.training.tasks.sequences import SequencePredictor",
        *smallest.lines,
        f"predictor = SequencePredictor({rule!r}, {max_len})",
        f"example = predictor.read({text!r})",
        "steps = model.steps(example.inputs[0].numpy())",
        "matrices = model.name_matrices(steps)  # Km Qm Vm K Q V Attn Out",
        f"examples = all_sequences({rule!r}, {max_len})",
        "outputs = TorchTransformer.from_numpy(model)(examples.inputs, examples.token_mask)",
        "is_right = predictor.is_right(outputs, examples.targets) | ~examples.token_mask",
        "n_right = int(is_right.all(dim=1).sum())",
    ]
    return "\n".join(lines)

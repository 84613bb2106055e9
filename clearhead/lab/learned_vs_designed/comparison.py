"""Trained weights compared with weights set by hand.

For three rules – identity, first, unique – the smallest transformer is trained and compared with
the design of models/smallest/designs.py. Their matrices cannot be compared directly, because Qm and
Km are determined only up to a change of basis. shared_basis.py writes both in the same basis and
all_sequences.py runs both on all sequences.

The sharpness of a design is the difference between the scores of the right key and of the others:
40 here. The sharpness of trained scores is that of the design nearest to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from clearhead.inspection.picture import Picture
from clearhead.inspection.smallest_figure import Compared, smallest_rows
from clearhead.lab import EXPERIMENTS
from clearhead.lab.learned_vs_designed.all_sequences import Pass, all_sequences, compare_passes
from clearhead.lab.learned_vs_designed.shared_basis import compare, list_names, rewrite
from clearhead.lab.tools.finding import Finding, Table, format_cell, wrap
from clearhead.lab.tools.training import train_temporarily
from clearhead.models.smallest import NumpyTransformer, TorchTransformer, designs
from clearhead.training import find_recipe, with_changes

MAX_LEN = 6
LEARNED = 1e-3  # a run that ends above this loss has not learned the rule; the next seed is tried
MOST_SEEDS = 5  # that are tried; the last counts, whether it has learned the rule or not
N_SEEDS = 10  # with full
EXAMPLES = {"identity": "ABCC", "first": "CABA", "unique": "ABACA"}
STORIES = {
    "identity": "each token attends to its own letter",
    "first": "each token attends to position 0",
    "unique": "a repeated letter attends to its other occurrences, a single one to CLS",
}
MODELS = {"by_hand": "by hand", "as_sharp": "by hand, as sharp as trained", "trained": "trained"}
COLUMNS = {
    "keys": "unlike_keys",
    "queries": "unlike_queries",
    "scores": "unlike_scores",
    "values": "values_differ",
    "weighted": "values_heard",
    "attention": "moved",
    "outputs": "outputs_differ",
}

Numbers = dict[str, list[float]]


@dataclass(frozen=True)
class Pair:
    """Both transformers of a rule; tried: how many seeds were trained."""

    rule: str
    learned: NumpyTransformer
    tried: int

    def by_hand(self, sharpness: float = designs.SHARPNESS) -> NumpyTransformer:
        """The design with this sharpness."""
        if self.rule == "identity":
            return designs.identity(sharpness)
        return {"first": designs.first, "unique": designs.unique}[self.rule](MAX_LEN, sharpness)


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Train on all three rules and compare; full: with ten seeds each."""
    pairs = [train_pair(rule, seed, device) for rule in EXAMPLES]
    measured = [measure(pair) for pair in pairs]
    numbers = {name: [each[name] for each in measured] for name in measured[0]}
    tables = [_tabulate_differences(numbers), _tabulate_sharpness(numbers)]
    seen, picture = _describe(numbers), _draw(pairs, numbers)
    if full:
        more = _measure_seeds(range(seed, seed + N_SEEDS), device)
        numbers |= more
        tables.append(_tabulate_seeds(more))
    return Finding(EXPERIMENTS["learned-vs-designed"], tables, seen, numbers, picture)


def train_pair(rule: str, seed: int, device: torch.device | str = "cpu") -> Pair:
    """Train the recipe with this seed, or with the next seed that learns the rule."""
    for tried in range(1, MOST_SEEDS + 1):
        recipe = with_changes(find_recipe(rule), [f"training.seed={seed + tried - 1}"])
        result = train_temporarily(recipe, device, threads=torch.get_num_threads())
        model = result.trained.model.cpu()
        if result.metrics["val_loss"] < LEARNED:
            break
    assert isinstance(model, TorchTransformer)
    return Pair(rule, model.to_numpy(), tried)


def measure(pair: Pair) -> dict[str, float]:
    """How the two differ: in their own bases, in the shared basis, on all sequences."""
    names = list_names(pair.rule, MAX_LEN)
    differences = compare(pair.learned, pair.by_hand(), names)
    sharpness = differences.pop("sharper") * designs.SHARPNESS
    models = {
        "by_hand": pair.by_hand(),
        "as_sharp": pair.by_hand(sharpness),
        "trained": pair.learned,
        "rewritten": rewrite(pair.learned, pair.by_hand(), names),
    }
    examples = all_sequences(pair.rule, MAX_LEN)
    passes = {name: Pass.of(model, examples) for name, model in models.items()}
    rewritten = (passes["rewritten"].outputs - passes["trained"].outputs).abs().max()
    return {
        "seeds_tried": float(pair.tried),
        **{f"unlike_{what}": value for what, value in differences.items()},
        "renamed_differs": float(rewritten),
        **compare_passes(passes["trained"], passes["by_hand"]),
        "sharpness": sharpness,
        **{
            f"{what}_{name}": value
            for name in MODELS
            for what, value in passes[name].sharpness_and_error().items()
        },
    }


def _measure_seeds(seeds: Sequence[int], device: torch.device | str) -> Numbers:
    """Some numbers of each rule, for every seed."""
    numbers: Numbers = {}
    for rule in EXAMPLES:
        measured = [measure(train_pair(rule, seed, device)) for seed in seeds]
        for name in ("unlike_scores", "sharpness", "moved", "outputs_differ"):
            numbers[f"{name}_{rule}"] = [each[name] for each in measured]
    return numbers


# Tables and sentences


def _tabulate_differences(numbers: Numbers) -> Table:
    caption = (
        "Trained against set by hand. The dissimilarity of keys and queries, each in its own "
        "basis, and of scores, which need none: 0 = one is a multiple of the other, 1 = nothing in "
        "common. On all 1,092 sequences, on average over all tokens: the difference of values, the "
        "same weighted by attention; the share of attention that goes elsewhere; the difference of "
        "outputs."
    )
    columns = ((heading, numbers[name]) for heading, name in COLUMNS.items())
    return Table.from_columns(wrap(caption), ("rule", EXAMPLES), *columns)


def _tabulate_sharpness(numbers: Numbers) -> Table:
    rows = []
    for order, rule in enumerate(EXAMPLES):
        for key, name in MODELS.items():
            sharpness = designs.SHARPNESS if key == "by_hand" else numbers["sharpness"][order]
            measures = (numbers[f"{what}_{key}"][order] for what in ("entropy", "largest", "error"))
            rows.append([f"{rule}, {name}", sharpness, *measures])
    tried = ", ".join(f"{n:.0f}" for n in numbers["seeds_tried"])
    caption = (
        f"How sharp their attention is, and the mean error of their outputs. Number of seeds that "
        f"were trained until one had learned identity, first and unique: {tried}."
    )
    columns = ["", "sharpness", "entropy (nats)", "largest weight", "error"]
    return Table(wrap(caption), columns, rows)


def _tabulate_seeds(more: Numbers) -> Table:
    rows = [
        [name.replace("_", " "), min(values), sum(values) / len(values), max(values)]
        for name, values in more.items()
    ]
    return Table(f"The same with {N_SEEDS} seeds.", ["", "least", "mean", "most"], rows)


def _describe(numbers: Numbers) -> str:
    own_bases = [*numbers["unlike_keys"], *numbers["unlike_queries"]]
    scores, sharpness = numbers["unlike_scores"], numbers["sharpness"]
    identity, first, unique = range(len(EXAMPLES))
    return wrap(
        f"In their own bases, trained keys and queries have next to nothing in common with those "
        f"set by hand (dissimilarity {min(own_bases):.2f} to {max(own_bases):.2f}); in the shared "
        f"basis the dissimilarity of the scores of identity is {scores[identity]:.2f}, with a "
        f"sharpness of {sharpness[identity]:.0f} instead of {designs.SHARPNESS:.0f}, and no rule's "
        f"outputs differ by more than {format_cell(max(numbers['outputs_differ']))} on average.",
        f"They differ where this does not change the outputs: in unique (scores: "
        f"{scores[unique]:.2f}) {numbers['moved'][unique]:.0%} of the attention goes to another "
        f"token than by hand, and in first (scores: {scores[first]:.2f}) the values differ by "
        f"{numbers['values_differ'][first]:.2f}, but weighted by attention by "
        f"{format_cell(numbers['values_heard'][first])}.",
    )


def _draw(pairs: Sequence[Pair], numbers: Numbers) -> Picture:
    """For each rule: as trained, the same in the shared basis, and the design in that basis."""
    groups = []
    for order, pair in enumerate(pairs):
        names, text = list_names(pair.rule, MAX_LEN), EXAMPLES[pair.rule]
        tokens = ["CLS", *text] if pair.rule == "unique" else list(text)
        seq = np.eye(len(names.letters))[[names.letters.index(token) for token in tokens]]
        in_names = {
            "the same,\nshared basis": rewrite(pair.learned, pair.by_hand(), names),
            "by hand": rewrite(pair.by_hand(), pair.by_hand(), names),
        }
        title = (
            f"{pair.rule}: {STORIES[pair.rule]} – dissimilarity of scores "
            f"{numbers['unlike_scores'][order]:.2f}, outputs differ by "
            f"{format_cell(numbers['outputs_differ'][order])}"
        )
        models = {"trained": pair.learned, **in_names}
        groups.append(Compared(title, models, seq, tokens, dict.fromkeys(in_names, names.all)))
    return smallest_rows(groups)

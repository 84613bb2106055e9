"""What training finds, beside what was set by hand.

The smallest transformer with weights set by hand (models/smallest/designs.py), and the same class
trained on the same rule: identity, first, unique. As they stand, the matrices cannot be compared,
for Qm and Km are fixed only up to a change of basis. same_names.py writes both with the same names;
what is left is told in numbers, and so is what both do on all sequences (all_sequences.py).

The scores set by hand have a sharpness, 40: so far the right key is ahead of the wrong ones. Those
that were trained have the sharpness of the design that is nearest to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from textwrap import fill

import numpy as np
import torch

from clearhead.inspection.picture import Picture
from clearhead.inspection.smallest_figure import Compared, smallest_rows
from clearhead.lab.learned_vs_designed.all_sequences import Pass, all_sequences, apart
from clearhead.lab.learned_vs_designed.shared_basis import difference, names_of, renamed
from clearhead.lab.tools.finding import Finding, Table, written
from clearhead.models.smallest import NumpyTransformer, TorchTransformer, designs
from clearhead.runs import load_run, train
from clearhead.training import find_recipe, with_changes

MAX_LEN = 6
LEARNED = 1e-3  # a run that ends above this loss has not learned the rule: then another seed
MOST_SEEDS = 5
N_SEEDS = 10  # with full
EXAMPLES = {"identity": "ABCC", "first": "CABA", "unique": "ABACA"}
STORIES = {
    "identity": "each token hears its own kind",
    "first": "each token hears place 0",
    "unique": "a repeated letter hears its kind elsewhere, the others CLS",
}
MODELS = {"by_hand": "by hand", "as_sharp": "by hand, as sharp as trained", "trained": "trained"}
COLUMNS = {
    "keys": "unlike_keys",
    "queries": "unlike_queries",
    "scores": "unlike_scores",
    "values": "values_differ",
    "heard": "values_heard",
    "attention": "moved",
    "outputs": "outputs_differ",
}

Numbers = dict[str, list[float]]


@dataclass(frozen=True)
class Pair:
    """Both transformers of a rule; tried: how many seeds were trained until one had learned it."""

    rule: str
    learned: NumpyTransformer
    tried: int

    def by_hand(self, sharpness: float = designs.SHARPNESS) -> NumpyTransformer:
        """The design, more or less sharp."""
        if self.rule == "identity":
            return designs.identity(sharpness)
        return {"first": designs.first, "unique": designs.unique}[self.rule](MAX_LEN, sharpness)


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Train all three rules and compare; full: with ten seeds each."""
    pairs = [trained(rule, seed, device) for rule in EXAMPLES]
    each = [measured(pair) for pair in pairs]
    numbers = {name: [of_rule[name] for of_rule in each] for name in each[0]}
    tables = [_table_of_differences(numbers), _table_of_sharpness(numbers)]
    story, picture = _story(numbers), _picture(pairs, numbers)
    if full:
        more = _of_seeds(range(seed, seed + N_SEEDS), device)
        numbers |= more
        tables.append(_table_of_seeds(more))
    claim = "What training finds is what one would set by hand, in another basis."
    return Finding(claim, tables, story, numbers, picture)


def trained(rule: str, seed: int, device: torch.device | str = "cpu") -> Pair:
    """The recipe's run with this seed, or with the next one that learns the rule."""
    for tried in range(1, MOST_SEEDS + 1):
        recipe = with_changes(find_recipe(rule), [f"training.seed={seed + tried - 1}"])
        with TemporaryDirectory() as folder:
            threads = torch.get_num_threads()
            result = train(recipe, folder, device=str(device), threads=threads)
            model = load_run(result.run, device="cpu").model
        if result.metrics["val_loss"] < LEARNED:
            break
    assert isinstance(model, TorchTransformer)
    return Pair(rule, model.to_numpy(), tried)


def measured(pair: Pair) -> dict[str, float]:
    """How far apart the two are: as they stand, in the same names, and in what they do."""
    names = names_of(pair.rule, MAX_LEN)
    found = difference(pair.learned, pair.by_hand(), names)
    sharpness = found.pop("sharper") * designs.SHARPNESS
    models = {
        "by_hand": pair.by_hand(),
        "as_sharp": pair.by_hand(sharpness),
        "trained": pair.learned,
        "renamed": renamed(pair.learned, pair.by_hand(), names),
    }
    examples = all_sequences(pair.rule, MAX_LEN)
    passes = {name: Pass.of(model, examples) for name, model in models.items()}
    same = (passes["renamed"].outputs - passes["trained"].outputs).abs().max()
    return {
        "seeds_tried": float(pair.tried),
        **{f"unlike_{what}": value for what, value in found.items()},
        "renamed_differs": float(same),
        **apart(passes["trained"], passes["by_hand"]),
        "sharpness": sharpness,
        **{
            f"{what}_{name}": value
            for name in MODELS
            for what, value in passes[name].sharpness_and_error().items()
        },
    }


def _of_seeds(seeds: Sequence[int], device: torch.device | str) -> Numbers:
    """For each rule, what every seed comes to."""
    found: Numbers = {}
    for rule in EXAMPLES:
        each = [measured(trained(rule, seed, device)) for seed in seeds]
        for name in ("unlike_scores", "sharpness", "moved", "outputs_differ"):
            found[f"{name}_{rule}"] = [of_seed[name] for of_seed in each]
    return found


# What is told


def _table_of_differences(numbers: Numbers) -> Table:
    caption = (
        "Trained against set by hand. Keys and queries as they stand, and scores, in any basis: "
        "how unlike they are, 0 = one is a multiple of the other, 1 = nothing in common. On all "
        "1,092 sequences, on average over all tokens: how far values differ, and how far those "
        "that are heard; the share of attention that goes elsewhere; how far outputs differ."
    )
    rows = [
        [rule, *(numbers[name][place] for name in COLUMNS.values())]
        for place, rule in enumerate(EXAMPLES)
    ]
    return Table(fill(caption, 100), ["rule", *COLUMNS], rows)


def _table_of_sharpness(numbers: Numbers) -> Table:
    rows = []
    for place, rule in enumerate(EXAMPLES):
        for key, name in MODELS.items():
            sharpness = designs.SHARPNESS if key == "by_hand" else numbers["sharpness"][place]
            measures = (numbers[f"{what}_{key}"][place] for what in ("entropy", "largest", "error"))
            rows.append([f"{rule}, {name}", sharpness, *measures])
    tried = ", ".join(f"{n:.0f}" for n in numbers["seeds_tried"])
    caption = (
        f"How sharply they listen, and how far their outputs are from the right ones, on average. "
        f"Seeds that were trained until one had learned identity, first and unique: {tried}."
    )
    columns = ["", "sharpness", "entropy (nats)", "largest weight", "error"]
    return Table(fill(caption, 100), columns, rows)


def _table_of_seeds(more: Numbers) -> Table:
    rows = [
        [name.replace("_", " "), min(values), sum(values) / len(values), max(values)]
        for name, values in more.items()
    ]
    return Table(f"The same with {N_SEEDS} seeds.", ["", "least", "mean", "most"], rows)


def _story(numbers: Numbers) -> str:
    as_they_stand = [*numbers["unlike_keys"], *numbers["unlike_queries"]]
    scores, sharpness = numbers["unlike_scores"], numbers["sharpness"]
    identity, first, unique = range(len(EXAMPLES))
    sentences = (
        f"As they stand, the keys and queries that were trained have next to nothing in common "
        f"with those set by hand (unlike by {min(as_they_stand):.2f} to {max(as_they_stand):.2f}); "
        f"in the same names the scores of identity are unlike by {scores[identity]:.2f}, of "
        f"sharpness {sharpness[identity]:.0f} instead of {designs.SHARPNESS:.0f}, and no rule's "
        f"outputs differ by more than {written(max(numbers['outputs_differ']))} on average.",
        f"They differ where the outputs do not show it: in unique (scores unlike by "
        f"{scores[unique]:.2f}) {numbers['moved'][unique]:.0%} of the attention goes to another "
        f"token than by hand, and in first ({scores[first]:.2f}) the values differ by "
        f"{numbers['values_differ'][first]:.2f}, but those that are heard by "
        f"{written(numbers['values_heard'][first])}.",
    )
    return "\n".join(fill(sentence, 100) for sentence in sentences)


def _picture(pairs: Sequence[Pair], numbers: Numbers) -> Picture:
    """Each rule: as trained, in the names of the design, and the design in the same names."""
    groups = []
    for place, pair in enumerate(pairs):
        names, text = names_of(pair.rule, MAX_LEN), EXAMPLES[pair.rule]
        tokens = ["CLS", *text] if pair.rule == "unique" else list(text)
        seq = np.eye(len(names.letters))[[names.letters.index(token) for token in tokens]]
        in_names = {
            "the same,\nrenamed": renamed(pair.learned, pair.by_hand(), names),
            "by hand": renamed(pair.by_hand(), pair.by_hand(), names),
        }
        title = (
            f"{pair.rule}: {STORIES[pair.rule]} – scores unlike by "
            f"{numbers['unlike_scores'][place]:.2f}, outputs differ by "
            f"{written(numbers['outputs_differ'][place])}"
        )
        models = {"trained": pair.learned, **in_names}
        groups.append(Compared(title, models, seq, tokens, dict.fromkeys(in_names, names.all)))
    return smallest_rows(groups)

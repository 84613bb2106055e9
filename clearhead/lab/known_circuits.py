"""Do the methods of inspection find the parts that matter? A test on models with known circuits.

For a compiled program (clearhead/programs) it is known which heads and feed-forward layers are
used, and for what. So a method can be scored by the share of the used parts that it finds:

    patching     replace the output of a part by its value on another input
    ablation     set the output of a part to 0
    gradient     estimate the effect of patching from one gradient (attribution patching)
    attribution  what a part adds to the logits directly

A part counts as found if its effect is more than 1 % of the largest effect. Patching finds only
parts whose output differs between the two inputs; both have the same length, so a part that
computes the length is missed. The gradient finds little, because the softmax of a compiled head is
saturated. Attribution finds only parts that write to the logits without another layer in between.

Head scores are tested too. Some heads of the programs are of a known kind, such as previous-token
heads; the score of this kind should be higher for them than for all other heads.

InterpBench (Gupta et al. 2024) makes the same test with models trained to follow a program.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead import programs
from clearhead.inspection import ablate, attribution, estimate_sweep, head_scores, patch_sweep
from clearhead.inspection.matrices import array, draw_weights, write_cells
from clearhead.inspection.picture import Picture, panels
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.finding import Finding, Table
from clearhead.programs import PROGRAMS, CompiledProgram, Part

N_PAIRS, LARGE = (
    32,
    0.01,
)  # pairs of inputs; share of the largest effect above which a part is found
METHODS = ("patching", "ablation", "gradient", "attribution")

# The heads of each kind: (program, layer, head).
KINDS = {
    "previous": [("shift", 0, 0), ("induction", 0, 0), ("induction", 1, 0)],
    "duplicate": [("identity", 0, 0), ("unique", 0, 0), ("histogram", 0, 0), ("induction", 0, 1)],
    "induction": [("induction", 2, 0)],
}
LETTERS, LONGEST = "abcdefghijkl", 17  # enough letters that few random tokens are equal by chance

Effects = dict[str, Tensor]  # "head": (L, H), "feed_forward": (L,): the effect of each part


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Patching and ablation find most parts a model uses; a gradient finds few."""
    numbers: dict[str, Any] = {name: [] for name in ("used", *METHODS, "falsely_found")}
    for name in PROGRAMS:
        example = PROGRAMS[name]
        compiled = programs.compile(example.build(), example.vocabulary, example.max_len)
        compiled.model.to(device)
        pairs = draw_pairs(name, 4 * N_PAIRS if full else N_PAIRS, seed)
        used = [part for part in compiled.circuit if part.is_used]
        numbers["used"].append(float(len(used)))
        false = 0
        for method in METHODS:
            effects = MEASURES[method](compiled, *pairs)
            found = [part for part in compiled.circuit if is_found(part, effects)]
            numbers[method].append(float(sum(part.is_used for part in found)))
            false += sum(not part.is_used for part in found)
        numbers["falsely_found"].append(float(false))
    numbers |= score_kinds(seed, device)
    return Finding(
        claim=EXPERIMENTS["known-circuits"],
        tables=[_tabulate(numbers), _tabulate_kinds(numbers)],
        seen=_describe(numbers),
        numbers=numbers,
        picture=_draw(numbers),
    )


def draw_pairs(name: str, n: int, seed: int) -> tuple[list[str], list[str]]:
    """Two lists of n random inputs of a program, all of its maximum length."""
    example = PROGRAMS[name]
    generator = torch.Generator().manual_seed(seed)
    letters = example.vocabulary.replace("|", "")
    bar = example.vocabulary.find("|") >= 0

    def draw() -> str:
        ids = torch.randint(len(letters), (example.max_len,), generator=generator).tolist()
        text = "".join(letters[i] for i in ids)
        return f"{text[:4]}|{text[5:]}" if bar else text  # haystack|needle

    inputs = [draw() for _ in range(2 * n)]
    return inputs[:n], inputs[n:]


def is_found(part: Part, effects: Effects) -> bool:
    """Whether the effect of a part is more than LARGE times the largest effect."""
    largest = max(float(table.max()) for table in effects.values())
    if part.head is None:
        own = effects["feed_forward"][part.layer]
    else:
        own = effects["head"][part.layer, part.head]
    return float(own) > LARGE * largest


# The four methods: compiled program, clean inputs, other inputs → the effect of each part


def by_patching(compiled: CompiledProgram, clean: list[str], other: list[str]) -> Effects:
    """Patch each part of the run on `other` with its value on `clean`."""
    return _sweep(patch_sweep, compiled, clean, other)


def by_gradient(compiled: CompiledProgram, clean: list[str], other: list[str]) -> Effects:
    """The same effects, estimated from one gradient."""
    return _sweep(estimate_sweep, compiled, clean, other)


def _sweep(
    sweep: Callable[..., Any], compiled: CompiledProgram, clean: list[str], other: list[str]
) -> Effects:
    tokens, others = (compiled.encode(inputs)[0] for inputs in (clean, other))
    metric = make_metric(compiled, tokens)
    heads = sweep(compiled.model, tokens, others, metric).effect.abs()
    layers = sweep(compiled.model, tokens, others, metric, over="position", part="feed_forward")
    return {"head": heads, "feed_forward": layers.effect.abs().amax(dim=1)}


@torch.no_grad()
def by_ablation(compiled: CompiledProgram, clean: list[str], other: list[str]) -> Effects:
    """Set each part to 0; `other` is not used."""
    tokens, _ = compiled.encode(clean)
    metric, model = make_metric(compiled, tokens), compiled.model
    before = metric(model(tokens)).mean()
    effects = _make_tables(compiled)
    for part in compiled.circuit:
        with ablate(model, part.module, part.head):
            effect = (metric(model(tokens)).mean() - before).abs()
        if part.head is None:
            effects["feed_forward"][part.layer] = effect
        else:
            effects["head"][part.layer, part.head] = effect
    return effects


def by_attribution(compiled: CompiledProgram, clean: list[str], other: list[str]) -> Effects:
    """The direct contribution of each part to the logits of the answers; `other` is not used."""
    tokens, _ = compiled.encode(clean)
    answers = find_answers(compiled, tokens)
    effects = _make_tables(compiled)
    for position in range(1, tokens.size(1)):
        found = attribution(compiled.model, tokens, answers[:, position], position=position)
        effects["head"] += found.heads.abs().mean(dim=0)
        for layer in range(len(effects["feed_forward"])):
            effects["feed_forward"][layer] += (
                found.terms[f"layer {layer} feed-forward"].abs().mean()
            )
    return effects


MEASURES = {
    "patching": by_patching,
    "ablation": by_ablation,
    "gradient": by_gradient,
    "attribution": by_attribution,
}


def make_metric(compiled: CompiledProgram, tokens: Tensor) -> Callable[[Tensor], Tensor]:
    """Make a metric: for each row, the sum of the logits of the right answers to these tokens.

    The rows of logits may be several copies of the batch, as in a sweep.
    """
    answers = find_answers(compiled, tokens)

    def measure(logits: Tensor) -> Tensor:
        repeated = answers.repeat(len(logits) // len(answers), 1)
        return logits.gather(-1, repeated[..., None])[:, 1:, 0].sum(
            dim=1
        )  # without the start token

    return measure


@torch.no_grad()
def find_answers(compiled: CompiledProgram, tokens: Tensor) -> Tensor:
    """The class with the largest logit at each token, (B, T): the answer of the program."""
    answers: Tensor = compiled.model(tokens).argmax(-1)
    return answers


def _make_tables(compiled: CompiledProgram) -> Effects:
    config = compiled.model.config
    zeros = compiled.model.head.weight.new_zeros
    return {"head": zeros(config.n_layers, config.n_heads), "feed_forward": zeros(config.n_layers)}


def score_kinds(seed: int, device: torch.device | str) -> dict[str, Any]:
    """For each kind, the lowest score among its heads and the highest among all others."""
    scores = {}
    for name in {name: None for heads in KINDS.values() for name, _, _ in heads}:
        compiled = programs.compile(PROGRAMS[name].build(), LETTERS, LONGEST)
        found = head_scores(compiled.model.to(device), batch_size=64, start=0, seed=seed)
        for part in compiled.circuit:
            if part.is_used and part.head is not None:
                scores[name, part.layer, part.head] = {
                    kind: float(getattr(found, kind)[part.layer, part.head]) for kind in KINDS
                }
    return {
        "own_score": [min(scores[head][kind] for head in KINDS[kind]) for kind in KINDS],
        "other_score": [
            max(each[kind] for head, each in scores.items() if head not in KINDS[kind])
            for kind in KINDS
        ],
    }


# Tables, summary and picture


def _tabulate_kinds(numbers: dict[str, Any]) -> Table:
    return Table.from_columns(
        "The scores of heads whose kind is known, and the highest score of other heads.",
        ("kind", list(KINDS)),
        ("heads", [len(heads) for heads in KINDS.values()]),
        ("lowest score", numbers["own_score"]),
        ("of other heads", numbers["other_score"]),
    )


def _tabulate(numbers: dict[str, Any]) -> Table:
    def count(name: str) -> list[int]:
        return [int(x) for x in numbers[name]]

    return Table.from_columns(
        "How many of the heads and feed-forward layers that a program uses each method finds.",
        ("program", list(PROGRAMS)),
        ("used", count("used")),
        *((method, count(method)) for method in METHODS),
    )


def _share(numbers: dict[str, Any], method: str) -> float:
    return sum(numbers[method]) / sum(numbers["used"])


def _describe(numbers: dict[str, Any]) -> str:
    shares = ", ".join(f"{method} {_share(numbers, method):.0%}" for method in METHODS)
    false = int(sum(numbers["falsely_found"]))
    n_kinds = sum(x > y for x, y in zip(numbers["own_score"], numbers["other_score"], strict=True))
    return (
        f"Of {sum(numbers['used']):.0f} parts that {len(PROGRAMS)} programs use: {shares}.\n"
        f"{false} parts are found that a program does not use. The head scores separate "
        f"{n_kinds} of {len(KINDS)} kinds of heads from all other heads."
    )


def _draw(numbers: dict[str, Any]) -> Picture:
    """The share of the used parts that each method finds, a row for each program."""
    used = torch.tensor(numbers["used"])[:, None]
    shares = array(torch.tensor([numbers[method] for method in METHODS]).T / used)
    with panels(4.6, 0.3 * len(PROGRAMS) + 1.0) as (figure, [axes]):
        draw_weights(axes, shares)
        axes.set_aspect("auto")
        write_cells(axes, shares, "{:.0%}".format, is_dark=shares > 0.55, size=8)
        axes.set_xticks(range(len(METHODS)), METHODS)
        axes.set_yticks(range(len(PROGRAMS)), list(PROGRAMS))
        axes.set_title("Share of the used parts that is found")
    return Picture(figure, f"What four methods find of {len(PROGRAMS)} known circuits")

"""Why attention that takes only the best match cannot learn whom to hear.

    argmax     output = v[argmax_s q·k_s]                a step function of q and k
    softmax    output = Σ_s softmax(q·k / √d)_s v_s      a smooth one

A small change of q or k does not change which key is best, so the derivative is 0 wherever there is
one. First the worked example: one query, four keys. Then the smallest transformer learns the rule
`first` (CAC → CCC: each token is to hear the first one) with either mechanism, from the same
weights and the same batches. With argmax the values can still be learned, and the best that any
values can do with the keys it takes is a linear least-squares problem, which is solved exactly.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from clearhead.attention import ArgmaxAttention, DotProductAttention, Mechanism
from clearhead.data.batch import Batch
from clearhead.inspection.picture import LINES, Picture, new_figure, open_axes, style
from clearhead.inspection.record import record
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.finding import Finding, Table, written
from clearhead.models.model import evaluation_mode
from clearhead.models.smallest import TorchTransformer
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.recipes.smallest import first
from clearhead.training.state import DataOrder, State, seed_torch
from clearhead.training.tasks.sequences import SequenceTask

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUERY = (1.0, 1.0, 2.0)
KEYS = ((1.0, 2.0, 0.0), (0.0, 3.0, 4.0), (5.0, 0.0, 0.0), (0.0, 0.0, 1.0))
VALUES = ((2.0, 0.0, 1.0), (1.0, 4.0, 3.0), (0.0, -1.0, 4.0), (1.0, 0.0, -1.0))
MECHANISMS: dict[str, type[Mechanism]] = {"softmax": DotProductAttention, "argmax": ArgmaxAttention}
LOOKS = {"softmax": LINES[0], "argmax": LINES[1]}
PARAMETERS = ("Qm.weight", "Km.weight", "Vm.weight", "pos.weight")
STEP = 10  # between two measurements
BLIND = 2 / 9  # the loss of ⅓ ⅓ ⅓ for every letter: (4/9 + 1/9 + 1/9) / 3

Numbers = dict[str, list[float]]


@dataclass(frozen=True)
class Lesson:
    """What became of one model."""

    losses: list[float]  # on the validation part, every STEP steps
    learned: float  # the loss on all that it learned from, at the end
    best: float  # the least that any values reach there with the weights of the attention as is
    first_before: float  # how much of what a token hears is from the first one
    first_after: float
    moved: dict[str, float]  # how far the number that changed most in each parameter is from before


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Argmax gives queries and keys no gradient: they stay as they were drawn."""
    recipe = first()
    recipe = dataclasses.replace(
        recipe, training=dataclasses.replace(recipe.training, steps=500 if full else 150)
    )
    task = cast(SequenceTask, recipe.data.open())
    seeds = range(seed, seed + (20 if full else 5))
    lessons = {kind: [learn(task, recipe, kind, s, device) for s in seeds] for kind in MECHANISMS}
    numbers = {**worked_example(device), **_of_lessons(lessons)}
    return Finding(
        claim=EXPERIMENTS["argmax"],
        tables=_tables(numbers, seeds),
        seen=_story(numbers),
        numbers={**numbers, "loss_blind": BLIND},
        picture=_picture(lessons),
    )


# The worked example


def worked_example(device: torch.device | str = "cpu") -> Numbers:
    """Scores, weights, outputs, and how long the gradients of the output's sum are."""
    numbers: Numbers = {}
    for kind, mechanism in MECHANISMS.items():
        q, k, v = (
            torch.tensor(rows, device=device, requires_grad=True)
            for rows in ([QUERY], KEYS, VALUES)
        )
        output = mechanism()(q, k, v)
        gradients = torch.autograd.grad(output.sum(), (q, k, v))
        numbers["scores"] = (q @ k.mT)[0].tolist()
        numbers[f"weights_{kind}"] = mechanism().weights(q, k)[0].tolist()
        numbers[f"output_{kind}"] = output[0].tolist()
        numbers[f"gradient_{kind}"] = [gradient.norm().item() for gradient in gradients]
    return numbers


# Learning


def learn(
    task: SequenceTask, recipe: Recipe, kind: str, seed: int, device: torch.device | str = "cpu"
) -> Lesson:
    """Train the model of a recipe with this mechanism, and look at it before and after."""
    model = _new_model(task, recipe, seed).to(device)
    model.set_submodule("attention", MECHANISMS[kind]())
    before = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    validation = task.validation.to(device)
    first_before = _weight_of_first(model, validation)
    losses = _train(task, model, recipe.training, seed)
    after = model.state_dict()
    return Lesson(
        losses,
        *_learned_and_best(model, task.train.to(device)),
        first_before,
        _weight_of_first(model, validation),
        {name: (after[name] - before[name]).abs().max().item() for name in PARAMETERS},
    )


def _new_model(task: SequenceTask, recipe: Recipe, seed: int) -> TorchTransformer:
    """The one with which the training loop begins a run of this seed."""
    with torch.random.fork_rng(devices=[]):
        seed_torch(torch.device("cpu"), seed, "weights", 0)
        return cast(TorchTransformer, task.build(task.complete(recipe.model)))


def _train(
    task: SequenceTask, model: TorchTransformer, c: TrainingConfig, seed: int
) -> list[float]:
    """The steps that the training loop would take; returns the loss before, and every STEP."""
    optimizer, schedule = c.make_optimizer(model), c.make_schedule()
    state, order = State(), DataOrder(task, seed, c.batch_size)
    losses = [task.evaluate(model)["val_loss"]]
    for step in range(c.steps):
        task.loss(model, task.batch(order.next(state)).to(model.device)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), c.clip or math.inf)
        optimizer.step(schedule(step + 0.5))
        if (step + 1) % STEP == 0:
            losses.append(task.evaluate(model)["val_loss"])
    return losses


def _outputs_and_weights(model: TorchTransformer, examples: Batch) -> tuple[Tensor, Tensor]:
    """What every token says, (B, T, letters), and whom it hears, (B, T, T)."""
    with evaluation_mode(model), record(model) as trace:
        outputs = model(examples.inputs, examples.token_mask)
    return outputs, trace["attention"].weights


def _weight_of_first(model: TorchTransformer, examples: Batch) -> float:
    _, weights = _outputs_and_weights(model, examples)
    return weights[..., 0][examples.token_mask].mean().item()


def _learned_and_best(model: TorchTransformer, examples: Batch) -> tuple[float, float]:
    """The loss, and the least that values linear in letter and place, as its own, could reach."""
    outputs, weights = _outputs_and_weights(model, examples)
    T = weights.size(-1)
    places = torch.eye(T, device=weights.device).expand(len(examples), T, T)
    heard = weights @ torch.cat([examples.inputs, places], dim=-1)  # (B, T, letters + T)
    output, features, right = (
        x[examples.token_mask].cpu().double() for x in (outputs, heard, examples.targets)
    )
    # Letters add up to 1, and so do places: gelsd solves it although the columns depend.
    best = features @ torch.linalg.lstsq(features, right, driver="gelsd").solution
    return (output - right).square().mean().item(), (best - right).square().mean().item()


# What is told


def _of_lessons(lessons: dict[str, list[Lesson]]) -> Numbers:
    numbers: Numbers = {}
    for kind, runs in lessons.items():
        numbers[f"loss_{kind}"] = [run.losses[-1] for run in runs]
        numbers[f"first_before_{kind}"] = [run.first_before for run in runs]
        numbers[f"first_after_{kind}"] = [run.first_after for run in runs]
        numbers[f"moved_{kind}"] = [max(run.moved[name] for run in runs) for name in PARAMETERS]
    numbers["learned_argmax"] = [run.learned for run in lessons["argmax"]]
    numbers["best_argmax"] = [run.best for run in lessons["argmax"]]
    numbers["above_best"] = [
        (run.learned - run.best) / max(run.best, 1e-12) for run in lessons["argmax"]
    ]
    return numbers


def _tables(numbers: Numbers, seeds: Sequence[int]) -> list[Table]:
    outputs = (f"{_vector(numbers[f'output_{kind}'])} by {kind}" for kind in MECHANISMS)
    example = f"The query {_vector(QUERY)} gets {' and '.join(outputs)}."
    keys = [f"{_vector(k)} → {_vector(v)}" for k, v in zip(KEYS, VALUES, strict=True)]
    gradient = "How long the gradient of the sum of that output is."
    loss = (
        "The loss on sequences that were not learned from; of argmax also that on those that were,"
        "\nbeside the least that any values reach there with the keys that it takes."
    )
    of_argmax = {"learned_argmax": "argmax, learned from", "best_argmax": "any values"}
    heard = "How much of what a token hears comes from the first one, before training and after."
    when = ("before", "after")
    first_heard = {f"first_{w}_{kind}": f"{kind}, {w}" for kind in MECHANISMS for w in when}
    moved = "How far training moved that number of a parameter which moved farthest, in all runs."
    return [
        _table(numbers, example, "key → value", keys, {"scores": "q·k", **_both("weights")}),
        _table(numbers, gradient, "to", ("query", "keys", "values"), _both("gradient")),
        _table(numbers, loss, "seed", seeds, {**_both("loss"), **of_argmax}),
        _table(numbers, heard, "seed", seeds, first_heard),
        _table(numbers, moved, "parameter", PARAMETERS, _both("moved")),
    ]


def _both(what: str) -> dict[str, str]:
    """The names of a number for both mechanisms, and of their columns."""
    return {f"{what}_{kind}": kind for kind in MECHANISMS}


def _table(
    numbers: Numbers, caption: str, row: str, rows: Sequence[Any], columns: dict[str, str]
) -> Table:
    cells = ([_exact(number) for number in numbers[name]] for name in columns)
    return Table(caption, [row, *columns.values()], list(zip(rows, *cells, strict=True)))


def _exact(number: float) -> float | int:
    """What is whole to the last digit is written as a whole number: 0 is no rounded 0.00."""
    return int(number) if number.is_integer() else number


def _vector(numbers: Iterable[float]) -> str:
    return "(" + ", ".join(f"{number:.3g}" for number in numbers).replace("-", "−") + ")"


def _story(numbers: Numbers) -> str:
    softmax, argmax = (sorted(numbers[f"loss_{kind}"]) for kind in MECHANISMS)
    moved = written(_exact(max(numbers["moved_argmax"][:2])))
    above = max(numbers["above_best"])
    return (
        f"Of {len(softmax)} runs with softmax the worst ends at a loss of {written(softmax[-1])}; "
        f"those with argmax end between\n{written(argmax[0])} and {written(argmax[-1])}, "
        f"where ⅓ for every letter costs {BLIND:.3f}.\n"
        f"With argmax the numbers in Qm and Km moved by {moved}, but the values were learned: "
        f"no run ends more than\n{above:.2%} above the best that any values can do with the keys "
        f"that it takes."
    )


# What is drawn


def _picture(lessons: dict[str, list[Lesson]]) -> Picture:
    with style():
        figure = new_figure(11.0, 3.6)
        grid = figure.subplots(1, 3, width_ratios=(1, 1, 1.2), gridspec_kw={"wspace": 0.06})
        for axes in grid:
            open_axes(axes)
        _draw_example(grid[0])
        _draw_change(grid[1])
        _draw_losses(grid[2], lessons)
    return Picture(
        figure,
        "The scores of four keys, of which argmax takes the best; the weight of that key over a "
        "change of the query, a step with argmax and a slope with softmax; the loss over the steps "
        "of training with both",
    )


def _draw_example(axes: "Axes") -> None:
    """The scores, and which key is taken."""
    example = worked_example()
    for place, score in enumerate(example["scores"]):
        taken = example["weights_argmax"][place] == 1
        colour = LOOKS["argmax"][0] if taken else "#d8d8d8"
        axes.bar(place, score, 0.65, color=colour, edgecolor="#333333", linewidth=0.6)
        axes.text(place, score + 0.2, f"{score:g}", ha="center")
        if taken:
            output = f"taken: the output\nis {_vector(example['output_argmax'])}"
            axes.text(place + 0.42, score, output, va="top")
    names = [f"{_vector(k)}\n{_vector(v)}" for k, v in zip(KEYS, VALUES, strict=True)]
    axes.set_xticks(range(len(KEYS)), names)
    axes.grid(visible=False, axis="x")
    axes.set(title="Argmax takes the best match", xlabel="key, and below it its value")
    axes.set(ylabel=f"score of the query {_vector(QUERY)}", ylim=(0, 12.4))


def _draw_change(axes: "Axes") -> None:
    """The weight of the best key while the last entry of the query changes."""
    example, last = worked_example(), torch.linspace(-1, 3, 801)
    q = torch.tensor(QUERY).repeat(len(last), 1)
    q[:, -1] = last
    for kind, mechanism in MECHANISMS.items():
        colour, dashes = LOOKS[kind]
        weights = mechanism().weights(q, torch.tensor(KEYS))[:, 1]
        axes.plot(last, weights, color=colour, linestyle=dashes, label=kind)
        axes.plot(QUERY[-1], example[f"weights_{kind}"][1], "o", color=colour, markersize=5)
    axes.text(QUERY[-1] + 0.05, 0.91, "the query\nat the left", va="top")
    axes.set(title="A step has the slope 0", xlabel="x in the query (1, 1, x)")
    axes.set_ylabel(f"weight of the key {_vector(KEYS[1])}")
    axes.legend(loc="lower right", frameon=False)


def _draw_losses(axes: "Axes", lessons: dict[str, list[Lesson]]) -> None:
    for kind, runs in lessons.items():
        colour, dashes = LOOKS[kind]
        for order, run in enumerate(runs):
            steps = [STEP * place for place in range(len(run.losses))]
            label = None if order else f"{kind}, {len(runs)} runs"
            axes.plot(steps, run.losses, color=colour, linestyle=dashes, linewidth=1, label=label)
    axes.axhline(BLIND, color="black", linestyle=":", linewidth=1, label="blind guess (⅓ each)")
    axes.set(title="Whom to hear is learned by softmax only", xlabel="training step", yscale="log")
    axes.set_ylabel("validation loss (squared error)")
    axes.legend(loc="lower left", frameon=False)

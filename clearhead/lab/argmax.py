"""Why attention to the best match alone cannot learn where to attend.

    argmax     output = v[argmax_s q·k_s]                a step function of q and k
    softmax    output = Σ_s softmax(q·k / √d)_s v_s      a smooth one

A small change of q or k does not change which key is best, so the derivative is 0 wherever it
exists. First a worked example: one query, four keys. Then the smallest transformer is trained on
the rule `first` (CAC → CCC: each token should attend to the first one) with each mechanism, from
the same weights and the same batches. With argmax the values can still be learned; the least loss
that any values reach with the keys it takes is a linear least-squares problem, solved exactly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from clearhead.attention import ArgmaxAttention, DotProductAttention, Mechanism
from clearhead.data.batch import Batch
from clearhead.inspection.picture import Picture
from clearhead.inspection.record import record
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.drawing import Axes, finish, line_style, panels
from clearhead.lab.tools.finding import Finding, Table, format_cell, format_vector
from clearhead.models.model import evaluation_mode
from clearhead.models.smallest import TorchTransformer
from clearhead.training import with_changes
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.recipes.smallest import first
from clearhead.training.state import DataOrder, State, seed_torch
from clearhead.training.tasks.sequences import SequenceTask

QUERY = (1.0, 1.0, 2.0)
KEYS = ((1.0, 2.0, 0.0), (0.0, 3.0, 4.0), (5.0, 0.0, 0.0), (0.0, 0.0, 1.0))
VALUES = ((2.0, 0.0, 1.0), (1.0, 4.0, 3.0), (0.0, -1.0, 4.0), (1.0, 0.0, -1.0))
MECHANISMS: dict[str, type[Mechanism]] = {"softmax": DotProductAttention, "argmax": ArgmaxAttention}
LINE_STYLES = {kind: line_style(order, marker="") for order, kind in enumerate(MECHANISMS)}
PARAMETERS = ("Qm.weight", "Km.weight", "Vm.weight", "pos.weight")
EVAL_EVERY = 10  # steps
GUESSING = 2 / 9  # the loss of answering ⅓ ⅓ ⅓: (4/9 + 1/9 + 1/9) / 3

Numbers = dict[str, list[float]]


@dataclass(frozen=True)
class TrainedRun:
    """The measurements of one training."""

    losses: list[float]  # on the validation sequences, every EVAL_EVERY steps
    train_loss: float  # on the training sequences, at the end
    best_loss: float  # the least train_loss that any values reach with these attention weights
    first_before: float  # the mean weight of the first token, before training
    first_after: float
    changes: dict[str, float]  # the largest change of an entry, for each parameter


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Argmax gives queries and keys no gradient: they keep their initial values."""
    recipe = with_changes(first(), [f"training.steps={500 if full else 150}"])
    task = cast(SequenceTask, recipe.data.open())
    seeds = range(seed, seed + (20 if full else 5))
    runs_by_kind = {
        kind: [learn(task, recipe, kind, s, device) for s in seeds] for kind in MECHANISMS
    }
    numbers = {**worked_example(device), **_collect(runs_by_kind)}
    return Finding(
        claim=EXPERIMENTS["argmax"],
        tables=_tabulate(numbers, seeds),
        seen=_describe(numbers),
        numbers={**numbers, "loss_blind": GUESSING},
        picture=_draw(runs_by_kind),
    )


def worked_example(device: torch.device | str = "cpu") -> Numbers:
    """Scores, weights, outputs, and the norms of the gradients of the output's sum."""
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


# Training


def learn(
    task: SequenceTask, recipe: Recipe, kind: str, seed: int, device: torch.device | str = "cpu"
) -> TrainedRun:
    """Train the model of a recipe with this mechanism; measure it before and after."""
    model = _build_model(task, recipe, seed).to(device)
    model.set_submodule("attention", MECHANISMS[kind]())
    before = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    validation = task.validation.to(device)
    first_before = _weight_of_first(model, validation)
    losses = _train(task, model, recipe.training, seed)
    after = model.state_dict()
    return TrainedRun(
        losses,
        *_learned_and_best(model, task.train.to(device)),
        first_before,
        _weight_of_first(model, validation),
        {name: (after[name] - before[name]).abs().max().item() for name in PARAMETERS},
    )


def _build_model(task: SequenceTask, recipe: Recipe, seed: int) -> TorchTransformer:
    """The model with which the training loop starts a run of this seed."""
    with torch.random.fork_rng(devices=[]):
        seed_torch(torch.device("cpu"), seed, "weights", 0)
        model = cast(TorchTransformer, task.build(task.complete(recipe.model)))
        return task.initialise(model)


def _train(
    task: SequenceTask, model: TorchTransformer, c: TrainingConfig, seed: int
) -> list[float]:
    """Train as the training loop does; returns the validation loss every EVAL_EVERY steps."""
    optimizer, schedule = c.make_optimizer(model), c.make_schedule()
    state, order = State(), DataOrder(task, seed, c.batch_size)
    losses = [task.evaluate(model)["val_loss"]]
    for step in range(c.steps):
        task.loss(model, task.batch(order.next(state)).to(model.device)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), c.clip or math.inf)
        optimizer.step(schedule(step + 0.5))
        if (step + 1) % EVAL_EVERY == 0:
            losses.append(task.evaluate(model)["val_loss"])
    return losses


def _outputs_and_weights(model: TorchTransformer, examples: Batch) -> tuple[Tensor, Tensor]:
    """The outputs (B, T, letters) and the attention weights (B, T, T)."""
    with evaluation_mode(model), record(model) as trace:
        outputs = model(examples.inputs, examples.token_mask)
    return outputs, trace["attention"].weights


def _weight_of_first(model: TorchTransformer, examples: Batch) -> float:
    _, weights = _outputs_and_weights(model, examples)
    return weights[..., 0][examples.token_mask].mean().item()


def _learned_and_best(model: TorchTransformer, examples: Batch) -> tuple[float, float]:
    """The loss, and the least loss that any values linear in letter and position could reach."""
    outputs, weights = _outputs_and_weights(model, examples)
    T = weights.size(-1)
    positions = torch.eye(T, device=weights.device).expand(len(examples), T, T)
    mixed = weights @ torch.cat([examples.inputs, positions], dim=-1)  # (B, T, letters + T)
    output, features, right = (
        x[examples.token_mask].cpu().double() for x in (outputs, mixed, examples.targets)
    )
    # Letters add up to 1 and so do positions, so the columns are dependent: gelsd allows that.
    best = features @ torch.linalg.lstsq(features, right, driver="gelsd").solution
    return (output - right).square().mean().item(), (best - right).square().mean().item()


# Numbers, tables and sentences


def _collect(runs_by_kind: dict[str, list[TrainedRun]]) -> Numbers:
    numbers: Numbers = {}
    for kind, runs in runs_by_kind.items():
        numbers[f"loss_{kind}"] = [run.losses[-1] for run in runs]
        numbers[f"first_before_{kind}"] = [run.first_before for run in runs]
        numbers[f"first_after_{kind}"] = [run.first_after for run in runs]
        numbers[f"moved_{kind}"] = [max(run.changes[name] for run in runs) for name in PARAMETERS]
    numbers["learned_argmax"] = [run.train_loss for run in runs_by_kind["argmax"]]
    numbers["best_argmax"] = [run.best_loss for run in runs_by_kind["argmax"]]
    numbers["above_best"] = [
        (run.train_loss - run.best_loss) / max(run.best_loss, 1e-12)
        for run in runs_by_kind["argmax"]
    ]
    return numbers


def _tabulate(numbers: Numbers, seeds: Sequence[int]) -> list[Table]:
    def table(caption: str, row: str, rows: Sequence[Any], columns: dict[str, str]) -> Table:
        cells = ((name, map(_exact, numbers[key])) for key, name in columns.items())
        return Table.from_columns(caption, (row, rows), *cells)

    def both(what: str) -> dict[str, str]:
        return {f"{what}_{kind}": kind for kind in MECHANISMS}

    outputs = (f"{format_vector(numbers[f'output_{kind}'])} by {kind}" for kind in MECHANISMS)
    example = f"The query {format_vector(QUERY)} gets {' and '.join(outputs)}."
    keys = [f"{format_vector(k)} → {format_vector(v)}" for k, v in zip(KEYS, VALUES, strict=True)]
    gradient = "The norm of the gradient of the sum of that output."
    loss = (
        "The loss on validation sequences; for argmax also on training sequences,\n"
        "beside the least loss that any values reach there with the keys it takes."
    )
    of_argmax = {"learned_argmax": "argmax, training", "best_argmax": "any values"}
    weight = "The mean weight of the first token, before training and after."
    when = ("before", "after")
    first_weights = {f"first_{w}_{kind}": f"{kind}, {w}" for kind in MECHANISMS for w in when}
    moved = "The largest change of a number in each parameter, over all runs."
    return [
        table(example, "key → value", keys, {"scores": "q·k", **both("weights")}),
        table(gradient, "gradient to", ("query", "keys", "values"), both("gradient")),
        table(loss, "seed", seeds, {**both("loss"), **of_argmax}),
        table(weight, "seed", seeds, first_weights),
        table(moved, "parameter", PARAMETERS, both("moved")),
    ]


def _exact(number: float) -> float | int:
    """A whole float as an int, which is printed without decimals: so 0 means exactly 0."""
    return int(number) if number.is_integer() else number


def _describe(numbers: Numbers) -> str:
    softmax, argmax = (sorted(numbers[f"loss_{kind}"]) for kind in MECHANISMS)
    moved = format_cell(_exact(max(numbers["moved_argmax"][:2])))
    above = max(numbers["above_best"])
    return (
        f"Of {len(softmax)} runs with softmax the worst ends at a loss of "
        f"{format_cell(softmax[-1])}; those with argmax end between\n"
        f"{format_cell(argmax[0])} and {format_cell(argmax[-1])}, "
        f"where ⅓ for every letter costs {GUESSING:.3f}.\n"
        f"With argmax the numbers in Qm and Km moved by {moved}, but the values were learned: "
        f"no run ends more than\n{above:.2%} above the best that any values can do with the keys "
        f"it takes."
    )


# The picture


def _draw(runs_by_kind: dict[str, list[TrainedRun]]) -> Picture:
    ratios, gap = (1, 1, 1.2), {"wspace": 0.06}
    with panels(11.0, 3.6, 3, width_ratios=ratios, gridspec_kw=gap) as (figure, axes):
        _draw_example(axes[0])
        _draw_change(axes[1])
        _draw_losses(axes[2], runs_by_kind)
    return Picture(
        figure,
        "The scores of four keys, of which argmax takes the best; the weight of that key over a "
        "change of the query, a step with argmax and a slope with softmax; the loss over the steps "
        "of training with both",
    )


def _draw_example(axes: Axes) -> None:
    """The scores, and the key that argmax takes."""
    example = worked_example()
    for s, score in enumerate(example["scores"]):
        is_best = example["weights_argmax"][s] == 1
        colour = LINE_STYLES["argmax"]["color"] if is_best else "#d8d8d8"
        axes.bar(s, score, 0.65, color=colour, edgecolor="#333333", linewidth=0.6)
        axes.text(s, score + 0.2, f"{score:g}", ha="center")
        if is_best:
            output = f"best match: output\n= {format_vector(example['output_argmax'])}"
            axes.text(s + 0.42, score, output, va="top")
    names = [f"{format_vector(k)}\n{format_vector(v)}" for k, v in zip(KEYS, VALUES, strict=True)]
    axes.set_xticks(range(len(KEYS)), names)
    axes.grid(visible=False, axis="x")
    finish(axes, title="Argmax takes the best match", xlabel="key, and below it its value")
    axes.set(ylabel=f"score of the query {format_vector(QUERY)}", ylim=(0, 12.4))


def _draw_change(axes: Axes) -> None:
    """The weight of the best key while the last entry of the query changes."""
    example, last = worked_example(), torch.linspace(-1, 3, 801)
    q = torch.tensor(QUERY).repeat(len(last), 1)
    q[:, -1] = last
    for kind, mechanism in MECHANISMS.items():
        weights = mechanism().weights(q, torch.tensor(KEYS))[:, 1]
        axes.plot(last, weights, **LINE_STYLES[kind], label=kind)
        point = LINE_STYLES[kind] | {"marker": "o", "markersize": 5}
        axes.plot(QUERY[-1], example[f"weights_{kind}"][1], **point)
    axes.text(QUERY[-1] + 0.05, 0.91, "query of\nleft panel", va="top")
    finish(axes, "lower right", title="A step has slope 0", xlabel="x in the query (1, 1, x)")
    axes.set_ylabel(f"weight of the key {format_vector(KEYS[1])}")


def _draw_losses(axes: Axes, runs_by_kind: dict[str, list[TrainedRun]]) -> None:
    for kind, runs in runs_by_kind.items():
        for order, run in enumerate(runs):
            steps = range(0, EVAL_EVERY * len(run.losses), EVAL_EVERY)
            label = None if order else f"{kind}, {len(runs)} runs"
            axes.plot(steps, run.losses, **LINE_STYLES[kind], linewidth=1, label=label)
    axes.axhline(GUESSING, color="black", linestyle=":", linewidth=1, label="guessing (⅓ each)")
    finish(axes, "lower left", xlabel="training step", yscale="log")
    axes.set(title="Only softmax learns where to attend", ylabel="validation loss (squared error)")

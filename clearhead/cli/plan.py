"""clearhead plan RECIPE [section.name=value …]: the memory and the time of a step, computed."""

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Json, print_json, print_table
from clearhead.cli.recipes import build_recipe, check_recipe
from clearhead.cli.train import Changes
from clearhead.parallel.planning.cards import CARD_NAMES, CARDS_OF_A_MACHINE, check_card
from clearhead.training.recipes import RECIPES

if TYPE_CHECKING:
    from clearhead.parallel.plan import ModeCost, StepPlan

MAX_GPUS = 10_000
RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help=f"One of {', '.join(RECIPES)}; or a Python file with your own recipe.",
    ),
]
Gpus = Annotated[int, typer.Option("--gpus", help="Number of GPUs, with one process each.")]
Gpu = Annotated[
    str,
    typer.Option(
        "--gpu", help=f"Kind of GPU: {', '.join(CARD_NAMES)}; cpu: processes on this machine."
    ),
]


def plan(
    name: RecipeName,
    changes: Changes = None,
    gpus: Gpus = 1,
    gpu: Gpu = "a100",
    json: Json = False,
) -> None:
    """Compute the memory and the time of a training step in every mode. No GPU is needed."""
    given = changes or []
    check_recipe(name)
    for change in given:
        if "=" not in change:
            raise ValueError(f"a change is written section.name=value, got {change!r:.80}")
    gpu = gpu.lower()  # A100, H100, …: the names of data sheets
    check_card(gpu)
    if not 1 <= gpus <= MAX_GPUS:
        raise ValueError(f"--gpus must be 1 to {MAX_GPUS:,}, got {gpus:,}")
    with exit_on_interrupt():
        from clearhead.parallel.plan import make_plan
        from clearhead.parallel.planning.cards import find_card
        from clearhead.training import with_changes

    step_plan = make_plan(with_changes(build_recipe(name), given), find_card(gpu), gpus)
    command = write_command(step_plan, name, given)
    if json:
        print_json(to_json(step_plan, name, command))
    else:
        _print_plan(step_plan, name, command)
    raise typer.Exit(0 if step_plan.advice.mode else 1)


def write_command(step_plan: "StepPlan", name: str, given: list[str]) -> str | None:
    """The line to type; None if nothing fits."""
    mode = step_plan.advice.mode
    if mode is None:
        return None
    n = step_plan.n
    new = [] if mode == "none" else [f"training.parallel={mode}"]
    if mode == "exact" and step_plan.recipe.training.chunks < n:
        new.append(f"training.chunks={n}")
    new += step_plan.advice.changes
    replaced = {word.partition("=")[0] for word in new}
    kept = [word for word in given if word.partition("=")[0] not in replaced]
    train = ["train", name, *kept, *new]
    if mode == "none":
        return shlex.join(["clearhead", *train])
    return shlex.join(["clearhead", "launch", *_choose_processes(n, step_plan.card.name), *train])


def _choose_processes(n: int, gpu: str) -> list[str]:
    """The options of launch; more processes than a machine has cards need several machines."""
    nodes = 1
    while gpu != "cpu" and (n % nodes or n // nodes > CARDS_OF_A_MACHINE):
        nodes += 1
    processes = ["--processes", str(n // nodes)]
    if nodes == 1:
        return processes
    return ["--nodes", str(nodes), "--node-rank", "0", "--rendezvous", "HOST:29500", *processes]


def to_json(step_plan: "StepPlan", name: str, command: str | None) -> dict[str, Any]:
    """The plan as plain values: bytes and seconds."""
    return {
        "recipe": name,
        "parameters": step_plan.n_parameters,
        "gpus": step_plan.n,
        "gpu": asdict(step_plan.card),
        "precision": "bfloat16" if step_plan.mixed else "float32",
        "measured": False,
        "modes": {mode: _cost_to_json(cost) for mode, cost in step_plan.costs.items()},
        "recommended": step_plan.advice.mode,
        "changes": list(step_plan.advice.changes),
        "command": command,
    }


def _cost_to_json(cost: "ModeCost") -> dict[str, Any]:
    return {
        "passes": cost.share.n_passes,
        "examples": cost.share.n_examples,
        "memory": {**asdict(cost.memory), "total": cost.memory.total},
        "seconds": {**asdict(cost.time), "total": cost.time.total},
        "fits": cost.fits,
    }


def _print_plan(step_plan: "StepPlan", name: str, command: str | None) -> None:
    _print_title(step_plan, name)
    _print_memory(step_plan)
    _print_time(step_plan)
    c = step_plan.recipe.training
    typer.echo(f"\n{_say_assumptions(step_plan)}")
    if step_plan.n > c.batch_size:
        examples = "1 example" if c.batch_size == 1 else f"{c.batch_size} examples"
        typer.echo(
            f"with ddp and fsdp only {c.batch_size} of {step_plan.n} processes learn from a batch: "
            f"it has {examples}; take a larger training.batch_size"
        )
    typer.echo(_say_advice(step_plan, command))


def _print_title(step_plan: "StepPlan", name: str) -> None:
    """What is planned: the model, the examples of a step, the cards and the precision."""
    c, card, n = step_plan.recipe.training, step_plan.card, step_plan.n
    times = f"{c.accumulate} × " if c.accumulate > 1 else ""
    size = f"{times}{c.batch_size}"
    typer.echo(f"{name}: {step_plan.n_parameters:,} parameters; examples of a step: {size}")
    where = f"× {card.name}"
    if card.name == "cpu":
        where = "process on this machine" if n == 1 else "processes on this machine"
    precision = "bfloat16" if step_plan.mixed else "float32"
    typer.echo(f"{n} {where}, {format_bytes(card.memory)} each; products in {precision}")


def _print_memory(step_plan: "StepPlan") -> None:
    typer.echo("\nmemory of a process at the worst moment of a step")
    available = step_plan.card.memory
    parts = ("weights", "gradient", "optimizer", "buffers", "activations", "total")
    rows: list[tuple[str, ...]] = [("mode", *parts, "moment", f"of {format_bytes(available)}", "")]
    for mode, cost in step_plan.costs.items():
        cells = [format_bytes(getattr(cost.memory, part)) for part in parts]
        share = format_share(cost.memory.total / available)
        note = "" if cost.fits else "does not fit"
        rows.append((mode, *cells, cost.memory.moment, share, note))
    print_table(rows)


def _print_time(step_plan: "StepPlan") -> None:
    typer.echo("\ntime of a step")
    spans = ("passes", "update", "exchange", "total")
    rows: list[tuple[str, ...]] = [("mode", "passes × examples", *spans, "")]
    for mode, cost in step_plan.costs.items():
        cells = [format_seconds(getattr(cost.time, span)) for span in spans]
        hidden = cost.time.hidden
        note = f"{format_seconds(hidden)} of the exchange overlap the passes" if hidden else ""
        rows.append((mode, f"{cost.share.n_passes} × {cost.share.n_examples}", *cells, note))
    print_table(rows)


def _say_assumptions(step_plan: "StepPlan") -> str:
    """What the figures assume, and how far they were checked."""
    from clearhead.parallel.planning.steps import LAUNCH, UTILISATION, find_link

    card = step_plan.card
    link = f"{find_link(card, step_plan.n) / 1e9:.3g} GB/s between processes"
    launch = f"at least {LAUNCH * 1e6:g} µs for each operation"
    assumed = f"products at {100 * UTILISATION:g} % of {{}}, {launch}, {link}"
    if card.name == "cpu":
        peak = f"the {card.single / 1e9:.3g} GFLOP/s that a core was just measured at"
        return (
            f"computed, not measured: {assumed.format(peak)}. The memory is that of tensors; on "
            f"Linux a process was measured at up to 1.6 times as much, because freed memory is kept"
        )
    text = "computed, not measured: clearhead was never run on this card. Assumed: "
    text += assumed.format("the peak in the data sheet")
    if step_plan.mixed and card.half is None:
        text += "; it has no instructions for bfloat16, so take training.precision=float32"
    return text


def _say_advice(step_plan: "StepPlan", command: str | None) -> str:
    """The line to type, after what must change; or a way out if nothing fits.

    A mode may fit that the advice does not consider, because the recipe names another one.
    """
    advice = step_plan.advice
    fitting = [mode for mode, cost in step_plan.costs.items() if cost.fits]
    if command is None or advice.cost is None:
        others = "take a smaller model, shorter inputs, more GPUs or larger ones"
        if fitting:
            words = " or ".join(f"training.parallel={mode}" for mode in fitting)
            return f"no smaller batch is small enough; {words} fits, or {others}"
        least = min(cost.memory.total for cost in step_plan.costs.values())
        return (
            f"nothing fits: the least is {format_bytes(least)}, and no smaller batch is small "
            f"enough; {others}"
        )
    several = " on each machine, with its own --node-rank" if "--node-rank" in command else ""
    line = f"type{several}: {command}"
    if not advice.changes:
        return line
    total, changes = format_bytes(advice.cost.memory.total), " ".join(advice.changes)
    start = "nothing fits as it is"
    if fitting:
        start = f"as it is, {advice.mode} does not fit ({' and '.join(fitting)} would)"
    return f"{start}; with {changes} it takes {total}\n{line}"


def format_bytes(n: float) -> str:
    """Three digits in B, kB, MB, GB or TB."""
    if not n:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if n < 999.5:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.4g} TB"


def format_share(share: float) -> str:
    """In percent, with one digit after the point."""
    return f"{100 * share:.1f} %" if share >= 0.001 else "< 0.1 %"


def format_seconds(seconds: float) -> str:
    """Three digits in µs, ms or s."""
    if seconds < 1e-6:
        return "< 1 µs" if seconds else "–"
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.4g} s"

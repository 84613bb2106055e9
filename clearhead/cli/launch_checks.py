"""The mistakes in a `clearhead launch` command: found once, before any process is started."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clearhead.cli import train
from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import WRONG_DEVICE, check_threads
from clearhead.config import suggest

if TYPE_CHECKING:
    from clearhead.training import Recipe

ENGINES = ("local", "slurm", "sky", "ray")
KEYS = {"slurm": r"[a-z][a-z0-9-]*", "sky": r"[a-z][a-z0-9_]*", "ray": r"[a-z][a-z0-9_]*"}


def check_engine_name(engine: str) -> None:
    if engine not in ENGINES:
        near = suggest(engine, ENGINES)
        raise ValueError(f"--engine must be one of {', '.join(ENGINES)}, got {engine!r:.40}{near}")


def check_numbers(least: int = 1, most: int = 10**6, **values: int | None) -> None:
    """Refuse numbers out of range; values: by the names of their options."""
    for name, value in values.items():
        if value is not None and not least <= value <= most:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} must be {least} to {most}, got {value}")


def check_place(nodes: int, node_rank: int | None, rendezvous: str | None) -> None:
    """Refuse a wrong --node-rank or --rendezvous: which machine this is, and where all meet."""
    if nodes == 1:
        for option, value in {"--node-rank": node_rank, "--rendezvous": rendezvous}.items():
            if value is not None:
                raise ValueError(f"{option} is for several machines; add --nodes, their number")
        return
    if node_rank is None or not 0 <= node_rank < nodes:
        given = "nothing" if node_rank is None else node_rank
        raise ValueError(
            f"--node-rank must be the number of this machine, 0 to {nodes - 1}, got {given}"
        )
    host, _, port = (rendezvous or "").rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        given = "nothing" if rendezvous is None else repr(rendezvous)
        raise ValueError(
            f"--rendezvous must be an address of machine 0 and a free port, such as "
            f"10.0.0.1:29500, got {given:.80}"
        )


def check_engine(
    engine: str,
    node_rank: int | None,
    rendezvous: str | None,
    gpus_per_node: int | None,
    time: str | None,
    partition: str | None,
    options: list[str] | None,
) -> None:
    """Refuse options that the engine has no use for."""
    users: dict[str, tuple[Any, tuple[str, ...]]] = {
        "--node-rank": (node_rank, ("local",)),
        "--rendezvous": (rendezvous, ("local",)),
        "--gpus-per-node": (gpus_per_node, ("slurm", "ray")),
        "--time": (time, ("slurm",)),
        "--partition": (partition, ("slurm",)),
        "--scheduler-option": (options or None, ("slurm", "sky", "ray")),
    }
    for option, (value, engines) in users.items():
        if value is not None and engine not in engines:
            way_out = ""
            if engine == "sky" and option == "--gpus-per-node":
                way_out = f": --scheduler-option accelerators=A100:{value} --processes {value}"
            raise ValueError(
                f"{option} is for --engine {' or '.join(engines)}, not for {engine}{way_out}"
            )


def read_options(engine: str, given: list[str]) -> dict[str, str]:
    """The settings given as --scheduler-option KEY=VALUE."""
    options = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not re.fullmatch(KEYS[engine], key):
            raise ValueError(f"--scheduler-option must be KEY=VALUE, got {text!r:.80}")
        if engine == "slurm" and key in ("nodes", "ntasks-per-node"):
            raise ValueError(f"--scheduler-option must not be {key}; use --nodes and --processes")
        options[key] = value
    return options


def parse_command(command: list[str]) -> dict[str, Any]:
    """The arguments and options of `clearhead train`, as its own parser reads them."""
    if command[0] != "train":
        near = suggest(command[0], ["train"])
        raise ValueError(f"launch starts clearhead train, got {command[0]!r:.80}{near}")
    app = typer.Typer(rich_markup_mode=None)
    app.command("train")(train.train)
    context = typer.main.get_command(app).make_context("clearhead train", command[1:])
    return dict(context.params)


def check_command(values: dict[str, Any], size: int) -> tuple[str, Path]:
    """Find the mistakes of a training command once, not in each process.

    Returns the name of the job and the folder for runs.
    """
    out = Path(values["out"])
    name, changes = train.split_words(values["name"], list(values["changes"] or []))
    train.check_options(name, changes, out, values["resume"], values["overfit"], values["dry_run"])
    check_threads(values["threads"])
    run = None if values["resume"] is None else train.find_run(out, values["resume"], name)
    with exit_on_interrupt():
        from clearhead.training import with_changes

    recipe, _ = train.choose_recipe(name, run, values["overfit"], values["trust"])
    _check_parallel(with_changes(recipe, changes), size)
    title = Path(name).stem if name is not None else run.path.name if run is not None else ""
    return "clearhead-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"), out


def check_device(name: str, processes: int) -> None:
    """Refuse a --device that this machine does not have, or has too few of.

    Nothing is computed on it here: each GPU belongs to one of the processes.
    """
    with exit_on_interrupt():
        import torch

        from clearhead.runtime import check_device_count

    has_one = torch.accelerator.is_available()
    found = torch.accelerator.current_accelerator() if has_one else None
    kind = name.partition(":")[0]
    if kind == "cpu" or (kind == "auto" and found is None):
        return
    if found is None or kind not in ("auto", found.type):
        raise ValueError(WRONG_DEVICE.format(name))
    if ":" not in name:
        check_device_count(found.type, processes)


def _check_parallel(recipe: "Recipe", size: int) -> None:
    if size > 1 and recipe.training.parallel is None:
        raise ValueError(
            f"{size} processes need a way to share a step: add training.parallel=exact (the same "
            f"numbers on any number of processes), training.parallel=ddp (the usual choice) or "
            f"training.parallel=fsdp (for a model too large for one process)"
        )

"""clearhead launch [options] train RECIPE …: one run on several processes or machines."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from clearhead import __version__
from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.launch_checks import (
    check_command,
    check_device,
    check_engine,
    check_engine_name,
    check_numbers,
    check_place,
    parse_command,
    read_options,
)
from clearhead.files.reading import quote
from clearhead.files.writing import replace_file
from clearhead.parallel.schedulers import Job, quote_words, write_ray, write_sky, write_slurm

LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
ENDINGS = {"slurm": "sbatch", "sky": "yaml", "ray": "py"}
PROGRAMS = {"slurm": ["sbatch"], "sky": ["sky", "jobs", "launch"], "ray": [sys.executable]}
INSTALL = {
    "slurm": "log in to a node of the cluster",
    "sky": "install SkyPilot: pip install skypilot",
}

Command = Annotated[
    list[str],
    typer.Argument(
        metavar="train RECIPE …", help="The command for one process.", show_default=False
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        help="Processes on each machine. Several have one thread each, unless the command has "
        "--threads. [default: --gpus-per-node, else 1]",
    ),
]
Nodes = Annotated[int, typer.Option("--nodes", help="Number of machines.")]
NodeRank = Annotated[
    int | None, typer.Option("--node-rank", help="The number of this machine, from 0.")
]
Rendezvous = Annotated[
    str | None,
    typer.Option(
        "--rendezvous",
        metavar="HOST:PORT",
        help="A free port of machine 0; the same on each machine.",
    ),
]
Restarts = Annotated[
    int,
    typer.Option(
        "--restarts", help="How often to start all processes again after one was killed or lost."
    ),
]
Timeout = Annotated[
    int,
    typer.Option(
        "--timeout",
        envvar="CLEARHEAD_TIMEOUT",
        help="Seconds that a process waits for another before it ends with an error.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="What starts the processes: local (this command), or a job of slurm, sky or ray.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the script or the command, and start nothing.")
]
Gpus = Annotated[
    int | None, typer.Option("--gpus-per-node", help="GPUs of each machine, for slurm and ray.")
]
Time = Annotated[
    str | None, typer.Option("--time", help="Time limit of a slurm job, such as 24:00:00.")
]
Partition = Annotated[str | None, typer.Option("--partition", help="Partition of a slurm job.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--scheduler-option",
        metavar="KEY=VALUE",
        help="Further settings: #SBATCH --KEY=VALUE, resources of sky, arguments of ray.init.",
    ),
]


def launch(
    command: Command,
    processes: Processes = None,
    nodes: Nodes = 1,
    node_rank: NodeRank = None,
    rendezvous: Rendezvous = None,
    restarts: Restarts = 3,
    timeout: Timeout = 600,
    engine: Engine = "local",
    dry_run: DryRun = False,
    gpus_per_node: Gpus = None,
    time: Time = None,
    partition: Partition = None,
    scheduler_option: Options = None,
) -> None:
    """Train one run on several processes or machines: clearhead launch --processes 2 train …"""
    # torch reads this level when it is imported. If a machine is lost or cannot be reached, torch
    # would hide our sentence below C++ stacks.
    level = os.environ.get(LOG_LEVEL, "ERROR")
    os.environ.setdefault(LOG_LEVEL, "FATAL")
    check_engine_name(engine)
    check_numbers(processes=processes, nodes=nodes, gpus_per_node=gpus_per_node)
    check_numbers(least=0, restarts=restarts)
    check_numbers(most=86400, timeout=timeout)
    processes = processes or gpus_per_node or 1
    if engine == "local":
        check_place(nodes, node_rank, rendezvous)
    check_engine(engine, node_rank, rendezvous, gpus_per_node, time, partition, scheduler_option)
    options = read_options(engine, scheduler_option or [])
    limits = {"time": time, "partition": partition}
    options = {name: value for name, value in limits.items() if value is not None} | options
    values = parse_command(command)
    name, out = check_command(values, nodes * processes)
    words = [*command, *(["--debug"] if "--debug" in sys.argv else [])]  # main has removed it
    job = Job(words, name, processes, nodes, restarts, timeout, gpus_per_node, options)
    if engine != "local":
        _submit(engine, job, out, dry_run)
    elif dry_run:
        typer.echo(write_torchrun(job, node_rank, rendezvous))
    else:
        check_device(values["device"], processes)  # imports torch
        os.environ[LOG_LEVEL] = level  # of the processes, where a GPU's errors are worth reading
        _start(job, node_rank or 0, rendezvous or "localhost:0")


def _start(job: Job, node_rank: int, rendezvous: str) -> None:
    """Start the processes of this machine, and exit with their exit code."""
    with exit_on_interrupt():
        from clearhead.parallel.launch import launch as start

    safe = [] if os.getcwd() in sys.path else ["-P"]  # modules of this folder hide no others
    sys.exit(
        start(
            [sys.executable, *safe, "-m", "clearhead", *job.words],
            processes=job.processes,
            nodes=job.nodes,
            node_rank=node_rank,
            rendezvous=rendezvous,
            restarts=job.restarts,
            timeout=job.timeout,
        )
    )


def write_torchrun(job: Job, node_rank: int | None, rendezvous: str | None) -> str:
    """The command that starts the same processes by torchrun."""
    threads = ["OMP_NUM_THREADS=1"] if job.processes * job.nodes > 1 else []
    place = ["--standalone"]
    if job.nodes > 1:
        place = [f"--nnodes={job.nodes}", f"--node-rank={node_rank}", "--rdzv-id=clearhead"]
        place += ["--rdzv-backend=c10d", f"--rdzv-endpoint={rendezvous}"]
    place += [f"--nproc-per-node={job.processes}", f"--max-restarts={job.restarts}"]
    variables = [*threads, f"CLEARHEAD_TIMEOUT={job.timeout}"]
    return quote_words([*variables, "torchrun", *place, "-m", "clearhead", *job.words])


def _submit(engine: str, job: Job, out: Path, dry_run: bool) -> None:
    """Write the file of a scheduler beside the runs, and hand it over; or print it."""
    text = {
        "slurm": lambda: write_slurm(job, sys.executable),
        "sky": lambda: write_sky(job, __version__),
        "ray": lambda: write_ray(job, os.getcwd()),
    }[engine]()
    if dry_run:
        typer.echo(text, nl=False)
        return
    program = PROGRAMS[engine]
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        raise ValueError("--engine ray needs Ray: pip install 'clearhead[ray]'")
    if shutil.which(program[0]) is None:
        raise ValueError(
            f"--engine {engine} needs the program {program[0]}, which is not here; "
            f"{INSTALL[engine]}, or print the file with --dry-run"
        )
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{job.name}.{ENDINGS[engine]}"
    with replace_file(path) as file:
        file.write(text.encode())
    print(shlex.join([*program, str(path)]), file=sys.stderr)
    done = subprocess.run([*program, str(path)])
    if done.returncode:
        raise ValueError(f"{program[0]} ended with exit code {done.returncode}; see {quote(path)}")

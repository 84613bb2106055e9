"""Job files for Slurm, SkyPilot and Ray: text that users can read, keep and change.

    write_slurm   a script for sbatch, which saves the run before the time limit and queues itself
                  again
    write_sky     a task for `sky jobs launch`
    write_ray     a Python program with a TorchTrainer

Each of them runs `clearhead train …` on every node. A job that was interrupted resumes its run when
it starts again, because it gives the same command. The folder of the runs must be on a disk that
survives the job; for Slurm and Ray, all nodes must see this disk.
"""

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SECONDS_TO_SAVE = 120  # before the time limit of a Slurm job
PORT = 29500  # of the rendezvous on machines that no other job shares
MEET = """# The agents of the nodes meet on the first one.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000))

"""


@dataclass(frozen=True)
class Job:
    """What a scheduler runs: `clearhead` with these words, on each of the nodes."""

    words: Sequence[str]  # train, the recipe, …
    name: str
    processes: int  # on each node
    nodes: int = 1
    restarts: int = 3
    timeout: int = 600
    gpus_per_node: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # of the scheduler, by their names

    @property
    def launch_options(self) -> list[str]:
        """The options of `clearhead launch` that are the same on every node."""
        numbers = {"processes": self.processes, "restarts": self.restarts, "timeout": self.timeout}
        return [word for name, value in numbers.items() for word in (f"--{name}", str(value))]


def quote_word(word: str) -> str:
    """A word as bash reads it, on one line and without unprintable characters."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (
        chr(byte) if 32 <= byte < 127 and byte not in b"\\'" else f"\\x{byte:02x}"
        for byte in os.fsencode(word)
    )
    return f"$'{''.join(escaped)}'"


def quote_words(words: Sequence[str]) -> str:
    return " ".join(map(quote_word, words))


def write_slurm(job: Job, python: str) -> str:
    """The script for sbatch. python: the interpreter, at the same path on every node.

    Before the time limit Slurm sends SIGUSR1 to the script. Nothing else sends this signal, so a
    cancelled job does not queue itself again. The script stops the run by scancel, not through
    srun, which kills its tasks when it gets SIGTERM.
    """
    settings = {"job-name": job.name, "nodes": str(job.nodes), "ntasks-per-node": "1"}
    settings["cpus-per-task"] = str(job.processes)
    if job.gpus_per_node:
        settings["gpus-per-node"] = str(job.gpus_per_node)
    settings |= {"signal": f"B:USR1@{SECONDS_TO_SAVE}", "open-mode": "append", **job.options}
    lines = "".join(f"#SBATCH --{name}={_quote_setting(v)}\n" for name, v in settings.items())
    agent, options = f"{quote_word(python)} -m clearhead launch", quote_words(job.launch_options)
    meet = ""
    if job.nodes > 1:
        meet = MEET
        agent = f"""bash -c 'exec "$0" -m clearhead launch --node-rank "$SLURM_NODEID" "$@"' \\
    {quote_word(python)}"""
        options += f' --nodes {job.nodes} --rendezvous "$first:$port"'
    return f"""#!/bin/bash
{lines}#SBATCH --requeue

# Before the time is over, stop and save; then wait in the queue for more time.
stopping=
trap 'stopping=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR1

{meet}srun --cpus-per-task="$SLURM_CPUS_PER_TASK" \\
    {agent} \\
    {options} \\
    {quote_words(job.words)} &
step=$!
wait "$step"
code=$?
if [ "$stopping" ]; then
    wait "$step" # the first wait ended with the signal
    code=$?
    case $code in
    0 | 2 | 3 | 4 | 5 | 6) ;; # finished, or an error that stays
    *) scontrol requeue "$SLURM_JOB_ID" ;;
    esac
fi
exit "$code"
"""


def _quote_setting(value: str) -> str:
    """The value of an #SBATCH line; sbatch understands quotes, but no escapes."""
    if not value.isprintable() or set(value) & set("\"'\\"):
        raise ValueError(
            f"a Slurm option must have printable characters only, no quotes and no backslashes, "
            f"got {value!r:.80}"
        )
    return f'"{value}"' if re.search(r"[\s#]", value) or not value else value


def write_sky(job: Job, version: str) -> str:
    """The task for SkyPilot, as a managed job: it starts again when its machines are taken away.

    version: that of clearhead, to install on the machines. The text is YAML, in which JSON strings
    are valid.
    """
    options = quote_words(job.launch_options)
    if job.nodes > 1:
        options += f""" --nodes {job.nodes} --node-rank "$SKYPILOT_NODE_RANK" \\
    --rendezvous "$(echo "$SKYPILOT_NODE_IPS" | head -n 1):{PORT}\""""
    resources = "".join(f"  {name}: {_write_value(v)}\n" for name, v in job.options.items())
    return f"""name: {json.dumps(job.name)}
num_nodes: {job.nodes}
workdir: .
{"resources:" if resources else "resources: {}"}
{resources}
# A new machine has an empty disk. Mount a bucket for the folder of the runs, to resume there:
# file_mounts:
#   ~/sky_workdir/runs: {{name: YOUR-BUCKET, mode: MOUNT}}

setup: |
  python -m pip install {quote_word(f"clearhead=={version}")}

run: |
  python -m clearhead launch \\
    {options} \\
    {quote_words(job.words)}
"""


def _write_value(value: str) -> str:
    """The value in YAML: numbers, true and false as they are, all else as a string."""
    if not value.isprintable():
        raise ValueError(f"a resource must have printable characters only, got {value!r:.80}")
    is_plain = re.fullmatch(r"true|false|[0-9]+(\.[0-9]+)?", value)
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def write_ray(job: Job, folder: str) -> str:
    """The program for Ray. folder: where the command was typed; paths are relative to it."""
    init = ", ".join(f"{name}={_parse(value)!r}" for name, value in job.options.items())
    words = "".join(f"    {word!r},\n" for word in job.words)
    size = job.nodes * job.processes
    return f'''"""Train on {size} workers of Ray; started again, it resumes the run."""

import os
import socket
import sys

import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from torch import distributed

FOLDER = {folder!r}  # on a disk that all workers see
COMMAND = [
    'clearhead',
{words}]


def train_on_worker():
    """Run the command as one process of the run: Ray has set RANK, WORLD_SIZE and the others."""
    from clearhead.cli.main import main

    port = torch.tensor(0)
    if distributed.get_rank() == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            port.fill_(free.getsockname()[1])
    distributed.broadcast(port, 0)
    distributed.destroy_process_group()  # clearhead forms its own
    os.environ["MASTER_PORT"] = str(port.item())
    os.environ["CLEARHEAD_TIMEOUT"] = "{job.timeout}"
    os.chdir(FOLDER)
    sys.argv = COMMAND
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"clearhead ended with exit code {{end.code}}") from None


if __name__ == "__main__":
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # else lines appear twice
    ray.init({init})
    trainer = TorchTrainer(
        train_on_worker,
        scaling_config=ScalingConfig(num_workers={size}, use_gpu={bool(job.gpus_per_node)}),
        run_config=RunConfig(
            name={job.name!r},
            failure_config=FailureConfig(max_failures={job.restarts}),
        ),
        torch_config=TorchConfig(backend="gloo", timeout_s={job.timeout}),
    )
    trainer.fit()
'''


def _parse(value: str) -> str | int | bool:
    """The value of a Python argument."""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if re.fullmatch("[0-9]+", value) else value

"""One run on many processes: their ranks, what they exchange, and how they start and end.

group.py        the processes of a run, and how they exchange tensors
signs.py        how they notice that one of them is gone, and which one
waiting.py      waiting for an exchange without falling asleep at once
owners.py       which process updates which parameters
meeting.py      how they find one another, also after a restart
replicated.py   training.parallel=ddp: each process has the whole model
sharded.py      training.parallel=fsdp: each process has a part of every weight
shards.py       the checkpoint files of a sharded model
launch.py       starting the processes of this machine, and starting them again after a fault
agent.py        PyTorch's agent with our ranks, restarts and signals
machines.py     how several machines meet, and how they notice that the first one is lost
faults.py       how the processes ended: which one is the cause, and whether to start again
schedulers.py   job files for Slurm, SkyPilot and Ray
plan.py         memory and time of a step in each mode, and which mode to take
counting.py     operations and activations of a pass, counted without computing it
planning/       what plan.py is made of

The third mode, training.parallel=exact, has no file here: training/chunks.py divides a step into
chunks, group.py adds up what the processes have computed, and each updates its part (owners.py).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.parallel.group import join_group
    from clearhead.parallel.meeting import NoAnswer
    from clearhead.parallel.plan import make_plan

__all__ = ["NoAnswer", "join_group", "make_plan"]

# Imported when asked for: the command line names the cards of planning/ without importing torch.
_HOMES = {"group": ["join_group"], "meeting": ["NoAnswer"], "plan": ["make_plan"]}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"clearhead.parallel.{home}"), name)
    raise AttributeError(f"clearhead.parallel has no {name!r}")

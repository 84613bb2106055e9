"""Running untrusted code in a process of its own.

Three processes: the supervisor knows inputs and expected values; the worker runs the student's file
and knows inputs only; the zygote knows neither and forks a worker for each session. Before it reads
the student's file, the worker isolates itself in layers:

limits.py        limits of time, memory, files and processes; on every system
landlock.py      no access to files outside an allow-list, to TCP and to other processes
namespaces.py    a root folder, a process list and a network of its own
seccomp.py       refuses system calls that student code never needs
bubblewrap.py    namespaces made by a program, where Python may not make them

The rest of the folder:

frames.py        messages between the two sides
worker.py        the untrusted side: answers requests
objects.py       what it serves: the student's file, the objects built from it, and their calls
supervisor.py    the trusted side: sends requests, reads answers, enforces time limits
sandbox.py       starts the zygote and says which level of isolation is reached
zygote.py        a process that has imported torch, forks boxes and watches them
box.py           the processes of one session, and the order in which the layers are applied
processes.py     the descendants of a process: their memory, and ending them
view.py          the folders that checked code may read
kernel.py        calls of the Linux kernel
forbidden.py     functions that an exercise forbids, found in a source text
direct.py        a worker inside this process, for trusted code
"""

from clearhead.exercises.sandbox.forbidden import Use, find_forbidden
from clearhead.exercises.sandbox.limits import Limits
from clearhead.exercises.sandbox.sandbox import Level, Sandbox, open_session
from clearhead.exercises.sandbox.supervisor import Session, Stopped, StudentError, escape

__all__ = [
    "Level",
    "Limits",
    "Sandbox",
    "Session",
    "Stopped",
    "StudentError",
    "Use",
    "escape",
    "find_forbidden",
    "open_session",
]

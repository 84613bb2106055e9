"""Running code that nobody trusts, in a process of its own.

frames.py        messages between the two sides
worker.py        the untrusted side: runs the student's file and calls what is in it
supervisor.py    the trusted side: starts workers, sets limits, reads answers
direct.py        a worker inside this process, for one's own code
"""

from clearhead.exercises.sandbox.supervisor import Session, Stopped, StudentError, open_session

__all__ = ["Session", "Stopped", "StudentError", "open_session"]

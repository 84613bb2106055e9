"""Submissions that try to pass without being right, to break the grader, or to reach outside.

They stand in hostile.txt: a line `### NAME | KIND | LAYERS`, then code. A name begins with its row
in the table of bad inputs. Kinds:

    in the call   the body of `attention`; it must not pass, whatever it does
    at import     code before an `attention` that returns zeros
    whole file    the file as it is
    reaching      code that sets `reached` if it got what it wanted

Layers: one of them is enough to stop it, so it is tried only where one is there; `user` is the
unused user that root becomes. Without layers the limits stop it. @OUTSIDE is a folder open to
everyone with a file secret.txt, @PORT a listening port, @SOCKET a listening socket in the file
system, @ABSTRACT an abstract one, @SUPERVISOR the process of the tests, @PACKAGE the folder of
clearhead and @TESTS that of its tests.
"""

from dataclasses import dataclass
from pathlib import Path

IMPORTS = "import os, sys, time, torch, math, signal, threading, ctypes\n"
ZEROS = "\ndef attention(q, k, v, *a, **kw):\n    return torch.zeros(*q.shape[:-1], v.shape[-1])\n"


@dataclass(frozen=True)
class Hostile:
    name: str
    source: str
    layers: frozenset[str] = frozenset()


def read_hostile() -> tuple[list[Hostile], list[Hostile]]:
    """Those that must not pass, and those that must not reach anything."""
    text = (Path(__file__).parent / "hostile.txt").read_text(encoding="utf-8")
    hostile, reaching = list(UNPRINTABLE), []
    for section in text.split("### ")[1:]:
        title, _, code = section.partition("\n")
        name, kind, *layers = (part.strip() for part in title.split("|"))
        names = frozenset(" ".join(layers).replace("user", "unused_user").split())
        found = Hostile(name, complete(kind, code), frozenset(n.replace("_", " ") for n in names))
        (reaching if kind == "reaching" else hostile).append(found)
    return hostile, reaching


def complete(kind: str, code: str) -> str:
    """The whole file that a section of hostile.txt describes."""
    if kind == "in the call":
        body = "".join(f"    {line}\n" for line in code.splitlines())
        return f"{IMPORTS}\ndef attention(q, k, v, *a, **kw):\n{body}"
    return {"at import": IMPORTS + code + ZEROS, "reaching": IMPORTS + code}.get(kind, code)


UNPRINTABLE = [
    Hostile("G20 tabs and blanks", "def attention(q):\n\tif q:\n        return q\n\treturn q"),
    Hostile("G20 a NUL", "def attention(q, k, v):\n    return '\0'"),
    Hostile("G20 empty", ""),
    Hostile("G20 brackets", "attention = " + "(" * 50_000 + ")" * 50_000),
]
HOSTILE, REACHING = read_hostile()

"""One experiment per file. Each states a claim, tries it, and returns a `Finding`.

    attention    attention.py    two heads computed step by step on a sentence

This file imports nothing heavy, so that the command line can list the experiments at once.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.inspection.figures import Picture

__all__ = ["EXPERIMENTS", "Finding", "check_name", "run"]

EXPERIMENTS = {
    "attention": "A word finds what it needs: two heads, step by step on a sentence.",
}


@dataclass(frozen=True)
class Finding:
    """What an experiment has shown: the claim, the story in words, the numbers, a picture."""

    claim: str
    text: str
    numbers: dict[str, Any]
    picture: "Picture"


def check_name(name: str) -> None:
    """There is an experiment of this name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}")


def run(name: str, *, seed: int = 0, device: str = "auto") -> Finding:
    """Run the experiment of this name."""
    check_name(name)
    from clearhead.runtime import pick_device, seed_everything

    seed_everything(seed)
    module = import_module(f"clearhead.lab.{name.replace('-', '_')}")
    finding: Finding = module.experiment(device=pick_device(device))
    return finding

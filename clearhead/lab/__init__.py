"""Claims as experiments: each file or folder states a claim, tests it and returns a `Finding`.

    run("vanishing").picture.save("vanishing.png")

An experiment is a function `experiment(*, seed, full, device)`: the same seed gives the same
numbers, except times, and `full` uses larger sizes. In reading order:

attention.py            two heads, step by step on a sentence
masks.py                a masked input changes nothing
why_sqrt_d.py           what the division by √d is for
argmax.py               why attention to the best match alone cannot be learned
positions/              five ways to give attention the order of tokens
sizes.py                accuracy on longer texts than those of training, by position scheme
vanishing.py            how much of the first input is left after T inputs
costs.py                time, memory and steps over T
kernels/                attention linear in T
purification.py         what mixing keeps and what it drops
learned_vs_designed/    trained weights beside weights set by hand
heads.py                what the heads of a trained model do
induction.py            how two heads copy the token after an earlier occurrence
faithful.py             which heat map predicts the effect of covering a patch
known_circuits.py       whether the methods of inspection find the parts that matter
algorithm/              whether a trained model does what a program does
tools/                  what the experiments share: findings, drawing, measuring, one page of all

This file imports nothing heavy, so that the command line can list the experiments at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.lab.tools.finding import Finding

__all__ = ["EXPERIMENTS", "check_name", "run"]

# In reading order.
EXPERIMENTS = {
    "attention": "Attention lets a word find what it needs, by content or by position.",
    "masks": "An output depends on an input where the mask allows it, elsewhere by not one bit.",
    "why-sqrt-d": "Scores grow with √d; divided by it, the softmax is equally soft at every width.",
    "argmax": "Taking only the best match gives no gradient, so nothing learns where to attend.",
    "positions": "Without positions a sentence is a bag of tokens; five schemes give it an order.",
    "sizes": "Learned positions fail on texts longer than any seen; rotary and ALiBi go farther.",
    "vanishing": "An RNN forgets or explodes by its largest eigenvalue; attention does neither.",
    "costs": "Attention does T² work in a fixed number of steps; an RNN takes T steps in sequence.",
    "kernels": "A kernel that is a product of features makes attention linear in T.",
    "purification": "Mixing that pays for its weights keeps what is strong and drops what is weak.",
    "learned-vs-designed": "Training finds the weights one would set by hand, in another basis.",
    "heads": "The heads of a trained model do different jobs, and it needs some of them.",
    "induction": "An induction head needs a previous-token head in an earlier layer.",
    "faithful": "Attention is little better than ink at telling what a ViT needs; gradients help.",
    "known-circuits": "Patching and ablation find most parts a model uses; a gradient finds few.",
    "algorithm": "A trained model has an algorithm of its own, which a program explains in part.",
}


def check_name(name: str) -> None:
    """Refuse a name that no experiment has."""
    if name not in EXPERIMENTS:
        from clearhead.config import suggest

        known = ", ".join(EXPERIMENTS)
        near = suggest(name, EXPERIMENTS)
        raise ValueError(f"experiment must be one of {known}, got {name!r}{near}")


def run(name: str, *, seed: int = 0, full: bool = False, device: str = "auto") -> "Finding":
    """Run the experiment of this name; full: with the large sizes, in minutes."""
    check_name(name)
    import torch

    from clearhead.runtime import pick_device

    module = import_module(f"clearhead.lab.{name.replace('-', '_')}")
    with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it is
        torch.manual_seed(seed)
        finding: Finding = module.experiment(seed=seed, full=full, device=pick_device(device))
    return finding

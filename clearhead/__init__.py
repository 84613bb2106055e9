"""clearhead: transformers you can read, run, check and see through.

Read the package in this order; each folder imports only from those above it.

    timing.py      how long something takes: one clock for the whole package
    shapes.py      the checks of arguments, and their error messages
    config.py      typed settings: the base of every config
    runtime.py     seed, device, threads and rank, chosen once per run
    files/         reading untrusted files; writing a file whole or not at all
    data/          from raw files to batches: tokenizers, substrings, plays, pictures, pairs
    positions/     the order of tokens: learned, sinusoidal, Toeplitz, rotary, ALiBi
    attention/     which token attends to which: masks, mechanisms, heads, cache
    layers/        the parts around attention: norms, feed-forward, blocks, patches, recurrence
    models/        whole networks: classifier, ViT, GPT, BERT, translators, the smallest transformer
    generation/    from logits to sequences: sampling, generate, beam search
    training/      learning: losses, optimizer, the loop; tasks and recipes
    parallel/      one run on many processes: groups, sharding, launching
    runs/          a run on a disk: folder, checkpoints, resuming, loading
    inspection/    looking inside: record, interventions, measures, figures, the report of a run
    programs/      small programs compiled into weights
    lab/           every claim as an experiment with numbers and a picture
    exercises/     checking the code of others: contracts, named mistakes, sandbox
    interop/       weights of other projects in our models, and ours in theirs
    studio/        a local web page to watch a model work, and to change it
    bench/         speed, as ratios measured in one run
    cli/           the command line, one file per verb
    __main__.py    python -m clearhead, as torchrun starts it
    renamed.py     old names, which still work for one release

Nothing heavy is imported here, so `clearhead --help` is instant: a folder is imported when it is
first used, as in `import clearhead; clearhead.attention.Mask.causal()`.
"""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from clearhead import renamed as renamed

__version__ = "0.2.0"

FOLDERS = (
    "files",
    "data",
    "positions",
    "attention",
    "layers",
    "models",
    "generation",
    "training",
    "parallel",
    "runs",
    "inspection",
    "programs",
    "lab",
    "exercises",
    "interop",
    "studio",
    "bench",
)


def __getattr__(name: str) -> Any:
    if name in FOLDERS:
        return import_module(f"clearhead.{name}")
    if name == "check":  # clearhead.check(my_function), as in a notebook
        return import_module("clearhead.exercises.check").check
    if name == "look":  # clearhead.look(run, "a text"), as in a notebook
        return import_module("clearhead.studio.look").look
    near = get_close_matches(name, FOLDERS, n=1, cutoff=0.6)
    hint = f"; the nearest is {near[0]!r}" if near else ""
    raise AttributeError(f"module 'clearhead' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*globals(), *FOLDERS, "check", "look"})

"""clearhead: transformers you can read, run, check and see through.

Read the package in this order; each folder imports only from those above it.

    renamed.py     old names, which still work for one release
    timing.py      how long something takes: one clock, best of many rounds, durations in words
    shapes.py      the checks at public doors and the sentences they raise
    config.py      typed settings: the base of every config, read from files and key=value
    runtime.py     seed, device and threads, chosen once per run
    files/         what comes from a disk is checked before it is believed
    data/          raw things become batches: tokenizers, substrings, plays, pictures, pairs
    positions/     where a token stands: learned, sinusoidal, Toeplitz, rotary, ALiBi
    attention/     who listens to whom: masks, mechanisms, heads, cache
    layers/        what stands around attention: norms, feed-forward, blocks, patches, recurrence
    models/        whole networks: classifier, ViT, GPT, BERT, translators, the smallest of all
    generation/    from logits to sequences: sampling, generate, beam search
    training/      what learning is: losses, optimizer, gradient, the loop, tasks, recipes
    runs/          a run on a disk: folder, checkpoints, resuming, signals, train, load_run
    inspection/    looking inside: record(model), measures, figures, the report of a run
    lab/           one experiment per file, each returns a table and a figure
    bench/         how fast, as ratios measured in one run
    interop/       other people's weights in our models, and ours in theirs
    cli/           the command line, one file per verb

Nothing heavy is imported here, so `clearhead --help` is instant.
"""

from clearhead import renamed as renamed

__version__ = "0.2.0"

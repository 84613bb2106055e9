"""clearhead: transformers you can read, run, check and see through.

Read the package in this order; each folder imports only from those above it.

    timing.py      how long something takes: one clock for the whole package
    shapes.py      the checks of arguments, and their error messages
    config.py      typed settings: the base of every config
    runtime.py     seed, device and threads, chosen once per run
    files/         reading untrusted files; writing a file whole or not at all
    data/          from raw files to batches: tokenizers, substrings, plays, pictures, pairs
    positions/     the order of tokens: learned, sinusoidal, Toeplitz, rotary, ALiBi
    attention/     which token attends to which: masks, mechanisms, heads, cache
    layers/        the parts around attention: norms, feed-forward, blocks, patches, recurrence
    models/        whole networks: classifier, ViT, GPT, BERT, translators, the smallest transformer
    generation/    from logits to sequences: sampling, generate, beam search
    training/      learning: losses, optimizer, the loop; tasks and recipes
    runs/          a run on a disk: folder, checkpoints, resuming, loading
    inspection/    looking inside: record(model), measures, figures, the report of a run
    lab/           every claim as an experiment with numbers and a picture
    bench/         speed, as ratios measured in one run
    interop/       weights of other projects in our models, and ours in theirs
    cli/           the command line, one file per verb
    renamed.py     old names, which still work for one release

Nothing heavy is imported here, so `clearhead --help` is instant.
"""

from clearhead import renamed as renamed

__version__ = "0.2.0"

"""Find a needle in a haystack."""

from clearhead.config import UNDECIDED
from clearhead.models import ClassifierConfig
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.tasks.substrings import SubstringData


def substring() -> Recipe:
    """Say whether the needle occurs in the haystack: abccab|cca → yes.

    It takes three blocks: tokens attend to their neighbours, [CLS] reads the needle, [CLS] looks
    for it. With two blocks runs stayed at 86 %. An AMD EPYC: 99.8 to 100.0 % on three seeds, 143 s
    of processor time, which two cores share. Rotary positions of this base serve longer texts too:
    91 to 98 % of haystacks with 16 letters, learned positions 49 %.

    clearhead train substring
    clearhead train substring model.positions=toeplitz
    clearhead train substring model.positions=learned training.steps=2600
    """
    return Recipe(
        "substring",
        data=SubstringData(haystack=(3, 8), needle=(1, 3)),
        model=ClassifierConfig(
            d_input=UNDECIDED,
            d_output=UNDECIDED,
            d_model=48,
            n_layers=3,
            n_heads=4,
            positions="rotary",
            rotary_base=1e6,
            activation="gelu",
        ),
        training=TrainingConfig(
            steps=2200,
            batch_size=64,
            accumulate=2,
            workers=2,
            optimizer="muon",
            matrix_lr=0.01,
            lr=0.01,
            momentum=0.9,
            newton_steps=3,
            schedule="stable",
            warmup=0.05,
            cooldown=0.4,
            eval_every=220,
            save_every=220,
        ),
    )

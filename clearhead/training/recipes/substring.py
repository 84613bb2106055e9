"""Find a needle in a haystack."""

from clearhead.models import ClassifierConfig
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.tasks.substrings import SubstringData

__all__ = ["substring"]


def substring() -> Recipe:
    """Say whether the needle occurs in the haystack: abccab|cca → yes.

    Three blocks are the fewest that can: tokens look at their neighbours, [CLS] finds the needle,
    [CLS] looks for it. On one busy core 3,000 steps gave 99.4 %; a quiet run is not measured yet.

    clearhead train substring
    clearhead train substring model.positions=toeplitz
    """
    return Recipe(
        "substring",
        data=SubstringData(haystack=(3, 8), needle=(1, 3)),
        model=ClassifierConfig(1, 1, d_model=48, n_layers=3, n_heads=4, positions="absolute"),
        training=TrainingConfig(
            steps=4000,
            batch_size=128,
            optimizer="muon",
            matrix_lr=0.02,
            lr=0.01,
            newton_steps=3,
            warmup=0.05,
            eval_every=500,
            save_every=500,
        ),
    )

"""Speeches of a play, word by word."""

from clearhead.config import UNDECIDED
from clearhead.models import GPTConfig
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.tasks.dialogue import DialogueData


def dialogue() -> Recipe:
    """Predict the next word of a speech, and write speeches.

    clearhead train dialogue                                the plays that were fetched
    clearhead train dialogue data.path=play.txt             a play of your own

    Tiny Shakespeare (260,000 training words and marks, 6,872 different ones): validation
    perplexity 65.1 after 300 steps, 2.6 minutes of one core of an AMD EPYC; 7-grams reach 88.1 on
    the same speeches. One seed. (65.7 by data.word_rules=1, the word rules of 0.2.)
    Ten speeches (--overfit 10): loss 0.019 after 300 steps. The least possible loss is
    log 10 / 128 = 0.018, since which speech it is can only be guessed.
    """
    return Recipe(
        "dialogue",
        data=DialogueData(context=128),
        model=GPTConfig(
            vocab_size=UNDECIDED,
            max_len=128,
            d_model=128,
            n_layers=3,
            n_heads=4,
            positions="rotary",
            norm="rms",
            activation="squared_relu",
            bias=False,
            qk_norm=True,
            soft_cap=15.0,
        ),
        training=TrainingConfig(
            steps=300,
            batch_size=16,
            optimizer="muon",
            lr=3e-3,
            matrix_lr=0.02,
            momentum=0.9,
            newton_steps=3,
            weight_decay=0.1,
            warmup=0.02,
            eval_every=None,  # each epoch
            save_every=100,
        ),
    )

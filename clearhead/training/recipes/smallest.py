"""The smallest transformer learns what can also be set by hand (clearhead.models.smallest).

Its config is d_input, d_qk, d_v and d_pos; the data decide the first and the third.
"""

from typing import Any

from clearhead.models.smallest.torch_form import TorchTransformerConfig
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.tasks.sequences import SequenceData

__all__ = ["first", "identity", "unique"]


def identity() -> Recipe:
    """Each token comes out as it went in: ABCC → ABCC.

    clearhead train identity        one thread of a busy machine: 2 s, validation loss 2e-6

    Five seeds of five end below 3e-6.
    """
    return _recipe("identity", TorchTransformerConfig(1, 16, 1), lr=0.03)


def first() -> Recipe:
    """Each token comes out as the first one: CAC → CCC.

    clearhead train first           one thread of a busy machine: 2 s, validation loss 2e-12
    """
    return _recipe("first", TorchTransformerConfig(1, 16, 1, d_pos=6), lr=0.03)


def unique() -> Recipe:
    """+1 for a token that occurs once, −1 for a repeated one: ABB → +1 −1 −1.

    clearhead train unique

    It needs letters and places alike. Muon learns both at one speed, and the places begin as long
    as the letters (tasks/sequences.py).
    """
    model = TorchTransformerConfig(1, 16, 1, d_pos=16)
    return _recipe("unique", model, lr=0.001, optimizer="muon", matrix_lr=0.1)


def _recipe(rule: str, model: TorchTransformerConfig, **settings: Any) -> Recipe:
    training = TrainingConfig(
        steps=500,
        batch_size=128,
        beta2=0.99,
        warmup=0.02,
        log_every=100,
        eval_every=250,
        save_every=250,
        **settings,
    )
    return Recipe(rule, data=SequenceData(rule), model=model, training=training)

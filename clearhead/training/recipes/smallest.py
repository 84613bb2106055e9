"""The smallest transformer learns the rules that models/smallest/designs.py sets by hand.

Each recipe takes 1 to 2 s of one thread's time on 2 cores of an AMD EPYC; the published ones, with
10,001 steps of one sequence each, take 12 to 14 s.
"""

from typing import Any

from clearhead.config import UNDECIDED
from clearhead.models.smallest.torch_form import TorchTransformerConfig
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.tasks.published import PublishedSequenceData
from clearhead.training.tasks.sequences import SequenceData


def identity() -> Recipe:
    """Repeat each token: ABCC → ABCC.

    clearhead train identity        validation loss 9e-9

    Ten seeds of ten end below 2e-6; with AdamW at 0.03, two of them stopped at 0.06 and 0.09.
    """
    return _build("identity", d_pos=None, optimizer="muon", matrix_lr=0.01)


def first() -> Recipe:
    """Replace each token by the first one: CAC → CCC.

    clearhead train first           validation loss 2e-12

    Ten seeds of ten end below 2e-10.
    """
    return _build("first", d_pos=6, lr=0.03)


def unique() -> Recipe:
    """+1 for a token that occurs once, −1 for a repeated one: ABB → +1 −1 −1.

    clearhead train unique          validation loss 1e-8

    Twenty seeds of twenty end below 1e-7. The rule needs letters and positions alike, and two
    things keep the model from learning by positions alone: position vectors start as short as
    letters (tasks/sequences.py), and Muon learns weak directions as fast as strong ones. With only
    one of the two, one seed of ten succeeds (AdamW had 1,500 steps at 0.01); the others stop at a
    loss of 0.07 to 0.4.
    """
    return _build("unique", d_pos=16, optimizer="muon", matrix_lr=0.1, lr=0.001)


def identity_sgd() -> Recipe:
    """The published training of identity: plain SGD, one sequence a step.

    clearhead train identity-sgd    loss 4.2e-4 at step 10,000, from before its update

    Its losses at steps 0, 1000, …, 10,000 are the printed ones (docs/training.md).
    """
    data = PublishedSequenceData("identity", n_examples=10_001, seed=227)
    model = TorchTransformerConfig(d_input=UNDECIDED, d_qk=3, d_v=UNDECIDED)
    return Recipe("identity-sgd", data=data, model=model, training=_step_singly(227))


def first_sgd() -> Recipe:
    """The published training of first: plain SGD, one sequence a step.

    clearhead train first-sgd       loss 9.3e-5 at step 10,000, from before its update
    """
    data = PublishedSequenceData("first", max_len=4, n_examples=10_001, seed=2017, skipped=1)
    model = TorchTransformerConfig(d_input=UNDECIDED, d_qk=1, d_v=UNDECIDED, d_pos=4, max_len=4)
    return Recipe("first-sgd", data=data, model=model, training=_step_singly(2017))


def _step_singly(seed: int) -> TrainingConfig:
    """Steps 0 to 10,000; the loss of every thousandth is logged."""
    return TrainingConfig(
        steps=10_001,
        batch_size=1,
        optimizer="sgd",
        lr=0.03,
        schedule="stable",
        clip=None,
        log_every=1000,
        log_mean=False,
        eval_every=1000,
        save_every=1000,
        seed=seed,
    )


def _build(rule: str, d_pos: int | None, **settings: Any) -> Recipe:
    model = TorchTransformerConfig(d_input=UNDECIDED, d_qk=16, d_v=UNDECIDED, d_pos=d_pos)
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

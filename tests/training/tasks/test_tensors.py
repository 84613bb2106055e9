"""A task of tensors in memory."""

import math

import pytest
import torch
from torch import nn

from clearhead.data import IGNORE, Batch, CharTokenizer
from clearhead.models.model import Config, Model
from clearhead.training.tasks import CharacterPredictor, TensorTask, tensors

INPUTS = torch.tensor([[0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 1], [0, 1, 0]])


class ConstantConfig(Config):
    """No settings."""


class Constant(Model):
    """Says 1 with probability 3/4, whatever it reads."""

    config_type = ConstantConfig

    def __init__(self):
        super().__init__(ConstantConfig())
        self.logits = nn.Parameter(torch.tensor([0.25, 0.75]).log())

    def forward(self, tokens):
        return self.logits.expand(*tokens.shape, 2)


def task(targets=INPUTS):
    predictor = CharacterPredictor(CharTokenizer("01", cls=None))
    return TensorTask(predictor, *Batch(INPUTS, targets).split(2))


def test_loss_and_accuracy_are_means_over_all_targets_of_the_validation_part(monkeypatch):
    monkeypatch.setattr(tensors, "EVAL_BATCH", 2)  # the last batch is smaller
    n_ones = 5  # of the nine targets
    found = task().evaluate(Constant())
    assert found["val_accuracy"] == pytest.approx(n_ones / 9)
    loss = -(n_ones * math.log(0.75) + (9 - n_ones) * math.log(0.25)) / 9
    assert found["val_loss"] == pytest.approx(loss, rel=1e-6)


def test_targets_that_do_not_count_are_left_out():
    targets = INPUTS.clone()
    targets[:, 1:] = IGNORE
    assert task(targets).evaluate(Constant())["val_accuracy"] == pytest.approx(1 / 3)
    assert task(targets).examples(2) == []


def test_a_plan_chooses_examples_of_the_training_part():
    ours = task()
    assert (ours.n_examples, ours.max_len) == (2, 3)
    assert ours.batch([1]).inputs.tolist() == [[1, 0, 1]]
    assert ours.overfit(1).batch([0]).inputs.tolist() == INPUTS[:1].tolist()
    assert len(ours.validation) == ours.n_examples == 1


def test_the_report_shows_texts_and_the_last_target_of_each(tmp_path):
    assert task().examples(2) == [("111", "1"), ("001", "1")]
    assert task().pictures(None) == [("111", "the validation example 111")]
    assert task().next_command(tmp_path) == f"clearhead predict {tmp_path} 111"


def test_the_fingerprint_depends_on_every_example():
    other = INPUTS.clone()
    other[4, 0] = 1
    assert task().fingerprint == task().fingerprint
    assert task().fingerprint != task(other).fingerprint
    assert len(task().fingerprint) == 64

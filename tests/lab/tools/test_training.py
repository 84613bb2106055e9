"""Training inside an experiment: the model is kept, the run is not."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from clearhead.lab.tools import training
from clearhead.lab.tools.training import train_temporarily
from clearhead.runs import Interrupted
from clearhead.training import find_recipe, with_changes


def test_the_trained_model_is_returned_and_its_folder_is_gone():
    recipe = with_changes(find_recipe("identity"), ["training.steps=2"])
    random, threads = torch.get_rng_state(), torch.get_num_threads()
    result = train_temporarily(recipe, "cpu", threads=threads)
    assert result.steps == 2
    assert result.trained.model.n_parameters > 0
    assert not Path(result.run).exists()
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize(
    ("number", "error", "code"),
    [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, 143)],
)
def test_a_signal_ends_the_program_and_restores_the_threads(monkeypatch, number, error, code):
    def stop(recipe, out, **_):
        torch.set_num_threads(3)
        raise Interrupted(number, out)

    monkeypatch.setattr(training, "train", stop)
    threads = torch.get_num_threads()
    with pytest.raises(error) as stopped:
        train_temporarily(find_recipe("identity"), "cpu")
    assert getattr(stopped.value, "code", None) == code
    assert torch.get_num_threads() == threads


def test_the_substring_model_is_trained_by_the_shortened_or_the_whole_recipe(monkeypatch):
    asked = []

    def instead(recipe, device):
        asked.append((recipe.training.steps, recipe.training.seed, recipe.model.positions))
        return SimpleNamespace(trained=SimpleNamespace(model=None, task=None))

    monkeypatch.setattr(training, "train_temporarily", instead)
    for full in (False, True):
        training.train_substring_model(7, full)
    assert asked == [(training.SUBSTRING_STEPS, 7, "toeplitz"), (2200, 7, "toeplitz")]

"""The share of right predictions, by the sign of the first logit or by the largest."""

import pytest
import torch

from clearhead.training import accuracy
from clearhead.training.metrics import is_right


def test_A8_of_the_class_token_the_sign_counts_and_no_other_token():
    logits = torch.tensor([[0.5, -9.0, -9.0], [-0.1, 9.0, 9.0], [0.0, 9.0, 9.0], [2.0, 1.0, 1.0]])
    labels = torch.tensor([1, 1, 0, 0])
    assert is_right(logits[..., None], labels).tolist() == [True, False, True, False]
    assert accuracy(logits[..., None], labels).item() == 0.5
    for given in (labels.bool(), labels.float()):
        assert accuracy(logits[..., None], given).item() == 0.5


def test_A8_it_is_the_mean_of_the_course():
    torch.manual_seed(0)
    logits, labels = torch.randn(37, 5, 1), torch.randint(0, 2, (37,))
    expected = ((logits[:, 0, 0] > 0) == labels).float().mean()
    assert torch.allclose(accuracy(logits, labels), expected, rtol=0, atol=1e-7)
    assert accuracy(logits, labels).shape == ()


def test_of_classes_the_largest_logit_counts():
    logits = torch.tensor([[0.1, 0.3, 0.2], [5.0, -1.0, 4.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    labels = torch.tensor([1, 2, 2, 0])
    assert is_right(logits, labels).tolist() == [True, False, True, True]
    assert accuracy(logits, labels).item() == 0.75


def test_of_nothing_it_is_0():
    assert accuracy(torch.zeros(0, 5, 1), torch.zeros(0)).item() == 0
    assert accuracy(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).item() == 0


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(2), r"logits must have shape \(B, T, 1\)"),
        (torch.zeros(2, 3, 1), torch.zeros(3), r"labels \(B,\), got"),
        (torch.zeros(2, 3, 1), torch.tensor([0, 2]), "labels must be 0 or 1"),
        (torch.zeros(2), torch.tensor([0, 1]), r"logits must have shape \(B, C\)"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "labels"),
        (torch.zeros(2, 3), torch.tensor([0, 1, 2]), "labels"),
    ],
)
def test_what_does_not_fit_together_is_named(logits, labels, words):
    with pytest.raises(ValueError, match=words):
        accuracy(logits, labels)


@pytest.mark.parametrize("logits", [[[0.0, 1.0]], torch.zeros(2, 3, dtype=torch.long)])
def test_logits_are_a_tensor_of_floats(logits):
    with pytest.raises(TypeError, match="logits must"):
        accuracy(logits, torch.tensor([0, 1]))

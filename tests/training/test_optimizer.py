"""Steps by hand, singular values, and what is kept between steps."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from training.tiny_task import TinyConfig, TinyModel

from clearhead.training.optimizer import Optimizer, find_inner_matrices, orthogonalise


class Parts(nn.Module):
    """Layers of each kind, one of them shared."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.stem = nn.Conv2d(3, 40, 3)
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(4, 6, bias=False)
        self.again = self.first
        self.norm = nn.LayerNorm(6)
        self.output = nn.Linear(4, 5, bias=False)
        self.output.weight = self.embedding.weight
        self.head = nn.Linear(6, 2)
        self.frozen = nn.Linear(2, 2)
        self.frozen.requires_grad_(False)


def with_gradients(model, seed=0):
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn_like(parameter)
    return model


def test_adamw_is_the_step_written_out_by_hand():
    model = nn.Linear(3, 2)
    lr, b1, b2, decay = 0.1, 0.8, 0.9, 0.3
    optimizer = Optimizer(model, lr=lr, betas=(b1, b2), weight_decay=decay)
    expected = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    m = {name: torch.zeros_like(p) for name, p in expected.items()}
    v = {name: torch.zeros_like(p) for name, p in expected.items()}
    for t, factor in enumerate((0.5, 1.0, 0.25), 1):
        with_gradients(model, t)
        for name, p in model.named_parameters():
            g = p.grad.double()
            m[name] = b1 * m[name] + (1 - b1) * g
            v[name] = b2 * v[name] + (1 - b2) * g * g
            if p.ndim >= 2:  # a bias is not pulled to 0
                expected[name] -= lr * factor * decay * expected[name]
            step = (m[name] / (1 - b1**t)) / ((v[name] / (1 - b2**t)).sqrt() + 1e-8)
            expected[name] -= lr * factor * step
        optimizer.step(factor)
    for name, p in model.named_parameters():
        assert torch.allclose(p.double(), expected[name], atol=1e-6), name
        assert p.grad is None


def test_sgd_is_the_step_written_out_by_hand():
    model, frozen = nn.Linear(3, 2), nn.Linear(2, 4).requires_grad_(False)
    optimizer = Optimizer(nn.ModuleList([model, frozen]), "sgd", lr=0.1, weight_decay=0.3)
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    before = frozen.weight.clone()
    for t, factor in enumerate((0.5, 1.0, 0.25)):
        with_gradients(model, t)
        for name, p in model.named_parameters():
            if p.ndim >= 2:  # a bias is not pulled to 0
                expected[name] -= 0.1 * factor * 0.3 * expected[name]
            expected[name] -= 0.1 * factor * p.grad
        optimizer.step(factor)
    for name, p in model.named_parameters():
        assert torch.allclose(p, expected[name], rtol=1e-6), name
        assert p.grad is None
    assert frozen.weight.equal(before)


def test_without_decay_sgd_has_the_bits_of_pytorch():
    own, other = nn.Linear(3, 2), nn.Linear(3, 2)
    other.load_state_dict(own.state_dict())
    optimizer, torchs = Optimizer(own, "sgd", lr=0.03), torch.optim.SGD(other.parameters(), lr=0.03)
    for t in range(5):
        with_gradients(own, t), with_gradients(other, t)
        optimizer.step(), torchs.step()
    assert own.weight.equal(other.weight)
    assert own.bias.equal(other.bias)


def test_sgd_keeps_nothing_and_loads_nothing_else():
    optimizer = Optimizer(with_gradients(nn.Linear(3, 2)), "sgd")
    optimizer.step()
    assert optimizer.tensors() == {}
    optimizer.load({})
    with pytest.raises(ValueError, match=r"'adamw.step.weight' is not part of it"):
        optimizer.load({"adamw.step.weight": torch.zeros(())})


def test_sgd_leaves_a_parameter_without_a_gradient_as_it_is():
    model = nn.Linear(3, 2)
    before = model.weight.clone()
    Optimizer(model, "sgd", weight_decay=0.5).step()
    assert model.weight.equal(before)


def test_muon_is_the_step_written_out_by_hand():
    model = nn.Sequential(nn.Linear(3, 5, bias=False))
    weight = model[0].weight
    optimizer = Optimizer(model, "muon", matrix_lr=0.1, momentum=0.9, weight_decay=0.2)
    expected, momentum = weight.detach().clone(), torch.zeros(5, 3)
    for t in (1, 2):
        with_gradients(model, t)
        momentum = 0.9 * momentum + weight.grad
        update = orthogonalise((weight.grad + 0.9 * momentum)[None])[0]
        expected = expected * (1 - 0.05 * 0.2) - 0.05 * math.sqrt(5 / 3) * update
        optimizer.step(0.5)
    assert torch.allclose(weight, expected, atol=1e-6)


@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    size=st.sampled_from([1e-4, 1.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_orthogonal_keeps_directions_and_brings_singular_values_to_about_one(
    rows, columns, size, seed
):
    generator = torch.Generator().manual_seed(seed)
    u, _, vh = torch.linalg.svd(torch.randn(rows, columns, generator=generator), False)
    k = min(rows, columns)
    s = 0.1 + torch.rand(k, generator=generator)
    x = size * (u * s) @ vh
    found = orthogonalise(x[None], 5)[0]
    assert found.shape == x.shape
    inside = u.mT @ found @ vh.mT  # diagonal: the same directions
    assert (inside - inside.diag().diag()).abs().max() < 1e-2
    assert inside.diag().min() > 0.6
    assert inside.diag().max() < 1.3


def test_matrices_of_one_shape_go_together_as_if_alone():
    x = torch.randn(4, 5, 3)
    for alone, together in zip(x, orthogonalise(x), strict=True):
        assert torch.allclose(orthogonalise(alone[None])[0], together, atol=1e-5)
    assert torch.equal(orthogonalise(torch.zeros(1, 2, 3)), torch.zeros(1, 2, 3))


def test_inner_matrices_are_neither_first_nor_last_nor_shared_with_them():
    model = Parts()
    assert set(find_inner_matrices(model)) == {"stem.weight", "first.weight", "second.weight"}
    assert find_inner_matrices(model)["first.weight"] is model.again.weight


def test_each_parameter_that_learns_is_in_exactly_one_group_and_moves():
    model = Parts()
    optimizer = Optimizer(model, "muon", weight_decay=0.5)
    in_adamw = [p for group in optimizer.adamw.param_groups for p in group["params"]]
    everyone = [*in_adamw, *optimizer.muon.parameters.values()]
    learned = [p for p in model.parameters() if p.requires_grad]
    assert sorted(map(id, everyone)) == sorted(map(id, learned))
    decays = [
        (group["weight_decay"], p.ndim)
        for group in optimizer.adamw.param_groups
        for p in group["params"]
    ]
    assert all(decay == (0.5 if ndim >= 2 else 0) for decay, ndim in decays)
    before = [p.detach().clone() for p in model.parameters()]
    with_gradients(model)
    optimizer.step()
    for p, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, old) != p.requires_grad


def test_a_parameter_without_a_gradient_stays_and_costs_nothing():
    model = Parts()
    optimizer = Optimizer(model, "muon")
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step()
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("n_steps", [0, 1, 3])
def test_the_saved_state_is_all_that_is_needed_to_resume(kind, n_steps):
    def stepped(model, optimizer, steps):
        for t in steps:
            with_gradients(model, t)
            model.idle.grad = None  # never has one
            optimizer.step(1 / (t + 1))

    torch.manual_seed(5)
    one = TinyModel(TinyConfig())
    optimizer = Optimizer(one, kind, weight_decay=0.1)
    stepped(one, optimizer, range(n_steps))
    kept = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}
    other = TinyModel(TinyConfig())
    other.load_state_dict(one.state_dict())
    again = Optimizer(other, kind, weight_decay=0.1)
    again.load(kept)
    for model, steps in ((one, optimizer), (other, again)):
        stepped(model, steps, range(n_steps, n_steps + 3))
    assert again.tensors().keys() == kept.keys()
    for name, tensor in optimizer.tensors().items():
        assert torch.equal(again.tensors()[name], tensor), name
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_what_does_not_fit_is_refused_and_nothing_is_changed():
    model = with_gradients(TinyModel(TinyConfig()))
    optimizer = Optimizer(model, "muon")
    optimizer.step()
    kept = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}
    missing = {name: tensor for name, tensor in kept.items() if name != "muon.inner.weight"}
    other = {name: torch.zeros_like(tensor) for name, tensor in kept.items()}
    cases = [
        (missing, "'muon.inner.weight' is missing"),
        ({**other, "x": torch.ones(1)}, "'x' is not part of it"),
        ({**other, "adamw.exp_avg.head.bias": torch.ones(3)}, r"head\.bias' has shape \(3,\)"),
        ({**other, "adamw.step.head.bias": torch.tensor(1)}, r"of torch\.int64, not \(\)"),
        ({}, "is missing"),
    ]
    for tensors, words in cases:
        with pytest.raises(ValueError, match=f"does not fit this model: .*{words}"):
            optimizer.load(tensors)
        assert all(torch.equal(kept[n], t) for n, t in optimizer.tensors().items())


def test_an_unknown_kind_is_refused():
    words = "optimizer must be one of 'adamw', 'muon', 'sgd', got 'lion'"
    with pytest.raises(ValueError, match=words):
        Optimizer(nn.Linear(2, 2), "lion")

"""The smallest transformer in PyTorch: the numbers of the NumPy form, one sequence or a batch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.inspection import record
from clearhead.models.smallest import NumpyTransformer, TorchTransformer, designs

SIZES = st.fixed_dictionaries(
    {
        "d_input": st.integers(1, 6),
        "d_qk": st.integers(1, 5),
        "d_v": st.integers(1, 5),
        "d_pos": st.none() | st.integers(1, 4),
        "max_len": st.integers(1, 9),
    }
)


def design(d_input: int, d_qk: int, d_v: int, d_pos: int | None, max_len: int) -> NumpyTransformer:
    random = np.random.default_rng(d_input + 7 * d_qk + 49 * d_v + 343 * max_len)
    rows = d_input + (d_pos or 0)
    matrices = [random.normal(size=(rows, width)) for width in (d_qk, d_qk, d_v)]
    return NumpyTransformer(*matrices, random.normal(size=(max_len, d_pos)) if d_pos else None)


def batch(sizes: dict, n: int, B: int = 2) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(B, n, sizes["d_input"]))


@given(SIZES, st.data())
def test_both_forms_agree_on_any_sizes_with_and_without_positions(sizes, data) -> None:
    hand = design(**sizes)
    seq = batch(sizes, data.draw(st.integers(1, sizes["max_len"]), "n"))
    right = np.stack([hand.forward(one) for one in seq])
    torch_form = TorchTransformer.from_numpy(hand)
    with torch.no_grad():
        exact = torch_form(torch.tensor(seq))
        single = torch_form.float()(torch.tensor(seq))
    assert (exact.dtype, single.dtype) == (torch.float64, torch.float32)
    np.testing.assert_allclose(exact.numpy(), right, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(single.numpy(), right, rtol=1e-3, atol=1e-5)


@given(SIZES)
def test_a_batch_is_its_sequences_one_by_one(sizes) -> None:
    model, seq = TorchTransformer.from_numpy(design(**sizes)), batch(sizes, sizes["max_len"], 3)
    alone = torch.stack([model(torch.tensor(one)) for one in seq])
    torch.testing.assert_close(model(torch.tensor(seq)), alone, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("d_pos", [None, 2])
def test_the_state_dict_has_the_transposed_matrices_under_their_names(d_pos: int | None) -> None:
    hand = design(3, 4, 6, d_pos, 7)
    model = TorchTransformer(3, 4, 6, d_pos, 7).double()
    names = {"Km.weight", "Qm.weight", "Vm.weight"} | ({"pos.weight"} if d_pos else set())
    assert set(model.state_dict()) == names
    weights = {f"{name}.weight": torch.tensor(getattr(hand, name).T) for name in ("Km", "Qm", "Vm")}
    if d_pos:
        weights["pos.weight"] = torch.tensor(hand.pos)
    model.load_state_dict(weights)
    seq = batch({"d_input": 3}, 5)[0]
    np.testing.assert_allclose(
        model(torch.tensor(seq)).detach().numpy(), hand.forward(seq), rtol=1e-12
    )


def test_the_published_start_and_sequence_give_the_published_numbers() -> None:
    torch.manual_seed(1998)
    output = TorchTransformer(7, 4, 3, 2, 9)(torch.randn(8, 7))
    published = torch.tensor([0.051710, -0.136338, 0.121368, 0.012151, -0.202027])
    torch.testing.assert_close(output.flatten()[2:7], published, rtol=0, atol=1e-6)


def test_positions_and_then_queries_keys_values_are_drawn() -> None:
    torch.manual_seed(5)
    drawn = [torch.nn.Embedding(7, 2)]
    drawn += [torch.nn.Linear(5, width, bias=False) for width in (4, 4, 6)]
    torch.manual_seed(5)
    model = TorchTransformer(3, 4, 6, 2, 7)
    for layer, other in zip((model.pos, model.Qm, model.Km, model.Vm), drawn, strict=True):
        assert layer.weight.equal(other.weight)


def test_from_numpy_and_to_numpy_are_inverse() -> None:
    for hand in (design(3, 4, 6, None, 7), design(3, 4, 6, 2, 7)):
        back = TorchTransformer.from_numpy(hand).to_numpy()
        for name in ("Km", "Qm", "Vm", "pos"):
            np.testing.assert_array_equal(getattr(back, name), getattr(hand, name))


def test_a_recorder_sees_the_attention_of_the_numpy_form() -> None:
    hand, seq = design(3, 4, 6, 2, 7), batch({"d_input": 3}, 5)
    model = TorchTransformer.from_numpy(hand)
    with record(model) as trace:
        model(torch.tensor(seq))
    right = np.stack([hand.steps(one).attention for one in seq])
    np.testing.assert_allclose(trace["attention"].weights.numpy(), right, rtol=1e-12)


def test_whole_numbers_are_taken_as_one_hot_tables_are_made() -> None:
    model = TorchTransformer.from_numpy(designs.first(4))
    rows = torch.nn.functional.one_hot(torch.tensor([2, 0, 2]), 3)
    torch.testing.assert_close(model(rows), torch.eye(3).double()[[2, 2, 2]])


def test_every_parameter_learns() -> None:
    model = TorchTransformer(3, 4, 6, 2, max_len=5)
    model(torch.randn(2, 5, 3)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


# What is refused


@pytest.mark.parametrize(
    ("seq", "words"),
    [
        (torch.ones(2, 4), r"seq must have shape \(n, 3\) or \(B, n, 3\), got \(2, 4\)"),
        (torch.ones(3), r"seq must have shape .* got \(3,\)"),
        (torch.ones(8, 3), "seq has length 8 but max_len is 7; shorten it or .* max_len=8"),
    ],
)
def test_wrong_sequences_are_named(seq: torch.Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TorchTransformer(3, 4, 6, 2, max_len=7)(seq)


def test_wrong_types_are_named() -> None:
    model = TorchTransformer(3, 4, 6)
    with pytest.raises(TypeError, match=r"seq must be a torch\.Tensor, got list"):
        model([[1, 0, 0]])
    with pytest.raises(TypeError, match=r"seq must hold real numbers, got torch\.complex64"):
        model(torch.ones(2, 3, dtype=torch.complex64))
    with pytest.raises(TypeError, match="design must be a NumpyTransformer, got ndarray"):
        TorchTransformer.from_numpy(np.eye(3))


def test_sizes_are_positive() -> None:
    with pytest.raises(ValueError, match="d_pos must be at least 1, got 0"):
        TorchTransformer(3, 4, 6, 0)
    with pytest.raises(ValueError, match="d_qk must be at least 1, got 0"):
        TorchTransformer(3, 0, 6)

"""LinearRNN: the recurrence by a loop, and the closed form equal to it."""

import pytest
import torch

from clearhead.layers import LinearRNN
from clearhead.layers.recurrent import matrix_powers

B, T, D_IN, D_HIDDEN, D_OUT = 2, 7, 3, 4, 5

FUNCTIONS = {None: lambda v: v, "tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


def loop(rnn, x, state):
    """The definition, element by element of the batch and step by step."""

    def bias(layer):
        return 0.0 if layer.bias is None else layer.bias

    outputs, states = [], []
    for b in range(x.size(0)):
        h = state[b]
        for t in range(x.size(1)):
            driven = rnn.input.weight @ x[b, t] + bias(rnn.input)
            h = FUNCTIONS[rnn.activation](rnn.hidden.weight @ h + driven)
            states.append(h)
            read = rnn.output.weight @ h + bias(rnn.output)
            outputs.append(FUNCTIONS[rnn.output_activation](read))
    return (
        torch.stack(outputs).view(x.size(0), x.size(1), -1),
        torch.stack(states).view(x.size(0), x.size(1), -1),
    )


def test_any_element_wise_function_is_an_activation():
    def bend(h):
        return h / (1 + h.abs())

    slope = torch.nn.PReLU().double()
    for activation, output_activation in ((bend, torch.sin), (slope, bend), ("sigmoid", slope)):
        rnn, x = built(activation=activation, output_activation=output_activation), inputs()
        FUNCTIONS.update({each: each for each in (bend, torch.sin, slope)})
        expected = loop(rnn, x, torch.zeros(B, D_HIDDEN, dtype=torch.float64))
        found = rnn(x)
        for one, other in zip(found, expected, strict=True):
            assert (one - other).abs().max() <= 1e-12
        gradients = (
            torch.autograd.grad(outputs.square().sum(), list(rnn.parameters()), allow_unused=True)
            for outputs, _ in (found, expected)
        )
        for one, other in zip(*gradients, strict=True):
            assert (one - other).abs().max() <= 1e-12


def built(**options):
    return LinearRNN(D_IN, D_HIDDEN, D_OUT, **options).double()


def inputs():
    return torch.randn(B, T, D_IN, dtype=torch.float64)


def test_one_number_by_hand():
    rnn = LinearRNN(1, 1, 1, bias=False)
    for layer, weight in ((rnn.hidden, 0.5), (rnn.input, 2.0), (rnn.output, 10.0)):
        layer.weight.data.fill_(weight)
    outputs, states = rnn(torch.tensor([[[1.0], [0.0], [4.0]]]))
    assert states.flatten().tolist() == [2.0, 1.0, 8.5]
    assert outputs.flatten().tolist() == [20.0, 10.0, 85.0]
    assert rnn.closed_form(torch.tensor([[[1.0], [0.0], [4.0]]])).item() == 8.5


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("output_activation", [None, "tanh", "relu"])
@pytest.mark.parametrize("activation", [None, "tanh", "relu"])
def test_every_step_follows_the_recurrence(activation, output_activation, bias):
    rnn = built(activation=activation, output_activation=output_activation, bias=bias)
    x, state = inputs(), torch.randn(B, D_HIDDEN, dtype=torch.float64)
    for start in (state, torch.zeros_like(state)):
        outputs, states = rnn(x, start)
        expected_outputs, expected_states = loop(rnn, x, start)
        assert torch.allclose(outputs, expected_outputs, rtol=0, atol=1e-12)
        assert torch.allclose(states, expected_states, rtol=0, atol=1e-12)
    assert torch.equal(rnn(x)[0], outputs)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 9, 40])
def test_the_closed_form_is_the_last_state(length, bias):
    rnn, x = built(bias=bias), torch.randn(B, length, D_IN, dtype=torch.float64)
    last = rnn(x)[1][:, -1] if length else torch.zeros(B, D_HIDDEN, dtype=torch.float64)
    assert torch.allclose(rnn.closed_form(x), last, rtol=0, atol=1e-10)


def test_the_closed_form_is_the_sum_of_powers_written_out():
    rnn, x = built(), inputs()
    total = torch.zeros(B, D_HIDDEN, dtype=torch.float64)
    for k in range(1, T + 1):
        power = torch.linalg.matrix_power(rnn.hidden.weight, T - k)
        total += rnn.input(x[:, k - 1]) @ power.mT
    assert torch.allclose(rnn.closed_form(x), total, rtol=0, atol=1e-12)


def test_both_forms_have_the_same_gradients():
    rnn, x = built(), inputs().requires_grad_()
    wanted = (x, rnn.hidden.weight, rnn.input.weight, rnn.input.bias)
    seen = torch.randn(B, D_HIDDEN, dtype=torch.float64)
    steps = torch.autograd.grad(rnn(x)[1][:, -1], wanted, seen)
    closed = torch.autograd.grad(rnn.closed_form(x), wanted, seen)
    for a, b in zip(steps, closed, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)
    assert torch.autograd.gradcheck(lambda y: rnn(y)[0], x)


@pytest.mark.parametrize(("eigenvalue", "share"), [(0.5, 0.5**19), (1.0, 1.0), (1.5, 1.5**19)])
def test_the_share_of_the_first_input_follows_the_largest_eigenvalue(eigenvalue, share):
    rnn = LinearRNN(2, 2, 1, bias=False).double()
    with torch.no_grad():
        rnn.hidden.weight.copy_(torch.diag(torch.tensor([eigenvalue, 0.1])))
        rnn.input.weight.copy_(torch.eye(2))
        rnn.output.weight.copy_(torch.ones(1, 2))
    x = torch.randn(1, 20, 2, dtype=torch.float64, requires_grad=True)
    rnn(x)[0][0, -1].backward()
    assert x.grad[0, 0, 0].item() == pytest.approx(share)


def test_the_second_half_of_a_sequence_continues_from_the_state():
    rnn, x = built(activation="tanh"), inputs()
    outputs, states = rnn(x)
    first_outputs, first_states = rnn(x[:, :3])
    second_outputs, second_states = rnn(x[:, 3:], first_states[:, -1])
    assert torch.allclose(torch.cat((first_outputs, second_outputs), 1), outputs)
    assert torch.allclose(torch.cat((first_states, second_states), 1), states)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8])
def test_matrix_powers_are_the_powers(n):
    matrix = torch.randn(3, 3, dtype=torch.float64)
    powers = matrix_powers(matrix, n)
    assert powers.shape == (n, 3, 3)
    for k in range(n):
        assert torch.allclose(powers[k], torch.linalg.matrix_power(matrix, k))


def test_the_biases_belong_to_input_and_output():
    names = ["hidden.weight", "input.bias", "input.weight", "output.bias", "output.weight"]
    assert sorted(built().state_dict()) == names
    assert not any("bias" in name for name in built(bias=False).state_dict())


def test_mistakes_are_refused():
    with pytest.raises(
        ValueError, match="needs the identity between steps, but activation is 'tanh'"
    ):
        built(activation="tanh").closed_form(inputs())
    with pytest.raises(
        ValueError,
        match=r"output_activation must be one of 'tanh', .* or a function, got 'gelu'",
    ):
        built(output_activation="gelu")
    with pytest.raises(ValueError, match=r"^activation must be one of 'tanh', .* got 'gelu'"):
        built(activation="gelu")
    with pytest.raises(ValueError, match=r"^activation must be one of 'tanh', .* got 3"):
        built(activation=3)
    with pytest.raises(TypeError, match=r"^output_activation must be a function of a tensor, got "):
        built(output_activation=torch.nn.Tanh)
    with pytest.raises(TypeError, match=r"got the class Tanh; give an instance: Tanh\(\)$"):
        built(activation=torch.nn.Tanh)
    with pytest.raises(ValueError, match="but activation is <built-in method sin"):
        built(activation=torch.sin).closed_form(inputs())
    with pytest.raises(ValueError, match=r"element-wise, a tensor of shape \(2, 4\) .* \(2,\)"):
        built(activation=lambda h: h.sum(-1))(inputs())
    with pytest.raises(ValueError, match=r"element-wise, .* \(2, 7, 5\) .* gave NoneType"):
        built(output_activation=lambda y: None)(inputs())
    with pytest.raises(ValueError, match="d_hidden must be at least 1, got 0"):
        LinearRNN(3, 0, 5)
    with pytest.raises(ValueError, match=r"x has width 4 .* but d_input is 3"):
        built()(torch.zeros(B, T, 4))
    with pytest.raises(
        ValueError, match=r"state must have shape \(B, d_hidden\) = \(2, 4\), got \(4,\)"
    ):
        built()(inputs(), torch.zeros(4, dtype=torch.float64))


@pytest.mark.parametrize(("batch", "length"), [(0, T), (B, 0)])
def test_empty_sizes_keep_their_shape(batch, length):
    outputs, states = built()(torch.zeros(batch, length, D_IN, dtype=torch.float64))
    assert outputs.shape == (batch, length, D_OUT)
    assert states.shape == (batch, length, D_HIDDEN)


def test_the_input_and_the_state_stay_unchanged():
    x, state = inputs(), torch.zeros(B, D_HIDDEN, dtype=torch.float64)
    built()(x, state)
    assert x._version == state._version == 0
    assert not state.any()

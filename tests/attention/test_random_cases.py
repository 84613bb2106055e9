"""Generated cases against the float64 loops: sizes, dtypes, masks, biases, for every mechanism.

The rule: the error of the output is at most 1.5 times, of a gradient at most 2 times, the error of
the plain computation in the same dtype – (q kᵀ + bias) · scale, softmax, times v – plus a floor:

    1e-10 in float64, 1e-6 in float32, one unit in the last place (eps) in half precision,
    times the size of the numbers: 1, the largest exact entry, or the largest term of its sum

so the floor is what rounding one number once may cost. Where running sums add features that cancel,
because (q·k + 1)² is near 0, the plain computation is the same sum of features, not the square. A
case is a program: it is what runs, and what a failure prints.
"""

import dataclasses
import math

import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import elu

FLOOR = {torch.float64: 1e-10, torch.float32: 1e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """How a program calls it, which masks it serves, and whether a bias and other widths fit."""

    imports: str
    call: str
    bias: bool = True
    any_mask: bool = True
    sizes: tuple[float, ...] = (0.3, 1.0, 2.0)
    make: str = ""


MECHANISMS = {
    "reference": Mechanism(
        "from clearhead.attention import dot_product",
        "dot_product.attend(q, k, v, mask=mask, bias=bias)",
    ),
    "fast": Mechanism(
        "from clearhead.attention import dot_product_fast",
        "dot_product_fast.attend(q, k, v, mask=mask, bias=bias)",
    ),
    "additive": Mechanism(
        "from clearhead.attention.mechanisms import AdditiveAttention",
        "attention(q, k, v, mask=mask, bias=bias)",
        make="attention = AdditiveAttention(q.size(-1), k.size(-1), 3).to(q.dtype)",
    ),
    "argmax": Mechanism(
        "from clearhead.attention.mechanisms import ArgmaxAttention",
        "ArgmaxAttention()(q, k, v, mask=mask, bias=bias)",
    ),
}
KERNELS = {
    "elu": ("EluFeatures", "EluFeatures()", (0.3, 1.0, 2.0)),
    "quadratic": ("QuadraticFeatures", "QuadraticFeatures()", (0.1, 0.3)),
    "large quadratic": ("QuadraticFeatures", "QuadraticFeatures()", (1.0, 2.0)),
    # Of short vectors the estimate is never near 0, which would make the quotient meaningless.
    "fourier": ("FourierFeatures", "FourierFeatures(q.size(-1), 8)", (0.1, 0.3)),
    "positive": ("PositiveFeatures", "PositiveFeatures(q.size(-1), 8)", (0.3, 1.0)),
}
for kernel, (features, make, sizes) in KERNELS.items():
    for form in ("linear", "linear_fast"):
        MECHANISMS[f"{form} {kernel}"] = Mechanism(
            f"from clearhead.attention import {form}\n"
            f"from clearhead.attention.features import {features}",
            f"{form}.attend(q, k, v, features, mask=mask)",
            bias=False,
            any_mask=form == "linear",
            sizes=sizes,
            make=f"features = {make}",
        )

PROGRAM = """\
import torch
from clearhead.attention.masks import Mask
{imports}

torch.manual_seed({seed})
q = ({size} * torch.randn({q}, dtype=torch.float64)).to({dtype}).requires_grad_()
k = ({size} * torch.randn({k}, dtype=torch.float64)).to({dtype}).requires_grad_()
v = torch.randn({v}, dtype=torch.float64).to({dtype}).requires_grad_()
bias = {bias}
mask = {mask}
{make}
output = {call}
grad = torch.randn(output.shape, dtype=torch.float64).to(output.dtype)
output.backward(grad)
"""


# What is generated


def flags(shape):
    """A boolean matrix as a program writes it, from its own small generator."""
    number = st.integers(0, 999)
    text = f"(torch.rand({shape}, generator=torch.Generator().manual_seed({{}})) > {{}})"
    return st.builds(text.format, number, st.sampled_from([0.2, 0.5, 0.8]))


def whole_numbers(low, high, *shape):
    if not shape:
        return st.integers(low, high)
    return st.lists(whole_numbers(low, high, *shape[1:]), min_size=shape[0], max_size=shape[0])


@st.composite
def masks(draw, B, H, T, S, any_mask):
    parts = ["Mask.causal()"]
    parts.append(f"Mask.padding(torch.tensor({draw(whole_numbers(0, S, B))}))")
    parts.append(f"Mask.tokens({draw(flags((B, S)))})")
    parts.append(f"Mask.segments(torch.tensor({draw(whole_numbers(-1, 2, B, S))}))")
    if any_mask:
        parts.append(f"Mask.window({draw(st.integers(1, S))})")
        parts.append(f"Mask.padding(torch.tensor({draw(whole_numbers(0, S, B, T))}))")
        leading = (B, H) if H else (B,)
        shape = draw(
            st.sampled_from([(T, S), (*leading, T, S), (*leading[:1], *leading[1:], 1, S)])
        )
        parts.append(f"Mask.of({draw(flags(shape))})")
    chosen = draw(st.lists(st.sampled_from(parts), max_size=3, unique=True))
    return " & ".join(chosen) or "None"


@st.composite
def biases(draw, B, H, T, S, dtype):
    whole = (B, H, T, S) if H else (B, T, S)
    shape = [draw(st.sampled_from([1, size])) for size in whole]
    shape = shape[draw(st.integers(0, len(shape) - 1)) :]
    learns = ".requires_grad_()" if draw(st.booleans()) else ""
    return f"torch.randn({tuple(shape)}, dtype=torch.float64).to({dtype}){learns}"


@st.composite
def programs(draw, mechanism):
    B, H = draw(st.integers(1, 3)), draw(st.integers(0, 3))  # H = 0: no axis for heads
    T, S = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    Dh, Dv = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    if draw(st.booleans()):
        T, Dv = S, Dh  # what the fused kernels are made for
    dtype = draw(st.sampled_from(sorted(map(str, FLOOR))))
    leading = (B, H) if H else (B,)
    with_bias = mechanism.bias and draw(st.booleans())
    return PROGRAM.format(
        imports=mechanism.imports,
        seed=draw(st.integers(0, 10**6)),
        size=draw(st.sampled_from(mechanism.sizes)),
        dtype=dtype,
        q=(*leading, T, Dh),
        k=(*leading, S, Dh),
        v=(*leading, S, Dv),
        bias=draw(biases(B, H, T, S, dtype)) if with_bias else "None",
        mask=draw(masks(B, H, T, S, mechanism.any_mask)),
        make=mechanism.make,
        call=mechanism.call,
    )


# What each mechanism is compared with


def allowed_pairs(ran) -> Tensor | None:
    q, k, mask = ran["q"], ran["k"], ran["mask"]
    return None if mask is None else mask.broadcastable(q.size(-2), k.size(-2), axes=q.ndim)


def naive_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    if allowed is None:
        return scores.softmax(-1)
    empty = ~allowed.any(-1, keepdim=True)
    weights = scores.masked_fill(~allowed, -torch.inf).masked_fill(empty, 0.0).softmax(-1)
    return weights.masked_fill(~allowed, 0.0)


def naive_kernel(similar: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    if allowed is None:
        return (similar @ v) / similar.sum(-1, keepdim=True)
    similar = similar.masked_fill(~allowed, 0.0)
    total = similar.sum(-1, keepdim=True).masked_fill(~allowed.any(-1, keepdim=True), 1.0)
    return (similar @ v) / total


def naive_fourier(x: Tensor, frequencies: Tensor) -> Tensor:
    angles, m = x @ frequencies.mT, len(frequencies)
    norms = x.square().sum(-1, keepdim=True) / (2 * math.sqrt(x.size(-1)))
    return norms.exp() * torch.cat([angles.sin(), angles.cos()], -1) / math.sqrt(m)


def naive_positive(x: Tensor, frequencies: Tensor) -> Tensor:
    norms = x.square().sum(-1, keepdim=True) / (2 * math.sqrt(x.size(-1)))
    return (x @ frequencies.mT - norms).exp() / math.sqrt(len(frequencies))


def naive(name: str, ran, q, k, v, bias, *parameters) -> Tensor:
    """The plain computation, in the dtype of q."""
    allowed = allowed_pairs(ran)
    added = 0.0 if bias is None else bias
    if name == "additive":
        w_q, w_k, w = parameters
        hidden = ((q @ w_q.mT).unsqueeze(-2) + (k @ w_k.mT).unsqueeze(-3)).tanh()
        return naive_softmax((hidden @ w.mT).squeeze(-1) + added, allowed) @ v
    if name == "argmax":
        scores = q @ k.mT + added
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        best = torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
        return (best if allowed is None else best.masked_fill(~allowed, 0.0)) @ v
    if name == "linear_fast large quadratic":
        features = ran["features"]
        return naive_kernel(features(q) @ features(k).mT, v, allowed)
    if name.endswith("quadratic"):
        return naive_kernel((q @ k.mT + 1) ** 2, v, allowed)
    if name.endswith("elu"):
        return naive_kernel((elu(q) + 1) @ (elu(k) + 1).mT, v, allowed)
    if name.startswith("linear"):
        phi = naive_fourier if name.endswith("fourier") else naive_positive
        frequencies = ran["features"].frequencies.to(q.dtype)
        return naive_kernel(phi(q, frequencies) @ phi(k, frequencies).mT, v, allowed)
    return naive_softmax((q @ k.mT + added) * q.size(-1) ** -0.5, allowed) @ v


def similarity_of(name: str, features) -> oracle.Similarity:
    if name.endswith("elu"):
        return oracle.elu_plus_one
    if name.endswith("quadratic"):
        return oracle.quadratic
    estimate = oracle.fourier if name.endswith("fourier") else oracle.positive
    return estimate(features.frequencies)


def exact(name: str, ran) -> tuple[Tensor, oracle.Gradients]:
    """The loops in float64, on the same rounded inputs."""
    q, k, v, bias, grad = (ran[x] for x in ("q", "k", "v", "bias", "grad"))
    allowed = allowed_pairs(ran)
    if name == "additive":
        w_q, w_k, w = (p.detach().double() for p in ran["attention"].parameters())
        output, _ = oracle.additive(q, k, v, w_q, w_k, w[0], allowed, bias)
        grads = oracle.additive_gradients(q, k, v, w_q, w_k, w[0], grad, allowed, bias)
        return output, grads
    if name == "argmax":
        return (
            oracle.argmax(q, k, v, allowed, bias)[0],
            oracle.argmax_gradients(q, k, v, grad, allowed, bias),
        )
    if name.startswith("linear"):
        similarity = similarity_of(name, ran["features"])
        output, _ = oracle.kernel(q, k, v, similarity, allowed)
        return output, oracle.kernel_gradients(q, k, v, similarity, grad, allowed)
    output, _ = oracle.dot_product(q, k, v, allowed, bias)
    return output, oracle.dot_product_gradients(q, k, v, grad, allowed, bias)


def error(x: Tensor, truth: Tensor) -> float:
    return float((x.detach().double() - truth).abs().max())


def check(name: str, program: str) -> None:
    ran: dict = {}
    exec(compile(program, "<case>", "exec"), ran)
    parameters = list(ran["attention"].parameters()) if name == "additive" else []
    leaves = [*(ran[x] for x in ("q", "k", "v", "bias")), *parameters]
    copies = [x if x is None else x.detach().requires_grad_(x.requires_grad) for x in leaves]
    plain = naive(name, ran, *copies)
    if plain.requires_grad:
        plain.backward(ran["grad"])
    output, grads = exact(name, ran)

    rows = [("output", ran["output"], plain, output, 1.5)]
    truths = dict(zip(("q", "k", "v"), grads, strict=False))
    for label, truth, ours, theirs in zip(truths, truths.values(), leaves, copies, strict=False):
        rows.append((f"gradient of {label}", ours.grad, _grad(theirs), truth, 2.0))
    if ran["bias"] is not None and ran["bias"].requires_grad and grads.bias is not None:
        rows.append(("gradient of bias", leaves[3].grad, _grad(copies[3]), grads.bias, 2.0))
    for i, truth in enumerate(grads.parameters):
        ours, theirs = parameters[i].grad, _grad(copies[4 + i])
        rows.append((f"gradient of parameter {i}", ours, theirs, truth.reshape(ours.shape), 2.0))

    for what, ours, theirs, truth, factor in rows:
        size = max(1.0, float(truth.abs().max()), 0.0 if what == "output" else grads.largest_term)
        floor = FLOOR[ran["q"].dtype] * size
        plain_error = error(theirs, truth) if theirs.isfinite().all() else math.inf
        ours_error = error(ours, truth) if ours.isfinite().all() else math.nan
        if not ours_error <= factor * plain_error + floor:
            raise AssertionError(
                f"error of {what} is {ours_error:.3g}, of the plain computation {plain_error:.3g}, "
                f"floor {floor:.3g}\n\n{program}"
            )


def _grad(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if x.grad is None else x.grad


def examples(share: float) -> settings:
    """A share of the profile's number for each mechanism: at 0.5 of 100, 700 cases in all."""
    return settings(max_examples=int(share * settings.default.max_examples))


@pytest.mark.parametrize("name", MECHANISMS)
@examples(0.5)
@given(data=st.data())
def test_N31_every_mechanism_is_as_exact_as_the_plain_computation(name, data):
    check(name, data.draw(programs(MECHANISMS[name])))


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@examples(2)
@given(data=st.data())
def test_N31_every_mechanism_is_as_exact_in_many_more_cases(name, data):
    check(name, data.draw(programs(MECHANISMS[name])))


def test_a_failing_case_is_printed_as_a_program_that_runs():
    """The rule notices a wrong scale, and what it prints can be pasted and run."""
    program = PROGRAM.format(
        imports=MECHANISMS["reference"].imports,
        seed=1,
        size=1.0,
        dtype="torch.float64",
        q=(2, 3, 4),
        k=(2, 5, 4),
        v=(2, 5, 4),
        bias="None",
        mask="Mask.causal()",
        make="",
        call="dot_product.attend(q, k, v, mask=mask, bias=bias, scale=0.49)",
    )
    with pytest.raises(AssertionError, match="error of output is") as failure:
        check("reference", program)
    printed = str(failure.value).split("\n\n", 1)[1]
    ran: dict = {}
    exec(printed, ran)
    assert ran["output"].shape == (2, 3, 4)

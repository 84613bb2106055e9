"""Kernel attention: what each feature map promises, and that running sums are the O(T²) sum.

Every law holds for all four maps. The grid of sizes and masks is walked by elu, the simplest map,
and its telling part by the other three; the whole grid is one slow test.
"""

import copy
import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clearhead.attention import linear, linear_fast, running_sums
from clearhead.attention.features import (
    EluFeatures,
    FeatureMap,
    FourierFeatures,
    PositiveFeatures,
    QuadraticFeatures,
)
from clearhead.attention.masks import Mask

B, H, T, D, Dv = 2, 3, 5, 4, 6
MAPS: dict[str, FeatureMap] = {
    "quadratic": QuadraticFeatures(),
    "elu": EluFeatures(),
    "fourier": FourierFeatures(D, 64, seed=3),
    "positive": PositiveFeatures(D, 32, seed=3),
}
every_map = pytest.mark.parametrize("feature_map", MAPS.values(), ids=MAPS.keys())
every_form = pytest.mark.parametrize("form", [linear, linear_fast], ids=["reference", "fast"])
# (T, S): equal; rests of chunks; a cache; more queries than keys; one; many blocks; none
SIZES = [(5, 5), (23, 23), (3, 17), (17, 3), (1, 9), (40, 40), (0, 4), (4, 0)]


def qkv(T: int, S: int, *, seed: int = 1, scale: float = 0.7) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((B, H, T, D), (B, H, S, D), (B, H, S, Dv))
    return [scale * torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


def masks(S: int) -> dict[str, Mask | None]:
    generator = torch.Generator().manual_seed(S)
    ids = torch.randint(-1, 3, (B, S), generator=generator)
    others = torch.randint(0, 2, (B, S), generator=generator)
    left_padded = torch.arange(S) >= torch.tensor([[S // 3], [0]])
    kinds: dict[str, Mask | None] = {
        "padding": Mask.padding(torch.tensor([S // 2, S])),
        "nothing in one": Mask.padding(torch.tensor([0, S])),
        "left padding": Mask.tokens(left_padded),
        "holes": Mask.tokens(torch.rand(B, S, generator=generator) > 0.4),
        "packed": Mask.segments(ids.sort(dim=-1).values),
        "packed in any order": Mask.segments(ids),
        "one packing for all": Mask.segments(ids[:1]),
        "two packings": Mask.segments(ids) & Mask.segments(others),
    }
    kinds["all"] = kinds["padding"] & kinds["left padding"] & kinds["packed in any order"]
    causal = {f"causal, {name}": Mask.causal() & mask for name, mask in kinds.items()}
    return {"none": None, "causal": Mask.causal(), **kinds, **causal}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three chunks of 4, so that a short sequence crosses every kind of border."""
    monkeypatch.setattr(running_sums, "BLOCK", 12)


def gradients(y: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return list(torch.autograd.grad((y * upstream).sum(), leaves, materialize_grads=True))


def relative_error(x: Tensor, reference: Tensor) -> float:
    if not x.numel():
        return 0.0
    x, reference = x.detach(), reference.detach()
    return float((x - reference).abs().max() / (1.0 + reference.abs().max()))


# What the feature maps promise


def test_quadratic_features_of_two_numbers_by_hand() -> None:
    root = math.sqrt(2.0)
    features = QuadraticFeatures()(torch.tensor([3.0, 5.0], dtype=torch.float64))
    assert sorted(features.tolist()) == pytest.approx(
        sorted([1, 3 * root, 5 * root, 9, 25, 15 * root])
    )


@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_quadratic_features_give_the_square_exactly(width: int) -> None:
    q, k = torch.randn(2, 9, width, dtype=torch.float64)
    phi = QuadraticFeatures()
    assert phi(q).shape == (9, (width + 1) * (width + 2) // 2)
    exact = (q @ k.mT + 1.0).square()
    assert relative_error(phi(q) @ phi(k).mT, exact) < 1e-10
    assert torch.equal(phi.similarity(q, k), exact)


def test_elu_features_are_elu_plus_one_with_its_gradient() -> None:
    x = torch.tensor([-30.0, -1.0, 0.0, 0.5, 40.0], dtype=torch.float64, requires_grad=True)
    y, expected = EluFeatures()(x), torch.nn.functional.elu(x) + 1.0
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(*(torch.autograd.grad(z.sum(), x)[0] for z in (y, expected)))


@pytest.mark.parametrize("kind", [FourierFeatures, PositiveFeatures])
def test_random_features_estimate_the_softmax_kernel(kind: type) -> None:
    q, k, _ = qkv(4, 6)
    phi = kind(D, 200_000, seed=5)
    exact = (q @ k.mT / math.sqrt(D)).exp()
    assert relative_error(phi(q) @ phi(k).mT, exact) < 0.02


@pytest.mark.parametrize("kind", [FourierFeatures, PositiveFeatures])
def test_the_error_of_random_features_falls_as_one_over_root_m(kind: type) -> None:
    q, k, _ = qkv(8, 8, scale=0.5)
    exact = (q @ k.mT / math.sqrt(D)).exp()
    counts = [16, 64, 256, 1024, 4096]
    errors = []
    for m in counts:
        n_features = 2 * m if kind is FourierFeatures else m
        maps = [kind(D, n_features, seed) for seed in range(12)]
        errors.append(sum(float((phi(q) @ phi(k).mT - exact).abs().mean()) for phi in maps) / 12)
    x, y = torch.tensor(counts).double().log(), torch.tensor(errors).double().log()
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    assert -0.6 < slope < -0.4


@pytest.mark.parametrize("kind", [FourierFeatures, PositiveFeatures])
def test_attention_by_many_random_features_is_softmax_attention(kind: type) -> None:
    q, k, v = qkv(5, 7)
    softmax = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    errors = [
        relative_error(linear_fast.attend(q, k, v, kind(D, n, seed=1)), softmax)
        for n in (64, 65_536)
    ]
    assert errors[1] < 0.03
    assert errors[1] < errors[0] / 4


def test_positive_features_are_positive() -> None:
    assert bool((MAPS["positive"](3.0 * torch.randn(100, D)) > 0).all())


@pytest.mark.parametrize("kind", [FourierFeatures, PositiveFeatures])
def test_the_seed_decides_the_frequencies_and_the_state_dict_keeps_them(kind: type) -> None:
    torch.manual_seed(11)
    first = kind(D, 8, seed=4)
    torch.manual_seed(12)
    again, other = kind(D, 8, seed=4), kind(D, 8, seed=5)
    assert torch.equal(first.frequencies, again.frequencies)
    assert not torch.equal(first.frequencies, other.frequencies)
    other.load_state_dict(first.state_dict())
    assert torch.equal(copy.deepcopy(other).frequencies, first.frequencies)
    assert not list(first.parameters())


@every_map
def test_features_as_attention_uses_them_differ_only_by_factors_that_cancel(
    feature_map: FeatureMap,
) -> None:
    q, k, _ = qkv(4, 7)
    ratio = feature_map.similarity(q, k) / (feature_map(q) @ feature_map(k).mT)
    torch.testing.assert_close(ratio, ratio[..., :1].expand_as(ratio), rtol=1e-8, atol=0.0)
    assert bool((ratio > 0).all())


@every_form
@pytest.mark.parametrize("name", ["fourier", "positive"])
@pytest.mark.parametrize("causal", [False, True])
def test_exponents_beyond_the_range_of_floats_cancel(form, name: str, causal: bool) -> None:
    q, k, v = (torch.nn.functional.normalize(x, dim=-1) for x in qkv(6, 6))
    q, k = 30 * q, 30 * k  # ‖k‖²/2s² = 225, and exp(±225) is beyond float32
    plain = MAPS[name](k.float())
    assert bool(plain.isinf().any()) or not bool(plain.any(dim=-1).all())
    mask = Mask.causal() if causal else None
    output = form.attend(q.float(), k.float(), v.float(), MAPS[name], mask=mask)
    exact = MAPS[name](q) @ MAPS[name](k).mT
    exact = exact.tril() if causal else exact
    assert relative_error(output.double(), exact / exact.sum(dim=-1, keepdim=True) @ v) < 1e-3


# What the reference promises


def test_weights_of_two_keys_by_hand() -> None:
    # (1·1 + 1)² = 4 and (1·2 + 1)² = 9: weights 4/13 and 9/13
    q, k, v = (
        torch.tensor(x, dtype=torch.float64) for x in ([[1.0]], [[1.0], [2.0]], [[0.0], [13.0]])
    )
    taken = linear.weights(q, k, QuadraticFeatures())
    assert taken.tolist()[0] == pytest.approx([4 / 13, 9 / 13])
    for form in (linear, linear_fast):
        assert float(form.attend(q, k, v, QuadraticFeatures())) == pytest.approx(9.0)


@every_map
def test_weights_of_every_query_sum_to_one_or_to_nothing(feature_map: FeatureMap) -> None:
    q, k, v = qkv(5, 7)
    mask = Mask.causal() & Mask.padding(torch.tensor([0, 4])) & Mask.window(6)
    output, taken = linear.attend(q, k, v, feature_map, mask=mask, return_weights=True)
    allowed = mask.dense(5, 7).expand_as(taken)
    torch.testing.assert_close(taken.sum(dim=-1), allowed.any(dim=-1).double())
    assert bool((taken[~allowed] == 0).all())
    torch.testing.assert_close(output, taken @ v)
    assert torch.equal(taken, linear.weights(q, k, feature_map, mask=mask))


@every_form
def test_similarities_that_sum_to_zero_give_zeros_and_zero_gradient(form) -> None:
    q, k, v = (x.requires_grad_() for x in qkv(3, 3))
    with torch.no_grad():
        q[0, 0, 1] = -1000.0  # exp(−1000) is 0, for every feature
    output = form.attend(q, k, v, EluFeatures())
    assert bool((output[0, 0, 1] == 0).all())
    for gradient in gradients(output, [q, k, v]):
        assert bool(gradient.isfinite().all())
    assert not gradients(output_of_row(form, q, k, v), [q])[0].any()


def output_of_row(form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return form.attend(q, k, v, EluFeatures())[0, 0, 1]


# The fast form is the reference


TELLING_MASKS = [
    *("none", "causal", "all", "causal, all"),
    *("packed in any order", "causal, packed in any order"),
]
GRID = list(itertools.product(["elu"], SIZES, masks(5)))
GRID += itertools.product(
    ["quadratic", "fourier", "positive"], [(23, 23), (3, 17), (4, 0)], TELLING_MASKS
)
WHOLE_GRID = itertools.product(MAPS, [*SIZES, (9, 1), (0, 0)], masks(5))
REST = [case for case in WHOLE_GRID if case not in GRID]


def check_fast_equals_reference(name: str, size: tuple[int, int], kind: str) -> None:
    T, S = size
    mask = masks(S)[kind]
    leaves = [x.requires_grad_() for x in qkv(T, S)]
    fast = linear_fast.attend(*leaves, MAPS[name], mask=mask, chunk=4)
    reference = linear.attend(*leaves, MAPS[name], mask=mask)
    assert fast.shape == reference.shape
    assert relative_error(fast, reference) < 1e-8
    for ours, theirs in zip(gradients(fast, leaves), gradients(reference, leaves), strict=True):
        assert relative_error(ours, theirs) < 1e-7


@pytest.mark.parametrize(("name", "size", "kind"), GRID, ids=str)
def test_fast_equals_reference_in_value_and_gradient(
    name: str, size: tuple[int, int], kind: str, small_blocks: None
) -> None:
    check_fast_equals_reference(name, size, kind)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "kind"), REST, ids=str)
def test_fast_equals_reference_on_the_rest_of_the_grid(
    name: str, size: tuple[int, int], kind: str, small_blocks: None
) -> None:
    check_fast_equals_reference(name, size, kind)


@pytest.mark.parametrize("name", ["elu", "quadratic"])
@pytest.mark.parametrize("chunk", [1, 5, 100, None])
@pytest.mark.parametrize("kind", ["causal", "causal, all"])
def test_the_size_of_the_chunks_changes_nothing(
    name: str, chunk: int | None, kind: str, small_blocks: None
) -> None:
    q, k, v = qkv(31, 31)
    fast = linear_fast.attend(q, k, v, MAPS[name], mask=masks(31)[kind], chunk=chunk)
    assert relative_error(fast, linear.attend(q, k, v, MAPS[name], mask=masks(31)[kind])) < 1e-8


@every_map
@pytest.mark.parametrize("kind", ["none", "causal", "packed in any order"])
def test_long_sequences_cross_blocks_of_the_usual_size(feature_map: FeatureMap, kind: str) -> None:
    n = 2 * running_sums.BLOCK + 70
    q, k, v = (x[:, :1] for x in qkv(n, n, scale=0.4))
    fast = linear_fast.attend(q, k, v, feature_map, mask=masks(n)[kind])
    assert relative_error(fast, linear.attend(q, k, v, feature_map, mask=masks(n)[kind])) < 1e-7


@every_form
@pytest.mark.parametrize("kind", ["none", "causal, packed in any order", "all"])
def test_heads_may_be_missing_or_many(form, kind: str) -> None:
    q, k, v = qkv(5, 5)
    mask = masks(5)[kind]
    whole = form.attend(q, k, v, EluFeatures(), mask=mask)
    headless = form.attend(q[:, 1], k[:, 1], v[:, 1], EluFeatures(), mask=mask)
    torch.testing.assert_close(headless, whole[:, 1])
    if mask is None or form is linear_fast:
        deeper = form.attend(*(x.unsqueeze(2) for x in (q, k, v)), EluFeatures(), mask=mask)
        torch.testing.assert_close(deeper.squeeze(2), whole)
    if mask is None:
        torch.testing.assert_close(
            form.attend(q[0, 0], k[0, 0], v[0, 0], EluFeatures()), whole[0, 0]
        )


@every_map
@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        *itertools.product([linear, linear_fast], [torch.float16, torch.bfloat16]),
        (linear_fast, torch.float32),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)).split(".")[-1],
)
def test_every_dtype_is_summed_in_at_least_float32(
    form, feature_map: FeatureMap, dtype: torch.dtype
) -> None:
    mask = masks(23)["causal, packed in any order"]
    q, k, v = (x.to(dtype) for x in qkv(23, 23, scale=0.4))
    output = form.attend(q, k, v, feature_map, mask=mask)
    assert output.dtype == dtype
    exact = linear.attend(*(x.double() for x in (q, k, v)), feature_map, mask=mask)
    limit = {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float32: 2e-4}[dtype]
    assert relative_error(output.double(), exact) < limit


@every_form
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_loses_nothing_in_long_sums(form, dtype: torch.dtype) -> None:
    q, v = torch.zeros(3000, 2, dtype=dtype), torch.rand(3000, 1).to(dtype)
    output = form.attend(q, q, v, EluFeatures(), mask=Mask.causal())
    means = v.double().cumsum(dim=0) / torch.arange(1, 3001).unsqueeze(-1)
    one_rounding = 0.51 * torch.finfo(dtype).eps
    torch.testing.assert_close(output.double(), means, rtol=one_rounding, atol=0.0)


# Memory


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that an operation made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.elements = max(
            [self.elements, *(x.numel() for x in tree_leaves(made) if torch.is_tensor(x))]
        )
        return made


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *itertools.product(
            ["elu", "quadratic"], ["none", "causal", "causal, holes", "packed in any order"]
        ),
        ("fourier", "causal"),
        ("positive", "causal"),
    ],
)
def test_no_tensor_grows_with_the_square_of_the_length(name: str, kind: str) -> None:
    n = 1500
    leaves = [x[:, 0].float().requires_grad_() for x in qkv(n, n, scale=0.4)]
    with LargestTensor() as made:
        linear_fast.attend(*leaves, MAPS[name], mask=masks(n)[kind]).sum().backward()
    assert made.elements < n * n / 4


def test_the_measure_sees_the_square_that_the_reference_makes() -> None:
    n = 300
    with LargestTensor() as made:
        linear.attend(*(x[0, 0] for x in qkv(n, n)), EluFeatures())
    assert made.elements == n * n


# What is refused


@every_form
def test_a_bias_is_refused(form) -> None:
    with pytest.raises(
        ValueError, match=r"no scores to which bias= could be added.*DotProductAttention"
    ):
        form.attend(*qkv(5, 7), EluFeatures(), bias=torch.zeros(5, 7))
    with pytest.raises(ValueError, match="bias="):
        linear.weights(*qkv(5, 7)[:2], EluFeatures(), bias=torch.zeros(5, 7))


@pytest.mark.parametrize(
    ("mask", "name"),
    [
        (Mask.window(3), r"Mask\.window\(3\)"),
        (Mask.causal() & Mask.window(2), r"Mask\.window\(2\)"),
        (Mask.of(torch.ones(5, 7, dtype=torch.bool)), r"Mask\.of\(bool \(5, 7\)\)"),
        (torch.ones(5, 7, dtype=torch.bool), r"Mask\.of\(bool \(5, 7\)\)"),
        (Mask.padding(torch.ones(B, 5, dtype=torch.long)), r"Mask\.padding\(int64 \(2, 5\)\)"),
    ],
)
def test_masks_that_running_sums_cannot_serve_are_refused_with_the_way_out(mask, name: str) -> None:
    message = (
        name + " cannot be served by running sums.*single pairs.*linear.attend.*DotProductAttention"
    )
    with pytest.raises(ValueError, match=message):
        linear_fast.attend(*qkv(5, 7), EluFeatures(), mask=mask)
    assert linear.attend(*qkv(5, 7), EluFeatures(), mask=mask).shape == (B, H, 5, Dv)


def test_mistakes_are_named() -> None:
    q, k, v = qkv(5, 7)
    with pytest.raises(ValueError, match=r"n_features must be even.*got 7; take n_features=8"):
        FourierFeatures(D, 7)
    with pytest.raises(ValueError, match="d_head must be at least 1"):
        PositiveFeatures(0, 8)
    with pytest.raises(ValueError, match="d_head is 3"):
        linear_fast.attend(q, k, v, FourierFeatures(3, 8))
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        linear_fast.attend(q, k, v, EluFeatures(), chunk=0)
    with pytest.raises(ValueError, match="v must have one row per key, 7, got 6"):
        linear_fast.attend(q, k, v[:, :, :6], EluFeatures())
    with pytest.raises(ValueError, match=r"segment ids has 5 columns .* but there are 7 keys"):
        linear_fast.attend(q, k, v, EluFeatures(), mask=Mask.segments(torch.zeros(B, 5).long()))
    with pytest.raises(ValueError, match="the mask's batch and heads must be those of q"):
        linear_fast.attend(q, k, v, EluFeatures(), mask=Mask.padding(torch.tensor([1, 2, 3])))
    with pytest.raises(ValueError, match=r"has no batch axis; use q\.unsqueeze\(0\)"):
        linear_fast.attend(q[0, 0], k[0, 0], v[0, 0], EluFeatures(), mask=masks(7)["padding"])
    with pytest.raises(NotImplementedError, match="FeatureMap must say what φ"):
        FeatureMap()(q)


@pytest.mark.parametrize("feature_map", [FourierFeatures(4, 8), PositiveFeatures(4, 8)])
def test_each_head_has_exponents_of_its_own(feature_map, monkeypatch):
    """Heads that share a block, one with keys so long that its exponents must be shifted."""
    monkeypatch.setattr(running_sums, "BLOCK", 64)
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 2, 3, 12, 4)
    k = k / k.norm(dim=-1, keepdim=True) * torch.tensor([1.0, 30.0, 2.0])[:, None, None]
    expected = linear.attend(q, k, v, feature_map, mask=Mask.causal())
    output = linear_fast.attend(q, k, v, feature_map, mask=Mask.causal(), chunk=4)
    torch.testing.assert_close(output, expected, rtol=1e-3, atol=1e-4)

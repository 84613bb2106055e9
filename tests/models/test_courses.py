"""The courses' own layers and models, written as plain loops, against ours built from arguments.

Each course model below is a module with the course's parameters: a matrix for each head, matrices
that multiply from the right. `name_…` gives those parameters the names of our model; it serves the
weights, loaded strictly, and the gradients, compared by name. Nothing is replaced in our models.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from clearhead.attention import JoinedHeads, Mask, MultiHeadAttention, SelfAttention
from clearhead.inspection import record
from clearhead.layers import Block, Stack
from clearhead.models import (
    GPT,
    ClassifierConfig,
    GPTConfig,
    SequenceClassifier,
    VisionTransformer,
    ViTConfig,
)

B, T, D, H, DH, F, L = 2, 5, 12, 3, 7, 10, 2
CLOSE = 1e-12


@pytest.fixture(autouse=True, params=range(5))
def seed(request):
    """Every comparison with the weights and inputs of several seeds."""
    torch.manual_seed(request.param)


# What the courses describe, as loops


def draw(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, dtype=torch.float64) / 2)


class CourseNorm(nn.Module):
    """Layer norm with gain and shift, token by token."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.gain, self.shift = draw(d), draw(d)

    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for token in x.flatten(0, -2):
            mean = sum(token) / len(token)
            variance = sum((value - mean) ** 2 for value in token) / len(token)
            rows.append((token - mean) / torch.sqrt(variance + 1e-5) * self.gain + self.shift)
        return torch.stack(rows).view(x.shape)


class CourseLinear(nn.Module):
    """x W, plus b where there is one."""

    def __init__(self, d_in: int, d_out: int, bias: bool = False) -> None:
        super().__init__()
        self.W, self.b = draw(d_in, d_out), draw(d_out) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.W if self.b is None else x @ self.W + self.b


class CourseAttention(nn.Module):
    """Heads one after the other, each (d × d_head), query by query; W_O (H·d_head × d)."""

    def __init__(self, d: int, n_heads: int, d_head: int, max_len: int | None = None) -> None:
        super().__init__()
        self.d_head, self.max_len = d_head, max_len
        self.W_Q, self.W_K, self.W_V = (
            nn.ParameterList(draw(d, d_head) for _ in range(n_heads)) for _ in range(3)
        )
        self.W_O = draw(n_heads * d_head, d)
        self.m = draw(n_heads, 2 * max_len + 1) if max_len else None  # Toeplitz, by offset

    def forward(self, X_Q: Tensor, X_K: Tensor, X_V: Tensor, mask: Tensor | None = None):
        """The output, and the maps A (B, H, T, S); mask (T, S) of 0 and 1."""
        heads, maps = [], []
        for h in range(len(self.W_Q)):
            Q, K, V = X_Q @ self.W_Q[h], X_K @ self.W_K[h], X_V @ self.W_V[h]
            A = torch.stack([self._weights(h, q, k, mask) for q, k in zip(Q, K, strict=True)])
            heads.append(torch.stack([a @ v for a, v in zip(A, V, strict=True)]))
            maps.append(A)
        return torch.cat(heads, dim=-1) @ self.W_O, torch.stack(maps, dim=1)

    def _weights(self, h: int, Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
        rows = []
        for i, q in enumerate(Q):
            scores = {}
            for j, k in enumerate(K):
                if mask is None or int(mask[i, j]) == 1:
                    bias = 0.0 if self.m is None else self.m[h, j - i + self.max_len]
                    scores[j] = ((q * k).sum() + bias) / math.sqrt(self.d_head)
            top = max(score.detach() for score in scores.values())  # e^{s − top}: no overflow
            scores = {j: score - top for j, score in scores.items()}
            total = sum(torch.exp(score) for score in scores.values())
            zero = Q.new_zeros(())
            rows.append(
                torch.stack(
                    [torch.exp(scores[j]) / total if j in scores else zero for j in range(len(K))]
                )
            )
        return torch.stack(rows)


class LayerA(nn.Module):
    """Pre- or post-norm; no bias in linear layers, gain and shift in both norms."""

    def __init__(self, pre_norm: bool, max_len: int | None = None, d_head: int = D // H) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.attention = CourseAttention(D, H, d_head, max_len)
        self.norm_1, self.norm_2 = CourseNorm(D), CourseNorm(D)
        self.W_1, self.W_2 = draw(D, F), draw(F, D)

    def forward(self, x: Tensor) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            return self.attention(y, y, y)[0]

        def feed_forward(y: Tensor) -> Tensor:
            return torch.clamp(y @ self.W_1, min=0) @ self.W_2

        if self.pre_norm:
            x = x + attend(self.norm_1(x))
            return x + feed_forward(self.norm_2(x))
        x = self.norm_1(x + attend(x))
        return self.norm_2(x + feed_forward(x))


class ModelA(nn.Module):
    """Linear encoder → positions → layers → linear decoder; no norm after the last layer."""

    def __init__(self, pre_norm: bool, positions: str, d_in: int, d_out: int, max_len: int):
        super().__init__()
        self.encoder, self.decoder = CourseLinear(d_in, D), CourseLinear(D, d_out)
        self.table = draw(max_len, D) if positions == "learned" else None
        toeplitz = max_len if positions == "toeplitz" else None
        self.layers = nn.ModuleList(LayerA(pre_norm, toeplitz) for _ in range(L))

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(x)
        if self.table is not None:
            x = torch.stack([x[:, t] + self.table[t] for t in range(x.size(1))], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.decoder(x)


class LayerD(nn.Module):
    """x + attention(x), then x + FFN(x), FFN = norm, linear, GELU, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = CourseAttention(D, H, DH)
        self.norm = CourseNorm(D)
        self.inner, self.outer = CourseLinear(D, F, bias=True), CourseLinear(F, D, bias=True)

    def forward(self, x: Tensor, mask: Tensor | None = None):
        attended, A = self.attention(x, x, x, mask)
        x = x + attended
        y = self.inner(self.norm(x))
        y = y * (1 + torch.erf(y / math.sqrt(2))) / 2
        return x + self.outer(y), A


class TransformerD(nn.Module):
    """Layers, and the attention maps of every one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LayerD() for _ in range(L))

    def forward(self, x: Tensor, mask: Tensor | None = None):
        maps = []
        for layer in self.layers:
            x, A = layer(x, mask)
            maps.append(A)
        return x, maps


class NormedHead(nn.Module):
    """Norm, then a biased linear layer."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.norm, self.linear = CourseNorm(D), CourseLinear(D, n, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


class CourseViT(nn.Module):
    """Patches cut by hand, a linear layer, positions on patches only, a class token in front."""

    def __init__(self, channels: int, patch: tuple[int, int], n_patches: int, n_classes: int):
        super().__init__()
        self.patch = patch
        self.embed = CourseLinear(channels * patch[0] * patch[1], D, bias=True)
        self.table, self.class_token = draw(n_patches, D), draw(D)
        self.transformer, self.head = TransformerD(), NormedHead(n_classes)

    def forward(self, images: Tensor):
        height, width = self.patch
        patches = []
        for row in range(0, images.size(2), height):
            for column in range(0, images.size(3), width):
                cut = images[:, :, row : row + height, column : column + width]
                patches.append(self.embed(cut.flatten(1)) + self.table[len(patches)])
        first = self.class_token.expand(images.size(0), D)
        x, maps = self.transformer(torch.stack([first, *patches], dim=1))
        return self.head(x[:, 0]), maps


class CourseGPT(nn.Module):
    """Token and position embeddings, a causal 0/1 mask, the transformer, a language-model head."""

    def __init__(self, vocab_size: int, max_len: int) -> None:
        super().__init__()
        self.tokens, self.positions = draw(vocab_size, D), draw(max_len, D)
        self.transformer, self.head = TransformerD(), NormedHead(vocab_size)

    def forward(self, ids: Tensor):
        T = ids.size(1)
        x = torch.stack([self.tokens[ids[:, t]] + self.positions[t] for t in range(T)], dim=1)
        mask = torch.tensor([[int(j <= i) for j in range(T)] for i in range(T)])
        x, maps = self.transformer(x, mask)
        return self.head(x), maps


# Their parameters, or the gradients of these, under our names


def name_attention(theirs: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Per-head matrices side by side, transposed as nn.Linear keeps them."""
    heads = sorted(name for name in theirs if name.startswith(f"{prefix}W_Q."))
    ours = {
        f"proj_{small}.weight": torch.cat(
            [theirs[f"{prefix}W_{large}.{h}"] for h in range(len(heads))], dim=1
        ).mT
        for small, large in (("q", "Q"), ("k", "K"), ("v", "V"))
    }
    ours["proj_out.weight"] = theirs[f"{prefix}W_O"].mT
    if f"{prefix}m" in theirs:
        ours["positions.weight"] = theirs[f"{prefix}m"]
    return ours


def put_under(prefix: str, ours: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in ours.items()}


def take_below(prefix: str, theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {
        name.removeprefix(start): tensor
        for name, tensor in theirs.items()
        if name.startswith(start)
    }


def name_linear(theirs: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    below = take_below(prefix, theirs)
    return {"weight": below["W"].mT} | ({"bias": below["b"]} if "b" in below else {})


def name_layer_a(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        **put_under("attention", name_attention(theirs, "attention.")),
        **put_under("norm_attention", take_below("norm_1", theirs)),
        **put_under("norm_feed_forward", take_below("norm_2", theirs)),
        "feed_forward.proj_in.weight": theirs["W_1"].mT,
        "feed_forward.proj_out.weight": theirs["W_2"].mT,
    }


def name_layers(theirs: dict[str, Tensor], name_one, prefix: str) -> dict[str, Tensor]:
    ours = {}
    for i in range(L):
        ours |= put_under(f"blocks.{i}", name_one(take_below(f"{prefix}layers.{i}", theirs)))
    return ours


def name_model_a(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        **put_under("embedding", name_linear(theirs, "encoder")),
        **({"positions.weight": theirs["table"]} if "table" in theirs else {}),
        **put_under("stack", name_layers(theirs, name_layer_a, "")),
        **put_under("head", name_linear(theirs, "decoder")),
    }


def name_layer_d(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        **put_under("attention", name_attention(theirs, "attention.")),
        **put_under("norm_feed_forward", take_below("norm", theirs)),
        **put_under("feed_forward.proj_in", name_linear(theirs, "inner")),
        **put_under("feed_forward.proj_out", name_linear(theirs, "outer")),
    }


def name_stack_and_head(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        **put_under("stack", name_layers(theirs, name_layer_d, "transformer.")),
        **put_under("stack.norm", take_below("head.norm", theirs)),
        **put_under("head", name_linear(theirs, "head.linear")),
    }


def name_vit(theirs: dict[str, Tensor], channels: int, patch: tuple[int, int]):
    return {
        "class_token": theirs["class_token"],
        "positions.weight": theirs["table"],
        "patches.conv.weight": theirs["embed.W"].mT.unflatten(1, (channels, *patch)),
        "patches.conv.bias": theirs["embed.b"],
        **name_stack_and_head(theirs),
    }


def name_gpt(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        "embedding.weight": theirs["tokens"],
        "positions.weight": theirs["positions"],
        **name_stack_and_head(theirs),
    }


def check_equal(course: nn.Module, ours: nn.Module, name, *inputs: Tensor, **options) -> None:
    """Weights copied by name; then outputs are equal to 1e-12, gradients to 1e-12 of the largest.

    Rounding errors of a sum are of the size of its terms, and these reach the largest gradient. The
    attention of courses C and D has no norm before it, so the scores of the vision transformer
    reach 2,700, and e^score turns their rounding, 3e-13, into a relative error of the weights. Over
    40 seeds its gradients differ by up to 5.9e-12, that is 2.7e-13 of the largest. With weights
    half as large, scores stay below 13 and gradients agree to 1.8e-15: no constant differs.
    """
    ours.double().load_state_dict(name(dict(course.named_parameters())))
    expected = course(*inputs)
    expected = expected[0] if isinstance(expected, tuple) else expected
    output = ours(*inputs, **options)
    assert output.shape == expected.shape
    assert (output - expected).abs().max() <= CLOSE
    direction = torch.randn_like(expected)
    (expected * direction).sum().backward()
    (output * direction).sum().backward()
    theirs = name({n: parameter.grad for n, parameter in course.named_parameters()})
    found = dict(ours.named_parameters())
    assert theirs.keys() == found.keys()
    largest = max(gradient.abs().max() for gradient in theirs.values())
    close = CLOSE * max(1.0, float(largest))
    for parameter_name, gradient in theirs.items():
        assert (found[parameter_name].grad - gradient).abs().max() <= close, parameter_name


# Course A: attention of three inputs, layer and model without bias, norms with their shift


@pytest.mark.parametrize("d_head", [D // H, DH])
def test_attention_of_three_inputs_is_a_loop_over_heads_of_any_width(d_head):
    course, ours = (
        CourseAttention(D, H, d_head),
        MultiHeadAttention(D, H, d_head=d_head, bias=False),
    )
    x, source, values = (torch.randn(B, n, D, dtype=torch.float64) for n in (T, 4, 4))
    inputs = [x, source, values]
    for tensor in inputs:
        tensor.requires_grad_()
    ours.double().load_state_dict(name_attention(dict(course.named_parameters())))
    expected, output = course(*inputs)[0], ours(x, source, values=values)
    assert (output - expected).abs().max() <= CLOSE
    direction = torch.randn_like(output)
    theirs = torch.autograd.grad(expected, [*inputs, *course.parameters()], direction)
    found = torch.autograd.grad(output, [*inputs, *ours.parameters()], direction)
    for one, other in zip(theirs[:3], found[:3], strict=True):
        assert (one - other).abs().max() <= CLOSE
    names = [name for name, _ in course.named_parameters()]
    named = name_attention(dict(zip(names, theirs[3:], strict=True)))
    for (name, _), gradient in zip(ours.named_parameters(), found[3:], strict=True):
        assert (named[name] - gradient).abs().max() <= CLOSE


@pytest.mark.parametrize("d_head", [D // H, DH])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_the_bias_free_layer_keeps_gain_and_shift_in_its_norms(pre_norm, d_head):
    ours = Block(
        *(D, H, F),
        pre_norm=pre_norm,
        activation="relu",
        bias=False,
        norm_bias=True,
        d_head=None if d_head == D // H else d_head,
    )
    x = torch.randn(B, T, D, dtype=torch.float64)
    check_equal(LayerA(pre_norm, d_head=d_head), ours, name_layer_a, x)


@pytest.mark.parametrize("positions", ["learned", "toeplitz", "none"])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_the_classifier_has_no_final_norm_and_no_bias(pre_norm, positions):
    config = ClassifierConfig(
        *(6, 4, D, L, H, F, 9),
        positions=positions,
        pre_norm=pre_norm,
        bias=False,
        norm_bias=True,
        final_norm=False,
    )
    assert ClassifierConfig.from_dict(config.to_dict()) == config
    course = ModelA(pre_norm, positions, d_in=6, d_out=4, max_len=9)
    rows = torch.eye(6, dtype=torch.float64)[torch.randint(6, (B, T))]
    check_equal(course, SequenceClassifier(config), name_model_a, rows)


# Courses C/D: heads of any width, one norm in a layer, positions on patches only, normed heads

LAYER_D = {"d_head": DH, "attention_bias": False, "norm_attention": False}


def test_the_layer_has_its_only_norm_inside_the_feed_forward():
    x, allowed = (
        torch.randn(B, T, D, dtype=torch.float64),
        torch.randint(2, (T, T)) | torch.eye(T).long(),
    )
    course, ours = LayerD(), Block(D, H, F, **LAYER_D)
    check_equal(course, ours, name_layer_d, x)
    assert (ours(x, mask=allowed) - course(x, allowed)[0]).abs().max() <= CLOSE


def test_joined_heads_stand_in_a_block():
    heads = JoinedHeads([SelfAttention(D, DH, DH, bias=False) for _ in range(H)], D, bias=False)
    ours, course = Block(D, d_ff=F, norm_attention=False, attention=heads), LayerD()

    def name(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
        named = name_layer_d(theirs)
        for part in "qkv":
            for h, rows in enumerate(named.pop(f"attention.proj_{part}.weight").split(DH)):
                named[f"attention.heads.{h}.proj_{part}.weight"] = rows
        return named

    check_equal(course, ours, name, torch.randn(B, T, D, dtype=torch.float64))


def test_a_mask_of_oneself_and_the_one_before_shows_in_every_map():
    allowed = torch.tensor([[int(i - 1 <= j <= i) for j in range(T)] for i in range(T)])
    course, x = TransformerD(), torch.randn(B, T, D, dtype=torch.float64)
    ours = Stack(Block(D, H, F, **LAYER_D) for _ in range(L)).double()
    ours.load_state_dict(name_layers(dict(course.named_parameters()), name_layer_d, ""))
    expected, maps = course(x, allowed)
    for mask in (allowed, Mask.causal() & Mask.window(2)):
        with record(ours) as trace:
            assert (ours(x, mask=mask) - expected).abs().max() <= CLOSE
        for i, A in enumerate(maps):
            weights = trace[f"blocks.{i}.attention"].weights
            assert (weights - A).abs().max() <= CLOSE
            assert (weights[..., allowed == 0] == 0).all()


def test_the_vision_transformer_adds_positions_to_patches_only():
    channels, patch, image = 3, (4, 2), (8, 6)
    config = ViTConfig(
        *(4, image, patch, channels, D, L, H, F),
        class_position=False,
        **LAYER_D,
    )
    assert ViTConfig.from_dict(config.to_dict()) == config
    course, ours = CourseViT(channels, patch, 6, 4), VisionTransformer(config)

    def name(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
        return name_vit(theirs, channels, patch)

    images = torch.randn(B, channels, *image, dtype=torch.float64)
    check_equal(course, ours, name, images)
    with record(ours) as trace:
        ours(images)
    for i, A in enumerate(course(images)[1]):
        assert (trace[f"stack.blocks.{i}.attention"].weights - A).abs().max() <= CLOSE


def test_a_bias_free_vision_transformer_can_have_a_normed_biased_head():
    config = ViTConfig(d_model=D, n_layers=1, n_heads=H, bias=False, norm_bias=True, head_bias=True)
    names = [name for name, _ in VisionTransformer(config).named_parameters()]
    assert [name for name in names if "bias" in name] == ["head.bias"]
    norms = ("stack.blocks.0.norm_attention", "stack.blocks.0.norm_feed_forward", "stack.norm")
    assert [name for name in names if "shift" in name] == [f"{norm}.shift" for norm in norms]


def build_course_gpt(vocab_size: int = 17, max_len: int = 9) -> tuple[CourseGPT, GPT]:
    config = GPTConfig(
        *(vocab_size, max_len, D, L, H), d_ff=F, tied=False, head_bias=True, **LAYER_D
    )
    assert GPTConfig.from_dict(config.to_dict()) == config
    return CourseGPT(vocab_size, max_len), GPT(config)


def test_dialogue_gpt_has_a_normed_biased_head():
    course, ours = build_course_gpt()
    check_equal(course, ours, name_gpt, torch.randint(17, (B, T)))


def test_a_course_gpt_reads_the_same_with_its_caches():
    course, ours = build_course_gpt()
    ours.double().load_state_dict(name_gpt(dict(course.named_parameters())))
    ids, caches = torch.randint(17, (B, T)), ours.make_caches()
    steps = [ours(ids[:, t : t + 1], caches=caches) for t in range(T)]
    assert (torch.cat(steps, dim=1) - course(ids)[0]).abs().max() <= CLOSE

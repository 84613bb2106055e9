"""The numbers of TransformerLens 4.3 on the same random GPT-2: pip install 'clearhead[lens]'."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.inspection import ablate, attribution, logit_lens, patch, patch_sweep
from clearhead.inspection.edits import capture
from clearhead.inspection.sites import find_site
from clearhead.interop import load_gpt2
from clearhead.models import GPT

pytestmark = pytest.mark.slow

V, T, L, H, DH = 101, 20, 3, 4, 6
CLOSE = 1e-5


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, GPT]:
    """Theirs and ours, from one folder of weights."""
    bridge = pytest.importorskip(
        "transformer_lens.model_bridge", reason="TransformerLens is not installed"
    )
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"vocab_size": V, "n_positions": 64, "n_embd": H * DH, "n_layer": L, "n_head": H}
    model = GPT2LMHeadModel(GPT2Config(**sizes, attn_implementation="eager"))
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("ln" in name and "weight" in name), std=0.2)
    folder = tmp_path_factory.mktemp("gpt2")
    model.save_pretrained(folder)
    return bridge.TransformerBridge.boot_transformers(str(folder)).eval(), load_gpt2(folder).eval()


def draw(seed: int) -> Tensor:
    return torch.randint(V, (2, T), generator=torch.Generator().manual_seed(seed))


def in_our_order(theirs: Tensor, ours: Tensor) -> Tensor:
    """(B, T, H, Dh) or (B, T, H·Dh) of theirs as (B, H, T, Dh)."""
    if ours.ndim == 3 or theirs.shape == ours.shape:
        return theirs
    return theirs.reshape(2, T, H, DH).transpose(1, 2)


NAMES = [
    *(
        "hook_embed",
        "blocks.1.hook_resid_pre",
        "blocks.1.hook_resid_mid",
        "blocks.2.hook_resid_post",
    ),
    *("blocks.0.hook_attn_out", "blocks.2.hook_mlp_out", "blocks.1.attn.hook_z"),
    *("blocks.1.attn.hook_q", "blocks.1.attn.hook_k", "blocks.1.attn.hook_v"),
    *("blocks.2.attn.hook_pattern", "blocks.0.mlp.hook_pre", "blocks.0.mlp.hook_post"),
]


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_their_name_gives_their_value(models: tuple[Any, GPT], name: str) -> None:
    theirs, ours = models
    logits, cache = theirs.run_with_cache(draw(1))
    with capture(ours, [name]) as values:
        torch.testing.assert_close(ours(draw(1)), logits, rtol=0, atol=CLOSE)
    value = values[name]
    torch.testing.assert_close(value, in_our_order(cache[name], value), rtol=0, atol=CLOSE)


def zero_head(head: int) -> Callable[..., Tensor]:
    def hook(value: Tensor, hook: object) -> Tensor:
        parts = value.clone().reshape(2, T, H, DH)
        parts[:, :, head] = 0
        return parts.reshape(value.shape)

    return hook


@torch.no_grad()
def test_a_silenced_head_gives_their_logits(models: tuple[Any, GPT]) -> None:
    theirs, ours = models
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        hooks = [(f"blocks.{layer}.attn.hook_z", zero_head(head))]
        expected = theirs.run_with_hooks(draw(1), fwd_hooks=hooks)
        with ablate(ours, layer, head):
            torch.testing.assert_close(ours(draw(1)), expected, rtol=0, atol=CLOSE)


@torch.no_grad()
def test_a_patched_residual_stream_gives_their_logits(models: tuple[Any, GPT]) -> None:
    theirs, ours = models
    name, position = "blocks.1.hook_resid_pre", 7
    _, cache = theirs.run_with_cache(draw(2))

    def hook(value: Tensor, hook: object) -> Tensor:
        value = value.clone()
        value[:, position] = cache[name][:, position]
        return value

    expected = theirs.run_with_hooks(draw(1), fwd_hooks=[(name, hook)])
    with capture(ours, [name]) as values:
        ours(draw(2))
    with patch(ours, {name: values[name]}, positions=position):
        torch.testing.assert_close(ours(draw(1)), expected, rtol=0, atol=CLOSE)
    assert find_site(ours, name).name == "stack.blocks.1.input"


@torch.no_grad()
def test_the_logit_lens_reads_their_residual_stream(models: tuple[Any, GPT]) -> None:
    theirs, ours = models
    _, cache = theirs.run_with_cache(draw(1))
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(L))]
    hf = theirs.original_model
    expected = torch.stack([hf.lm_head(hf.transformer.ln_f(cache[name])) for name in names])
    lens = logit_lens(ours, draw(1))
    torch.testing.assert_close(lens, expected, rtol=0, atol=CLOSE)


@torch.no_grad()
def test_attribution_splits_their_logit_by_their_head_results(models: tuple[Any, GPT]) -> None:
    theirs, ours = models
    logits, cache = theirs.run_with_cache(draw(1))
    found = attribution(ours, draw(1), target=5)
    torch.testing.assert_close(found.total, logits[:, -1, 5], rtol=0, atol=CLOSE)
    # A head of theirs: its mixture times its rows of W_O, through the last norm kept as it was.
    hf = theirs.original_model
    x = cache[f"blocks.{L - 1}.hook_resid_post"][:, -1]
    deviation = (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    for layer in range(L):
        z = cache[f"blocks.{layer}.attn.hook_z"].reshape(2, T, H, DH)[:, -1]
        w_out = hf.state_dict()[next(n for n in hf.state_dict() if _is_w_out(n, layer))]
        for head in range(H):
            term = z[:, head] @ w_out[head * DH : (head + 1) * DH]
            term = (term - term.mean(-1, keepdim=True)) / deviation * ours.stack.norm.gain
            share = term @ ours.head.weight[5]
            torch.testing.assert_close(found.heads[:, layer, head], share, rtol=0, atol=CLOSE)


def _is_w_out(name: str, layer: int) -> bool:
    parts = name.replace("_original_component.", "").split(".")
    return (
        f".{layer}." in name
        and parts[-1] == "weight"
        and ("attn" in parts)
        and ("c_proj" in parts or "o" in parts)
    )


@torch.no_grad()
def test_a_sweep_is_their_loop_of_patches(models: tuple[Any, GPT]) -> None:
    theirs, ours = models
    _, cache = theirs.run_with_cache(draw(2))
    sweep = patch_sweep(ours, draw(2), draw(1), lambda logits: logits[:, -1, 5] - logits[:, -1, 8])
    for layer in range(L):
        name = f"blocks.{layer}.attn.hook_z"
        for head in range(H):

            def hook(value: Tensor, hook: object, name: str = name, head: int = head) -> Tensor:
                parts, clean = (x.clone().reshape(2, T, H, DH) for x in (value, cache[name]))
                parts[:, :, head] = clean[:, :, head]
                return parts.reshape(value.shape)

            logits = theirs.run_with_hooks(draw(1), fwd_hooks=[(name, hook)])
            expected = (logits[:, -1, 5] - logits[:, -1, 8]).mean()
            torch.testing.assert_close(sweep.values[layer, head], expected, rtol=0, atol=CLOSE)

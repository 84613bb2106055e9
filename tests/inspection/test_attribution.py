"""logit_lens and attribution: exact sums, read from every kind of model."""

import copy

import pytest
import torch
from model_cases import WITH_LOGITS, D, H, L, T, V, build_case, draw_ids, gpt, randomize
from torch import nn

from clearhead.inspection import ablate, attribution, logit_lens
from clearhead.models import GPT, GPTConfig


@pytest.mark.parametrize("name", WITH_LOGITS)
def test_the_last_row_of_the_lens_is_the_output_and_the_first_skips_all_blocks(name: str) -> None:
    model, inputs = build_case(name)
    lens = logit_lens(model, inputs)
    output = model(*inputs)
    assert lens.shape == (L + 1, *output.shape)
    assert torch.equal(lens[-1], output)
    skipping = copy.deepcopy(model)
    stack = skipping.decoder if name == "translator" else skipping.stack
    stack.blocks = nn.ModuleList()
    assert torch.equal(lens[0], skipping(*inputs))


@pytest.mark.parametrize("name", WITH_LOGITS)
def test_the_terms_sum_to_the_logit(name: str) -> None:
    model, inputs = build_case(name)
    logits = model(*inputs)
    row = logits[:, 2] if logits.ndim == 3 else logits
    found = attribution(model, inputs, target=1, position=2)
    torch.testing.assert_close(found.total, row[:, 1], rtol=0, atol=1e-12)
    best = attribution(model, inputs, position=2)
    assert torch.equal(best.target, row.argmax(-1))
    against = attribution(model, inputs, target=1, against=0, position=2)
    torch.testing.assert_close(against.total, row[:, 1] - row[:, 0], rtol=0, atol=1e-12)
    assert found.heads.shape == (2, L, H)


def test_separate_heads_of_different_widths_are_terms_of_their_own() -> None:
    stack, (x,) = build_case("joined heads")
    model = nn.Sequential()
    model.stack, model.head = stack, randomize(nn.Linear(D, V))
    found = attribution(model, x, target=4)
    torch.testing.assert_close(found.total, model(x)[:, -1, 4], rtol=0, atol=1e-12)
    assert found.heads.shape == (2, 1, 3)


def test_in_float32_the_sum_is_exact_to_five_digits() -> None:
    model, inputs = build_case("gpt")
    model = model.float()
    found = attribution(model, inputs)
    torch.testing.assert_close(found.total, model(*inputs)[:, -1].amax(-1), rtol=1e-5, atol=1e-5)


def test_without_norms_a_last_heads_share_is_what_ablation_takes_away() -> None:
    """In a linear tail direct attribution and ablation are the same number."""
    config = GPTConfig(
        vocab_size=V, max_len=9, d_model=D, n_layers=2, n_heads=H, norm="none", zero_start=True
    )
    model, tokens = randomize(GPT(config)), draw_ids()
    for parameter in model.stack.blocks[-1].feed_forward.parameters():
        parameter.data.zero_()
    found = attribution(model, tokens, target=4)
    before = model(tokens)[:, -1, 4]
    for head in range(H):
        with ablate(model, layer=1, head=head):
            taken = before - model(tokens)[:, -1, 4]
        torch.testing.assert_close(found.heads[:, 1, head], taken)


def test_a_table_lists_the_largest_term_first_and_the_logit_last() -> None:
    lines = repr(attribution(gpt(), draw_ids())).splitlines()
    sizes = [abs(float(line.split()[-1])) for line in lines[:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert lines[-1].startswith("logit")


def test_a_broken_model_has_broken_terms_and_is_not_taken_for_another_kind() -> None:
    model = gpt()
    model.head.weight.data[3] = torch.nan
    assert logit_lens(model, draw_ids())[..., 3].isnan().all()
    assert attribution(model, draw_ids(), target=3).total.isnan().all()


def test_nothing_remains_and_training_mode_comes_back() -> None:
    model = gpt().train()
    attribution(model, draw_ids())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": "e"}, "target must be a whole number, got 'e' of type str"),
        ({"target": V}, f"target must be from 0 to {V - 1}"),
        ({"target": torch.tensor([1, 2, 3])}, r"one number or have shape \(2,\), got \(3,\)"),
        ({"target": 0, "against": -1}, "against must be from 0"),
        ({"position": T}, f"position must be from -{T} to {T - 1}, got {T}"),
    ],
)
def test_bad_targets_are_named(arguments: dict[str, object], words: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=words):
        attribution(gpt(), draw_ids(), **arguments)  # type: ignore[arg-type]


def test_parts_whose_terms_are_not_known_are_refused() -> None:
    model, tokens = gpt(), draw_ids()
    model.stack.norm = nn.LayerNorm(D).double()
    with pytest.raises(TypeError, match="must be LayerNorm or RMSNorm to be split into terms"):
        attribution(model, tokens)
    model.stack.blocks[1] = nn.Identity()
    with pytest.raises(ValueError, match="the blocks of 'stack' must be Blocks"):
        attribution(model, tokens)


@pytest.mark.parametrize("inputs", [None, [1, 2], "ab", {"tokens": draw_ids()}, ()])
def test_inputs_are_tensors(inputs: object) -> None:
    for read in (attribution, logit_lens):
        with pytest.raises(TypeError, match="inputs must be a tensor or a tuple of them"):
            read(gpt(), inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["encoder", "gru", "smallest"])
def test_models_without_such_a_stream_are_refused(name: str) -> None:
    model, inputs = build_case(name)
    for read in (attribution, logit_lens):
        with pytest.raises(ValueError, match="has no residual stream that ends in logits"):
            read(model, inputs)

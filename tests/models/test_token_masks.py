"""token_mask and source_mask: booleans or integers 0 and 1, the same for every model."""

import pytest
import torch
import translators
from language_models import build, ids

from clearhead.attention import KVCache
from clearhead.data.batch import next_tokens
from clearhead.generation import beam_search, generate, pack
from clearhead.models import (
    ClassifierConfig,
    SequenceClassifier,
    TextEncoder,
    TextEncoderConfig,
    TorchTransformerConfig,
    build_model,
)

B, T = 3, 7
LEFT = torch.arange(T) >= torch.tensor([[0], [2], [5]])
RIGHT = LEFT.flip(1)
SOURCE, SOURCE_MASK, TARGET = translators.sentences()


def read_cached(mask):
    """GPT with its caches: the mask counts the tokens read before."""
    model, tokens, caches = build(), ids(B, T), [KVCache(), KVCache()]
    model(tokens[:, :4], token_mask=mask[:, :4], caches=caches)
    return model(tokens[:, 4:], token_mask=mask, caches=caches)


def classify(mask):
    torch.manual_seed(0)
    config = ClassifierConfig(6, 4, 12, 2, 3, 10, 9, positions="toeplitz")
    return SequenceClassifier(config)(torch.randn(B, T, 6), token_mask=mask)


def encode(mask, method="forward"):
    torch.manual_seed(0)
    model = TextEncoder(TextEncoderConfig(11, 9, 12, 2, 3, 10))
    return getattr(model, method)(torch.randint(11, (B, T)), token_mask=mask)


def run_smallest(mask):
    torch.manual_seed(0)
    model = build_model(TorchTransformerConfig(3, 4, 5, 9))
    return model(torch.randn(B, T, 3), mask)


DOORS = {
    "gpt": (lambda mask: build()(ids(B, T), token_mask=mask), RIGHT),
    "gpt with caches": (read_cached, LEFT),
    "classifier": (classify, RIGHT),
    "encoder": (encode, RIGHT),
    "sentence": (lambda mask: encode(mask, "sentence"), RIGHT),
    "smallest": (run_smallest, RIGHT),
    "generate": (lambda mask: generate(build(), ids(B, T), 6, token_mask=mask), LEFT),
    "packed": (lambda mask: generate(pack(build()), ids(B, T), 6, token_mask=mask), LEFT),
    "rolling": (
        lambda mask: generate(
            build(), ids(B, T), 70, token_mask=mask, temperature=1.0, seed=1, roll=True
        ),
        LEFT,
    ),
    "next tokens": (lambda mask: next_tokens(ids(B, T), mask), RIGHT),
    **{
        f"{kind}, {name}": (
            lambda mask, kind=kind, run=run: run(translators.build(kind), mask),
            SOURCE_MASK,
        )
        for kind in ("gru", "transformer")
        for name, run in {
            "forward": lambda model, mask: model(SOURCE, TARGET, mask),
            "greedy": lambda model, mask: model.generate(SOURCE, 5, source_mask=mask),
            "beams": lambda model, mask: beam_search(model, SOURCE, 5, source_mask=mask).scores,
        }.items()
    },
}
EACH = pytest.mark.parametrize(("door", "mask"), DOORS.values(), ids=DOORS)


@EACH
def test_0_and_1_mean_what_booleans_mean(door, mask):
    expected = door(mask)
    for dtype in (torch.uint8, torch.int32, torch.int64):
        assert torch.equal(door(mask.to(dtype)), expected)
    assert not torch.equal(door(torch.ones_like(mask).long()), expected)  # the mask does matter


@EACH
def test_floats_and_other_numbers_are_refused(door, mask):
    for dtype in (torch.float32, torch.float64):
        with pytest.raises(
            TypeError, match=r"_mask must be a boolean tensor, .* use \w+_mask\.bool"
        ):
            door(mask.to(dtype))
    for wrong in (mask.long() * 2, mask.long() - 1):
        with pytest.raises(
            ValueError, match="_mask must be boolean or hold only 0 and 1, with 1 ="
        ):
            door(wrong)

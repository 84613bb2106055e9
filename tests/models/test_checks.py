"""What more than one model checks: token ids, settings of blocks, masks, and what a model gives."""

import re
from dataclasses import replace

import pytest
import torch

from clearhead.attention import Mask
from clearhead.models import (
    ClassifierConfig,
    GPTConfig,
    Seq2SeqGRUConfig,
    Seq2SeqTransformerConfig,
    TextEncoderConfig,
    ViTConfig,
)
from clearhead.models.checks import check_distances, check_finite, check_tokens

# Token ids


def test_N27_right_ids_pass():
    check_tokens("tokens", torch.tensor([[0, 4], [3, 1]]), 5)
    check_tokens("tokens", torch.tensor([[0, 4]], dtype=torch.int8), 5, max_len=2)
    for shape in ((0, 3), (3, 0), (0, 0)):
        check_tokens("tokens", torch.zeros(shape).long(), 5)


@pytest.mark.parametrize("wrong", [-1, 5, 99, -(2**40)])
def test_N27_the_first_wrong_id_is_named_by_its_place(wrong):
    tokens = torch.tensor([[0, 1, 2], [4, wrong, wrong]])
    with pytest.raises(
        ValueError, match=rf"^words\[1, 1\] is {wrong}, but ids go from 0 to 4; encode with"
    ):
        check_tokens("words", tokens, 5)


@pytest.mark.parametrize(
    ("tokens", "kind", "message"),
    [
        (torch.zeros(2, 3), TypeError, "tokens must hold integers, got torch.float32"),
        (torch.zeros(2, 3).bool(), TypeError, "tokens must hold integers, got torch.bool"),
        ([[1, 2]], TypeError, "tokens must be a torch.Tensor of integers, got list"),
        (torch.zeros(3).long(), ValueError, "tokens must have shape (B, T), got (3,); one"),
        (torch.zeros(1, 2, 3).long(), ValueError, "shape (B, T), got (1, 2, 3)"),
        (torch.zeros(2, 6).long(), ValueError, "tokens has length 6 but max_len is 5; shorten it"),
    ],
)
def test_N27_what_are_no_ids_is_refused(tokens, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        check_tokens("tokens", tokens, 5, max_len=5)


# What configs of blocks share

BLOCKS = {
    "gpt": (GPTConfig, {"vocab_size": 7, "max_len": 5}),
    "encoder": (TextEncoderConfig, {"vocab_size": 7, "max_len": 5}),
    "classifier": (ClassifierConfig, {"d_input": 3, "d_output": 2}),
    "vit": (ViTConfig, {}),
    "translator": (
        Seq2SeqTransformerConfig,
        {"source_vocab_size": 6, "target_vocab_size": 7, "start_id": 1, "end_id": 2, "pad_id": 0}
        | {"max_len": 5},
    ),
}


WRONG = {
    "n_layers must be at least 1, got 0": {"n_layers": 0},
    "n_layers must be at most 1,000, got 2,000": {"n_layers": 2000},
    "n_layers must be at most 1,000, got 1,000,000,000": {"n_layers": 10**9},
    "d_model must be at most 1,048,576, got 12,000,000": {"d_model": 12_000_000},
    "d_model must be at least 1, got 0": {"d_model": 0},
    "d_model is 12, which n_heads=5 does not divide; take d_model=10": {"n_heads": 5},
    "n_heads is 3, which n_kv_heads=2 does not divide": {"n_kv_heads": 2},
    "d_ff must be at least 1, got 0": {"d_ff": 0},
    "activation must be one of 'relu', .* got 'tanh'": {"activation": "tanh"},
    "norm must be one of 'layer', 'rms', 'none', got 'batch'": {"norm": "batch"},
    "norm_eps must be a finite number above 0, got 0.0": {"norm_eps": 0.0},
    "dropout must be a finite number from 0 to 1, got 1.5": {"dropout": 1.5},
}
ONLY_SOME = {"n_kv_heads", "norm", "norm_eps"}  # not every config has these


@pytest.mark.parametrize("words", WRONG)
def test_F11_every_config_of_blocks_refuses_alike(words):
    (name,) = WRONG[words]
    asked = 0
    for config_type, needed in BLOCKS.values():
        good = config_type(**needed, d_model=12, n_layers=2, n_heads=3)
        if name in good.to_dict():
            asked += 1
            with pytest.raises(ValueError, match=words):
                replace(good, **WRONG[words])
    assert asked == len(BLOCKS) or (name in ONLY_SOME and asked > 0)


def test_F11_a_gru_of_absurdly_many_layers_is_refused_too():
    _, needed = BLOCKS["translator"]
    needed = {name: value for name, value in needed.items() if name != "max_len"}
    with pytest.raises(ValueError, match="n_layers must be at most 1,000, got 1,000,000,000"):
        Seq2SeqGRUConfig(**needed, d_embedding=3, d_hidden=4, n_layers=10**9)


# What a model gives


def test_numbers_are_handed_on_and_anything_else_is_refused():
    x = torch.randn(2, 3)
    assert check_finite(x) is x
    for value in (torch.nan, torch.inf, -torch.inf):
        broken = x.clone()
        broken[1, 2] = value
        with pytest.raises(ValueError, match="the model gives NaN or infinity for these tokens"):
            check_finite(broken)


# Masks for biases by distance


@pytest.mark.parametrize(
    "rows",
    ["1111 0000", "0111 0001", "1110 0110", "0000 0100"],
    ids=str,
)
def test_real_tokens_side_by_side_suit_a_bias_by_distance(rows):
    check_distances(Mask.tokens(marks(rows)), 4)
    check_distances(Mask.causal() & Mask.tokens(marks(rows)), 4)


@pytest.mark.parametrize(("rows", "row"), [("1101 1111", 0), ("0110 1001", 1), ("1011 1101", 0)])
def test_padding_between_real_tokens_does_not_suit_a_bias_by_distance(rows, row):
    words = f"padding between real tokens in row {row}, but Toeplitz and ALiBi biases count"
    with pytest.raises(ValueError, match=words):
        check_distances(Mask.tokens(marks(rows)), 4)


def marks(rows):
    return torch.tensor([[letter == "1" for letter in row] for row in rows.split()])


def test_each_document_must_stand_together():
    check_distances(Mask.segments(torch.tensor([[0, 0, 1, 1, -1], [3, 1, 1, 1, 2]])), 5)
    check_distances(Mask.segments(torch.tensor([[-1, 4, 4, -1, 0]])), 5)
    for ids in ([0, 1, 0, 1], [2, -1, 2, 2]):
        with pytest.raises(ValueError, match="padding between real tokens in row 0"):
            check_distances(Mask.segments(torch.tensor([ids])), 4)
    both = Mask.segments(torch.tensor([[0, 0, 1, 1]]))
    check_distances(both & Mask.tokens(marks("0111 1101")), 4)
    with pytest.raises(ValueError, match="padding between real tokens in row 1"):
        check_distances(
            Mask.segments(torch.tensor([[0, 0, 0, 1]])) & Mask.tokens(marks("0111 1011")), 4
        )


def test_masks_that_say_nothing_about_tokens_suit_any_bias():
    for mask in (Mask(), Mask.causal(), Mask.window(2), Mask.padding(torch.tensor([2, 0]))):
        check_distances(mask, 4)
    check_distances(Mask.tokens(torch.ones(0, 4, dtype=torch.bool)), 4)
    check_distances(Mask.tokens(torch.ones(2, 0, dtype=torch.bool)), 0)

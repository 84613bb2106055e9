"""StackConfig: the settings that all models of blocks share are declared once, by name only."""

from dataclasses import dataclass
from inspect import signature

import pytest

from clearhead import models
from clearhead.attention import ArgmaxAttention
from clearhead.layers import StackConfig

SHARED = ["d_head", "attention_bias", "norm_bias", "norm_attention", "final_norm"]

# By position | by name only: calls, config.json and the listing of a recipe have this order.
ORDER = {
    models.ViTConfig: """
        n_classes image_size patch_size channels d_model n_layers n_heads d_ff stem class_token pool
        qk_norm norm norm_eps activation bias dropout | head_bias class_position""",
    models.GPTConfig: """
        vocab_size max_len d_model n_layers n_heads n_kv_heads d_ff positions rotary_base norm
        norm_eps activation bias tied qk_norm soft_cap zero_start dropout | head_bias
        rotary_scaling""",
    models.ClassifierConfig: """
        d_input d_output d_model n_layers n_heads d_ff max_len positions pre_norm norm norm_eps
        activation bias dropout | rotary_base""",
    models.TextEncoderConfig: """
        vocab_size max_len d_model n_layers n_heads d_ff n_types norm_eps activation dropout |""",
    models.Seq2SeqTransformerConfig: """
        source_vocab_size target_vocab_size start_id end_id pad_id max_len d_model n_layers n_heads
        d_ff positions norm activation tied dropout |""",
}
REQUIRED = {
    models.ViTConfig: (),
    models.GPTConfig: (9, 8, 12, 1, 3),
    models.ClassifierConfig: (5, 1),
    models.TextEncoderConfig: (9, 8, 12, 1, 3),
    models.Seq2SeqTransformerConfig: (9, 7, 1, 2, 0, 8, 12, 1, 3),
}


def split_order(kind):
    """The names by position, and those by name only, the shared ones first."""
    by_position, by_name = (part.split() for part in ORDER[kind].split("|"))
    return by_position, [*SHARED, *by_name]


@pytest.mark.parametrize("kind", ORDER)
def test_the_arguments_of_every_config_keep_their_order(kind):
    by_position, by_name = split_order(kind)
    parameters = signature(kind).parameters
    assert list(parameters) == by_position + by_name
    assert [name for name in parameters if parameters[name].kind.name == "KEYWORD_ONLY"] == by_name


@pytest.mark.parametrize("kind", ORDER)
def test_the_plain_values_of_a_config_have_the_order_of_its_arguments(kind):
    by_position, by_name = split_order(kind)
    config = kind(*REQUIRED[kind], d_head=5)
    assert list(config.to_dict()) == by_position + by_name


@pytest.mark.parametrize("kind", ORDER)
def test_a_file_from_before_the_shared_settings_means_their_defaults(kind):
    config = kind(*REQUIRED[kind])
    old = {name: value for name, value in config.to_dict().items() if name not in SHARED}
    assert kind.from_dict(old) == config
    assert [getattr(config, name) for name in SHARED] == [None, None, None, True, None]


def test_a_config_has_the_settings_it_declares_and_the_shared_ones():
    @dataclass(frozen=True)
    class KiteConfig(StackConfig):
        d_model: int
        n_layers: int = 1
        n_heads: int = 3

    config = KiteConfig(12, d_head=5)
    assert sorted(config.to_dict()) == sorted([*SHARED, "d_model", "n_layers", "n_heads"])
    assert config.norm == "layer"  # kept as it is, not a field
    assert config.build_stack().blocks[0].attention.d_head == 5
    with pytest.raises(ValueError, match="KiteConfig has no 'norm'"):
        KiteConfig.from_dict({"d_model": 12, "norm": "rms"})


def test_a_config_may_build_another_attention_for_every_block():
    class BestConfig(models.GPTConfig):
        def build_mechanism(self):
            return ArgmaxAttention()

    blocks = BestConfig(*REQUIRED[models.GPTConfig]).build_stack().blocks
    mechanisms = [block.attention.mechanism for block in blocks]
    assert {type(mechanism) for mechanism in mechanisms} == {ArgmaxAttention}
    assert len(set(mechanisms)) == len(blocks)  # none is shared

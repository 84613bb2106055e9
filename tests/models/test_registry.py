"""Every config builds its own model."""

from dataclasses import dataclass

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead import models
from clearhead.models import Config, Model, Seq2SeqGRUConfig, build_model
from clearhead.models.registry import MODELS, build_on_meta, check_config
from clearhead.models.seq2seq import Seq2SeqConfig

SIZES = {"d_model": 12, "n_layers": 1, "n_heads": 3}
CONFIGS = [
    models.ClassifierConfig(5, 2, max_len=7, **SIZES),
    models.GPTConfig(5, 7, **SIZES),
    models.Seq2SeqGRUConfig(5, 6, 1, 2, 3, d_embedding=4, d_hidden=8),
    models.Seq2SeqTransformerConfig(5, 6, 1, 2, 3, max_len=7, **SIZES),
    models.TextEncoderConfig(vocab_size=5, max_len=7, **SIZES),
    models.TorchTransformerConfig(3, 4, 2),
    models.ViTConfig(image_size=8, patch_size=4, **SIZES),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_a_config_builds_the_model_that_is_built_from_it(config):
    model = build_model(config)
    assert type(model).config_type is type(config)
    assert model.config == config


def test_no_model_is_forgotten():
    """Each config that is public, and no other."""
    public = [getattr(models, name) for name in models.__all__]
    configs = {kind for kind in public if isinstance(kind, type) and issubclass(kind, Config)}
    assert {model.config_type for model in MODELS} == configs - {Config}
    assert {type(config) for config in CONFIGS} == configs - {Config}
    assert all(issubclass(model, Model) for model in MODELS)


@dataclass(frozen=True)
class OtherConfig(Seq2SeqGRUConfig):
    """Like one that is known."""


class ConfigOfNone(Config):
    """The config of no model."""


@pytest.mark.parametrize("config", [ConfigOfNone(), OtherConfig(5, 6, 1, 2, 3, 4, 8)])
def test_what_no_model_is_built_from_is_refused_by_name(config):
    words = rf"one of ClassifierConfig, .*, got a {type(config).__name__}$"
    with pytest.raises(TypeError, match=words):
        build_model(config)
    assert issubclass(OtherConfig, Seq2SeqConfig)


def test_a_model_of_ones_own_is_found_by_its_config():
    class OwnConfig(models.GPTConfig):
        pass

    class Own(models.GPT):
        config_type = OwnConfig

    class Below(Own):
        """Has no config of its own."""

    assert type(build_model(OwnConfig(5, 7, **SIZES))) is Own
    again = type(
        "Own", (models.GPT,), {"config_type": OwnConfig}
    )  # a cell of a notebook, run again
    assert type(build_model(OwnConfig(5, 7, **SIZES))) is again
    assert type(build_model(models.GPTConfig(5, 7, **SIZES))) is models.GPT
    assert issubclass(Below, Own)


# Models without memory


class Operations(TorchDispatchMode):
    """Notes what is computed."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("positions", ["learned", "toeplitz", "alibi"])
def test_a_model_without_memory_draws_and_fills_nothing(positions):
    """Drawing on the meta device took most of the time: 10 s for 2,000 layers."""
    config = models.GPTConfig(7, 5, 12, n_layers=3, n_heads=3, positions=positions, qk_norm=True)
    with Operations() as done:
        model = build_on_meta(models.GPT, config)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert not [name for name in done.names if "uniform" in name or "normal" in name]
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    assert shapes == {
        name: parameter.shape for name, parameter in models.GPT(config).named_parameters()
    }


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_a_config_fits_the_weights_of_its_model_and_no_others(config):
    tensors = build_model(config).state_dict()
    check_config(config, tensors)
    name = max(tensors, key=lambda name: tensors[name].ndim)
    for wrong in ({}, {name: tensors[name][:-1]}):
        rest = {key: value for key, value in tensors.items() if key != name}
        with pytest.raises(ValueError, match=f"the weights do not fit the config: {name!r}"):
            check_config(config, rest | wrong)


def test_a_model_of_more_parameters_than_can_be_counted_is_refused():
    config = models.Seq2SeqGRUConfig(5, 6, 1, 2, 3, d_embedding=2**31, d_hidden=2**31)
    with pytest.raises(ValueError, match="by its config it has too many for PyTorch to count"):
        check_config(config)

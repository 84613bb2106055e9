"""Model: built from a config; counts and tables."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from clearhead.config import UNDECIDED, Config
from clearhead.models.model import Model


@dataclass(frozen=True)
class KiteConfig(Config):
    n_tails: int
    d_model: int


class Kite(Model):
    """A module inside another, a table used twice, and a parameter of its own."""

    config_type = KiteConfig
    config: KiteConfig

    def __init__(self, config: KiteConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.n_tails, config.d_model)
        self.body = nn.Sequential(nn.Linear(config.d_model, 3), nn.ReLU(), nn.LayerNorm(3))
        self.head = nn.Linear(config.d_model, config.n_tails, bias=False)
        self.head.weight = self.embedding.weight
        self.again = self.body[0]


GOOD = {"n_tails": 5, "d_model": 4}


def kite(**values):
    return KiteConfig.from_dict(GOOD | values)


# Models


def test_a_model_is_built_from_its_config_or_its_values():
    config = kite()
    assert Kite(config).config is config
    assert Kite.from_config(config).config is config
    assert Kite.from_config(GOOD).config == config
    with pytest.raises(TypeError, match="Kite is built from a KiteConfig, got dict"):
        Kite(GOOD)
    with pytest.raises(TypeError, match="Kite is built from a KiteConfig, got Config"):
        Kite(Config())
    with pytest.raises(ValueError, match="KiteConfig has no 'tails'"):
        Kite.from_config({"tails": 3})


def test_no_model_is_built_from_an_undecided_config():
    with pytest.raises(ValueError, match="KiteConfig leaves n_tails undecided; open the data"):
        Kite(KiteConfig(UNDECIDED, 4))
    assert Kite(replace(KiteConfig(UNDECIDED, 4), n_tails=5)).config == kite()


def test_shared_parameters_count_once():
    assert Kite(kite()).n_parameters == 5 * 4 + (4 * 3 + 3) + (3 + 3)


def test_the_table_names_each_layer_with_its_shapes_and_count():
    lines = [line.split() for line in Kite(kite()).describe().splitlines()]
    assert lines == [
        ["layer", "kind", "shapes", "parameters"],
        ["embedding", "Embedding", "weight", "5×4", "20"],
        ["body.0", "Linear", "weight", "3×4,", "bias", "3", "15"],
        ["body.2", "LayerNorm", "weight", "3,", "bias", "3", "6"],
        ["head", "Linear", "weight", "5×4", "(=", "embedding.weight)", "0"],
        ["Kite", "41"],
    ]


def test_the_columns_of_the_table_stand_under_each_other():
    lines = Kite(kite()).describe().splitlines()
    assert len({len(line) for line in lines}) == 1  # the counts are flush right
    for words in (("kind", "Embedding", "Linear", "LayerNorm"), ("shapes", "weight")):
        starts = [line.index(word) for line in lines for word in words if f"  {word} " in line]
        assert len(starts) == 5
        assert len(set(starts)) == 1


def test_a_layer_of_many_parameters_takes_several_lines():
    class Flock(Kite):
        def __init__(self, config: KiteConfig) -> None:
            super().__init__(config)
            self.gru = nn.GRU(2, 1, bias=True)
            self.turn = nn.Bilinear(2, 1, 1)
            self.turn.register_parameter("twist", nn.Parameter(torch.zeros(7)))

    lines = [line.split() for line in Flock(kite()).describe().splitlines()]
    assert lines[5:9] == [
        ["gru", "GRU", "weight_ih_l0", "3×2,", "weight_hh_l0", "3×1", "15"],
        ["bias_ih_l0", "3,", "bias_hh_l0", "3"],
        ["turn", "Bilinear", "weight", "1×2×1,", "bias", "1", "10"],
        ["twist", "7"],
    ]

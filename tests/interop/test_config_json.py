"""Other people's config.json: what is not computed is refused by name; nothing is imported."""

import json
import shutil
import sys

import pytest
import torch

from clearhead.files import BadFile
from clearhead.interop import load, load_bert, load_gpt2, load_llama, load_vit


@pytest.fixture
def with_config(oracles, tmp_path):
    """The folder of an oracle with values of its config changed, or taken out by ...."""

    def make(case, **values):
        folder = tmp_path / "changed"
        if not folder.exists():
            shutil.copytree(oracles[case].folder, folder)
        config = json.loads((folder / "config.json").read_text()) | values
        kept = {name: value for name, value in config.items() if value is not ...}
        (folder / "config.json").write_text(json.dumps(kept))
        return folder

    return make


def refused(folder):
    with pytest.raises(BadFile) as error:
        load(folder)
    assert "config.json" in str(error.value)
    assert len(str(error.value)) < 400
    return str(error.value)


@pytest.mark.parametrize(
    ("case", "name", "value"),
    [
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("gpt2", "scale_attn_weights", False),
        ("gpt2", "add_cross_attention", True),
        ("gpt2", "activation_function", "silu"),
        ("gpt2", "quantization_config", {"bits": 4}),
        ("llama", "hidden_act", "gelu"),
        ("llama", "head_dim", 8),
        ("llama", "rope_scaling", {"type": "linear", "factor": 2.0}),
        ("llama", "rope_parameters", {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}),
        ("llama", "rope_parameters", {"rope_type": "linear", "factor": 2, "beta_fast": 3}),
        ("llama", "rope_parameters", {"rope_theta": 1e4, "factor": 8.0}),
        ("llama", "rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("llama", "partial_rotary_factor", 0.5),
        ("llama", "rope_parameters", [1]),
        ("llama", "mlp_bias", True),
        ("llama", "attention_bias", True),
        ("qwen3", "rms_norm_eps", 1e-5),
        ("qwen3", "use_sliding_window", True),
        ("qwen3", "layer_types", ["full_attention", "sliding_attention"]),
        ("bert", "position_embedding_type", "relative_key"),
        ("bert", "is_decoder", True),
        ("bert", "add_cross_attention", True),
        ("bert", "hidden_act", "swish"),
        ("vit", "qkv_bias", False),
        ("vit", "hidden_act", "quick_gelu"),
        ("vit", "image_size", [12, 12, 3]),
        ("vit", "id2label", ["cat"]),
    ],
)
def test_a_variant_that_is_not_computed_is_refused_by_name(with_config, case, name, value):
    message = refused(with_config(case, **{name: value}))
    inner = {"yarn": "'yarn', which is not supported; use default or linear or llama3"}
    inner |= {"beta_fast": "beta_fast", "8.0": "factor", "0.5": "partial_rotary_factor"}
    expected = next((word for key, word in inner.items() if key in str(value)), name)
    assert expected in message or "mlp_bias" in message


SIZES = {
    "gpt2": ["vocab_size", "n_positions", "n_embd", "n_layer", "n_head"],
    "llama": ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"],
    "qwen3": ["num_attention_heads", "num_key_value_heads"],
    "bert": ["vocab_size", "max_position_embeddings", "hidden_size", "num_attention_heads"],
    "vit": ["image_size", "patch_size", "hidden_size", "num_hidden_layers", "intermediate_size"],
}
EVERY_SIZE = [(case, name) for case, names in SIZES.items() for name in names]


@pytest.mark.parametrize(("case", "name"), EVERY_SIZE)
def test_F11_a_size_of_the_wrong_kind_is_refused_by_name(with_config, case, name):
    for value in (True, "12", 12.0, [], {}, 0, -3, 1 << 40):
        assert name in refused(with_config(case, **{name: value}))
    assert f"{name} is missing" in refused(with_config(case, **{name: ...}))
    assert f"{name} is missing" in refused(with_config(case, **{name: None}))


@pytest.mark.parametrize(
    ("case", "name", "words"),
    [
        ("gpt2", "layer_norm_epsilon", "layer_norm_epsilon must be a number"),
        ("llama", "rms_norm_eps", "rms_norm_eps must be a number"),
        ("llama", "tie_word_embeddings", "tie_word_embeddings must be true or false"),
        ("bert", "hidden_dropout_prob", "hidden_dropout_prob must be a number"),
        ("vit", "layer_norm_eps", "layer_norm_eps must be a number"),
    ],
)
def test_F11_a_value_of_the_wrong_kind_is_refused_by_name(with_config, case, name, words):
    assert words in refused(with_config(case, **{name: "0.1"}))


@pytest.mark.parametrize(
    ("case", "values", "words"),
    [
        ("gpt2", {"n_head": 5}, "d_model is 12, which n_heads=5 does not divide"),
        ("gpt2", {"layer_norm_epsilon": 0}, "norm_eps must be a finite number above 0"),
        ("gpt2", {"resid_pdrop": 1.5}, "dropout must be a finite number"),
        ("llama", {"num_key_value_heads": 3}, "n_heads is 4, which n_kv_heads=3 does not divide"),
        ("llama", {"num_attention_heads": 8, "head_dim": 3}, "d_head must be even"),
        ("vit", {"patch_size": 5}, "image height is 12, which patch height=5 does not divide"),
    ],
)
def test_F11_values_that_do_not_go_together_are_refused(with_config, case, values, words):
    assert words in refused(with_config(case, **values))


def test_F11_a_million_layers_cost_nothing(with_config):
    message = refused(with_config("gpt2", n_layer=1_000_000))
    assert "n_layers must be at most 1,000, got 1,000,000" in message
    message = refused(with_config("gpt2", n_layer=1_000))
    assert "there are 1,000 layers, but fewer tensors" in message


@pytest.mark.parametrize("case", ["gpt2", "llama", "bert", "vit"])
def test_F11_huge_sizes_are_compared_and_not_allocated(with_config, case):
    name = {"gpt2": "n_embd"}.get(case, "hidden_size")
    heads = {"gpt2": "n_head"}.get(case, "num_attention_heads")
    values = {name: 1 << 20, heads: 1 << 8, "vocab_size": 1 << 24, "head_dim": 1 << 12}
    with pytest.raises(BadFile, match="does not hold the model of its config"):
        load(with_config(case, **values))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1, 2]", "must hold names and values"),
        ("{}", "model_type is missing"),
        ('{"model_type": 3}', "model_type must be a word"),
        ('{"model_type": "t5"}', "model_type is 't5'; known are bert, gpt2, llama, qwen3, vit"),
        ('{"model_type": "gpt2", "model_type": "gpt2"}', "twice"),
        ('{"model_type": "gpt2", "n_embd": NaN}', "not a finite number"),
        ('{"a":' * 1000 + "1" + "}" * 1000, "nested deeper"),
    ],
)
def test_F11_a_config_that_is_none(tmp_path, text, words):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadFile, match=r"config.json") as error:
        load(tmp_path)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("loader", "case"),
    [(load_gpt2, "llama"), (load_llama, "bert"), (load_bert, "vit"), (load_vit, "gpt2")],
)
def test_a_loader_refuses_another_family(oracles, loader, case):
    with pytest.raises(BadFile, match=f"model_type is '{case}', not "):
        loader(oracles[case].folder)


def test_an_old_config_of_llama_names_its_base_alone(with_config, oracles):
    folder = with_config("llama grouped, tied", rope_parameters=..., rope_theta=500.0, head_dim=...)
    old, new = load_llama(folder), load_llama(oracles["llama grouped, tied"].folder)
    assert old.config == new.config
    assert old.config.rotary_base == 500.0


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("values", "scaling"),
    [
        ({"type": "linear", "factor": 4}, 4.0),
        ({"rope_type": "default"}, None),
        ({"rope_type": "llama3", **LLAMA3}, (8.0, 1.0, 4.0, 17)),
        (
            {"rope_type": "llama3", "original_max_position_embeddings": 13, **LLAMA3},
            (8.0, 1.0, 4.0, 13),
        ),
    ],
)
def test_an_old_config_of_llama_scales_its_angles_in_rope_scaling(with_config, values, scaling):
    folder = with_config("llama", rope_parameters=..., rope_theta=500.0, rope_scaling=values)
    config = load_llama(folder).config
    assert (config.rotary_base, config.rotary_scaling) == (500.0, scaling)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rope_type": "llama3"}, "factor is missing"),
        ({"rope_type": "linear", "factor": "2"}, "factor must be a number"),
        ({"rope_type": "linear", "factor": 0}, "scaling must be a finite number above 0"),
        ({"rope_type": 3}, "rope_type must be a word"),
        ({"rope_type": "llama3", **LLAMA3, "low_freq_factor": 4.0}, "high must be above low"),
        (
            {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 0},
            "original_max_position_embeddings is 0",
        ),
    ],
)
def test_F11_a_scaling_of_angles_that_cannot_be_is_refused(with_config, values, words):
    assert words in refused(with_config("llama", rope_parameters=values))


def test_the_first_context_has_one_place(with_config):
    rope = {"rope_type": "llama3", "original_max_position_embeddings": 9, **LLAMA3}
    folder = with_config("llama", rope_parameters=rope, original_max_position_embeddings=8)
    assert "original_max_position_embeddings" in refused(folder)


def test_an_old_config_of_gpt2_leaves_its_defaults_out(with_config):
    names = ["n_inner", "activation_function", "tie_word_embeddings", "layer_norm_epsilon"]
    names += ["scale_attn_weights", "resid_pdrop", "add_cross_attention"]
    model = load_gpt2(with_config("gpt2", **dict.fromkeys(names, ...)))
    assert (model.config.activation, model.config.norm_eps) == ("gelu_tanh", 1e-5)
    assert model.config.tied


def test_the_model_comes_ready_to_be_measured_and_keeps_its_dropout(with_config):
    model = load_gpt2(with_config("gpt2", resid_pdrop=0.25))
    assert not model.training
    assert model.config.dropout == 0.25
    tokens = torch.zeros(1, 3, dtype=torch.long)
    assert torch.equal(model(tokens), model(tokens))


# F12


@pytest.fixture(scope="module")
def watched():
    """Every file opened, module imported, process or connection begun, from a clear() on."""
    seen = []
    kinds = ("open", "import", "socket", "subprocess", "os", "urllib")

    def watch(event, arguments):
        if event.split(".")[0] in kinds:
            seen.append((event, arguments[0] if arguments else None))

    sys.addaudithook(watch)
    yield seen
    kinds = ()  # a hook cannot be taken off again


@pytest.mark.parametrize("case", ["gpt2", "llama", "bert", "vit"])
def test_F12_classes_modules_and_addresses_in_a_config_are_not_looked_at(
    with_config, watched, case
):
    folder = with_config(
        case,
        auto_map={"AutoModel": "antigravity--modeling.Evil", "AutoConfig": "this.Config"},
        _name_or_path="http://127.0.0.1:9/model",
        architectures=["os.system"],
        tokenizer_class="antigravity.Tokenizer",
        custom_pipelines={"x": {"impl": "this"}},
        transformers_weights="../../../../etc/passwd",
        model_file="/etc/passwd",
    )
    (folder / "modeling.py").write_text("raise SystemExit('imported')")
    load(folder)  # whatever is imported at first use, is
    watched.clear()
    load(folder)
    events = list(watched)
    opened = {what for event, what in events if event == "open" and not isinstance(what, int)}
    assert opened == {str(folder / "config.json"), str(folder / "model.safetensors")}
    assert {event for event, _ in events} <= {"open", "os.listdir", "os.scandir"}
    assert not {"antigravity", "this"} & sys.modules.keys()

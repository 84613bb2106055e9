"""The oracle: models of `transformers` with random numbers, made once and saved as folders.

Importing the oracle takes seconds and is done once; nothing here uses the network.
"""

import os
import warnings

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

# Their class, its config. Sizes are small and all different.
CASES = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 12, "n_layer": 2, "n_head": 3}),
    "gpt2 untied, wide": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "vocab_size": 31,
            "n_positions": 19,
            "n_embd": 20,
            "n_layer": 3,
            "n_head": 5,
            "n_inner": 14,
            "activation_function": "gelu",
            "layer_norm_epsilon": 1e-2,
            "tie_word_embeddings": False,
        },
    ),
    "gpt2 one odd head, no head's name": (
        "GPT2Model",
        "GPT2Config",
        {"n_embd": 7, "n_layer": 1, "n_head": 1, "activation_function": "relu"},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {"hidden_size": 24, "intermediate_size": 20}),
    "llama grouped, tied": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "vocab_size": 31,
            "hidden_size": 36,
            "intermediate_size": 22,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-3,
            "rope_theta": 500.0,
            "tie_word_embeddings": True,
        },
    ),
    "llama one key head, biases": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "hidden_size": 20,
            "intermediate_size": 9,
            "num_hidden_layers": 1,
            "num_attention_heads": 5,
            "num_key_value_heads": 1,
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "llama slowed down": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "hidden_size": 24,
            "intermediate_size": 20,
            "num_attention_heads": 2,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 70.0, "factor": 2.5},
        },
    ),
    "llama 3": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "hidden_size": 48,
            "intermediate_size": 20,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 40.0,
                "factor": 8.0,
                "low_freq_factor": 0.2,
                "high_freq_factor": 1.5,
                "original_max_position_embeddings": 11,
            },
        },
    ),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"hidden_size": 20, "intermediate_size": 14}),
    "qwen3 tied, biases": (
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {
            "vocab_size": 31,
            "hidden_size": 18,
            "intermediate_size": 22,
            "num_attention_heads": 6,
            "num_key_value_heads": 6,
            "head_dim": 4,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 3.0},
        },
    ),
    "bert": ("BertModel", "BertConfig", {"hidden_size": 12, "intermediate_size": 10}),
    "bert with a head": (
        "BertForMaskedLM",
        "BertConfig",
        {
            "vocab_size": 31,
            "hidden_size": 20,
            "intermediate_size": 14,
            "num_hidden_layers": 3,
            "num_attention_heads": 5,
            "type_vocab_size": 3,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-2,
        },
    ),
    "vit": (
        "ViTForImageClassification",
        "ViTConfig",
        {
            "image_size": 12,
            "patch_size": 4,
            "num_labels": 5,
            "hidden_size": 12,
            "intermediate_size": 10,
        },
    ),
    "vit oblong, grey": (
        "ViTForImageClassification",
        "ViTConfig",
        {
            "image_size": (6, 20),
            "patch_size": (3, 5),
            "num_channels": 1,
            "num_labels": 7,
            "hidden_size": 20,
            "intermediate_size": 14,
            "num_hidden_layers": 3,
            "num_attention_heads": 5,
            "layer_norm_eps": 1e-2,
            "hidden_act": "relu",
        },
    ),
    "vit without a head": (
        "ViTModel",
        "ViTConfig",
        {"image_size": 12, "patch_size": 4, "hidden_size": 12, "intermediate_size": 10},
    ),
}
SIZES = {
    "GPT2Config": {"vocab_size": 23, "n_positions": 17, "bos_token_id": 0, "eos_token_id": 0},
    "LlamaConfig": {
        "vocab_size": 23,
        "max_position_embeddings": 17,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    "Qwen3Config": {
        "vocab_size": 23,
        "max_position_embeddings": 17,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
    },
    "BertConfig": {
        "vocab_size": 23,
        "max_position_embeddings": 17,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
    },
    "ViTConfig": {"num_hidden_layers": 2, "num_attention_heads": 3},
}


@pytest.fixture(scope="session")
def transformers():
    """The oracle, without its warnings and progress bars."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers as oracle

        for model, config, _ in CASES.values():
            getattr(oracle, model), getattr(oracle, config)
    oracle.logging.set_verbosity_error()
    oracle.logging.disable_progress_bar()
    return oracle


class Oracle:
    """A random model of `transformers`, and the folder it was saved in."""

    def __init__(self, oracle, case, folder):
        model, config, values = CASES[case]
        torch.manual_seed(sum(case.encode()))
        settings = getattr(oracle, config)(**SIZES[config] | values)
        self.model = getattr(oracle, model)._from_config(settings, attn_implementation="eager")
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                gain = parameter.ndim == 1 and name.endswith("weight")
                parameter.normal_(mean=float(gain), std=0.5)
        self.model.eval()
        self.kind, self.case, self.folder, self.settings = case.split()[0], case, folder, settings
        self.model.save_pretrained(folder)

    def inputs(self):
        """A batch of pictures or of tokens."""
        generator = torch.Generator().manual_seed(1)
        if self.kind == "vit":
            size = self.settings.image_size
            size = size if isinstance(size, tuple | list) else (size, size)
            return torch.randn(2, self.settings.num_channels, *size, generator=generator)
        return torch.randint(self.settings.vocab_size, (2, 13), generator=generator)


@pytest.fixture(scope="session")
def oracles(transformers, tmp_path_factory):
    """case → Oracle, each made when it is first asked for."""

    class Made(dict):
        def __missing__(self, case):
            self[case] = Oracle(transformers, case, tmp_path_factory.mktemp(case.split()[0]))
            return self[case]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Made()


@pytest.fixture(params=CASES)
def oracle(request, oracles):
    return oracles[request.param]

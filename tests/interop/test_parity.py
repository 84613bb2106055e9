"""Every family against `transformers`: the same numbers, the same attention maps."""

import pytest
import torch

from clearhead.attention import Mask
from clearhead.inspection import record
from clearhead.interop import load, load_bert, load_gpt2, load_llama, load_qwen3, load_vit

LOADERS = {
    "gpt2": load_gpt2,
    "llama": load_llama,
    "qwen3": load_qwen3,
    "bert": load_bert,
    "vit": load_vit,
}
DTYPES = [(torch.float32, 1e-4), (torch.float64, 1e-9)]


def ours(oracle, dtype=torch.float32):
    return LOADERS[oracle.kind](oracle.folder, dtype=dtype)


def as_input(oracle, dtype):
    x = oracle.inputs()
    return x.to(dtype) if x.is_floating_point() else x


@torch.no_grad()
def their_result(oracle, x, dtype):
    """Logits, or what comes before the head where a model has none."""
    model = oracle.model.to(dtype)
    try:
        result = model(x)
        base = getattr(model, "bert", model)
        if oracle.case == "bert with a head":
            return base(x).last_hidden_state
        return result.logits if hasattr(result, "logits") else result.last_hidden_state
    finally:
        model.float()


@torch.no_grad()
def our_result(model, oracle, x):
    if oracle.case == "vit without a head":
        return model.stack(model.embed(x))
    if oracle.case == "gpt2 one odd head, no head's name":
        return model.hidden(x)
    return model(x)


@pytest.fixture
def float64_everywhere(transformers, monkeypatch):
    """Theirs computes softmax, and Llama and Qwen3 also norm and angles, in float32 whatever the
    dtype of the model is. Here it does not, so that the rest can be compared to the last digits."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama import modeling_llama as theirs
    from transformers.models.qwen3 import modeling_qwen3 as qwen3

    def norm(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, True) + self.variance_epsilon)

    def turns(self, x, position_ids):
        kind = self.config.rope_parameters["rope_type"]
        compute = ROPE_INIT_FUNCTIONS.get(kind, type(self).compute_default_rope_parameters)
        with pytest.MonkeyPatch.context() as wide:
            wide.setattr(torch, "float", torch.float64)  # the dtype that their functions name
            steps, _ = compute(self.config)
        angle = (position_ids[..., None] * steps).repeat(1, 1, 2)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)

    softmax = torch.nn.functional.softmax

    def same_dtype_softmax(x, dim, dtype=None):
        return softmax(x, dim)

    for part in (theirs.LlamaRMSNorm, qwen3.Qwen3RMSNorm):
        monkeypatch.setattr(part, "forward", norm)
    for part in (theirs.LlamaRotaryEmbedding, qwen3.Qwen3RotaryEmbedding):
        monkeypatch.setattr(part, "forward", turns)
    monkeypatch.setattr(theirs.nn.functional, "softmax", same_dtype_softmax)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES, ids=["float32", "float64"])
def test_the_numbers_are_those_of_transformers(oracle, dtype, tolerance, request):
    if dtype == torch.float64:
        request.getfixturevalue("float64_everywhere")
    x = as_input(oracle, dtype)
    theirs = their_result(oracle, x, dtype)
    mine = our_result(ours(oracle, dtype), oracle, x)
    assert mine.dtype == theirs.dtype == dtype
    assert mine.shape == theirs.shape
    assert theirs.std() > 0.1  # numbers that could differ
    assert (mine - theirs).abs().max() <= tolerance


def test_attention_maps_are_those_of_transformers(oracle):
    x, model = as_input(oracle, torch.float32), ours(oracle)
    with torch.no_grad(), record(model) as trace:
        model(x)
        theirs = oracle.model(x, output_attentions=True).attentions
    assert len(theirs) == model.config.n_layers
    for n, expected in enumerate(theirs):
        weights = trace[f"stack.blocks.{n}.attention"].weights
        assert weights.shape == expected.shape
        # The scores of these models are large; processors differ in their last digits.
        assert (weights - expected).abs().max() <= 3e-5
    assert theirs[-1].std() > 0.01


def test_load_finds_the_kind_by_itself(oracle):
    loaded, model = load(oracle.folder), ours(oracle)
    assert loaded.report.kind == oracle.kind
    assert loaded.model.config == model.config
    assert loaded.tokenizer is None
    assert not loaded.model.training
    for name, parameter in model.named_parameters():
        assert torch.equal(loaded.model.get_parameter(name), parameter)


def test_every_parameter_has_memory_of_its_own(oracle):
    parameters = list(ours(oracle).parameters())
    storages = {p.untyped_storage().data_ptr() for p in parameters}
    assert len(storages) == len(parameters)
    assert all(p.is_contiguous() and p.requires_grad and not p.is_meta for p in parameters)
    assert all(p.untyped_storage().nbytes() == p.nbytes for p in parameters)


def test_loading_leaves_the_random_generator_alone(oracles):
    oracle = oracles["gpt2"]  # built when first asked for, which draws numbers
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    ours(oracle)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("case", ["gpt2", "llama grouped, tied"])
def test_a_tied_head_is_one_table(oracles, case):
    model = ours(oracles[case])
    assert model.head.weight is model.embedding.weight


@pytest.mark.parametrize("case", ["gpt2", "gpt2 untied, wide", "llama grouped, tied"])
def test_padded_prompts_give_the_numbers_of_transformers(oracles, case):
    oracle = oracles[case]
    x = oracle.inputs()
    real = torch.ones_like(x, dtype=torch.bool)
    real[0, 9:] = False
    with torch.no_grad():
        theirs = oracle.model(x, attention_mask=real.long()).logits
        mine = ours(oracle)(x, token_mask=real)
    assert (mine - theirs)[real].abs().max() <= 1e-4


@pytest.mark.parametrize("case", ["bert", "bert with a head"])
def test_padding_and_types_of_bert(oracles, case):
    oracle = oracles[case]
    x = oracle.inputs()
    real = torch.ones_like(x, dtype=torch.bool)
    real[1, 5:] = False
    types = (torch.arange(13) > 6).long().expand(2, -1)
    base = getattr(oracle.model, "bert", oracle.model)
    with torch.no_grad():
        theirs = base(x, attention_mask=real.long(), token_type_ids=types).last_hidden_state
        mine = ours(oracle)(x, token_mask=real, types=types)
    assert (mine - theirs)[real].abs().max() <= 1e-4


def test_a_sentence_is_the_mean_of_its_tokens_as_sentence_transformers_takes_it(oracles):
    oracle = oracles["bert"]
    x = oracle.inputs()
    real = torch.ones_like(x, dtype=torch.bool)
    real[1, 5:] = False
    with torch.no_grad():
        hidden = oracle.model(x, attention_mask=real.long()).last_hidden_state
        weights = real.unsqueeze(-1).float()
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        expected = torch.nn.functional.normalize(mean, dim=1)
        assert (ours(oracle).sentence(x, real) - expected).abs().max() <= 1e-5


def test_masks_of_ours_work_on_what_was_loaded(oracles):
    """A loaded model is an ordinary one: two packed texts equal each alone."""
    model, x = ours(oracles["llama"]), oracles["llama"].inputs()[:1]
    ids = torch.tensor([[0] * 6 + [1] * 7])
    with torch.no_grad():
        packed = model(x, mask=Mask.segments(ids))
        alone = torch.cat((model(x[:, :6]), model(x[:, 6:])), dim=1)
    assert (packed - alone).abs().max() <= 1e-5

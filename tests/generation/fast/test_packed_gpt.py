"""pack: a snapshot in memory of its own, as large as it says, and a reason where it cannot be."""

import copy
import gc
import os
import subprocess
import sys
import weakref

import pytest
import torch
from language_models import D, V, build, follower, ids
from torch import nn

from clearhead.attention import ArgmaxAttention
from clearhead.data import pad_left
from clearhead.generation import PackedGPT, can_pack, generate, pack, pack_if_it_pays, stream
from clearhead.generation.fast import packed_gpt
from clearhead.generation.fast.layouts import InputMajor, Int8Product, OutputMajor
from clearhead.inspection import record
from clearhead.models.gpt import GPT, GPTConfig

NEW = 12


# A snapshot

PARTS = [
    "embedding.weight",
    "positions.weight",
    "stack.blocks.1.attention.positions.weight",
    "stack.blocks.0.attention.norm_q.weight",
    "stack.blocks.0.attention.norm_k.weight",
    "stack.blocks.0.attention.proj_v.bias",
    "stack.blocks.1.attention.proj_out.weight",
    "stack.blocks.0.norm_attention.gain",
    "stack.blocks.0.norm_attention.shift",
    "stack.blocks.1.feed_forward.proj_in.weight",
    "stack.blocks.1.feed_forward.proj_out.bias",
    "stack.norm.gain",
    "head.weight",
]


def all_logits(steps):
    return torch.stack([step.logits for step in steps])


@pytest.mark.parametrize("weights", ["float", "int8"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("positions", ["learned", "toeplitz"])
def test_a_later_change_of_the_model_does_not_change_the_packed_one(weights, tied, positions):
    tokens = ids(3, 5)
    for part in PARTS:
        model = build(positions=positions, qk_norm=True, tied=tied)
        if part not in model.state_dict():
            continue
        packed = pack(model, weights=weights, n_rows=3)
        expected = all_logits(stream(packed, tokens, NEW, keep_logits=True))
        steps = stream(packed, tokens, NEW, keep_logits=True)
        given = [next(steps)]
        model.state_dict()[part].mul_(-3.0).add_(0.5)
        assert torch.equal(all_logits([*given, *steps]), expected), part  # of an open stream
        assert torch.equal(all_logits(stream(packed, tokens, NEW, keep_logits=True)), expected)
        new = next(stream(pack(model, weights=weights), tokens, NEW, keep_logits=True)).logits
        assert not torch.equal(new, expected[0]), part


def test_a_buffer_that_is_no_parameter_is_copied_too():
    model, tokens = build(positions="alibi"), ids(2, 5)
    packed = pack(model)
    expected = generate(packed, tokens, NEW, temperature=1.0, seed=0)
    model.stack.blocks[1].attention.positions.slopes.mul_(20)
    assert torch.equal(generate(packed, tokens, NEW, temperature=1.0, seed=0), expected)
    assert not torch.equal(generate(pack(model), tokens, NEW, temperature=1.0, seed=0), expected)


def test_the_packed_model_does_not_keep_the_model_alive():
    model = build()
    packed, parts = pack(model), [weakref.ref(model), weakref.ref(model.head.weight)]
    del model
    gc.collect()
    assert [part() for part in parts] == [None, None]
    assert packed.n_bytes > 0


def test_hooks_of_the_model_do_not_run_in_the_packed_one():
    model, tokens, seen = build(qk_norm=True), ids(2, 5), []
    expected = generate(pack(model), tokens, NEW)
    handles = [
        part.register_forward_hook(lambda _m, _in, x: seen.append(x) or 3 * x)
        for part in model.modules()
    ]
    with record(model) as trace:
        packed = pack(model)
    assert torch.equal(generate(packed, tokens, NEW), expected)
    assert (seen, list(trace)) == ([], [])
    for handle in handles:
        handle.remove()


# Memory


def bytes_of(model):
    return sum(x.numel() * x.element_size() for x in [*model.parameters(), *model.buffers()])


SEARCH = V * D + 3 * 4 * V  # best_word: the table in 8 bits, a scale and two norms for each word


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("positions", ["learned", "alibi", "none"])
def test_n_bytes_counts_every_tensor_once(monkeypatch, tied, positions):
    model = build(tied=tied, positions=positions, qk_norm=True)
    for kind, copies in ((OutputMajor, 0), (InputMajor, 1)):  # the latter copies the head's table
        layout = lambda pairs, _rows, kind=kind: [kind(*pair) for pair in pairs]  # noqa: E731
        monkeypatch.setattr(packed_gpt, "choose_layout", layout)
        assert pack(model).n_bytes == bytes_of(model) + SEARCH + copies * 4 * V * D


def test_n_bytes_of_8_bits():
    """A byte for each number of a matrix, 4 for each of its rows; the embedding stays as it is."""
    model = build(positions="none", tied=False)
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rows, numbers = sum(len(p) for p in matrices), sum(p.numel() for p in matrices)
    assert pack(model, weights="int8").n_bytes == bytes_of(model) - 3 * numbers + 4 * rows


GROWTH = """
import os, torch
from clearhead.generation import pack
from clearhead.models import GPT, GPTConfig
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
pack(GPT(GPTConfig(64, 8, 32, 1, 2)))
model = GPT(GPTConfig(8000, 64, 768, n_layers=3, n_heads=8))
before = resident()
packed = pack(model)
print((resident() - before) / packed.n_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_n_bytes_is_what_the_process_grows_by():
    # Every large tensor in pages of its own, so that freed ones go back to the system.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GROWTH]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert float(done.stdout) == pytest.approx(1.0, abs=0.1), done.stderr


# What can be packed


def other_mechanism(model):
    model.stack.blocks[0].attention.mechanism = ArgmaxAttention()
    return "stack.blocks.0.attention.mechanism"


class Linear(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def other_projection_of_the_same_name(model):
    model.stack.blocks[0].attention.proj_v.__class__ = Linear
    return "stack.blocks.0.attention.proj_v"


def a_bias_of_the_head(model):
    model.head = nn.Linear(D, V)
    return "head"


def post_norm(model):
    model.stack.blocks[1].pre_norm = False
    return "stack.blocks.1"


def other_eps(model):
    model.stack.blocks[0].norm_attention.eps = 10.0
    return "stack.blocks.0.norm_attention"


def other_activation(model):
    model.stack.blocks[0].feed_forward.activation = "squared_relu"
    return "stack.blocks.0.feed_forward"


def a_forward_of_its_own(model):
    model.stack.norm.forward = lambda x: x
    return "stack.norm"


def a_part_more(model):
    model.stack.blocks[0].attention.adapter = nn.Linear(D, D)
    return "stack.blocks.0.attention.adapter"


def a_part_less(model):
    model.stack.blocks[0].attention.norm_q = None
    return "stack.blocks.0.attention.norm_q"


CHANGES = [
    other_mechanism,
    other_projection_of_the_same_name,
    a_bias_of_the_head,
    post_norm,
    other_eps,
    other_activation,
    a_forward_of_its_own,
    a_part_more,
    a_part_less,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_part_is_refused_by_its_name_and_runs_by_the_model_itself(change):
    model, tokens = build(qk_norm=True), ids(2, 5)
    name = change(model)
    assert not can_pack(model)
    words = f"its part '{name}' is not the one its config builds; put that back, or generate with"
    with pytest.raises(ValueError, match=words):
        pack(model)
    if change is not a_part_less:
        expected = generate(model, tokens, NEW, cache=False)
        assert torch.equal(generate(model, tokens, NEW), expected)


class Other(GPT):
    pass


def two_precisions():
    model = build()
    model.stack.norm.double()
    return model


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: nn.Linear(2, 2), TypeError, "model must be a GPT to be packed, got Linear"),
        (lambda: None, TypeError, "model must be a GPT to be packed, got NoneType"),
        (lambda: pack(build()), TypeError, "model must be a GPT to be packed, got PackedGPT"),
        (lambda: Other(build().config), ValueError, "it is a Other; build a GPT with its weights"),
        (
            lambda: build(torch.bfloat16),
            ValueError,
            r"its weights are bfloat16; convert all of them with model\.float\(\), or generate",
        ),
        (two_precisions, ValueError, "its weights are float32 and float64; convert all of them"),
        (
            lambda: build().to("meta"),
            ValueError,
            r"it is on meta; move it to the CPU with model\.cpu\(\), or generate with the model",
        ),
    ],
    ids=["Linear", "None", "packed", "subclass", "bfloat16", "two precisions", "device"],
)
def test_what_cannot_be_packed_is_refused_with_the_reason_and_the_way_out(make, kind, words):
    model = make()
    with pytest.raises(kind, match=words):
        pack(model)
    assert not can_pack(model)


def test_wrong_arguments_are_refused_by_their_names():
    with pytest.raises(ValueError, match="weights must be one of 'float', 'int8', got 'int4'"):
        pack(build(), weights="int4")
    with pytest.raises(ValueError, match="n_rows must be at least 1, got 0"):
        pack(build(), n_rows=0)


def test_modes_dropout_and_frozen_parameters_do_not_matter():
    tokens = ids(1, 5)
    expected = generate(build(), tokens, NEW)
    frozen = copy.deepcopy(build()).requires_grad_(False)
    for model in (build().train(), build(dropout=0.1).train(), frozen, build(torch.float64)):
        assert can_pack(model)
        assert pack(model).config == model.config
    with torch.inference_mode():
        packed = pack(build())
    assert torch.equal(generate(packed, tokens, NEW), expected)


def test_a_model_is_packed_where_it_pays():
    model, tokens = build(), ids(2, 5)
    assert pack_if_it_pays(model, packed_gpt.WORTH_PACKING - 1) is model
    packed = pack_if_it_pays(model, packed_gpt.WORTH_PACKING, n_rows=2)
    assert isinstance(packed, PackedGPT)
    assert torch.equal(generate(packed, tokens, NEW), generate(model, tokens, NEW))
    half = build(torch.bfloat16)
    assert pack_if_it_pays(half, 1000) is half


# Eight bits


def test_8_bits_give_nearly_the_same_logits_and_mostly_the_same_words():
    # As trained models are: numbers of one size, some words clearly before the others.
    model, tokens = build(d_model=96, n_heads=6, std=0.15, vocab_size=200), ids(4, 6)
    exact = list(stream(model, tokens, NEW, keep_logits=True))
    packed = pack(model, weights="int8")
    rough = list(stream(packed, tokens, NEW, keep_logits=True))
    one, other = exact[0].logits, rough[0].logits  # of the prompt, before any word differs
    assert not torch.equal(one, other)
    assert float((one - other).norm() / one.norm()) < 0.03
    assert int((exact[0].tokens == rough[0].tokens).sum()) >= 3
    made = torch.stack([step.tokens for step in rough], dim=1)
    assert torch.equal(made, generate(packed, tokens, NEW)[:, 6:])


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "toeplitz"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.8}], ids=["greedy", "drawn"])
def test_8_bits_in_a_batch_are_the_8_bits_of_a_row_alone(positions, options):
    packed = pack(build(positions=positions, n_kv_heads=2), weights="int8", n_rows=5)
    rows = [ids(n, seed=n).tolist() for n in (3, 9, 1, 6)]
    tokens, real = pad_left(rows, 5)
    made = generate(packed, tokens, NEW, token_mask=real, seed=4, **options)
    for r, row in enumerate(rows):
        alone = generate(packed, torch.tensor([row]), NEW, seed=4 + r, **options)
        assert torch.equal(made[r, 9 - len(row) :], alone[0])


def test_8_bits_are_not_the_same_numbers_and_float64_has_them_too():
    for dtype in (torch.float32, torch.float64):
        model, tokens = build(dtype), ids(1, 5)
        (exact,) = stream(model, tokens, 1, keep_logits=True)
        (rough,) = stream(pack(model, weights="int8"), tokens, 1, keep_logits=True)
        assert rough.logits.dtype == dtype
        assert not torch.allclose(exact.logits, rough.logits, atol=1e-4)


def test_the_table_of_words_is_in_8_bits_too():
    model, table = follower(list(range(19))), torch.randn(19, 19)
    model.head.weight.data.copy_(table)
    tokens = torch.tensor([[4], [7]])
    (rough,) = stream(pack(model, weights="int8"), tokens, 1, keep_logits=True)
    assert torch.equal(rough.logits, Int8Product(table, None)(torch.eye(19)[[4, 7]]))
    assert not torch.allclose(rough.logits, table.mT[[4, 7]], rtol=0, atol=1e-4)


# The start

IMPORTS = """
import sys, torch
from clearhead.generation import generate, pack
from clearhead.models import GPT, GPTConfig
model = GPT(GPTConfig(vocab_size=50, max_len=40, d_model=32, n_layers=2, n_heads=4)).eval()
before = len(sys.modules)
generate(pack(model), torch.zeros(1, 3, dtype=torch.long), 20)
print(len(sys.modules) - before)
"""


def test_the_first_word_waits_for_no_imports():
    """Some of what torch can do imports hundreds of modules, for seconds."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=120
    )
    assert int(done.stdout) < 50, done.stderr


def test_a_gpt_whose_config_builds_another_attention_is_not_packed():
    """The packed form computes dot-product attention; its text would be another."""

    class BestConfig(GPTConfig):
        def build_mechanism(self):
            return ArgmaxAttention()

    model = GPT(BestConfig(V, 8, D, n_layers=1, n_heads=2)).eval()
    assert not can_pack(model)
    with pytest.raises(ValueError, match="its config is a BestConfig; give it a GPTConfig"):
        pack(model)

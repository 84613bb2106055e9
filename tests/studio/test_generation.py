"""The Generate view: the same tokens as generate, the same numbers as the model."""

import math
from itertools import pairwise

import pytest
import torch
from text_models import MAX_LEN, RandomSources, V, run_python

from clearhead.generation import Sampling, generate, likely
from clearhead.inspection import ablate, logit_lens
from clearhead.studio.views.changes import Change
from clearhead.studio.views.generation import expand, show_next, start_text, write
from clearhead.studio.views.lens import read_lens
from clearhead.studio.views.writers import MAX_CHARACTERS, name_tokens

GPTS = ["gpt", "llama", "alibi"]
PROMPT = [0, 3, 1, 2]
SETTINGS = [
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 1.7, "top_k": 3, "seed": 6},
    {"temperature": 0.9, "top_p": 0.8, "seed": 7},
]
SILENCE = Change("silence", layer=1, head=2)
CHANGES = [
    SILENCE,
    Change("silence", layer=0, head=1, by="mean"),
    Change("sharpen", layer=0, factor=3.0),
    Change("mask", layer=0, head=0, cells=[(3, 0), (2, 1)]),
    Change("patch", layer=0, head=1, from_tokens=[4, 1, 2, 5]),
    Change("patch", layer=0, head=1, position=2, from_tokens=[4, 1, 2, 5, 3, 3, 1]),
]


@pytest.fixture(scope="module")
def models():
    return RandomSources([])


def read(model, tokens):
    """Logits (T, V) by the model itself."""
    with torch.no_grad():
        return model(torch.tensor([tokens]))[0]


# The same tokens as generate


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", GPTS)
def test_next_again_and_again_gives_the_tokens_of_generate(models, name, settings):
    tokens = list(PROMPT)
    for _ in range(9):
        answer = show_next(models, name, tokens, n_prompt=len(PROMPT), **settings)
        tokens.append(answer["chosen"]["id"])
    model = models.open(name).model
    assert tokens == generate(model, torch.tensor([PROMPT]), 9, **settings)[0].tolist()


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("n_taken", [0, 1, 4])
def test_write_continues_where_next_stands(models, settings, n_taken):
    whole = generate(models.open("llama").model, torch.tensor([PROMPT]), 9, **settings)
    taken = whole[0, : len(PROMPT) + n_taken].tolist()
    steps = list(write(models, "llama", taken, 9 - n_taken, n_prompt=len(PROMPT), **settings))
    assert taken + [step["token"]["id"] for step in steps] == whole[0].tolist()
    assert [step["is_last"] for step in steps] == [False] * (len(steps) - 1) + [True]
    assert steps[-1]["n_tokens"] == whole.size(1)


def test_draws_on_another_branch_are_the_same(models):
    draws = [
        show_next(models, "gpt", [*PROMPT, branch], n_prompt=len(PROMPT), seed=3)["draw"]
        for branch in range(V)
    ]
    assert len(set(draws)) == 1
    assert draws[0] != show_next(models, "gpt", PROMPT, seed=3)["draw"]


def test_a_draw_falls_into_the_interval_of_the_token_it_chooses(models):
    for seed in range(20):
        answer = show_next(models, "gpt", PROMPT, temperature=1.3, seed=seed)
        chosen = answer["chosen"]
        start = chosen["before"]
        assert start <= answer["draw"] <= start + chosen["likely"] + 1e-6
    assert show_next(models, "gpt", PROMPT, temperature=0.0)["draw"] is None


def test_open_streams_do_not_disturb_each_other(models):
    def begin(seed):
        return write(models, "gpt", PROMPT, 8, seed=seed, changes=[SILENCE] * (seed % 2))

    alone = [[step["token"]["id"] for step in begin(seed)] for seed in range(4)]
    together = zip(*(begin(seed) for seed in range(4)), strict=True)
    ids = [[step["token"]["id"] for step in steps] for steps in together]
    assert [list(row) for row in zip(*ids, strict=True)] == alone


def test_a_text_ends_with_the_token_that_ends_texts(sources):
    tokenizer = sources.open("dialogue-0001").tokenizer
    prompt = start_text(sources, "dialogue-0001", "the")["tokens"]
    assert tokenizer.end_id not in prompt
    for seed in range(40):
        steps = list(write(sources, "dialogue-0001", prompt, 100, seed=seed, temperature=1.5))
        ids = [step["token"]["id"] for step in steps]
        ends = {tokenizer.end_id, tokenizer.start_id}
        assert not ends & set(ids[:-1])
        if ids[-1] in ends:
            assert len(ids) < 100
            return
    pytest.fail("no text ended")


# The same numbers as the model


@pytest.mark.parametrize("name", GPTS)
def test_bars_are_probabilities_of_the_model_before_and_after_sampling(models, name):
    settings = {"temperature": 0.7, "top_k": 4, "top_p": 0.9}
    answer = show_next(models, name, PROMPT, n_shown=5, **settings)
    logits = read(models.open(name).model, PROMPT)
    probs, after = logits[-1].softmax(-1), likely(logits[-1:], Sampling(**settings))[0]
    assert answer["ids"] == probs.topk(5).indices.tolist()
    torch.testing.assert_close(answer["probs"], probs.topk(5).values)
    torch.testing.assert_close(answer["likely"], after[answer["ids"]])
    torch.testing.assert_close(answer["logits"], logits[-1][answer["ids"]])
    assert answer["n_possible"] == int((after > 0).sum()) < V
    assert answer["vocab_size"] == V
    assert answer["entropy"] == pytest.approx(-(probs * probs.log2()).sum().item(), rel=1e-5)
    assert answer["likely_entropy"] < answer["entropy"]


def test_surprise_is_the_information_in_bits(models):
    logits = read(models.open("gpt").model, PROMPT)
    surprise = show_next(models, "gpt", PROMPT)["surprise"]
    assert math.isnan(surprise[0])
    for i, (_, token) in enumerate(pairwise(PROMPT)):
        expected = -math.log2(logits[i].softmax(-1)[token])
        assert surprise[i + 1].item() == pytest.approx(expected, rel=1e-5)


def test_branches_have_the_probabilities_of_the_model_two_levels_deep(models):
    model = models.open("gpt").model
    branches = expand(models, "gpt", PROMPT, n_branches=3)["branches"]
    probs = read(model, PROMPT)[-1].softmax(-1)
    assert [branch["id"] for branch in branches] == probs.topk(3).indices.tolist()
    for branch in branches:
        assert branch["prob"] == pytest.approx(probs[branch["id"]].item(), rel=1e-5)
        assert branch["log_prob"] == pytest.approx(math.log(branch["prob"]))
        following = read(model, [*PROMPT, branch["id"]])[-1].softmax(-1)
        assert [each["id"] for each in branch["branches"]] == following.topk(3).indices.tolist()
        for each in branch["branches"]:
            assert each["prob"] == pytest.approx(following[each["id"]].item(), rel=1e-5)


def test_branches_of_a_full_context_are_one_level_deep(models):
    branches = expand(models, "gpt", [1] * MAX_LEN)["branches"]
    assert ["branches" in branch for branch in branches] == [False] * 3


@pytest.mark.parametrize("position", [None, 0, 2])
@pytest.mark.parametrize("name", GPTS)
def test_the_lens_is_that_of_inspection(models, name, position):
    answer = read_lens(models, name, PROMPT, position, n_shown=4)
    place = 3 if position is None else position
    probs = logit_lens(models.open(name).model, torch.tensor([PROMPT]))[:, 0, place].softmax(-1)
    assert probs.shape == (3, V)
    assert answer["ids"].tolist() == probs.topk(4).indices.tolist()
    torch.testing.assert_close(answer["probs"], probs.topk(4).values)
    torch.testing.assert_close(answer["entropy"], -(probs * probs.log2()).sum(-1))
    assert answer["answer"]["id"] == int(probs[-1].argmax())
    torch.testing.assert_close(answer["answer_probs"], probs[:, answer["answer"]["id"]])


# The cache


class Counter:
    """Counts the keys and values that a model computes."""

    def __init__(self, model):
        self.n = 0
        layers = [block.attention for block in model.stack.blocks]
        projections = [part for each in layers for part in (each.proj_k, each.proj_v)]
        self.hooks = [part.register_forward_hook(self.count) for part in projections]

    def count(self, module, inputs, output):
        self.n += output.numel()

    def stop(self):
        for hook in self.hooks:
            hook.remove()
        return self.n


@pytest.mark.parametrize("name", GPTS)
def test_numbers_with_and_without_a_cache_are_those_that_the_model_computes(models, name):
    n_new, model = 5, models.open(name).model
    text = generate(model, torch.tensor([PROMPT]), n_new)[0].tolist()
    shown = show_next(models, name, text, n_prompt=len(PROMPT))["cache"]
    for cache, word in ((True, "with"), (False, "without")):
        counter = Counter(model)
        generate(model, torch.tensor([PROMPT]), n_new + 1, cache=cache)  # the last one reads all
        assert counter.stop() == shown[word]
    heads = 2 if name == "llama" else 4
    width = 6 if name == "llama" else 3
    assert (shown["heads"], shown["d_head"], shown["bytes_per_number"]) == (heads, width, 4)
    assert shown["bytes"] == [len(text) * 2 * heads * width * 4] * 2
    python = run_python(shown)
    assert python["kept"] == shown["bytes"]
    assert (python["computed"], python["without"]) == (shown["with"], shown["without"])


# Changes


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.kind)
def test_a_change_holds_while_a_token_is_computed_and_no_longer(models, change):
    before = show_next(models, "gpt", PROMPT)["probs"]
    changed = show_next(models, "gpt", PROMPT, changes=[change])
    assert not torch.allclose(changed["probs"], before)
    steps = write(models, "gpt", PROMPT, 3, temperature=0.0, changes=[change])
    next(steps)  # and the stream stays open
    assert torch.equal(show_next(models, "gpt", PROMPT)["probs"], before)
    assert next(steps)["n_tokens"] == len(PROMPT) + 2


def test_writing_with_a_silent_head_is_generating_with_it_ablated(models):
    model = models.open("llama").model
    steps = write(models, "llama", PROMPT, 10, seed=1, changes=[SILENCE])
    found = [step["token"]["id"] for step in steps]
    prompt = torch.tensor([PROMPT])
    with ablate(model, 1, 2):
        expected = generate(model, prompt, 10, temperature=1.0, seed=1)[0, len(PROMPT) :]
    assert found == expected.tolist()
    assert found != generate(model, prompt, 10, temperature=1.0, seed=1)[0, len(PROMPT) :].tolist()


def test_a_patch_of_all_positions_leaves_new_tokens_as_they_are(models):
    other, text = [4, 1, 2, 5], [*PROMPT, 5]
    changes = [Change("patch", layer="stack.blocks.1", from_tokens=other)]
    whole = show_next(models, "gpt", PROMPT, changes=changes)["probs"]
    torch.testing.assert_close(whole, show_next(models, "gpt", other)["probs"])
    longer = show_next(models, "gpt", text, changes=changes)
    torch.testing.assert_close(longer["probs"], show_next(models, "gpt", text)["probs"])
    for branch in expand(models, "gpt", PROMPT, changes=changes)["branches"]:
        following = show_next(models, "gpt", [*PROMPT, branch["id"]])
        assert branch["branches"][0]["prob"] == pytest.approx(float(following["probs"][0]))
    assert len(list(write(models, "gpt", PROMPT, 3, changes=changes))) == 3
    assert read_lens(models, "gpt", text, changes=changes)["position"] == 4
    with pytest.raises(ValueError, match="the other text has 4 tokens and this one 3"):
        show_next(models, "gpt", PROMPT[:3], changes=changes)


# Copy as Python


@pytest.mark.parametrize("changes", [[], *([change] for change in CHANGES)], ids=str)
def test_the_python_of_the_next_token_gives_its_numbers(models, changes):
    text = [*PROMPT, 4, 2]
    settings = {"temperature": 0.8, "top_k": 5, "top_p": 0.95, "seed": 9}
    answer = show_next(models, "gpt", text, n_prompt=4, changes=changes, **settings)
    python = run_python(answer)
    ids = answer["ids"]
    torch.testing.assert_close(answer["probs"], python["probs"][ids])
    torch.testing.assert_close(answer["likely"], python["after"][ids])
    torch.testing.assert_close(answer["surprise"][1:], python["surprise"])
    assert answer["entropy"] == pytest.approx(python["entropy"].item(), rel=1e-5)
    assert answer["draw"] == python["draws"][-1].item()
    assert answer["chosen"]["id"] == int(python["chosen"])


@pytest.mark.parametrize("changes", [[], *([change] for change in CHANGES)], ids=str)
def test_the_python_of_branches_gives_their_numbers(models, changes):
    answer = expand(models, "gpt", PROMPT, 2, changes=changes)
    python = run_python(answer)
    first = [branch["prob"] for branch in answer["branches"]]
    assert first == pytest.approx(python["first"].values.tolist(), rel=1e-5)
    second = [[each["prob"] for each in branch["branches"]] for branch in answer["branches"]]
    torch.testing.assert_close(torch.tensor(second), python["second"].values)
    full = run_python(expand(models, "gpt", [1] * MAX_LEN))
    assert "second" not in full


@pytest.mark.parametrize("changes", [[], *([change] for change in CHANGES)], ids=str)
@pytest.mark.parametrize("n_taken", [0, 2])
def test_the_python_of_a_text_gives_its_tokens(models, changes, n_taken):
    text = PROMPT + [5] * n_taken
    settings = {"temperature": 1.2, "top_k": 6, "seed": 4}
    steps = list(write(models, "gpt", text, 6, n_prompt=4, changes=changes, **settings))
    python = run_python(steps[0])
    assert python["tokens"][0].tolist() == text + [step["token"]["id"] for step in steps]
    assert all("python" not in step for step in steps[1:])


@pytest.mark.parametrize("n_prompt", [2, 1])
def test_the_python_of_a_text_stops_where_it_does(sources, n_prompt):
    prompt = start_text(sources, "dialogue-0001", "the")["tokens"]
    settings = {"n_prompt": n_prompt, "temperature": 1.5}
    for seed in range(40):
        steps = list(write(sources, "dialogue-0001", prompt, 60, seed=seed, **settings))
        if len(steps) < 60:
            break
    text = run_python(steps[0])["tokens"][0].tolist()
    assert text == prompt + [step["token"]["id"] for step in steps]
    assert len(steps) < 60


@pytest.mark.parametrize("changes", [[], *([change] for change in CHANGES)], ids=str)
def test_the_python_of_the_lens_gives_its_numbers(models, changes):
    answer = read_lens(models, "llama", PROMPT, 2, 3, changes=changes)
    python = run_python(answer)
    assert python["best"].indices.tolist() == answer["ids"].tolist()
    torch.testing.assert_close(answer["probs"], python["best"].values)


# Names of tokens, and wrong input


def test_a_token_is_named_by_its_text_and_an_id_without_text_by_its_number(models, sources):
    answer = start_text(models, "gpt", "a|d")
    assert answer == {"tokens": [0, 1, 5, 4], "names": ["[CLS]", "a", "|", "d"]}
    assert show_next(models, "gpt", PROMPT, n_shown=V)["labels"].count("#6") == 1
    tokenizer = sources.open("dialogue-0001").tokenizer
    assert name_tokens(tokenizer, [2, 4, 8]) == ["<unk>", "\n", "the"]
    assert name_tokens(None, [3]) == ["#3"]


WRONG = [
    (start_text, {"text": "abz"}, "text has 'z' at index 2"),
    (start_text, {"text": "a" * 20}, "text has 21 tokens, but the model reads at most 19"),
    (start_text, {"text": "a" * (MAX_CHARACTERS + 1)}, "text has 200,001 characters"),
    (show_next, {"tokens": []}, "tokens is empty; the model reads 1 to 19 tokens"),
    (show_next, {"tokens": [1] * 20}, "tokens has 20 tokens, but the model reads at most 19"),
    (show_next, {"tokens": [1, 7]}, "is 7, but ids go from 0 to 6"),
    (show_next, {"tokens": [1], "n_prompt": 2}, "n_prompt must be at most 1, got 2"),
    (show_next, {"tokens": [1], "n_prompt": 0}, "n_prompt must be at least 1"),
    (show_next, {"tokens": [1], "temperature": -1.0}, "temperature must be a finite number"),
    (show_next, {"tokens": [1], "top_k": 0}, "top_k must be at least 1"),
    (show_next, {"tokens": [1], "top_p": 1.5}, "top_p must be a finite number from 0 to 1"),
    (show_next, {"tokens": [1], "seed": 2**63 - 1}, "seed must fit 64 bits"),
    (show_next, {"tokens": [1], "n_shown": 51}, "n_shown must be at most 50"),
    (expand, {"tokens": [1], "n_branches": 7}, "n_branches must be at most 6"),
    (write, {"tokens": [1] * 4, "n_tokens": 16}, "max_len is 19; ask for at most 15"),
    (write, {"tokens": [1] * 4, "n_tokens": -1}, "n_tokens must not be negative"),
    (read_lens, {"tokens": [1], "position": 1}, "position must be at most 0"),
]


@pytest.mark.parametrize(("question", "arguments", "words"), WRONG)
def test_a_wrong_argument_is_named(models, question, arguments, words):
    with pytest.raises(ValueError, match=words):
        question(models, "gpt", **arguments)


def test_a_model_that_writes_no_text_is_refused(models):
    with pytest.raises(ValueError, match="'classes' is a SequenceClassifier, which writes no text"):
        show_next(models, "classes", [1])


def test_no_question_leaves_the_model_in_another_mode(models):
    model = models.open("gpt").model
    list(write(models, "gpt", PROMPT, 2, changes=[SILENCE]))
    assert not model.training
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert all(not module._forward_hooks for module in model.modules())

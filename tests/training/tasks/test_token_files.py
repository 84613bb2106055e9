"""The next token of a token file: every window once, for any readers; the loss of a text."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import BytePairTokenizer, CharTokenizer, write_token_file
from clearhead.files import BadFile
from clearhead.models import GPT, GPTConfig
from clearhead.runs import load_run, train
from clearhead.training import Recipe, TrainingConfig
from clearhead.training.recipe import with_changes
from clearhead.training.state import DataOrder, State
from clearhead.training.tasks import token_files
from clearhead.training.tasks.characters import CharacterData, CharacterTask
from clearhead.training.tasks.token_files import TokenFileTask

TEXT = "".join(chr(ord("a") + (i * i + i // 7) % 11) for i in range(523))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "play.tokens"
    tokenizer = CharTokenizer.of(TEXT, cls=None)
    write_token_file(path, tokenizer, [tokenizer.encode(TEXT)], shard_tokens=100)
    return path


@pytest.fixture(scope="module")
def task(path):
    return CharacterData(str(path), 7).open()


def in_memory(context=7):
    return CharacterTask(CharacterData("play.txt", context), TEXT)


def model_of(task):
    torch.manual_seed(0)
    return GPT(task.complete(GPTConfig(1, 5, 12, n_layers=1, n_heads=3)))


def test_the_path_tells_a_token_file_from_a_text(path, task):
    assert isinstance(task, TokenFileTask)
    assert isinstance(CharacterData(f"{path}/", 7).open(), TokenFileTask)
    assert task.n_examples == in_memory().n_examples == 67
    assert task.fingerprint == task.tokens.fingerprint
    config = task.complete(GPTConfig(1, 5, 12, n_layers=1, n_heads=3))
    assert (config.vocab_size, config.max_len) == (11, 7)


@given(st.integers(0, 50), st.integers(0, 30), st.integers(1, 40))
def test_an_epoch_takes_windows_that_do_not_overlap_each_once(task, seed, epoch, batch_size):
    plans = task.plans(seed, epoch, batch_size)
    starts = [start for plan in plans for start in plan]
    ordered = sorted(starts)
    assert len(starts) == 67
    assert all(later - start == 7 for start, later in pairwise(ordered))
    assert ordered[0] >= 0
    assert ordered[-1] + 7 < 470  # the last token of the training part has no token after it
    assert starts != ordered
    assert {len(plan) for plan in plans[:-1]} <= {batch_size}


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 9))
def test_T26_any_number_of_readers_share_an_epoch_in_the_same_order(task, batch_size, n, other):
    """Reader r of n takes plans r, r + n, …; another batch size changes the cuts alone."""
    whole = [start for plan in task.plans(3, 2, batch_size) for start in plan]
    plans = [None] * len(task.plans(3, 2, batch_size))
    for reader in range(n):
        plans[reader::n] = task.plans(3, 2, batch_size)[reader::n]
    assert [start for plan in plans for start in plan] == whole
    assert [start for plan in task.plans(3, 2, other) for start in plan] == whole


def test_epochs_and_seeds_have_other_orders_and_offsets(task):
    firsts = {(seed, epoch): task.plans(seed, epoch, 8)[0] for seed in (0, 1) for epoch in (0, 1)}
    assert len(set(map(tuple, firsts.values()))) == 4
    offsets = {min(min(plan) for plan in task.plans(0, epoch, 8)) for epoch in range(40)}
    assert offsets == {0}  # 470 tokens leave room for no other offset


def test_an_offset_is_that_of_a_text_in_memory(path):
    file, text = CharacterData(str(path), 6).open(), in_memory(6)
    for epoch in range(9):
        starts = [
            sorted(s for plan in each.plans(4, epoch, 8) for s in plan) for each in (file, text)
        ]
        assert starts[0] == starts[1]


def test_a_batch_is_tokens_and_the_tokens_after_them(task):
    batch, expected = task.batch([3, 96, 0]), in_memory().batch([3, 96, 0])  # 96: two shards
    assert torch.equal(batch.inputs, expected.inputs)
    assert torch.equal(batch.targets, expected.targets)
    assert batch.inputs.dtype == torch.long
    assert batch.targets.is_contiguous()


def test_evaluation_is_the_mean_over_windows_spread_over_the_validation_part(task, monkeypatch):
    model = model_of(task).eval()

    def mean(starts):
        batch = task.batch(starts)
        with torch.no_grad():
            return float(task.loss(model, batch))

    everything = [470 + 7 * i for i in range(7)]  # 53 tokens: 7 windows and the token after
    assert task.eval_starts == everything
    assert task.evaluate(model)["val_loss"] == pytest.approx(mean(everything), rel=1e-5)
    monkeypatch.setattr(token_files, "EVAL_TOKENS", 3 * 7 + 2)
    assert task.eval_starts == [470, 484, 498]
    assert task.evaluate(model)["val_loss"] == pytest.approx(mean([470, 484, 498]), rel=1e-5)
    monkeypatch.setattr(token_files, "EVAL_TOKENS", 1)
    assert task.eval_starts == [470]


def test_overfitting_learns_and_measures_the_same_few_windows(path):
    made = CharacterData(str(path), 7).open().overfit(3)
    assert made.n_examples == 3
    assert sorted(start for plan in made.plans(0, 0, 2) for start in plan) == [0, 7, 14]
    assert sorted(made.eval_starts) == [0, 7, 14]


def test_samples_and_the_next_command_begin_with_the_validation_part(task, tmp_path):
    text = in_memory()
    model = model_of(task)
    assert torch.equal(task.opening, text.opening)
    assert task.sample(model) == text.sample(model)
    assert task.next_command(tmp_path) == text.next_command(tmp_path)
    assert task.baseline() == {}
    assert task.learned_from == "67 windows of 7 tokens, cut at other places in every epoch"
    assert task.measured_on == "7 windows of the last 53 tokens, which it did not learn from"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"context": 60}, "523 tokens, too few for windows of 60; pack a longer text or take"),
        ({"byte_pairs": 300}, r"byte_pairs is for a text, but .*play\.tokens holds tokens"),
        ({"validation": 0.0}, "validation between 0 and 1"),
    ],
)
def test_settings_that_make_no_windows_are_refused(path, settings, words):
    with pytest.raises(ValueError, match=words):
        CharacterData(str(path), **settings).open()


def test_an_id_the_model_does_not_have_is_a_sentence_not_an_index_error(tmp_path):
    tokenizer = CharTokenizer("abcd", cls=None)
    write_token_file(tmp_path / "x.tokens", tokenizer, [[0, 1, 2, 3] * 30])
    with open(tmp_path / "x.tokens" / "tokens-00000.bin", "r+b") as file:
        file.seek(20)
        file.write(b"\xff\xff")
    made = CharacterData(str(tmp_path / "x.tokens"), 5).open()
    with pytest.raises(BadFile, match="holds the id 65,535 at place 10, but its ids go from 0 to"):
        made.batch([0, 7])


def recipe(path):
    model = GPTConfig(1, 5, 12, n_layers=1, n_heads=3)
    training = TrainingConfig(steps=4, batch_size=3, eval_every=2, save_every=2)
    return Recipe("tokens", CharacterData(str(path), 7, sample_length=20), model, training)


def test_a_run_learns_from_a_token_file_and_needs_it_no_more(tmp_path):
    tokenizer = BytePairTokenizer.train([TEXT], 270)
    write_token_file(tmp_path / "x.tokens", tokenizer, [tokenizer.encode(TEXT)])
    result = train(recipe(tmp_path / "x.tokens"), tmp_path / "runs", device="cpu")
    assert math.isfinite(result.metrics["val_loss"])
    (tmp_path / "x.tokens").rename(tmp_path / "y.tokens")
    run = load_run(result.run)
    assert run.tokenizer == tokenizer
    assert isinstance(run.predict("abc")["answer"], str)
    with pytest.raises(BadFile, match=r"x\.tokens.*is not there"):
        run.evaluate()
    (tmp_path / "y.tokens").rename(tmp_path / "x.tokens")
    assert load_run(result.run).evaluate() == pytest.approx(result.metrics)


def test_T24_a_token_file_with_one_other_token_is_not_that_of_the_run(tmp_path):
    tokenizer = CharTokenizer.of(TEXT, cls=None)
    ids = tokenizer.encode(TEXT)
    write_token_file(tmp_path / "x.tokens", tokenizer, [ids])
    result = train(recipe(tmp_path / "x.tokens"), tmp_path / "runs", device="cpu")
    (tmp_path / "x.tokens").rename(tmp_path / "old.tokens")
    write_token_file(tmp_path / "x.tokens", tokenizer, [[*ids[:-1], (ids[-1] + 1) % 11]])
    with pytest.raises(BadFile, match="have changed since it was trained"):
        load_run(result.run).evaluate()


def test_a_run_stopped_anywhere_in_an_epoch_goes_on_with_the_next_window(task):
    whole, state = DataOrder(task, 7, 4), State()
    order = [whole.next(state) for _ in range(40)]
    state = State()
    first = DataOrder(task, 7, 4)
    seen = [first.next(state) for _ in range(11)]
    again = DataOrder(task, 7, 4)
    assert seen + [again.next(state) for _ in range(29)] == order
    assert state.epoch == 2


def test_the_recipe_for_texts_takes_a_token_file(path):
    changed = with_changes(recipe("play.txt"), [f"data.path={path}"])
    assert isinstance(changed.data.open(), TokenFileTask)

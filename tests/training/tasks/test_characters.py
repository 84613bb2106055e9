"""The next character of a text: every window once, the whole validation part, counting beside."""

import math
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.files import BadFile
from clearhead.models import GPT, GPTConfig
from clearhead.training.tasks.characters import CharacterData, CharacterTask, cut_windows

TEXT = "".join(chr(ord("a") + (i * i + i // 7) % 11) for i in range(523))


def task(context=7, text=TEXT, **settings):
    return CharacterTask(CharacterData("play.txt", context, **settings), text)


def model_of(task):
    torch.manual_seed(0)
    return GPT(task.complete(GPTConfig(1, 5, 12, n_layers=1, n_heads=3)))


def test_the_text_is_cut_once_into_training_and_validation():
    made = task()
    ids = torch.tensor(made.tokenizer.encode(TEXT))
    assert torch.equal(torch.cat([made.train, made.validation]), ids)
    assert len(made.train) == 470


@given(st.integers(0, 50), st.integers(0, 30), st.integers(1, 40))
def test_an_epoch_takes_windows_that_do_not_overlap_each_once(seed, epoch, batch_size):
    made = task()
    starts = [start for plan in made.plans(seed, epoch, batch_size) for start in plan]
    ordered = sorted(starts)
    assert len(starts) == made.n_examples == 67
    assert all(later - start == 7 for start, later in pairwise(ordered))
    assert ordered[0] >= 0
    assert ordered[-1] + 7 < len(made.train)  # the last character has one after it


def test_windows_start_elsewhere_in_another_epoch_and_order():
    made = task(context=5)
    one, other = made.plans(0, 0, 8), made.plans(0, 1, 8)
    assert one == made.plans(0, 0, 8)
    assert {s % 5 for plan in one for s in plan} != {s % 5 for plan in other for s in plan} or (
        one != other
    )


def test_a_batch_is_characters_and_the_characters_after_them():
    made = task()
    batch = made.batch([3, 20])
    assert made.tokenizer.decode(batch.inputs[0]) == TEXT[3:10]
    assert made.tokenizer.decode(batch.targets[0]) == TEXT[4:11]
    assert made.tokenizer.decode(batch.targets[1]) == TEXT[21:28]


def test_evaluation_is_the_mean_over_every_character_but_the_first():
    made = task()
    model = model_of(made).eval()
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(made.validation) - 1, 7):
            piece = made.validation[start : start + 8]
            log_probs = model(piece[None, :-1])[0].log_softmax(-1)
            total -= float(log_probs.gather(1, piece[1:, None]).sum())
    expected = total / (len(made.validation) - 1)
    assert made.evaluate(model)["val_loss"] == pytest.approx(expected, rel=1e-5)
    assert (len(made.validation) - 1) % 7  # a rest is evaluated, too


def test_evaluation_leaves_the_model_as_it_was():
    made = task()
    model = model_of(made).train()
    made.evaluate(model)
    assert model.training


def test_counting_is_the_baseline_and_beats_guessing():
    found = task().baseline()
    assert 1 <= found["order"] <= 8
    assert found["val_loss"] < math.log(11)


def test_the_model_has_the_size_of_the_alphabet_and_room_for_a_window():
    config = task(context=9).complete(GPTConfig(1, 5, 12, n_layers=1, n_heads=3))
    assert (config.vocab_size, config.max_len) == (11, 9)


def test_overfitting_learns_and_measures_the_same_few_windows():
    made = task().overfit(3)
    assert made.n_examples == 3
    assert torch.equal(made.train, made.validation)
    assert len(made.train) == 22


def test_one_other_character_is_another_text():
    assert task().fingerprint != task(text=TEXT[:-1] + "z").fingerprint
    assert task().fingerprint == task().fingerprint


def test_a_sample_is_longer_than_the_context_and_always_the_same():
    made = task(sample_length=40)
    model = model_of(made)
    assert made.sample(model) == made.sample(model)
    assert len(made.sample(model)) == 40 + 7


def test_the_most_likely_next_character_is_the_answer():
    made = task()
    model = model_of(made)
    answer = made.predictor.predict(model, TEXT[:30])  # more than the context: its end counts
    with torch.no_grad():
        logits = model.eval()(torch.tensor([made.tokenizer.encode(TEXT[23:30])]))[0, -1]
    assert answer["answer"] == made.tokenizer.decode(logits.argmax()[None])
    assert answer["probability"] == pytest.approx(float(logits.softmax(-1).max()))
    with pytest.raises(ValueError, match="the input is empty"):
        made.predictor.predict(model, "")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"context": 0}, "context must be at least 1"),
        ({"context": 60}, "523 characters, too few for windows of 60"),
        ({"validation": 1.0}, "validation between 0 and 1"),
    ],
)
def test_settings_that_make_no_windows_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        task(**settings)


def test_windows_by_hand():
    batch = cut_windows(torch.tensor([5, 6, 7, 8]), torch.tensor([1]), 2)
    assert batch.inputs.tolist() == [[6, 7]]
    assert batch.targets.tolist() == [[7, 8]]


def test_a_file_is_read_and_its_tokenizer_saved(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text(TEXT, encoding="utf-8")
    made = CharacterData(str(path), 7).open()
    made.save(tmp_path)
    assert made.fingerprint == task().fingerprint
    assert (tmp_path / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("ROMEO: no, no! " * 9, "ROMEO:"),
        ("romeo: " * 40, "romeo: romeo: ro"),  # no capital letters
        ("ab c\n" * 30, "ab c"),  # up to the end of a line
        ("a" * 90 + "\n \nb" + "c" * 6, "b" + "c" * 6),  # of a line that says something
        pytest.param("\n" * 100, "\n" * 10, id="line ends"),
    ],
)
def test_the_prompt_of_the_next_command_is_of_the_text(text, prompt):
    made = task(context=3, text=text)
    words = shlex.split(made.next_command(Path("run")))
    assert words[3:5] == ["--prompt", prompt]
    made.tokenizer.encode(prompt)


def test_an_empty_file_is_named(tmp_path):
    (tmp_path / "play.txt").write_text("")
    with pytest.raises(BadFile, match=r"play\.txt is empty; give a text to learn from"):
        CharacterData(str(tmp_path / "play.txt")).open()


def test_byte_pairs_take_the_place_of_characters(tmp_path):
    text = "ROMEO: no, no, no! " * 40
    made = task(context=3, text=text, byte_pairs=262)
    assert made.tokenizer.vocab_size == 262
    assert made.tokenizer.decode(made.train) + made.tokenizer.decode(made.validation) == text
    assert len(made.train) < 0.6 * 0.9 * len(text)
    batch = made.batch([3])
    assert torch.equal(batch.targets[0], made.train[4:7])
    model = model_of(made)
    assert math.isfinite(made.evaluate(model)["val_loss"])
    made.save(tmp_path)
    predictor = made.data.load_predictor(tmp_path)
    assert predictor.tokenizer == made.tokenizer
    assert isinstance(predictor.predict(model, "ROMEO: é")["answer"], str)
    assert "tokens" in made.learned_from
    with pytest.raises(ValueError, match="byte_pairs must be at least 257, got 200"):
        CharacterData(byte_pairs=200)
    with pytest.raises(ValueError, match="not a tokenizer of characters"):
        CharacterData().load_predictor(tmp_path)


def test_merges_are_learned_from_the_training_part_alone():
    made = task(text="ab" * 300 + "xyxyxyxyxy" * 6, context=3, byte_pairs=400)
    assert not any("x" in merge for merge in made.tokenizer.merges)

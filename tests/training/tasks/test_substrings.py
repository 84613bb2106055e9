"""The substring task: the first token's logit, every example once, answers in words."""

import pytest
import torch

from clearhead.data.substrings import Substrings
from clearhead.models import ClassifierConfig, SequenceClassifier
from clearhead.training.tasks.substrings import SubstringData


def task(**settings):
    small = {"haystack": (3, 5), "needle": (1, 2), "n_examples": 50, "n_validation": 23}
    return SubstringData(**{**small, **settings}).open()


def model_of(task, **settings):
    torch.manual_seed(0)
    small = {"d_model": 12, "n_layers": 1, "n_heads": 3, "max_len": 4}
    config = ClassifierConfig(1, 1, **{**small, **settings})
    return SequenceClassifier(task.complete(config))


def test_a_batch_is_what_the_data_set_gives():
    made = task()
    batch, direct = made.batch([4, 7, 31]), made.train.batch([4, 7, 31])
    assert torch.equal(batch.targets, direct.targets)
    assert torch.equal(batch.token_mask, direct.token_mask)
    assert torch.equal(batch.inputs, direct.inputs)


def test_an_epoch_takes_every_example_once():
    plans = task().plans(seed=3, epoch=2, batch_size=8)
    assert sorted(i for plan in plans for i in plan) == list(range(100, 150))


def test_a_batch_of_any_epoch_is_what_the_data_set_gives():
    made = task()
    for plan in ([101, 149], [7, 0], [52]):
        assert torch.equal(made.batch(plan).targets, made.train.batch(plan).targets)
        assert torch.equal(made.batch(plan).inputs, made.train.batch(plan).inputs)


def test_the_loss_is_binary_cross_entropy_of_the_first_token():
    made = task()
    model, batch = model_of(made), made.batch([0, 1, 2])
    first = model(batch.inputs, token_mask=batch.token_mask)[:, 0, 0]
    by_hand = -torch.where(
        batch.targets == 1, first.sigmoid().log(), (1 - first.sigmoid()).log()
    ).mean()
    assert torch.allclose(made.loss(model, batch), by_hand, atol=1e-6)


def test_accuracy_counts_logits_on_the_right_side():
    made = task()
    model = model_of(made)
    texts, labels = made.validation.examples(range(23))
    right = sum(
        (made.predictor.predict(model, text)["answer"] == "yes") == bool(label)
        for text, label in zip(texts, labels, strict=True)
    )
    found = made.evaluate(model)
    assert found["val_accuracy"] == pytest.approx(right / 23)
    assert found["val_loss"] > 0


def test_training_and_validation_share_no_text():
    made = task()
    train, _ = made.train.examples(range(50))
    validation, _ = made.validation.examples(range(23))
    assert not set(train) & set(validation)


def test_overfitting_measures_the_examples_it_learns():
    made = task().overfit(5)
    assert made.n_examples == made.n_validation == 5
    assert made.validation is made.train
    assert sorted(i for plan in made.plans(0, 4, 2) for i in plan) == list(range(5))


@pytest.mark.parametrize("text", ["abc", "|a", "abc|", ""])
def test_an_input_without_two_parts_is_refused(text):
    made = task()
    with pytest.raises(ValueError, match=r"written haystack\|needle"):
        made.predictor.predict(model_of(made), text)


def test_an_unknown_letter_is_refused_by_its_name():
    made = task()
    with pytest.raises(ValueError, match="'x'"):
        made.predictor.predict(model_of(made), "axb|a")


def test_the_model_has_room_for_the_longest_text():
    config = model_of(task()).config
    assert (config.d_input, config.d_output, config.max_len) == (5, 1, 9)


def test_a_sample_says_what_is_right():
    made = task()
    lines = made.sample(model_of(made)).splitlines()
    assert len(lines) == 3
    assert all("right" in line or "wrong" in line for line in lines)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_a_sample_has_no_text_that_is_not_measured(n):
    made = task().overfit(n)
    shown = [line.split()[0] for line in made.sample(model_of(made)).splitlines()]
    assert shown == made.train.examples(range(min(3, n)))[0]


def test_other_settings_are_other_examples():
    assert task().fingerprint != task(seed=1).fingerprint
    assert task().fingerprint == task().fingerprint


def test_accuracy_by_length_goes_to_twice_the_training_length_or_to_what_the_model_reads():
    made = task(haystack=(3, 5), needle=(1, 2))
    assert made.trained_lengths == (3, 5)
    # 7 letters, 2 of the needle, [CLS] and | are 11; rotary positions have no limit
    for max_len, positions, longest in (
        (40, "learned", 10),
        (11, "rotary", 10),
        (11, "learned", 7),
    ):
        model = model_of(made, max_len=max_len, positions=positions)
        found = made.accuracy_by_length(model)
        assert list(found) == list(range(3, longest + 1))
    for n, share in found.items():
        batch = Substrings("abc", (n, n), (1, 2), 0, "validation").batch(range(500))
        with torch.no_grad():
            logits = model(batch.inputs, token_mask=batch.token_mask)[:, 0, 0]
        assert share == pytest.approx(float(((logits > 0) == (batch.targets > 0)).float().mean()))

"""The dialogue task: packed rows, whole speeches for validation, the same words for counting."""

import math

import pytest
import torch

from clearhead.config import UNDECIDED
from clearhead.data.batch import IGNORE
from clearhead.files import BadFile
from clearhead.models import GPT, GPTConfig
from clearhead.models.ngrams import NGrams
from clearhead.training.tasks import dialogue
from clearhead.training.tasks.dialogue import DialogueData
from clearhead.training.tasks.translation import TranslationData

NAMES = ("ROMEO", "JULIET", "First Citizen", "NURSE", "All")
WORDS = ["speak", "no", "more", "of", "it", "my", "lord", "the", "sun", "is", "up", "and", "we"]


def play(n=40):
    """Speeches of 1 to 9 words, in lines of up to 4, a few of them long."""
    speeches = []
    for i in range(n):
        words = [WORDS[(i * 5 + k * 3) % len(WORDS)] for k in range(1 + i % 9 + 30 * (i % 10 == 7))]
        lines = [" ".join(words[k : k + 4]) for k in range(0, len(words), 4)]
        speeches.append("\n".join([f"{NAMES[i % 5]}:", *lines]) + f", {i}.")
    return "\n\n".join(speeches) + "\n"


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "play.txt"
    file.write_text(play())
    return str(file)


def task(path, **settings):
    small = {"path": path, "context": 24, "min_count": 1, "validation": 0.2, "sample_length": 5}
    return DialogueData(**{**small, **settings}).open()


def test_the_data_of_an_earlier_release_are_split_by_the_rules_of_then(path, tmp_path):
    (tmp_path / "play.txt").write_text(play() + "\nROMEO:\nspeak. no more.\n")
    new = DialogueData(path, min_count=1, validation=0.01)
    values = new.to_dict()
    assert values.pop("word_rules") == new.word_rules == 2
    old = DialogueData.from_dict(values)
    assert old == DialogueData(path, min_count=1, validation=0.01, word_rules=1)
    assert DialogueData.from_dict(new.to_dict()) == new
    assert "speak." in old.open().tokenizer.tokens
    assert "speak." not in new.open().tokenizer.tokens
    assert old.open().tokenizer.rules == 1
    with pytest.raises(ValueError, match="word_rules must be a version of the word rules from 1"):
        DialogueData(word_rules=3)


def model_of(made, **settings):
    torch.manual_seed(0)
    small = {"d_model": 12, "n_layers": 1, "n_heads": 3, "positions": "rotary"}
    model = GPT(made.complete(GPTConfig(UNDECIDED, UNDECIDED, **{**small, **settings})))
    with torch.no_grad():
        model.embedding.weight.mul_(20)  # so that words matter to it
    return model


def costs_alone(made, model, speech):
    """−log P of each word and the end of a speech that stands alone; it goes on after <start>."""
    ids, costs = made.tokenizer.encode(speech), []
    step = made.data.context - 1
    for place in range(1, len(ids), step):
        row = [ids[0], *ids[place : place + step]]
        log_probs = model(torch.tensor([row]))[0].log_softmax(-1)
        costs += [-log_probs[t, row[t + 1]].item() for t in range(len(row) - 1)]
    return costs


def test_an_epoch_takes_every_speech_once_in_an_order_of_its_own(path):
    made = task(path)
    plans = made.plans(seed=3, epoch=2, batch_size=2)
    assert sorted(i for rows in plans for row in rows for i in row) == list(range(made.n_examples))
    assert plans == made.plans(seed=3, epoch=2, batch_size=2)
    assert plans != made.plans(seed=3, epoch=1, batch_size=2)
    assert plans != made.plans(seed=4, epoch=2, batch_size=2)
    assert all(len(rows) <= 2 for rows in plans)


def test_settings_that_are_no_names_and_values_are_refused():
    for kind in (DialogueData, TranslationData):
        with pytest.raises(TypeError, match=f"{kind.__name__} is made from names and values, got"):
            kind.from_dict([1])


def test_hardly_anything_of_a_batch_is_padding(path):
    made = task(path)
    batches = [made.batch(plan) for plan in made.plans(seed=0, epoch=0, batch_size=3)]
    real = sum(int(batch.token_mask.sum()) for batch in batches)
    assert real / sum(batch.token_mask.numel() for batch in batches) > 0.85


@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_the_loss_of_packed_speeches_is_that_of_each_alone(path, soft_cap):
    made = task(path, context=64)
    model = model_of(made, soft_cap=soft_cap)
    plan = made.plans(seed=0, epoch=0, batch_size=2)[0]
    speeches = [made.train_speeches[i] for row in plan for i in row]
    costs = [cost for speech in speeches for cost in costs_alone(made, model, speech)]
    assert made.n_examples == len(made.train_speeches)  # none was split: row i is speech i
    by_hand = sum(costs) / len(costs)
    assert made.loss(model, made.batch(plan)).item() == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_the_bias_of_the_head_is_part_of_the_loss_and_learns(path, soft_cap):
    made = task(path, context=64)
    model = model_of(made, soft_cap=soft_cap, head_bias=True, tied=False)
    torch.nn.init.normal_(model.head.bias)
    plan = made.plans(seed=0, epoch=0, batch_size=2)[0]
    speeches = [made.train_speeches[i] for row in plan for i in row]
    costs = [cost for speech in speeches for cost in costs_alone(made, model, speech)]
    loss = made.loss(model, made.batch(plan))
    assert loss.item() == pytest.approx(sum(costs) / len(costs), rel=1e-5)
    loss.backward()
    assert bool(model.head.bias.grad.any())


def test_each_word_and_end_is_predicted_once_and_a_start_never(path):
    made = task(path)
    assert max(map(len, made.tokenizer.encode_batch(made.train_speeches))) > made.data.context
    targets = torch.cat(
        [made.batch(plan).targets.flatten() for plan in made.plans(seed=0, epoch=0, batch_size=3)]
    )
    found = sorted(targets[targets != IGNORE].tolist())
    assert found == sorted(i for s in made.train_speeches for i in made.tokenizer.encode(s)[1:])
    assert made.tokenizer.start_id not in found


def test_evaluation_is_the_mean_over_all_words_however_they_are_batched(path, monkeypatch):
    made = task(path)
    model = model_of(made, dropout=0.5).train()
    found = made.evaluate(model)
    assert model.training
    model.eval()
    costs = [c for speech in made.validation_speeches for c in costs_alone(made, model, speech)]
    assert found["val_loss"] == pytest.approx(sum(costs) / len(costs), rel=1e-5)
    assert found["val_perplexity"] == pytest.approx(math.exp(found["val_loss"]))
    monkeypatch.setattr(dialogue, "EVAL_BATCH", 1)
    assert made.evaluate(model) == pytest.approx(found, rel=1e-5)


def test_whole_speeches_are_kept_for_validation(path):
    made = task(path)
    learned, kept = made.train_speeches, made.validation_speeches
    assert not set(learned) & set(kept)
    assert len(learned) + len(kept) == 40
    assert len(kept) == 8
    words = {word for speech in learned for word in made.tokenizer.tokenize(speech)}
    assert set(made.tokenizer.tokens) & set(WORDS) <= words


def test_the_baseline_predicts_the_same_words_of_the_same_vocabulary(path):
    made = task(path)
    found = made.baseline()
    train, validation = (
        made.tokenizer.encode_batch(part)
        for part in (made.train_speeches, made.validation_speeches)
    )
    losses = [NGrams(train, made.tokenizer.vocab_size, k).loss(validation) for k in range(1, 9)]
    assert found["val_loss"] == pytest.approx(min(losses))
    assert losses[int(found["order"]) - 1] == pytest.approx(found["val_loss"])
    assert found["val_perplexity"] == pytest.approx(math.exp(found["val_loss"]))
    n_predicted = sum(len(row) - 1 for row in validation)
    assert len(NGrams(train, made.tokenizer.vocab_size, 2).probs(validation)) == n_predicted


def test_overfit_takes_the_longest_speeches_that_fit_a_row(path):
    made = task(path).overfit(3)
    assert made.n_examples == len(made.train) == len(made.validation) == 3
    lengths = [len(row) for row in made.train.rows]
    assert max(lengths) <= made.data.context
    everything = task(path)
    fitting = [len(everything.tokenizer.encode(s)) for s in everything.train_speeches]
    assert lengths == sorted((n for n in fitting if n <= 24), reverse=True)[:3]
    model = model_of(made)
    rows = made.plans(seed=0, epoch=0, batch_size=9)[0]
    assert made.evaluate(model)["val_loss"] == pytest.approx(
        made.loss(model, made.batch(rows)).item(), rel=1e-5
    )


def test_a_sample_has_speeches_of_several_people(path):
    made = task(path)
    model = model_of(made)
    parts = made.sample(model).split("\n\n")
    assert len(parts) == 3
    names = [speech.partition("\n")[0] for speech in made.validation_speeches]
    assert all(any(part.startswith(name) for name in names) for part in parts)
    assert made.sample(model) == made.sample(model)


def test_predict_writes_until_the_end_of_the_speech(path):
    made = task(path)
    model = model_of(made)
    found = made.predictor.predict(model, "ROMEO:\nspeak")
    ids = torch.tensor([made.tokenizer.encode("ROMEO:\nspeak")[:-1]])
    probs = model(ids)[0, -1].softmax(-1)
    assert found["probability"] == pytest.approx(probs.max().item(), rel=1e-5)
    first = made.tokenizer.detokenize([int(probs.argmax())])
    assert found["answer"].startswith(first.strip("\n"))
    with torch.no_grad():  # a model that ends everything at once
        model.head.weight.zero_()
        model.head.weight[made.tokenizer.end_id] = model.hidden(ids)[0, -1]
    assert made.predictor.predict(model, "ROMEO:\nspeak")["answer"] == ""
    with pytest.raises(ValueError, match=r"the input has 31 tokens, but the model reads 24"):
        made.predictor.predict(model, "speak " * 30)


def test_the_fingerprint_stands_for_every_letter(path, tmp_path):
    before = task(path).fingerprint
    assert before == task(path).fingerprint
    changed = tmp_path / "changed.txt"
    changed.write_text(play().replace(", 17.", ", 18."))
    assert task(str(changed)).fingerprint != before


def test_the_next_command_has_a_prompt_a_shell_understands(path, tmp_path):
    command = task(path).next_command(tmp_path)
    assert command.startswith(f"clearhead generate {tmp_path} --prompt ")
    import shlex

    assert shlex.split(command)[4].rstrip(":") in NAMES


def test_the_tokenizer_is_saved(path, tmp_path):
    from clearhead.data import load_tokenizer

    made = task(path)
    made.save(tmp_path)
    assert load_tokenizer(tmp_path / "tokenizer.json") == made.tokenizer


# What is refused


def test_without_a_play_the_way_out_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path))
    words = "run clearhead data get shakespeare, or give a play of your own: data.path=play.txt"
    with pytest.raises(BadFile, match=words):
        DialogueData().open()


def test_a_file_without_speeches_is_named(tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(BadFile, match=r"empty\.txt holds no speech"):
        task(str(tmp_path / "empty.txt"))
    words = r"one\.txt holds one speech, but two or more different ones are needed"
    for text in ("ROMEO:\nspeak\n", "ROMEO:\nspeak\n\nROMEO:\nspeak\n"):
        (tmp_path / "one.txt").write_text(text)
        with pytest.raises(BadFile, match=words):
            task(str(tmp_path / "one.txt"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"context": 1}, "context must be at least 2 and validation between 0 and 1, got 1 and"),
        ({"validation": 0.0}, "validation between 0 and 1, got 128 and 0.0"),
        ({"min_count": 0}, "min_count must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        DialogueData(**settings)


def test_speeches_that_fit_no_row_cannot_be_learned_by_heart(path):
    with pytest.raises(ValueError, match=r"no speech is as short as data\.context=3 tokens"):
        task(path, context=3).overfit(2)


@pytest.mark.slow
def test_ten_dialogues_are_learned_by_heart(tmp_path):
    from clearhead.training import find_recipe, train, with_changes

    (tmp_path / "play.txt").write_text(play(400))
    changes = [f"data.path={tmp_path / 'play.txt'}", "data.min_count=1", "model.n_layers=2"]
    changes += ["model.d_model=64", "training.batch_size=4", "training.eval_every=300"]
    recipe = with_changes(find_recipe("dialogue"), changes)
    assert train(recipe, tmp_path, overfit=10, threads=1).metrics["val_loss"] < 0.05


def test_samples_and_answers_hold_no_unk_and_the_probability_is_that_of_the_first_word(path):
    made = task(path, min_count=4)
    unknown = made.tokenizer.unk_id
    assert any(unknown in row for row in made.train.rows)
    model = model_of(made, tied=False, soft_cap=None)
    with torch.no_grad():  # whatever it read, <unk> is the likeliest
        x = model.hidden(torch.tensor([made.predictor.encode_prompt("ROMEO:")]))[0, -1]
        model.head.weight[unknown] = 9 * x
        probs = model(torch.tensor([made.predictor.encode_prompt("ROMEO:")]))[0, -1].softmax(-1)
    assert int(probs.argmax()) == unknown
    answer = made.predictor.predict(model, "ROMEO:")
    best = max(range(len(probs)), key=lambda i: -1.0 if i == unknown else probs[i].item())
    assert answer["probability"] == pytest.approx(probs[best].item(), rel=1e-5)
    assert "<unk>" not in answer["answer"]
    assert "<unk>" not in made.sample(model)
    asked = made.predictor.allow_unknown().predict(model, "ROMEO:")
    assert asked["answer"].split()[0] == "<unk>"
    assert asked["probability"] == pytest.approx(probs[unknown].item(), rel=1e-5)


def test_words_that_training_did_not_have_are_noted(path):
    made = task(path)
    assert made.data.describe_unfamiliar(made.predictor, None, "speak no more") is None
    note = made.data.describe_unfamiliar(made.predictor, None, "speak zyxzyx")
    assert note == "1 of the 2 words of the input did not occur in training"

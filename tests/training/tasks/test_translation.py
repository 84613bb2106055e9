"""The translation task: both translators, pairs of any kind, what is counted as right."""

import re
import sys
from itertools import pairwise

import pytest
import torch

from clearhead.config import UNDECIDED
from clearhead.files import BadFile
from clearhead.models import (
    GPTConfig,
    Seq2SeqGRU,
    Seq2SeqGRUConfig,
    Seq2SeqTransformer,
    Seq2SeqTransformerConfig,
)
from clearhead.training.tasks import translation
from clearhead.training.tasks.translation import TranslationData, bleu

CONFIGS = {
    "gru": Seq2SeqGRUConfig(*[UNDECIDED] * 5, d_embedding=5, d_hidden=7),
    "transformer": Seq2SeqTransformerConfig(
        *[UNDECIDED] * 5, max_len=UNDECIDED, d_model=12, n_layers=1, n_heads=3
    ),
}
KINDS = sorted(CONFIGS)
LINES = ["the cat sleeps\tel gato duerme", "a dog\tun perro", "the dog sleeps\tel perro duerme"]


def task(**settings):
    small = {"n_examples": 50, "n_validation": 23, "n_decoded": 11}
    return TranslationData(**{**small, **settings}).open()


def model_of(made, kind="gru"):
    torch.manual_seed(0)
    return made.build(made.complete(CONFIGS[kind]))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(LINES * 4 + [f"cat {i}\tgato {i}" for i in range(20)]))
    return path


def test_the_config_decides_which_translator_it_is():
    made = task()
    assert isinstance(model_of(made, "gru"), Seq2SeqGRU)
    assert isinstance(model_of(made, "transformer"), Seq2SeqTransformer)
    words = "a TranslationTask is learned by the model of a Seq2SeqConfig, got a GPTConfig"
    with pytest.raises(TypeError, match=words):
        made.complete(GPTConfig(3, 4, 8, 1, 2))


def test_the_data_complete_the_config():
    made = task()
    config = made.complete(CONFIGS["transformer"])
    assert config.source_vocab_size == made.source.vocab_size
    assert config.target_vocab_size == made.target.vocab_size
    ids = (made.target.start_id, made.target.end_id, made.target.pad_id)
    assert (config.start_id, config.end_id, config.pad_id) == ids
    assert config.max_len == max(made.train.max_len, made.validation.max_len)


def test_an_epoch_takes_every_pair_once_in_an_order_of_its_own():
    made = task()
    plans = made.plans(seed=3, epoch=2, batch_size=8)
    assert sorted(i for plan in plans for i in plan) == list(range(50))
    assert plans == made.plans(seed=3, epoch=2, batch_size=8)
    assert plans != made.plans(seed=3, epoch=1, batch_size=8)
    assert plans != made.plans(seed=4, epoch=2, batch_size=8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_each_next_word_given_all_right_ones_before_it(kind):
    made = task()
    model, places = model_of(made, kind), [4, 7, 31]
    costs = []
    for place in places:
        source = torch.tensor([made.train.source_rows[place]])
        state = model.encode(source)
        words = made.train.target_rows[place]
        for given, right in pairwise(words):
            logits, state = model.decode_step(torch.tensor([given]), state)
            costs.append(-logits.log_softmax(-1)[0, right].item())
    by_hand = sum(costs) / len(costs)
    assert made.loss(model, made.batch(places)).item() == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_measures_do_not_depend_on_how_many_go_at_once(kind, monkeypatch):
    made = task(language="numbers")
    model = model_of(made, kind)
    found = made.evaluate(model)
    monkeypatch.setattr(translation, "EVAL_BATCH", 4)
    assert made.evaluate(model) == pytest.approx(found, rel=1e-5)


class Knows(Seq2SeqGRU):
    """Writes the right answer to all but the first sentences it is asked for."""

    def __init__(self, config, made, n_wrong):
        super().__init__(config)
        rows = zip(made.validation.source_rows, made.validation.target_rows, strict=True)
        self.answers = {tuple(source): target[1:] for source, target in rows}
        for source in list(self.answers)[:n_wrong]:
            self.answers[source] = self.answers[source][1:]  # its first word is missing

    def generate(self, source, n_tokens, *, source_mask=None):
        asked = zip(source, source_mask, strict=True)
        rows = [self.answers[tuple(row[real].tolist())] for row, real in asked]
        longest = max(map(len, rows)) + 1
        return torch.tensor([row + [self.config.pad_id] * (longest - len(row)) for row in rows])


@pytest.mark.parametrize("n_wrong", [0, 3, 11])
def test_exact_counts_sentences_without_a_mistake(n_wrong):
    made = task()
    model = Knows(made.complete(CONFIGS["gru"]), made, n_wrong)
    assert made.evaluate(model)["val_exact"] == pytest.approx(1 - n_wrong / 11)


def test_a_word_that_is_unknown_is_never_right(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(f"cat {i}\tgato{i}" for i in range(30)))
    made = task(path=str(path))
    model = Knows(made.complete(CONFIGS["gru"]), made, 0)
    assert made.evaluate(model)["val_exact"] == 0
    assert made.validation_pairs  # each with a word of its own, which nobody learned


def test_real_pairs_are_measured_by_bleu_too(file):
    made = task(path=str(file))
    measures = made.evaluate(Knows(made.complete(CONFIGS["gru"]), made, 0))
    assert set(measures) == {"val_loss", "val_exact", "val_bleu"}
    assert made.best_by == "val_bleu"
    assert set(task().evaluate(model_of(task()))) == {"val_loss", "val_exact"}


def test_bleu_is_a_hundred_for_the_right_words_and_less_for_others():
    right = ["the cat sleeps on the old red mat", "a dog runs over the green field"]
    assert bleu(right, right) == pytest.approx(100)
    assert 0 < bleu(["the cat sleeps on the old mat", right[1]], right) < 95


def test_without_sacrebleu_the_way_out_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ImportError, match=r"needs sacrebleu, .* run pip install sacrebleu"):
        bleu(["a"], ["a"])


def test_no_source_is_in_both_parts(file):
    made = task(path=str(file), validation=0.4)
    learned, kept = ({s for s, _ in p} for p in (made.train_pairs, made.validation_pairs))
    assert learned
    assert kept
    assert not learned & kept


def test_a_file_can_be_read_the_other_way_round(file):
    made = task(path=str(file), reverse=True)
    pairs = {*made.train_pairs, *made.validation_pairs}
    assert ("el gato duerme", "the cat sleeps") in pairs


def test_long_pairs_are_left_out(file):
    made = task(path=str(file), longest=4)  # <start> and <end> are counted
    pairs = {*made.train_pairs, *made.validation_pairs}
    assert ("a dog", "un perro") in pairs
    assert max(made.train.max_len, made.validation.max_len) == 4
    words = r"pair of the training part has a side of more than data\.longest=2 tokens; "
    with pytest.raises(ValueError, match=words + r"data\.longest=4 would keep the .*=5 all"):
        task(path=str(file), longest=2)


def test_the_part_whose_pairs_are_all_too_long_is_named(file):
    lines = [*(f"cat {i}\tgato {i}" for i in range(9)), "a cat and a dog\tun gato y un perro"]
    file.write_text("\n".join(lines))
    found = (task(path=str(file), seed=seed) for seed in range(100))
    seed = next(
        made.data.seed for made in found if made.validation_pairs[0][0] == "a cat and a dog"
    )
    words = r"pair of the validation part .*data\.longest=4 tokens; data\.longest=7 would keep"
    with pytest.raises(ValueError, match=words):
        task(path=str(file), longest=4, seed=seed)
    assert len(task(path=str(file), longest=7, seed=seed).validation) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_overfit_learns_and_evaluates_the_same_few(kind):
    made = task().overfit(7)
    assert made.n_examples == len(made.train) == len(made.validation) == 7
    model = model_of(made, kind)
    assert made.evaluate(model)["val_loss"] == pytest.approx(
        made.loss(model, made.batch(range(7))).item(), rel=1e-5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_predict_gives_the_best_sentence_and_its_probability(kind):
    made = task()
    model = model_of(made, kind)
    found = made.predictor.predict(model, "may 3rd 1984")
    assert found["input"] == "may 3rd 1984"
    assert isinstance(found["answer"], str)
    assert 0 < found["probability"] < 1


def prefer_unknown(made, kind):
    """A model whose best word is always <unk>."""
    model = model_of(made, kind)
    head = model.decoder.head if kind == "gru" else model.head
    head.register_forward_hook(
        lambda module, inputs, logits: logits.index_fill(
            -1, torch.tensor([made.target.unk_id]), 30.0
        )
    )
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_no_translation_holds_unk_unless_it_is_allowed(kind, file):
    made = task(path=str(file))
    model = prefer_unknown(made, kind)
    assert "<unk>" not in made.sample(model)
    free = made.predictor.allow_unknown()
    for source, _ in made.examples(3):
        assert "<unk>" not in made.predictor.predict(model, source)["answer"]
        assert set(free.predict(model, source)["answer"].split()) == {"<unk>"}
    letters = task().predictor  # an alphabet has no <unk>
    assert not letters.forbid


def test_what_a_model_cannot_read_is_named():
    made = task()
    model = model_of(made, "transformer")
    with pytest.raises(ValueError, match=r"the input has \d+ tokens, but the model reads at most"):
        made.predictor.predict(model, "1984 " * 50)
    with pytest.raises(ValueError, match="not in the alphabet"):
        made.predictor.predict(model, "é")


def test_the_sample_shows_source_answer_and_the_right_answer():
    made = task()
    lines = made.sample(model_of(made)).split("\n")
    source, right = made.validation_pairs[0]
    assert len(lines) == 4
    assert lines[0].startswith(f"{source} → ")
    assert lines[0].endswith(f"({right})")


def test_words_of_an_earlier_release_are_split_by_the_rules_of_then(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("go. now.\tva. ya.\ncome\tven\nstop\talto\n")
    new = TranslationData(path=str(path), validation=0.3)
    values = new.to_dict()
    assert values.pop("word_rules") == 2
    old = TranslationData.from_dict(values)
    assert (old.word_rules, TranslationData.from_dict(new.to_dict())) == (1, new)
    assert {tokenizer.rules for tokenizer in (old.open().source, old.open().target)} == {1}
    assert {tokenizer.rules for tokenizer in (new.open().source, new.open().target)} == {2}
    for characters in ({"path": None}, {"level": "characters"}):  # the rules change nothing there
        assert TranslationData.from_dict(values | characters).word_rules == 2


def test_the_fingerprint_stands_for_every_letter(file):
    before = task(path=str(file)).fingerprint
    assert before == task(path=str(file)).fingerprint
    file.write_text(file.read_text().replace("gato 13", "gata 13"))
    assert task(path=str(file)).fingerprint != before


def test_both_tokenizers_are_saved(tmp_path):
    from clearhead.data import load_tokenizer

    made = task()
    made.save(tmp_path)
    assert load_tokenizer(tmp_path / "source_tokenizer.json") == made.source
    assert load_tokenizer(tmp_path / "target_tokenizer.json") == made.target


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"language": "poems"}, "language must be one of 'dates', 'numbers', got 'poems'"),
        ({"level": "bytes"}, "level must be one of 'words', 'characters', got 'bytes'"),
        ({"validation": 1.0}, "validation must be between 0 and 1, got 1.0"),
        ({"n_decoded": 0}, "n_decoded must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        TranslationData(**settings)


def test_a_file_without_pairs_is_named(tmp_path):
    (tmp_path / "bad.tsv").write_text("one sentence")
    with pytest.raises(BadFile, match=r"bad\.tsv lacks two sentences with a tab"):
        task(path=str(tmp_path / "bad.tsv"))
    for text in ("a dog\tun perro\n", "a dog\tun perro\na dog\tun can\n"):
        (tmp_path / "one.tsv").write_text(text)
        words = r"one\.tsv has one sentence to translate, but two or more different ones are needed"
        with pytest.raises(BadFile, match=words):
            task(path=str(tmp_path / "one.tsv"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps", "least"),
    [("translate-gru", 500, 0.99), ("translate-transformer", 300, 0.85)],
)
def test_the_recipes_translate_almost_every_date(name, steps, least, tmp_path):
    """The transformer with fewer steps than its recipe has, after which it translates 99 %."""
    from clearhead.training import find_recipe, train, with_changes

    once = [f"training.{name}={steps}" for name in ("steps", "eval_every", "save_every")]
    recipe = with_changes(find_recipe(name), once)
    assert train(recipe, tmp_path, threads=1).metrics["val_exact"] >= least


def test_a_sentence_unlike_those_of_training_is_noted(file):
    made = task()
    note = made.data.describe_unfamiliar(made.predictor, None, "hello")
    assert note.startswith("the input is written like none of the dates of training, such as '")
    assert made.data.describe_unfamiliar(made.predictor, None, "3 march 1984") is None
    real = task(path=str(file), longest=6)
    known = real.train_pairs[0][0]
    assert real.data.describe_unfamiliar(real.predictor, None, known) is None
    words = real.data.describe_unfamiliar(real.predictor, None, "zyx " + known)
    assert re.match(r"1 of \d tokens of the input did not occur in training", words)
    long = " ".join([known] * 7)
    note = real.data.describe_unfamiliar(real.predictor, None, long)
    assert note.endswith("tokens, but those of training had 6")

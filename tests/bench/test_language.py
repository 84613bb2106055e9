"""What we measure of language models: every case runs, at small sizes, and has something to say."""

import importlib.util
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from clearhead.bench import language
from clearhead.bench.cases import CASES
from clearhead.models import GPT, GPTConfig
from clearhead.timing import measure_seconds

OURS = ("batch32", "decode", "dialogue", "int8", "vocabulary", "words")
TINY = {
    "tiny": GPTConfig(23, 40, 12, n_layers=2, n_heads=3, activation="gelu_tanh"),
    "small": GPTConfig(29, 50, 16, n_layers=1, n_heads=2, activation="gelu_tanh"),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Small models, few speeches and rows, each way once, and a memory of known speed."""
    speeches = language._make_speeches
    monkeypatch.setattr(language, "SHAPES", TINY)
    monkeypatch.setattr(language, "NEW", 5)
    monkeypatch.setattr(language, "GPT", small_gpt)
    monkeypatch.setattr(language, "_measure_reading", lambda n_bytes: n_bytes / 1e9)
    monkeypatch.setattr(language, "_make_speeches", lambda n: speeches(min(n, 40)))
    monkeypatch.setattr(language, "best_seconds", seconds_of_one_call)
    monkeypatch.setattr(language, "losses", of_few_rows(language.losses))
    monkeypatch.setattr(language, "losses_fast", of_few_rows(language.losses_fast))


def small_gpt(config):
    return GPT(
        replace(config, d_model=12, n_layers=1, n_heads=3) if config.d_model > 16 else config
    )


def seconds_of_one_call(works, **_):
    return {name: measure_seconds(work) for name, work in works.items()}


def of_few_rows(losses):
    def vocabulary_loss(x, weight, targets):
        return losses.vocabulary_loss(x[:7], weight, targets[:7])

    return SimpleNamespace(vocabulary_loss=vocabulary_loss)


@pytest.fixture
def peers(monkeypatch):
    """Which of the other libraries are installed; theirs write what ours would."""

    def peers(*names):
        asked = []

        def peer(config, *weights):
            def generate(prompts, n_tokens):
                asked.append((config.d_model, prompts.shape, n_tokens, *weights))

            return generate

        monkeypatch.setattr(language, "find_spec", lambda name: name in names or None)
        monkeypatch.setattr(language, "transformers_gpt2", peer)
        monkeypatch.setattr(language, "ctranslate2_gpt2", peer)
        return asked

    return peers


@pytest.mark.parametrize("case", OURS)
def test_every_case_runs_and_gives_times(peers, case):
    peers("transformers", "ctranslate2")
    rows = getattr(language, case)(0.0)
    assert rows
    for row in rows:
        assert 0 < row.ours < math.inf
        assert 0 < row.theirs < math.inf
        assert row.what
        assert row.other


def test_the_command_line_knows_every_case():
    assert {getattr(language, case) for case in OURS} <= set(CASES.values())


NOBODY = "no peer (pip install 'clearhead[peers]')"


@pytest.mark.parametrize(
    ("case", "others"),
    [
        ("decode", [NOBODY, "reading the weights once"] * 2),
        ("int8", [NOBODY] * 2),
        ("batch32", [NOBODY] * 2),
    ],
)
def test_without_other_libraries_each_row_says_how_to_get_them(peers, case, others):
    asked = peers()
    assert [row.other for row in getattr(language, case)(0.0)] == others
    assert asked == []


def test_the_others_are_given_the_same_work(peers):
    asked = peers("transformers", "ctranslate2")
    names = [row.other for row in language.int8(0.0)]
    assert names == ["transformers, float", "CTranslate2, int8"] * 2
    assert set(asked) == {
        (d_model, (1, language.PROMPT), 5, *weights)
        for d_model in (12, 16)
        for weights in ((), ("int8",))
    }
    asked.clear()
    language.batch32(0.0)
    assert {shape for _, shape, *_ in asked} == {(32, language.PROMPT)}


def test_a_model_is_packed_before_the_clock_starts(peers, monkeypatch):
    peers()
    packed = []
    pack = language.pack

    def noted(model, **options):
        packed.append(options)
        return pack(model, **options)

    def clock(works, **_):
        n_packed = len(packed)
        works["ours"]()
        assert len(packed) == n_packed > 0
        return {"ours": 1.0}

    monkeypatch.setattr(language, "pack", noted)
    monkeypatch.setattr(language, "best_seconds", clock)
    language.batch32(0.0)
    assert packed == [{"weights": weights, "n_rows": 32} for weights in ("float", "int8")]


def test_a_time_is_that_of_one_token(peers, monkeypatch):
    peers("transformers")
    monkeypatch.setattr(language, "best_seconds", lambda works, **_: dict.fromkeys(works, 3.0))
    (row, reading, *_) = language.decode(0.0)
    assert row.ours == row.theirs == reading.ours == 3.0 / 5
    assert reading.theirs == 4 * GPT(TINY["tiny"]).n_parameters / 1e9


@pytest.mark.slow
def test_the_real_transformers_writes_in_the_same_shape():
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    prompts = torch.randint(23, (2, 3))
    assert language.transformers_gpt2(TINY["tiny"])(prompts, 4).shape == (2, 3 + 4)


def test_speeches_are_the_same_each_time_and_of_very_different_lengths():
    speeches = language._make_speeches(40)
    assert speeches == language._make_speeches(40)
    lengths = sorted(len(speech.split()) for speech in speeches)
    assert lengths[0] < 10
    assert lengths[-1] > 50

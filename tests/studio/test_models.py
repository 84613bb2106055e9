"""The models of the studio: the inputs to try are ones that each model can read."""

import pytest

from clearhead.data.tokenizers import CharTokenizer, WordTokenizer
from clearhead.runs import load_run
from clearhead.studio.sources import Opened, Source, Sources
from clearhead.studio.views.models import PROMPTS, list_models

SAMPLE = "ann.\nthe cat sat on the mat and slept\n\nbob?\nthe cat sat on the log"


@pytest.fixture
def list_examples(sources, tmp_path):
    """The examples of a GPT run with another tokenizer, whose last sample is SAMPLE."""
    run = load_run(sources.open("dialogue-0001").source.path)

    def list_with(tokenizer):
        (tmp_path / "samples.txt").write_text(f"--- step 1\nold\n\n--- step 2\n{SAMPLE}\n")
        own = Sources([])
        source = Source("run", str(tmp_path), is_run=True)
        # Not through open(), which would look for checkpoints.
        own.listed["run"] = source
        own.open = lambda _: Opened(source, run.model, tokenizer, run, [])
        (entry,) = list_models(own)["models"]
        return entry["examples"]

    return list_with


def test_prompts_that_the_alphabet_lacks_are_left_out(list_examples):
    assert list_examples(CharTokenizer.of("".join(PROMPTS), cls=None)) == PROMPTS
    letters = CharTokenizer.of(PROMPTS[2], cls=None)
    assert list_examples(letters) == [PROMPTS[2]]


def test_a_model_that_can_read_none_of_the_prompts_is_tried_with_what_it_wrote(list_examples):
    letters = CharTokenizer.of(SAMPLE.replace("?", ""), cls=None)
    assert list_examples(letters) == ["ann.", "the cat sat on the"]
    words = WordTokenizer(["the", "cat", "sat", "on", "ann", "."])
    assert list_examples(words) == ["ann.", "the cat sat on the"]

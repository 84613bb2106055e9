"""clearhead program: list, show, run."""

import json
import re

import pytest

from clearhead.programs.catalogue import PROGRAMS


def test_the_list_names_every_program(run):
    code, out, _ = run("program", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[: len(PROGRAMS)]] == list(PROGRAMS)
    assert run("program") == (code, out, "")
    assert json.loads(run("program", "list", "--json")[1]).keys() == PROGRAMS.keys()


def test_show_prints_what_each_head_and_layer_does(run):
    code, out, _ = run("program", "show", "reverse")
    assert code == 0
    assert "layer 0, head 0        select everything, count to 1 / (1 + length)" in out
    assert "layer 0, feed-forward  compute opposite" in out
    assert "layer 1, head 0        select indices == opposite, copy to reversed" in out
    assert "layer 1, feed-forward  not used" in out
    facts = json.loads(run("program", "show", "reverse", "--max-len", "4", "--json")[1])
    assert facts["max_len"] == 4
    assert facts["d_model"] == len(facts["directions"])
    assert facts["circuit"][2]["module"] == "stack.blocks.1.attention"


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_runs_its_sample(run, name):
    code, out, _ = run("program", "run", name, PROGRAMS[name].sample)
    assert code == 0
    assert out.splitlines()[-1] == "they agree"


def test_run_prints_both_answers(run):
    code, out, _ = run("program", "run", "sort", "3142")
    assert code == 0
    assert out.splitlines()[:3] == [
        "input        3  1  4  2",
        "interpreter  1  2  3  4",
        "model        1  2  3  4",
    ]
    code, out, _ = run("program", "run", "sort", "ba", "--vocabulary", "ab", "--json")
    assert json.loads(out) == {
        "program": "sort",
        "input": "ba",
        "interpreter": ["a", "b"],
        "model": ["a", "b"],
        "agree": True,
    }


def test_steps_show_what_the_model_wrote_at_each_token(run):
    code, out, _ = run("program", "run", "sort", "3142", "--steps")
    assert code == 0
    rows = [re.split(r" {2,}", line) for line in out.splitlines()]
    assert ["layer 1, head 0", "1 / (1 + rank)", "0.333333", "1", "0.25", "0.5"] in rows
    assert ["layer 1, feed-forward", "rank", "2", "0", "3", "1"] in rows
    assert ["layer 2, head 0", "sorted", "1", "2", "3", "4"] in rows
    steps = json.loads(run("program", "run", "sort", "3142", "--steps", "--json")[1])["steps"]
    assert steps["rank"] == [2, 0, 3, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "sorted"], "got 'sorted'; did you mean sort?"),
        (["run", "sort", "3152"], "'5' is not in the vocabulary"),
        (["run", "sort", "314231"], "has 6 tokens but max_len is 5"),
        (["run", "sort", ""], "the sequence is empty"),
        (["show", "sort", "--max-len", "0"], "--max-len must be at least 1, got 0"),
        (["run", "substring", "a|b|c"], "'is |' selects 1 and 3"),
        (["show", "sort", "--sharpness", "1"], "--sharpness must be greater than 1"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(run, arguments, words):
    code, out, err = run("program", *arguments)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert words in first
    assert second.startswith("hint: ")

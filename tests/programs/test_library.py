"""Each program of the library is right on every input: interpreted, compiled and by brute force."""

import pytest
import torch
from program_answers import ANSWERS, list_inputs, substring

from clearhead.programs import compile, interpret, library
from clearhead.programs.catalogue import PROGRAMS, find_program

NUMERIC = {"unique"}


def differ(compiled, inputs, answers):
    """The first input on which the model is wrong."""
    outputs = compiled.run(inputs)
    return next(
        (
            (x, out, right)
            for x, out, right in zip(inputs, outputs, answers, strict=True)
            if not all(map(compiled.agrees, right, out))
        ),
        None,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_model_and_brute_force_agree_on_every_input(name):
    example = PROGRAMS[name]
    program, max_len = example.build(), example.max_len
    inputs = list_inputs(example.vocabulary, max_len)
    answers = [ANSWERS[name](x) for x in inputs]
    assert [interpret(program, x) for x in inputs] == answers
    assert differ(compile(program, example.vocabulary, max_len), inputs, answers) is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_float32_gives_the_same_answers(name):
    example = PROGRAMS[name]
    max_len = example.max_len
    compiled = compile(example.build(), example.vocabulary, max_len, dtype=torch.float32)
    assert compiled.model.head.weight.dtype == torch.float32
    inputs = list_inputs(example.vocabulary, max_len)
    answers = [ANSWERS[name](x) for x in inputs]
    outputs = [[round(x) for x in out] if name in NUMERIC else out for out in compiled.run(inputs)]
    assert outputs == answers


@pytest.mark.parametrize(("max_needle", "max_len"), [(1, 6), (2, 7), (4, 9)])
def test_substring_finds_needles_of_any_length_up_to_its_bound(max_needle, max_len):
    compiled = compile(library.substring(max_needle), "ab|", max_len)
    inputs = list_inputs("ab|", max_len)
    answers = [substring(x, max_needle) for x in inputs]
    assert any(
        len(x) - x.index("|") - 1 == max_needle and answer[0]
        for x, answer in zip(inputs, answers, strict=True)
    )
    assert differ(compiled, inputs, answers) is None


def test_sort_keeps_repeated_tokens_and_works_at_another_size():
    compiled = compile(library.sort(), range(10), 8)
    assert compiled([7, 3, 3, 9, 0, 3, 7, 1]) == [0, 1, 3, 3, 3, 7, 7, 9]
    assert compiled([5]) == [5]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_says_what_it_computes_and_has_a_sample(name):
    example = PROGRAMS[name]
    assert example.about.endswith(".")
    assert set(example.sample) <= set(example.vocabulary)
    assert len(example.sample) <= example.max_len


def test_an_unknown_name_is_answered_by_the_nearest():
    with pytest.raises(ValueError, match=r"got 'sorted'; did you mean sort\?"):
        find_program("sorted")

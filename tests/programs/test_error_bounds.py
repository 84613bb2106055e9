"""What the softmax leaves: no number in the stream is further off than the compiler says."""

import pytest
import torch
from program_answers import find_values, list_inputs
from random_programs import Maker

from clearhead.inspection import record
from clearhead.programs import compile, interpret
from clearhead.programs.catalogue import PROGRAMS


def measure_errors(compiled, inputs):
    """For each variable, the largest difference between the stream and the exact values."""
    last = f"stack.blocks.{compiled.plan.n_layers - 1}"
    ids, mask = compiled.encode(inputs)
    with torch.no_grad(), record(compiled.model) as trace:
        compiled.model(ids, token_mask=mask)
    stream = dict(zip(compiled.directions, trace[last].output.unbind(-1), strict=True))
    errors = {}
    for variable in compiled.plan.variables:
        worst = 0.0
        for row, x in enumerate(inputs):
            for place, exact in enumerate(find_values(variable, x), 1):
                for value, name in zip(variable.values, variable.directions, strict=False):
                    wanted = exact if variable.is_numeric else exact == value
                    worst = max(worst, abs(float(stream[name][row, place]) - float(wanted)))
        errors[variable.label] = worst
    return errors


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_number_in_the_stream_is_further_off_than_its_bound(name):
    example = PROGRAMS[name]
    compiled = compile(example.build(), example.vocabulary, 4, sharpness=13)
    errors = measure_errors(compiled, list_inputs(example.vocabulary, 4))
    bounds = compiled.plan.bounds
    assert errors.keys() == bounds.keys()
    assert {k: e for k, e in errors.items() if e > bounds[k] + 1e-12} == {}


def test_the_error_is_as_large_as_the_softmax_leaves_it():
    compiled = compile(PROGRAMS["shift"].build(), "ab", 4, sharpness=6)
    inputs = list_inputs("ab", 4)
    error = measure_errors(compiled, inputs)["shifted"]
    assert error == pytest.approx(compiled.error_bound, rel=1e-9)  # at the first position of four
    sharper = compile(PROGRAMS["shift"].build(), "ab", 4, sharpness=7)
    assert sharper.error_bound < compiled.error_bound / 2


def test_a_feed_forward_layer_removes_the_error():
    compiled = compile(PROGRAMS["histogram"].build(), "ab", 4, sharpness=8)
    assert compiled.plan.bounds["1 / (1 + count)"] > 1e-8
    assert compiled.error_bound == 0
    assert measure_errors(compiled, list_inputs("ab", 4))["count"] < 1e-12


def test_a_sharpness_at_which_the_bound_fails_is_refused():
    with pytest.raises(ValueError, match=r"sharpness must be greater than 1: 'count' reads"):
        compile(PROGRAMS["histogram"].build(), "ab", 4, sharpness=1)


def test_a_sharpness_at_which_the_greatest_logit_may_be_wrong_is_refused():
    with pytest.raises(ValueError, match=r"sharpness must be greater than 0.5: the logits of the"):
        compile(PROGRAMS["shift"].build(), "ab", 4, sharpness=0.5)


@pytest.mark.parametrize("sharpness", [2, 3, 5])
def test_what_is_accepted_at_a_low_sharpness_is_right(sharpness):
    example = PROGRAMS["shift"]
    compiled = compile(example.build(), "ab", 4, sharpness=sharpness)
    inputs = list_inputs("ab", 4)
    assert compiled.run(inputs) == [interpret(example.build(), x) for x in inputs]


@pytest.mark.parametrize("seed", range(6))
def test_bounds_hold_for_random_programs(seed):
    compiled = compile(Maker(seed).draw_program(6), "ab", 4, sharpness=16)
    errors = measure_errors(compiled, list_inputs("ab", 4))
    bounds = compiled.plan.bounds
    assert {k: e for k, e in errors.items() if e > bounds[k] + 1e-11} == {}

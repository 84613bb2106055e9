"""Compiled models: ordinary weights, right on random programs, as exact as their bound says."""

import numpy as np
import pytest
import torch
from program_answers import find_values, list_inputs
from random_programs import Maker

from clearhead.models import SequenceClassifier
from clearhead.programs import (
    aggregate,
    compile,
    everything,
    indices,
    interpret,
    make_plan,
    select,
    selector_width,
    tokens,
    where,
)
from clearhead.programs.catalogue import PROGRAMS

same = select(tokens, tokens, "==")
before = select(indices, indices, "<")


def agree(program, vocabulary, max_len):
    """Whether the compiled program is right on every input."""
    compiled = compile(program, vocabulary, max_len)
    inputs = list_inputs(vocabulary, max_len)
    outputs = compiled.run(inputs)
    pairs = zip(inputs, outputs, strict=True)
    return all(all(map(compiled.agrees, interpret(program, x), out)) for x, out in pairs)


@pytest.mark.parametrize("seed", range(24))
def test_a_random_program_compiles_into_what_it_means(seed):
    assert agree(Maker(seed).draw_program(5), "abc", 4)


@pytest.mark.parametrize(
    "selector",
    [
        ~same,
        same & before,
        same | before,
        ~(same | before) | select(indices, indices, ">="),
        same & ~before & select(tokens, indices, lambda t, i: i > 0 or t == "a"),
        (same | before) & (~same | select(indices, tokens, lambda i, t: i == 0)),
        where(tokens == "a") | where(indices == 2),
        everything & ~everything,
    ],
    ids=repr,
)
def test_selectors_combine_as_sets(selector):
    assert agree(selector_width(selector), "ab", 4)
    assert agree(aggregate(selector, (indices * 2 + 1).numeric(), default=-3), "ab", 4)


def test_a_program_without_attention_needs_no_head():
    compiled = compile(tokens.map({"a": 1, "b": 2}.get), "ab", 3)
    assert compiled("aba") == [1, 2, 1]
    assert not any(part.is_used for part in compiled.circuit)


def test_the_model_is_an_ordinary_classifier_whose_weights_are_all_there_is():
    compiled = compile(PROGRAMS["sort"].build(), "123", 4)
    config = compiled.model.config
    assert (config.norm, config.bias, config.activation) == ("none", False, "relu")
    other = SequenceClassifier(config).double()
    other.load_state_dict(compiled.model.state_dict())
    ids, mask = compiled.encode(["3121", "21"])
    assert ids.tolist() == [[0, 3, 1, 2, 1], [0, 2, 1, 0, 0]]
    logits = other.eval()(ids, token_mask=mask)
    assert compiled.decode(logits[:, 1:3])[1] == ["1", "2"]
    assert compiled.values == ("1", "2", "3", None)


def test_inputs_of_all_lengths_share_a_batch():
    compiled = compile(PROGRAMS["reverse"].build(), "abc", 5)
    inputs = ["a", "abcab", "cb", "abc"]
    assert compiled.run(inputs) == [list(x[::-1]) for x in inputs]
    assert compiled.run([]) == []


def test_compiling_leaves_the_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    compile(PROGRAMS["shift"].build(), "ab", 3)
    assert torch.rand(2).equal(expected)


# Names


def test_every_part_has_a_name_and_says_what_it_is_for():
    plan = make_plan(PROGRAMS["reverse"].build(), "abc", 4)
    assert [str(part) for part in plan.circuit] == [
        "layer 0, head 0: select everything",
        "layer 0, feed-forward: opposite",
        "layer 1, head 0: select indices == opposite",
        "layer 1, feed-forward: unused",
    ]
    head = plan.circuit[2]
    assert (head.kind, head.is_used, head.module) == ("copy", True, "stack.blocks.1.attention")
    assert head.reads == ("tokens", "indices", "opposite")
    assert head.writes == ("reversed",)
    assert plan.directions[:5] == ["start", "token", "tokens = a", "tokens = b", "tokens = c"]
    assert "opposite = 2" in plan.directions
    assert "opposite = -2" not in plan.directions  # nothing reads it
    assert len(set(plan.directions)) == len(plan.directions)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_circuit_calls_unused_has_no_weights_and_what_it_calls_used_has(name):
    example = PROGRAMS[name]
    compiled = compile(example.build(), example.vocabulary, 5)
    modules = dict(compiled.model.named_modules())
    assert len(compiled.circuit) == compiled.plan.n_layers * (compiled.plan.n_heads + 1)
    for part in compiled.circuit:
        out = modules[part.module].proj_out.weight  # (D, H·Dh) or (D, F)
        if part.head is not None:
            out = out.unflatten(1, (compiled.plan.n_heads, -1))[:, part.head]
        assert bool(out.any()) == part.is_used
        rows = [compiled.directions[row] for row in out.any(1).nonzero().flatten().tolist()]
        assert {row.partition(" = ")[0] for row in rows} == set(part.writes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_part_without_its_weights_changes_the_logits_where_the_circuit_calls_it_used(name):
    vocabulary, max_len = ("ab|", 7) if name == "substring" else (PROGRAMS[name].vocabulary, 5)
    compiled = compile(PROGRAMS[name].build(), vocabulary, max_len)
    ids, mask = compiled.encode(list_inputs(vocabulary, max_len))
    modules = dict(compiled.model.named_modules())

    @torch.no_grad()
    def answer():
        return compiled.model(ids, token_mask=mask)[mask]

    right = answer()
    for part in compiled.circuit:
        out = modules[part.module].proj_out.weight.data
        if part.head is not None:
            out = out.unflatten(1, (compiled.plan.n_heads, -1))[:, part.head]
        saved = out.clone()
        out.zero_()
        changed = float((answer() - right).abs().max())
        assert changed > 0.3 if part.is_used else changed == 0, str(part)
        out.copy_(saved)


def test_two_sequences_of_one_name_have_directions_of_their_own():
    left = aggregate(select(indices, indices - 1, "=="), tokens, "-").named("near")
    right = aggregate(select(indices, indices + 1, "=="), tokens, "-").named("near")
    program = left.map(lambda a, b: a + b, right)
    assert compile(program, "ab", 3)("aba") == ["-b", "aa", "b-"]
    assert "near (2) = a" in make_plan(program, "ab", 3).directions


def test_values_that_look_alike_have_directions_of_their_own():
    program = aggregate(select(indices, indices - 1, "=="), tokens)
    assert compile(program, [1, "1", "None"], 3)([1, "1", "None"]) == [None, 1, "1"]
    assert "tokens = '1'" in make_plan(program, [1, "1", "None"], 3).directions


def test_a_map_with_one_result_needs_no_layer():
    plan = make_plan(tokens.map(lambda a, i: 7, indices), "ab", 3)
    assert not any(part.is_used for part in plan.circuit)
    assert agree(plan.program, "ab", 3)


def test_independent_parts_share_a_layer_and_equal_selectors_a_head():
    counts = [selector_width(select(tokens, indices, lambda t, i, k=k: i > k)) for k in range(3)]
    plan = make_plan(counts[0].map(lambda *x: sum(x), *counts[1:]), "ab", 3)
    assert [len(plan.list_heads(layer)) for layer in range(plan.n_layers)] == [3, 0]
    twice = aggregate(same, indices.numeric()) - aggregate(
        select(tokens, tokens, "=="), tokens.map(ord).numeric()
    )
    plan = make_plan(twice, "ab", 3)
    assert (plan.n_layers, plan.n_heads) == (1, 1)


@pytest.mark.parametrize("name", ["reverse", "induction", "balanced"])
def test_the_steps_of_a_model_are_those_of_the_interpreter(name):
    compiled = compile(PROGRAMS[name].build(), PROGRAMS[name].vocabulary, 6)
    sample = PROGRAMS[name].sample
    for variable in compiled.plan.variables:
        exact = find_values(variable, sample)
        for value, computed in zip(exact, compiled.steps(sample)[variable.label], strict=True):
            assert computed == (pytest.approx(float(value)) if variable.is_numeric else value) or (
                computed == "·" and value not in variable.values
            )


# Mistakes


def shift_by(vocabulary, max_len, **settings):
    return compile(
        aggregate(select(indices, indices - 1, "=="), tokens), vocabulary, max_len, **settings
    )


def nest(sequence, n, step):
    for _ in range(n):
        sequence = step(sequence)
    return sequence


class Anonymous:
    """Equal by its key, but all look alike."""

    def __init__(self, key):
        self.key = key

    def __repr__(self):
        return "someone"

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return isinstance(other, Anonymous) and self.key == other.key


def test_values_that_all_look_alike_have_directions_of_their_own():
    a, b = Anonymous(1), Anonymous(2)
    assert shift_by([a, b], 3)([a, b, a]) == [None, a, b]


def test_max_len_may_be_a_number_of_numpy():
    assert type(make_plan(tokens, "ab", np.int64(3)).max_len) is int


def test_letters_may_be_anything_even_the_names_of_directions():
    vocabulary = ["", "\n", "\x00", "tokens = a", "start", "token", "ü", "😀", "a", " "]
    compiled = shift_by(vocabulary, len(vocabulary))
    assert compiled(vocabulary) == [None, *vocabulary[:-1]]


@pytest.mark.parametrize("step", [lambda x: (x + x) % 7, lambda x: (x + 2 * x).named("x") % 5])
def test_a_part_used_twice_again_and_again_is_computed_once(step):
    program = nest(indices, 40, step)
    assert len(program.label) < 300
    assert compile(program, "ab", 3)("aba") == interpret(program, "aba")


def test_sums_of_one_sequence_have_one_term():
    program = nest(indices.numeric(), 30, lambda x: x + x)
    assert program.label == f"{2**30}·indices"
    assert compile(program, "ab", 3)("ab") == [0, 2**30]


def test_selectors_of_selectors_have_short_labels():
    selector = nest(same, 40, lambda s: s & s)
    assert len(selector.label) < 300


def test_in_float32_a_number_may_differ_by_what_float32_rounds():
    program = aggregate(same, indices.numeric()) / 3
    compiled = compile(program, "ab", 5, dtype=torch.float32)
    assert all(map(compiled.agrees, interpret(program, "abaab"), compiled("abaab")))
    assert not compiled.agrees(1.0, 1.01)


def test_large_numbers_agree_as_far_as_floating_point_goes():
    program = aggregate(same, indices.numeric() * 10**9) / 7
    assert agree(program, "ab", 4)


def fail(value):
    raise KeyError("no such thing")


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        (lambda: compile("abc", "abc", 3), TypeError, "program must be a sequence"),
        (lambda: compile(tokens, "", 3), ValueError, "vocabulary is empty"),
        (lambda: compile(tokens, "aba", 3), ValueError, "vocabulary has 'a' twice"),
        (lambda: compile(tokens, "ab", 0), ValueError, "max_len must be at least 1, got 0"),
        (lambda: compile(tokens, "ab", 2.5), TypeError, "max_len must be a whole number, got 2.5"),
        (lambda: compile(tokens, "ab", 3, sharpness=-1), ValueError, "sharpness must be above 0"),
        (lambda: compile(tokens, "ab", 3, sharpness="x"), TypeError, "sharpness must be a number"),
        (lambda: compile(tokens, "ab", 3, sharpness=True), TypeError, "be a number, got True"),
        (
            lambda: compile(selector_width(nest(same & before, 3, lambda s: s & s | s)), "ab", 3),
            ValueError,
            "has more than 64 clauses; compute a part of it as a sequence",
        ),
        (lambda: compile(tokens, "ab", 3)("abab"), ValueError, "has 4 tokens but max_len is 3"),
        (lambda: compile(tokens, "ab", 3)("ax"), ValueError, "'x' is not in the vocabulary"),
        (lambda: compile(tokens, "ab", 3)(""), ValueError, "the sequence is empty"),
        (
            lambda: compile(tokens.map(fail), "ab", 3),
            ValueError,
            r"the function of 'fail\(tokens\)' fails for \('a'\): KeyError",
        ),
        (
            lambda: compile(selector_width(select(tokens, indices, "<")), "ab", 3),
            ValueError,
            r"'tokens < indices' fails for \('a', 0\): TypeError",
        ),
        (
            lambda: compile(aggregate(same, tokens).map(ord), "ab", 3),
            ValueError,
            r"fails for \(None\): .*, None standing for aggregate's default",
        ),
        (
            lambda: compile(
                aggregate(same, indices.numeric()).map(max, aggregate(before, indices.numeric())),
                "ab",
                3,
            ),
            TypeError,
            r"only one may be numeric; use \.categorical\(\)",
        ),
        (lambda: compile(tokens, 3, 3), TypeError, "vocabulary must hold the tokens .* got 3"),
        (lambda: compile(tokens, [[1]], 3), TypeError, r"letters, numbers or words, got \[1\]"),
        (lambda: compile(tokens, [float("nan")], 3), TypeError, "numbers or words, got nan"),
        (lambda: compile(tokens, "ab", 20_001), ValueError, "max_len must be at most 20,000"),
        (lambda: compile(tokens, "ab", 3, dtype=torch.half), ValueError, "dtype must be torch.fl"),
        (lambda: compile(tokens, "ab", 3).encode([]), ValueError, "inputs is empty"),
        (
            lambda: compile(tokens.map(lambda t: float("nan")), "ab", 3),
            ValueError,
            "the result is not equal to itself",
        ),
        (
            lambda: compile(nest(indices, 2000, lambda x: x + 1), "ab", 3),
            ValueError,
            "the program is nested too deeply; use fewer",
        ),
        (
            lambda: compile(indices.numeric() * 10**400, "ab", 3),
            ValueError,
            "too large for floating point; scale them down",
        ),
        (
            lambda: compile((indices / 10**10 + indices % 2 * 10**9).map(lambda x: x % 1), "ab", 3),
            ValueError,
            r"differ by 2e-10, too little for floating point beside 1e\+09; group",
        ),
        (
            lambda: compile(aggregate(same, (indices * indices).numeric()) > 0, "ab", 200),
            ValueError,
            r"combinations of values, more than 20,000; shorten max_len",
        ),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(run, error, words):
    with pytest.raises(error, match=words):
        run()

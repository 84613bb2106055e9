"""Known circuits: what each method can find of a compiled program, and what it cannot."""

import pytest
import torch
from findings import Between, check_numbers

from clearhead.lab import known_circuits
from clearhead.lab.known_circuits import MEASURES, METHODS, draw_pairs, is_found
from clearhead.programs import PROGRAMS, compile


@pytest.fixture(scope="module")
def finding():
    return known_circuits.experiment()


def test_no_method_finds_more_than_is_used_and_each_finds_the_last_step(finding) -> None:
    used = finding.numbers["used"]
    expected = {"used": used, "falsely_found": [0.0] * len(PROGRAMS)}
    expected |= {method: [Between(1, n) for n in used] for method in METHODS}
    expected |= {"own_score": [Between(0.25, 1)] * 3, "other_score": [Between(0, 0.3)] * 3}
    check_numbers(finding, expected)


def test_ablation_finds_most_and_a_gradient_little(finding) -> None:
    total = sum(finding.numbers["used"])
    shares = {method: sum(finding.numbers[method]) / total for method in METHODS}
    assert shares["ablation"] > 0.9
    assert shares["patching"] > 0.75
    assert shares["gradient"] < 0.4
    assert shares["attribution"] < 0.4


def test_heads_of_a_known_kind_have_the_highest_score_of_it(finding) -> None:
    for own, other in zip(
        finding.numbers["own_score"], finding.numbers["other_score"], strict=True
    ):
        assert own > other + 0.05
    assert finding.numbers["own_score"][0] == pytest.approx(1)  # exactly one token back
    assert "3 of 3 kinds" in finding.seen


@pytest.mark.parametrize("name", ["sort", "substring", "balanced"])
def test_pairs_are_inputs_of_the_program(name: str) -> None:
    example = PROGRAMS[name]
    clean, other = draw_pairs(name, 20, seed=1)
    for text in clean + other:
        assert len(text) == example.max_len
        assert set(text) <= set(example.vocabulary)
        assert text.count("|") == ("|" in example.vocabulary)


def test_patching_misses_the_length_which_all_inputs_share() -> None:
    example = PROGRAMS["reverse"]
    compiled = compile(example.build(), example.vocabulary, example.max_len)
    effects = MEASURES["patching"](compiled, *draw_pairs("reverse", 16, seed=0))
    found = [part.name for part in compiled.circuit if is_found(part, effects)]
    assert found == ["layer 1, head 0"]


def test_ablation_is_the_effect_of_weights_set_to_zero() -> None:
    example = PROGRAMS["sort"]
    compiled = compile(example.build(), example.vocabulary, example.max_len)
    clean, other = draw_pairs("sort", 8, seed=0)
    effects = MEASURES["ablation"](compiled, clean, other)
    tokens, _ = compiled.encode(clean)
    metric = known_circuits.make_metric(compiled, tokens)
    before = metric(compiled.model(tokens)).mean()
    compiled.model.stack.blocks[0].feed_forward.proj_out.weight.data.zero_()
    after = metric(compiled.model(tokens)).mean()
    torch.testing.assert_close(effects["feed_forward"][0], (after - before).abs().detach())

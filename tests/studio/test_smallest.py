"""The smallest transformer: the page shows what NumPy computes, and trains copies."""

import copy

import numpy as np
import pytest
import torch

from clearhead.models.smallest import NumpyTransformer, TorchTransformer, designs
from clearhead.runs import train
from clearhead.studio.arguments import read_arguments
from clearhead.studio.frames import decode_answer, encode_answer
from clearhead.studio.sources import Sources
from clearhead.studio.views.smallest import run_smallest, train_smallest
from clearhead.training import find_recipe, with_changes

RULES = ["identity", "first", "unique"]
STARTS = ["by hand", "random", "learned"]
EMPTY = Sources([])


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: on a busy machine a second thread only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(**arguments):
    """Through everything that the page's question goes through."""
    found = run_smallest(EMPTY, **read_arguments(run_smallest, {"text": "CAC", **arguments}))
    return decode_answer(encode_answer(found))


def stream(**arguments):
    return list(train_smallest(EMPTY, **read_arguments(train_smallest, arguments)))


def to_lists(parameters):
    return {name: None if x is None else x.tolist() for name, x in parameters.items()}


def execute(lines):
    names = {}
    exec(lines, names)
    return names


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("start", STARTS)
def test_the_python_lines_compute_the_same_matrices_and_count(rule, start):
    answer = run(rule=rule, start=start, text="CACB")
    found = execute(answer["python"])
    for name, matrix in found["matrices"].items():
        own = answer["parameters"][name] if name.endswith("m") else answer[name]
        np.testing.assert_allclose(own, matrix, rtol=1e-12, err_msg=name)
    assert answer["score"]["n_right"] == found["n_right"]


@pytest.mark.parametrize("rule", RULES)
def test_weights_set_by_hand_or_learned_make_no_mistake_and_drawn_ones_many(rule):
    by_hand, learned, drawn = (
        run(rule=rule, start=s)["score"] for s in ("by hand", "learned", "random")
    )
    assert by_hand["n_right"] == learned["n_right"] == by_hand["n"] == 3 + 9 + 27 + 81
    assert drawn["n_right"] < 60
    assert by_hand["mistakes"] == []
    assert len(drawn["mistakes"]) == 12


@pytest.mark.parametrize("rule", RULES)
def test_learned_matrices_have_the_shapes_of_those_set_by_hand(rule):
    shapes = [
        {
            name: x if x is None else x.shape
            for name, x in run(rule=rule, start=s)["parameters"].items()
        }
        for s in STARTS
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_a_mistake_is_named_and_seen_at_its_token():
    parameters = to_lists(run(rule="first")["parameters"])
    parameters["Vm"][1][1] = 0.4  # a B now says too little
    answer = run(rule="first", text="BAC", matrices=parameters)
    assert answer["is_right"].tolist() == [0, 0, 0]
    begin_with_b = sum(3**n for n in range(4))
    assert answer["score"]["n"] - answer["score"]["n_right"] == begin_with_b
    assert {text[0] for text in answer["score"]["mistakes"]} == {"B"}
    assert run(rule="first", text="ABC", matrices=parameters)["is_right"].tolist() == [1, 1, 1]


def test_unique_is_read_with_its_class_token_in_front():
    answer = run(rule="unique", text="ABB")
    assert answer["tokens"] == ["CLS", "A", "B", "B"]
    np.testing.assert_allclose(answer["Out"][:, 0], [1, 1, -1, -1])
    assert answer["inputs"] == ["A", "B", "C", "CLS", *(f"place {i}" for i in range(5))]
    assert answer["topics"] == ["A", "B", "C", "CLS", *(f"place {i}" for i in range(1, 5))]


def test_a_dull_design_errs_as_much_as_its_bound_allows():
    answer = run(rule="identity", sharpness=1.2, max_len=5)
    bound = designs.error_bound("identity", 1.2, 5)
    assert answer["score"]["worst"] == pytest.approx(bound)
    assert answer["bound"] == bound
    assert 0 < answer["score"]["n_right"] < answer["score"]["n"]


def test_edited_matrices_are_computed_as_they_are_given():
    Km, Qm, Vm = (np.round(np.random.default_rng(4).normal(size=(3, d)), 2) for d in (2, 2, 3))
    given = {"Km": Km.tolist(), "Qm": Qm.tolist(), "Vm": Vm.tolist()}
    answer = run(rule="identity", matrices=given)
    steps = NumpyTransformer(Km, Qm, Vm).steps(np.eye(3)[[2, 0, 2]])
    np.testing.assert_array_equal(answer["Attn"], steps.attention)
    np.testing.assert_array_equal(answer["Out"], steps.output)
    assert answer["topics"] is None


def test_training_streams_falling_losses_and_its_lines_train_the_same():
    start = to_lists(run(rule="first", start="random")["parameters"])
    given = copy.deepcopy(start)
    answers = stream(text="CA", rule="first", matrices=start, steps=25)
    assert [each["step"] for each in answers] == [*range(2, 25, 2), 25]
    assert answers[-1]["loss"] < 0.7 * answers[0]["loss"]
    assert start == given
    found = execute(answers[-1]["python"])
    np.testing.assert_array_equal(found["model"].Km, answers[-1]["parameters"]["Km"])
    np.testing.assert_array_equal(found["matrices"]["Out"], answers[-1]["Out"])


def test_each_loss_is_the_mean_of_the_steps_since_the_last_answer():
    start = to_lists(run(rule="first", start="random")["parameters"])
    answers = stream(text="CA", rule="first", matrices=start, steps=5)
    metrics = execute(answers[-1]["python"])["training"].storage.metrics
    first, second, third, fourth, fifth = (each["loss"] for each in metrics)
    expected = [(first + second) / 2, (third + fourth) / 2, fifth]
    assert [each["loss"] for each in answers] == pytest.approx(expected)


def test_training_from_a_drawn_start_learns_the_rule():
    parameters = to_lists(run(rule="unique", start="random")["parameters"])
    counts = []
    for _ in range(3):
        last = stream(text="A", rule="unique", matrices=parameters)[-1]
        parameters = to_lists(last["parameters"])
        counts.append(last["score"]["n_right"])
    assert counts[0] > 15
    assert counts[-1] == 120


def test_threads_and_random_numbers_are_afterwards_as_before():
    parameters = to_lists(run(rule="first")["parameters"])
    torch.set_num_threads(2)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run(rule="first", start="random", seed=3)
    stream(text="CA", rule="first", matrices=parameters, steps=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 2


def test_a_run_is_shown_with_its_own_rule_and_length(tmp_path):
    recipe = with_changes(find_recipe("first"), ["training.steps=2", "data.max_len=3"])
    result = train(recipe, tmp_path, device="cpu", threads=torch.get_num_threads())
    sources = Sources([str(result.run)])
    (name,) = sources.listed
    answer = run_smallest(sources, "CAC", start="run", model=name)
    assert (answer["rule"], answer["max_len"], answer["score"]["n"]) == ("first", 3, 39)
    model = sources.open(name).model
    assert isinstance(model, TorchTransformer)
    output = model(torch.eye(3)[[2, 0, 2]]).detach()
    np.testing.assert_allclose(answer["Out"], output, atol=1e-6)
    assert execute(answer["python"])["n_right"] == answer["score"]["n_right"]


def test_a_model_of_another_kind_is_refused_by_name(sources):
    name = next(id for id in sources.listed if sources.open(id).kind == "GPT")
    with pytest.raises(ValueError, match=f"{name} is a GPT; this view shows runs of a Torch"):
        run_smallest(sources, "CAC", start="run", model=name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"text": "CAD"}, "1 to 4 of the letters A, B and C"),
        ({"text": "ABCAB"}, "1 to 4 of the letters"),
        ({"max_len": 7}, "max_len must be"),
        ({"rule": "last"}, "rule must be one of identity, first, unique"),
        ({"sharpness": -1.0}, "sharpness must be"),
        ({"start": "run"}, "model is missing"),
        ({"matrices": {"Km": [[1.0]], "Qm": [[1.0]], "Vm": [[1.0]]}}, "identity needs the sizes"),
        ({"matrices": {"Km": [[1.0], [2.0]], "Qm": [[1.0]], "Vm": [[1.0]]}}, "Qm must have the"),
        ({"matrices": {"Km": [[2e6]], "Qm": [[1.0]], "Vm": [[1.0]]}}, "Km must hold numbers from"),
        ({"matrices": {"Km": [[1.0] * 65], "Qm": [[1.0]], "Vm": [[1.0]]}}, "Km must have at most"),
        ({"matrices": {"Km": [], "Qm": [[1.0]], "Vm": [[1.0]]}}, "Km must have rows"),
        ({"matrices": {"Km": [[1.0], [1.0, 2.0]], "Qm": [[1.0]], "Vm": [[1.0]]}}, "equal rows"),
    ],
)
def test_wrong_arguments_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        run(**changes)


def test_too_few_positions_are_named():
    parameters = to_lists(run(rule="first", max_len=4)["parameters"])
    with pytest.raises(ValueError, match="pos must have at least 5 rows"):
        run(rule="first", max_len=5, matrices=parameters)


def test_the_steps_of_a_training_are_limited():
    parameters = to_lists(run()["parameters"])
    with pytest.raises(ValueError, match="steps must be"):
        stream(text="A", matrices=parameters, steps=1001)

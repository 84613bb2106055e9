"""Whole submissions, checked in the sandbox: styles of handing in that must not cost a student."""

import json

import pytest
from exercises.test_intake import GOOD, notebook, write, write_tree

from clearhead.exercises.check import check_part, find_parts
from clearhead.exercises.intake import read_submission
from clearhead.exercises.report import Part
from clearhead.exercises.sandbox import Sandbox


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as sandbox:
        yield sandbox


def check(sandbox, path, exercise="attention"):
    submission = read_submission(path)
    definition = find_parts(submission, [exercise], {})[exercise]
    return check_part(submission, exercise, definition, sandbox, seed=5)


HELPED = GOOD.replace("scores.softmax(-1)", "weigh(scores)")
WEIGH = "import torch\ndef weigh(x):\n    return torch.softmax(x, -1)\n"
ADAPTER = "from pack.nn import attention as own\n"
ADAPTER += (
    "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    return own(Q, K, V, mask)\n"
)
FILES = {
    "byte-order mark": "\ufeff" + GOOD,
    "form feed": "import torch\n\x0c\n" + GOOD,
    "line separators in a text": GOOD.replace(
        "    scores =", "    x = 'a\u2028\x85\x0cb'\n    scores =", 1
    ),
    "annotations for type checkers": "from __future__ import annotations\n"
    + GOOD.replace("q, k, v", "q: Tensor, k, v"),
    "annotations of an absent package": "from jaxtyping import Float\n"
    + GOOD.replace("q, k, v", "q: Float[torch.Tensor, 'b t d'], k, v"),
    "torch.compile": GOOD.replace("def attention", "@torch.compile\ndef attention"),
    "under if": "if True:\n" + "".join(f"    {line}\n" for line in GOOD.splitlines()),
    "own test fails": GOOD + "assert False, 'mine'\n",
    "arguments of a program": "import argparse\nargparse.ArgumentParser().parse_args(['x'])\n"
    + GOOD,
    "cuda": "import torch\nx = torch.ones(3).cuda()\n" + GOOD,
}
FOLDERS = {
    "a package": {"pack/nn.py": GOOD, "tests/adapters.py": ADAPTER},
    "relative imports": {
        "p/__init__.py": "",
        "p/a.py": "from .z import weigh\n" + HELPED,
        "p/z.py": WEIGH,
    },
    "siblings in src": {"src/a.py": "from z import weigh\n" + HELPED, "src/z.py": WEIGH},
    "one broken file": {"a.py": "def f(:", "b.py": GOOD},
    "a library imported by a notebook": {
        "a.ipynb": notebook((True, "from z import weigh\n" + HELPED)),
        "z.py": WEIGH,
    },
}


@pytest.mark.parametrize("name", FILES)
def test_G18_a_right_file_passes_however_it_is_written(sandbox, tmp_path, name):
    part = check(sandbox, write(tmp_path, "a.py", FILES[name]))
    assert part.verdict == "passed", part.text


@pytest.mark.parametrize("name", FOLDERS)
def test_G18_a_right_folder_passes_however_it_is_arranged(sandbox, tmp_path, name):
    write_tree(tmp_path, FOLDERS[name])
    part = check(sandbox, tmp_path)
    assert part.verdict == "passed", part.text


def test_a_failing_cell_stops_only_what_depends_on_it(sandbox, tmp_path):
    cells = [(True, "raise ValueError('x')"), (True, "weigh = missing.softmax"), (True, GOOD)]
    part = check(sandbox, write(tmp_path, "a.ipynb", notebook(*cells)))
    assert part.verdict == "passed", part.text
    assert part.notes[0].startswith("cell 1, line 1 raises ValueError: x")
    cells[2] = (True, HELPED)
    part = check(sandbox, write(tmp_path, "b.ipynb", notebook(*cells)))
    assert part.verdict == "error"
    assert "weigh" in part.sentence
    assert part.notes[1].startswith("cell 2, line 1 raises NameError")


def test_the_line_of_a_mistake_names_file_and_cell(sandbox, tmp_path):
    wrong = GOOD.replace(" / q.shape[-1] ** 0.5", "")
    write(tmp_path, "b.ipynb", notebook((True, "x = 1"), (True, wrong)))
    write(tmp_path, "a.py", "y = 1\n")
    part = check(sandbox, tmp_path)
    assert (part.mistake, part.where) == ("no_scaling", "b.ipynb, cell 2, line 3")
    assert json.loads(json.dumps(part.to_json()))["where"] == part.where


def test_what_a_file_deletes_is_not_there(sandbox, tmp_path):
    part = check(sandbox, write(tmp_path, "a.py", GOOD + "del attention\n"))
    assert part.sentence == "attention no longer exists after the file has run"


def test_an_example_is_called_only_if_it_can_be(sandbox, tmp_path):
    eye = "import numpy as np\nKm = Qm = Vm = np.eye(3)\n"
    arrays = check(sandbox, write(tmp_path, "a.py", eye), "hand_identity")
    assert arrays.mistake == "too_soft"
    assert "snippet" not in arrays.example
    model = "def generate(model, tokens, n):\n    return tokens\n"
    given = check(sandbox, write(tmp_path, "b.py", model), "generate")
    assert set(given.example["inputs"]) == {"tokens", "n"}
    assert "snippet" not in given.example


def test_a_returned_generator_is_told_as_such(sandbox, tmp_path):
    text = "def generate(model, tokens, n):\n    yield model(tokens)\n"
    found = check(sandbox, write(tmp_path, "a.py", text), "generate")
    assert found.outcome == "narrowed"
    assert "it returns a generator" in found.sentence


def test_numbers_that_are_not_finite_have_no_quotes_on_the_screen_and_have_them_in_json():
    example = {"inputs": {"x": [1.0]}, "expected": {"y": [0.5]}, "got": {"y": ["nan", "-inf", 2]}}
    part = Part("attention", "failed", example=example)
    assert "got y            [nan, -inf, 2]" in part.text
    assert json.loads(json.dumps(part.to_json()))["example"]["got"] == {"y": ["nan", "-inf", 2]}

"""Submissions as students hand them in."""

import json

import pytest

from clearhead.exercises.catalogue import read_catalogue
from clearhead.exercises.check import find_parts
from clearhead.exercises.contracts import EXERCISES, find_exercise
from clearhead.exercises.definitions import find_definition, read_definitions
from clearhead.exercises.intake import MAX_FILES, read_source, read_submission
from clearhead.exercises.lines import find_line
from clearhead.files.reading import BadFile

SOURCE = '''\
import torch
a = 1; b = 2

@torch.no_grad()
def attention(q, k, *, v):
    """softmax over nothing"""
    # softmax here
    return helper(q @ k.mT) @ v

def helper(scores):
    return scores.softmax(-1)

class Head:
    def __init__(self, d_key):
        pass

    def forward(self, x):
        return x
'''


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_split_into_statements_and_read_without_running_it(tmp_path):
    found = read_submission(write(tmp_path, "a.py", "raise SystemExit\n" + SOURCE))
    assert [first for first, _ in found.cells] == [1, 2, 3, 5, 11, 14]
    assert found.cells[2][1] == "a = 1; b = 2"
    assert found.cells[3][1].startswith("@torch.no_grad()")
    assert found.definitions["attention"].parameters == ("q", "k", "v")
    assert found.definitions["Head"].parameters == ("d_key",)
    assert found.definitions["Head.forward"].kind == "function"
    assert found.definitions["b"].kind == "value"


def notebook(*cells):
    kinds = [{"cell_type": "code" if kind else "markdown", "source": text} for kind, text in cells]
    return json.dumps({"cells": kinds})


def test_of_a_notebook_code_cells_count_and_lines_are_those_of_the_cell(tmp_path):
    text = notebook(
        (True, "%matplotlib inline\n!pip install x\nimport torch"),
        (False, "# words"),
        (True, "def broken(:\n  pass"),
        (True, ["def attention(q, k, v):\n", "    return v\n"]),
    )
    found = read_submission(write(tmp_path, "a.ipynb", text))
    assert "2 lines with magics or shell commands ignored" in found.notes
    assert any(note.startswith("cell 2 is left out: invalid syntax") for note in found.notes)
    line = found.definitions["attention"].lines[0]
    assert found.describe_line(line + 1) == "cell 3, line 2"
    assert found.source.splitlines()[line - 1] == "def attention(q, k, v):"


def test_files_of_a_folder_share_their_names_and_keep_their_lines(tmp_path):
    write(tmp_path, "a.py", "x = 1\ndef f():\n    pass\n")
    write(tmp_path, "b.py", "from a import f\ndef g():\n    pass\n")
    found = read_submission(tmp_path)
    assert set(found.files) == {"a.py", "b.py"}
    first = found.definitions["g"].lines[0]
    assert found.source.splitlines()[first - 1] == "def g():"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.py", "def f(:\n", "cannot be read as Python: invalid syntax in line 1"),
        ("a.py", "x = 1\0", "NUL"),
        ("a.ipynb", "[1, 2]", "not a notebook"),
        ("a.ipynb", "{", "not a notebook"),
        ("a.py", "(" * 5000 + ")" * 5000, "cannot be read as Python"),
    ],
)
def test_G20_what_cannot_be_read_is_said(tmp_path, name, text, words):
    with pytest.raises(BadFile, match=words):
        read_submission(write(tmp_path, name, text))


def test_an_empty_folder_and_a_missing_file_are_said(tmp_path):
    with pytest.raises(BadFile, match=r"no \.py file"):
        read_submission(tmp_path)
    with pytest.raises(BadFile, match="is not there"):
        read_submission(tmp_path / "no.py")


def test_a_name_is_found_nearly_spelled_but_a_function_is_no_class(tmp_path):
    found = read_submission(write(tmp_path, "a.py", "def self_attn(x): pass\nclass attention: 0"))
    assert find_definition(["selfAttn"], found.definitions).name == "self_attn"
    assert find_definition(["SelfAttn"], found.definitions) is None


def test_the_line_is_in_code_not_in_words_and_in_functions_that_are_called(tmp_path):
    found = read_submission(write(tmp_path, "a.py", SOURCE))
    definition = found.definitions["attention"]
    assert find_line(SOURCE, definition, ["q@k"]) == 8
    assert find_line(SOURCE, definition, ["softmax("]) == 11
    assert find_line(SOURCE, definition, ["nowhere"]) is None


@pytest.mark.parametrize("name", EXERCISES)
def test_a_mistake_is_in_a_term_that_has_words(name):
    exercise = find_exercise(name)
    assert all(each.term in exercise.terms for each in exercise.mistakes.values())


def test_the_catalogue_is_in_reading_order():
    assert list(read_catalogue()) == list(EXERCISES)


def test_a_class_is_found_by_the_parameters_of_its_call():
    source = "class Attn:\n    def forward(self, q, k, v, mask=None):\n        return v\n"
    found = find_parts(read_source(source, "a.py"), ["attention"], {})
    assert found["attention"].name == "Attn"


def test_lines_in_docstrings_do_not_count():
    source = 'def f(q):\n    "q @ k"\n    return q @ q\n'
    assert find_line(source, read_definitions(source)["f"], ["@"]) == 3


GOOD = """\
import torch
def attention(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -torch.inf)
    return scores.softmax(-1) @ v
"""


@pytest.mark.parametrize("mark", ["\x0c", "\x0b", "\x1c", "\x85", "\u2028"])
def test_only_line_ends_of_python_split_lines(tmp_path, mark):
    found = read_submission(write(tmp_path, "a.py", f"x = 'a{mark}b'\n{GOOD}"))
    assert found.cells[0][1] == f"x = 'a{mark}b'"
    assert found.cells[2][0] == 3
    assert found.cells[2][1].startswith("def attention")


@pytest.mark.parametrize(
    ("cell", "kept"),
    [
        ("import torch\nfiles = !ls\nx = 1", "import torch\nfiles = None\nx = 1"),
        ("if True:\n    !pip install x\ny = 2", "if True:\n    pass\ny = 2"),
        ("!ls | \\\n grep x\ny = 2", "pass\n\ny = 2"),
        ("x = (7\n  % 4)", "x = (7\n  % 4)"),
        ("%matplotlib inline\ns = '''\n%d\n!x\n'''", "pass\ns = '''\n%d\n!x\n'''"),
        ("torch.softmax?\n?torch\nx = 1", "pass\npass\nx = 1"),
        ("%%time\nx = 1", "\nx = 1"),
        ("%%bash\nls\nfor f in *; do echo; done", "\n\n"),
        ("%%html\nls", "\n"),
    ],
)
def test_magics_are_replaced_only_where_python_cannot_read_them(tmp_path, cell, kept):
    found = read_submission(write(tmp_path, "a.ipynb", notebook((True, cell))))
    assert found.source == kept
    assert bool(found.notes) == (kept != cell), found.notes


def test_a_cell_of_another_language_is_named(tmp_path):
    found = read_submission(write(tmp_path, "a.ipynb", notebook((True, "%%bash\nls"))))
    assert found.notes == ["cell 1 is ignored: it is for %%bash"]


def test_a_cell_with_thousands_of_magics_is_read_in_time(tmp_path):
    text = notebook((True, "!ls\n" * 20_000 + "x = 1"))
    found = read_submission(write(tmp_path, "a.ipynb", text))
    assert "x" in found.definitions


@pytest.mark.parametrize("cell", ["x = '\ud800'", "(" * 5000, "x = '\0'", "def f(:"])
def test_a_cell_that_cannot_be_read_leaves_the_others(tmp_path, cell):
    found = read_submission(write(tmp_path, "a.ipynb", notebook((True, cell), (True, GOOD))))
    assert "attention" in found.definitions
    assert found.notes[0].startswith("cell 1 is left out: ")


def test_a_code_cell_without_source_is_an_empty_one(tmp_path):
    text = json.dumps({"cells": [{"cell_type": "code"}, {"cell_type": "code", "source": GOOD}]})
    assert "attention" in read_submission(write(tmp_path, "a.ipynb", text)).definitions


def test_definitions_under_if_and_try_are_found_but_not_those_of_main():
    source = "try:\n    def f(): pass\nexcept E:\n    def g(): pass\nif True:\n    class H: pass\n"
    source += "if __name__ == '__main__':\n    def attention(q): pass\n"
    assert set(read_definitions(source)) == {"f", "g", "H"}


def write_tree(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder, name, text)


def test_nested_folders_are_read_and_lines_name_their_file(tmp_path):
    files = {"tests/adapters.py": "x = 1\ndef f():\n    pass\n", "pack/nn.py": GOOD}
    files |= {"pack/.hidden/a.py": "y = 1", ".venv/b.py": "z = 1", "pack/test_nn.py": "w = 1"}
    write_tree(tmp_path, files)
    found = read_submission(tmp_path)
    assert set(found.files) == {"tests/adapters.py", "pack/nn.py", "pack/test_nn.py"}
    assert set(found.definitions) == {"attention", "x", "f"}
    assert found.describe_line(found.definitions["f"].lines[0]) == "tests/adapters.py, line 2"


def test_a_file_that_is_left_out_is_named_by_its_path(tmp_path):
    write_tree(tmp_path, {"a/b.py": "def f(:", "c.py": GOOD})
    (note,) = read_submission(tmp_path).notes
    assert note == "left out: a/b.py cannot be read as Python: invalid syntax in line 1"


def test_a_notebook_in_a_folder_counts_its_cells(tmp_path):
    write(tmp_path, "a.py", "x = 1\n")
    write(tmp_path, "b.ipynb", notebook((True, "y = 1"), (True, GOOD)))
    found = read_submission(tmp_path)
    line = found.definitions["attention"].lines[0]
    assert found.describe_line(line) == "b.ipynb, cell 2, line 2"


def test_a_linked_folder_is_not_followed(tmp_path):
    write(tmp_path, "a.py", "x = 1\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert set(read_submission(tmp_path).files) == {"a.py"}


def test_a_folder_with_too_many_files_says_what_is_left_out(tmp_path):
    write_tree(tmp_path, {f"a{n:03}.py": "x = 1\n" for n in range(MAX_FILES + 3)})
    found = read_submission(tmp_path)
    assert len(found.files) == MAX_FILES
    assert found.notes == [f"left out: 3 files, since a submission has at most {MAX_FILES}"]


@pytest.mark.parametrize(
    ("signature", "exercises"),
    [
        ("MultiHeadAttention(modules, output_dim)", ["joined_heads"]),
        ("MultiHeadAttention(heads, d_model)", ["multi_head_attention"]),
        ("MultiheadAttention(input_dim, embed_dim, num_heads)", ["multi_head_attention"]),
        ("SelfAttention(input_dim, key_dim, output_dim)", ["self_attention"]),
        ("SelfAttention(emb, heads)", ["multi_head_attention"]),
        ("Attention(enc_dim, dec_dim)", []),
    ],
)
def test_parameters_tell_exercises_of_one_name_apart(signature, exercises):
    name, parameters = signature[:-1].split("(")
    source = f"class {name}:\n    def __init__(self, {parameters}):\n        pass\n"
    assert list(find_parts(read_source(source, "a.py"), [], {})) == exercises

"""A file to start from: signature, formula and shapes of an exercise, and an example to reach.

print(write_template("attention"))
write_sheet(Path("sheet"))             all exercises, as Markdown and as a notebook
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.exercises.catalogue import Entry, read_catalogue, read_entry
from clearhead.files.writing import write_new_text


def write_template(name: str) -> str:
    """A Python file in which only the body is missing."""
    entry = read_entry(name)
    usage = f"Check your answer with: clearhead check {name}.py"
    head = [f'"""{entry.title}.', "", f"    {entry.formula}", "", usage, '"""', ""]
    imports = ["import math", "", "import torch", "from torch import nn", "", ""]
    return "\n".join([*head, *imports, *_write_body(entry), *_write_example(name), ""])


CALL = re.compile(r"\w+\([^()]*\)(\.\w+)?(\([^()]*\))?")


def _write_body(entry: Entry) -> Iterator[str]:
    """def name(arguments), or a class with __init__ and the method that is called."""
    call = _read_call(entry.signature)
    if call is None:  # arrays such as Km, Qm, Vm
        names = re.findall(r"\b(?:Km|Qm|Vm|pos)\b", entry.signature.replace("no pos", ""))
        yield f"# {entry.signature}"
        yield from (f"{name} = None" for name in dict.fromkeys(names))
        return
    built = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    if isinstance(built, ast.Call):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else "forward"
        yield from _write_class(built)
        yield f"    def {method}({_arguments(call, 'self')}):"
        yield from _missing(entry, "        ")
    elif ast.unparse(built)[0].isupper():
        yield from _write_class(call)
        yield f"    # {entry.signature}"
    else:
        yield f"def {ast.unparse(call.func)}({_arguments(call)}):"
        yield from _missing(entry, "    ")


def _write_class(built: ast.Call) -> Iterator[str]:
    yield f"class {ast.unparse(built.func)}(nn.Module):"
    yield f"    def __init__({_arguments(built, 'self')}):"
    yield "        super().__init__()"
    yield ""


def _read_call(signature: str) -> ast.Call | None:
    """The call that a signature begins with; words may follow."""
    found = CALL.match(re.sub(r"\[.*?\]", "", signature))
    call = ast.parse(found[0], mode="eval").body if found else None
    return call if isinstance(call, ast.Call) else None


def _arguments(call: ast.Call, *first: str) -> str:
    names = [ast.unparse(each) for each in call.args]
    return ", ".join([*first, *names, *(ast.unparse(each) for each in call.keywords)])


def _missing(entry: Entry, indent: str) -> Iterator[str]:
    yield f'{indent}"""{entry.formula}"""'
    yield f'{indent}raise NotImplementedError("write {entry.name} here")'


def _write_example(name: str) -> Iterator[str]:
    """An example with the expected result, as comments."""
    example = read_entry(name).example
    if example is None:
        return
    yield ""
    yield ""
    yield "# A first example:"
    for key, value in example["inputs"].items():
        yield f"#     {key} = {json.dumps(value, ensure_ascii=False)}"
    yield f"#     expected: {json.dumps(example['expected'], ensure_ascii=False)}"


# A whole sheet


def write_sheet(folder: Path) -> list[Path]:
    """All exercises as sheet.md and sheet.ipynb in a folder."""
    entries = list(read_catalogue().values())
    cells = [_markdown("# Exercises\n\nCheck them with: `clearhead check sheet.ipynb`")]
    text = ["# Exercises", ""]
    for entry in entries:
        code = "\n".join([*_write_body(entry), *_write_example(entry.name)])
        words = f"## {entry.title}\n\n`{entry.signature}`, {entry.points:g} points\n\n"
        words += f"    {entry.formula}\n"
        text += [words, f"```python\n{code}\n```", ""]
        cells += [_markdown(words), _code(code)]
    cells.insert(1, _code("import math\n\nimport numpy as np\nimport torch\nfrom torch import nn"))
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    paths = [folder / "sheet.md", folder / "sheet.ipynb"]
    write_new_text(paths[0], "\n".join(text))
    write_new_text(paths[1], json.dumps(notebook, ensure_ascii=False, indent=1))
    return paths


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str) -> dict[str, Any]:
    cell = {"cell_type": "code", "metadata": {}, "source": text}
    return cell | {"execution_count": None, "outputs": []}

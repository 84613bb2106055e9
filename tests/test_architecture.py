"""The shape of the package: who imports whom, what every file has, and what none may have."""

import ast
import json
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import clearhead

PACKAGE = Path(clearhead.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]

# Data flows one way: each may import from those before it, never from those after.
ORDER = ["timing", "shapes", "config", "runtime", "files", "data", "positions"]
ORDER += ["attention", "layers", "models", "generation", "training", "parallel", "runs"]
ORDER += ["inspection", "programs", "lab", "exercises", "interop", "studio", "bench", "cli"]
ORDER += ["__main__"]
ORDER += ["renamed"]  # only the package itself imports it, before anything else
HEAVY = {"torch", "numpy", "matplotlib", "scipy", "pandas", "PIL"}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "yaml"}


def statements(tree, *, running_only=False):
    """Every node; with running_only those that run at import: not in functions, not for types."""
    for node in ast.iter_child_nodes(tree):
        if running_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if running_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from statements(node, running_only=running_only)


def imported(tree, *, running_only=False):
    """The full name of each imported module, with a leading dot for each step of a relative one."""
    for node in statements(tree, running_only=running_only):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            if node.module == "clearhead":
                yield from (f"clearhead.{alias.name}" for alias in node.names)


def part_of(relative_path):
    """shapes for shapes.py, attention for attention/masks.py."""
    return Path(relative_path).parts[0].removesuffix(".py")


def wrong_imports(name, source):
    """What is wrong with the imports of the file of this name in the package."""
    own, modules = part_of(name), list(imported(ast.parse(source)))
    complaints = [f"{module} is relative" for module in modules if module.startswith(".")]
    for module in modules:
        root, _, rest = module.partition(".")
        if root != "clearhead" or not rest or rest.startswith("__"):
            continue
        other = rest.split(".")[0]
        if other not in ORDER:
            complaints.append(f"{module} has no place in the order")
        elif ORDER.index(other) > ORDER.index(own):
            complaints.append(f"{module} stands below {own}")
    return complaints


def unsafe_calls(source):
    """pickle, torch.load, eval( and exec( run what a file says; module.eval() is fine."""
    tree = ast.parse(source)
    found = [name for name in imported(tree) if name.split(".")[0] in UNSAFE_MODULES]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] * (node.func.id in ("eval", "exec", "compile", "__import__"))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "np.load"):
            found.append(ast.unparse(node))
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            found += [f"torch.{a.name}" for a in node.names if a.name == "load"]
    return found


def read(name):
    return (PACKAGE / name).read_text(encoding="utf-8")


# Imports


def test_every_file_imports_absolutely_and_only_from_above():
    names = [name for name in NAMES if name != "__init__.py"]
    assert [name for name in names if part_of(name) not in ORDER] == []
    wrong = {name: wrong_imports(name, read(name)) for name in names}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_the_package_itself_imports_only_the_table_of_renamed_things():
    found = set(imported(ast.parse(read("__init__.py"))))
    assert {name for name in found if name.startswith("clearhead")} == {
        "clearhead",
        "clearhead.renamed",
    }


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("positions/x.py", "from clearhead.attention import Mask", "stands below positions"),
        ("attention/x.py", "import clearhead.layers.block", "stands below attention"),
        ("shapes.py", "def f():\n    from clearhead import runtime", "stands below shapes"),
        ("attention/x.py", "from . import masks", "relative"),
        ("attention/x.py", "from ..positions import x", "relative"),
        ("attention/x.py", "from clearhead.utils import x", "no place"),
        ("lab/x.py", "if True:\n    import clearhead.cli.main", "stands below lab"),
    ],
)
def test_a_wrong_import_would_be_found(name, source, complaint):
    assert any(complaint in words for words in wrong_imports(name, source))


def test_a_right_import_is_not_complained_about():
    source = (
        "import torch\nfrom clearhead import __version__\nfrom clearhead.shapes import check_qkv"
    )
    assert wrong_imports("attention/x.py", source) == []


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("cli/")])
def test_the_command_line_imports_nothing_heavy_at_the_start(name):
    roots = {m.split(".")[0] for m in imported(ast.parse(read(name)), running_only=True)}
    assert not roots & HEAVY


def test_the_list_of_experiments_imports_nothing_heavy():
    tree = ast.parse(read("lab/__init__.py"))
    modules = set(imported(tree, running_only=True))
    assert not {m.split(".")[0] for m in modules} & HEAVY
    assert not {m for m in modules if m.startswith("clearhead")}


def test_imports_for_types_and_inside_functions_do_not_run_at_the_start():
    source = "if TYPE_CHECKING:\n    import numpy\ndef f():\n    import torch\nimport json"
    assert list(imported(ast.parse(source), running_only=True)) == ["json"]
    assert "matplotlib" in imported(ast.parse("try:\n    import matplotlib\nfinally:\n    pass"))


# What every file has


def test_every_file_says_what_it_is():
    texts = {name: ast.get_docstring(ast.parse(read(name))) or "" for name in NAMES}
    assert [name for name, text in texts.items() if not text.strip()] == []


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("/__init__.py")])
def test_every_folder_lists_its_public_names_and_they_exist(name):
    module = import_module("clearhead." + name.removesuffix("/__init__.py").replace("/", "."))
    assert hasattr(module, "__all__"), f"{name} has no __all__"
    assert [n for n in module.__all__ if not hasattr(module, n)] == []
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("/__init__.py")])
def test_the_map_of_a_folder_names_every_file_in_it(name):
    """Who opens a folder finds in its docstring which file to read."""
    text = ast.get_docstring(ast.parse(read(name))) or ""
    files = [p.name for p in (PACKAGE / name).parent.glob("*.py") if p.name != "__init__.py"]
    assert [file for file in files if file not in text] == []


def test_the_map_of_the_package_names_every_folder_in_the_order_of_imports():
    folders = {part_of(name) for name in NAMES if name != "__init__.py"}
    listed = [line.split()[0].rstrip("/").removesuffix(".py") for line in map_lines()]
    assert listed == [part for part in ORDER if part in folders]


def map_lines():
    return [line for line in clearhead.__doc__.splitlines() if line.startswith("    ")]


# What no file has


def test_only_runtime_and_parallel_know_how_processes_find_one_another():
    """bench starts groups of its own; __main__ asks only whether an agent has started it."""
    names = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    knowing = set()
    for name, path in zip(NAMES, FILES, strict=True):
        tree = ast.parse(path.read_text())
        words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        uses = any(module.startswith("torch.distributed") for module in imported(tree))
        if uses or len(names & {word for word in words if isinstance(word, str)}) > 1:
            knowing.add(part_of(name))
    assert knowing == {"runtime", "parallel", "bench"}


def test_there_is_no_drawer_for_odds_and_ends():
    assert not {Path(n).stem for n in NAMES} & {"util", "utils", "helpers", "misc", "common"}


def test_no_file_runs_what_another_file_says():
    unsafe = {name: unsafe_calls(read(name)) for name in NAMES}
    allowed = {"exercises/sandbox/objects.py": ["compile", "exec"]}  # in a process without rights
    assert {name: calls for name, calls in unsafe.items() if calls} == allowed


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "torch.load('x')",
        "from torch import load",
        "eval('1')",
        "exec('x = 1')",
        "read = torch.load",
    ],
)
def test_an_unsafe_call_would_be_found(source):
    assert unsafe_calls(source)
    assert not unsafe_calls("model.eval()\nsafetensors.torch.load_file('x')")


# Help is instant

# Runs commands one after the other; after each it tells which modules have been imported by now.
PROGRAM = """
import contextlib, io, json, sys
from clearhead.cli.main import main
modules = []
for command in json.loads(sys.argv[1]):
    sys.argv = ["clearhead", *command]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main()
    modules.append(sorted(sys.modules))
print(json.dumps(modules))
"""

QUICK = [["--help"], ["--version"], ["lab"], ["lab", "--help"], ["lab", "nothing"], ["plot", "x"]]
QUICK += [["train", "--help"], ["train", "nosuch"], ["train", "--resume", "nosuch"], ["train"]]
QUICK += [["train", "substring", "nosuch"], ["eval", "nosuch"], ["predict", "nosuch", "x"]]
QUICK += [["launch", "--help"], ["launch"], ["launch", "eval"], ["launch", "train", "nosuch"]]
QUICK += [["launch", "--processes", "0", "train", "substring"], ["launch", "train"]]
QUICK += [["launch", "--node-rank", "1", "train", "substring"], ["launch", "train", "--help"]]
QUICK += [["recipes", "list"], ["recipes", "show", "nosuch"]]
QUICK += [["plan", "--help"], ["plan", "nosuch"], ["plan", "substring", "--gpu", "nosuch"]]
QUICK += [["data", "pack", "--help"], ["data", "pack", "nosuch.txt"], ["data", "verify", "nosuch"]]
QUICK += [["data", "pack", __file__, "--tokenizer", "nosuch"], ["data", "pack"]]
QUICK += [["program"], ["program", "show", "nosuch"], ["program", "run", "nosuch", "a"]]
QUICK += [["audit", "--help"], ["audit"], ["audit", "nosuch.md"]]
QUICK += [["grade", "--help"], ["grade", "nosuch"], ["gradescope-zip", "--help"]]
QUICK += [["studio", "--help"], ["studio", "nosuch"], ["studio", "--host", "0.0.0.0"]]


def environment():
    """That of a user: whatever this process was told about threads or profiling is left out."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("COV_", "PYTEST"))}
    return kept | {"PYTHONPATH": str(PACKAGE.parent)}


def test_help_and_mistakes_import_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(QUICK)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    for arguments, modules in zip(QUICK, json.loads(done.stdout), strict=True):
        assert "clearhead.cli.main" in modules
        assert not {module.split(".")[0] for module in modules} & HEAVY, arguments


def cpu_seconds(*arguments):
    """Processor time of a child: time in which other programs run does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True, env=environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def is_quick(arguments):
    """Whether the command takes under 0.8 s more than Python alone, which it is timed beside.

    It takes less than half of that on a quiet machine; importing torch would take twice as much.
    """
    bare = cpu_seconds("-c", "pass")
    slowness = max(1.0, bare / 0.02)  # Python alone starts in 0.02 s on a quiet machine
    return cpu_seconds("-m", "clearhead.cli.main", *arguments) < bare + 0.8 * slowness


@pytest.mark.parametrize("arguments", QUICK[::4], ids=" ".join)
def test_help_and_mistakes_answer_at_once(arguments):
    """Some of them: none imports anything heavy, as the test before shows."""
    assert any(is_quick(arguments) for _ in range(5))  # mostly the first; others run here, too


def test_folders_are_imported_when_they_are_first_used():
    program = """
import sys, clearhead
assert "torch" not in sys.modules
assert set(clearhead.FOLDERS) <= set(dir(clearhead))
print(clearhead.attention.Mask.causal(), clearhead.positions.RotaryPositions.__name__)
try:
    clearhead.atention
except AttributeError as fault:
    print(fault)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
    )
    assert done.stdout.splitlines() == [
        "Mask.causal() RotaryPositions",
        "module 'clearhead' has no attribute 'atention'; the nearest is 'attention'",
    ], done.stderr


def test_every_folder_is_listed():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(clearhead.FOLDERS) == folders - {"cli"}

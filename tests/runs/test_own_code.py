"""Classes of one's own, in runs trained from Python."""

import importlib.util
import json
import py_compile
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from training.tiny_task import TinyTask, tiny

from clearhead.files.reading import BadFile
from clearhead.runs import load_run, train
from clearhead.runs.own_code import OwnCode, config_kinds, find_code
from clearhead.training import find_recipe, with_changes
from clearhead.training.recipes import read_start

SMALL = ["data.n_bits=3", "model.d_model=8", "training.steps=2", "training.batch_size=4"]
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def parity(tmp_path, monkeypatch):
    """A module of the user's own, imported from a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("parity.py").write_text(read_start("parity"))
    spec = importlib.util.spec_from_file_location("my_parity", "parity.py")
    module = sys.modules["my_parity"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in [*sys.modules]:
        if name == "my_parity" or name.startswith("clearhead_recipe_"):
            del sys.modules[name]


def small(module):
    return with_changes(module.parity(), SMALL)


def test_a_run_trained_from_python_keeps_the_file_of_its_classes(parity, tmp_path):
    result = train(small(parity), "runs", threads=1, device="cpu")
    assert (result.run / "recipe.py").read_bytes() == Path("parity.py").read_bytes()
    Path("parity.py").unlink()
    run = load_run(result.run, device="cpu")
    assert type(run.recipe.data).__module__.startswith("clearhead_recipe_")
    assert run.predict("011") == result.trained.predict("011")
    assert run.evaluate() == result.metrics


def test_classes_without_a_file_are_given_when_the_run_is_loaded(parity):
    """As in a notebook."""
    del parity.__file__
    parity.__loader__ = None
    said = []
    result = train(small(parity), "runs", threads=1, device="cpu", tell=said.append)
    notice = "ParityData, ParityConfig are not defined in a file, so the run keeps no copy; load it"
    assert said[0] == f"{notice} with load_run(run, kinds=[ParityData, ParityConfig])"
    assert not (result.run / "recipe.py").exists()
    with pytest.raises(BadFile, match=r"unknown kind 'ParityData'; .* load_run\(run, kinds="):
        load_run(result.run)
    run = load_run(result.run, kinds=[parity.ParityData, parity.ParityConfig], device="cpu")
    assert run.predict("011") == result.trained.predict("011")


def test_given_classes_are_used_instead_of_the_code_of_the_run(parity, monkeypatch):
    folder = train(small(parity), "runs", threads=1, device="cpu").run
    monkeypatch.setattr(OwnCode, "run", None)
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("elsewhere").absolute()))
    run = load_run(folder, kinds=[parity.ParityData, parity.ParityConfig], device="cpu")
    assert type(run.model) is parity.ParityModel


def test_our_own_recipes_keep_no_code(tmp_path):
    assert find_code(find_recipe("substring"), print) is None
    assert "ParityData" not in config_kinds()


def test_exactly_the_bytes_that_were_read_are_run(tmp_path, monkeypatch):
    """Neither bytecode beside the file nor a file that has changed since."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text("x = 'evil'\n")
    py_compile.compile(path, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    path.write_text("x = 'good'\n")
    code = OwnCode.read(path)
    path.write_text("x = 'late'\n")
    module = code.run()
    assert module.x == "good"
    assert code.run() is module  # once for the same bytes
    del sys.modules[module.__name__]


@pytest.mark.parametrize("about", [7, {}, {"file": "a.py"}, {"file": "a.py", "sha256": 5}])
def test_a_wrong_entry_about_code_is_refused(parity, about):
    folder = train(small(parity), "runs", threads=1, device="cpu").run
    path = folder / "config.json"

    path.write_text(json.dumps({**json.loads(path.read_text()), "code": about}))
    with pytest.raises(BadFile, match=r"config.json: 'code' must hold file and sha256"):
        load_run(folder, trust=True)


def test_a_disk_that_cannot_remember_stops_no_training(parity, monkeypatch):
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("file/none").absolute()))
    folder = train(small(parity), "runs", threads=1, device="cpu").run
    with pytest.raises(ValueError, match="give --trust"):
        load_run(folder)
    assert load_run(folder, trust=True, device="cpu").step == 2


def test_an_augmentation_without_progress_is_refused_before_a_run_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(TinyTask, "augment", lambda self, batch: batch)
    with pytest.raises(ValueError, match=r"TinyTask.augment must take a batch and the progress"):
        train(tiny(), tmp_path / "runs", threads=1)
    assert not (tmp_path / "runs").exists()


# Logging elsewhere: the lines in the documentation


class Standin(ModuleType):
    """Accepts every call and notes it."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def note(*given, **named):
            self.calls.append((name, given, named))
            return self

        return note


@pytest.mark.parametrize("name", ["wandb", "mlflow", "torch.utils.tensorboard"])
def test_the_documented_lines_log_every_metric(name, tmp_path, monkeypatch):
    page = (DOCS / "training.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (block,) = [block for block in blocks if re.search(rf"^(import|from) {name}\b", block, re.M)]
    standin = Standin(name)
    monkeypatch.setitem(sys.modules, name, standin)
    monkeypatch.chdir(tmp_path)
    small = ["data.n_examples=8", "data.n_validation=8", "training.batch_size=4", "model.d_model=8"]
    small += ["training.steps=2", "training.log_every=1", "training.accumulate=1"]
    recipe = with_changes(find_recipe("substring"), [*small, "training.workers=1"])
    torch.set_num_threads(1)
    exec(block, {"recipe": recipe})
    logged = [call for call in standin.calls if call[0] in ("log", "log_metrics", "add_scalar")]
    assert [(call[2].get("step") or call[1][-1]) for call in logged][-1] == 2
    assert "val_loss" in str(logged)

"""A recipe file with data, task, model and attention of its own does everything that ours do."""

import hashlib
import json
import shutil
import sys
import time
from pathlib import Path

import pytest
from runs.tiny_runs import Child
from small_runs import assert_a_mistake

from clearhead.cli import main as command
from clearhead.runs import NotTrusted, load_run
from clearhead.runs.checkpoint import find_checkpoints
from clearhead.runs.own_code import find_known_list

SMALL = ["data.n_bits=4", "model.d_model=8", "training.batch_size=4", "training.steps=8"]
SMALL += ["training.eval_every=4", "training.save_every=1", "training.log_every=1"]
ONE = ["--threads", "1", "--device", "cpu"]
COUNT = "with open('ran.txt', 'a') as file:\n    file.write('x')\n"  # each time it is run


@pytest.fixture
def write(run, tmp_path, monkeypatch):
    """Write the start of a recipe of one's own, which counts how often it is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code, out, err = run("recipes", "new", "parity.py")
    assert (code, err) == (0, "")
    assert out == "parity.py\nnext: change it, then clearhead train parity.py\n"
    text = Path("parity.py").read_text()
    assert len(text.splitlines()) <= 40
    Path("parity.py").write_text(text + COUNT)
    yield
    forget_modules()


def forget_modules():
    """As in a new process."""
    for name in [name for name in sys.modules if name.startswith("clearhead_recipe_")]:
        del sys.modules[name]


def times_run():
    return len(Path("ran.txt").read_text()) if Path("ran.txt").exists() else 0


def go_to_another_machine(monkeypatch, tmp_path):
    """A copy of the run, without the original file, for a user who has never run its code."""
    shutil.copytree("runs/parity-0001", "got/parity-0001")
    Path("parity.py").unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other-state"))
    forget_modules()


def kill_while_training(*arguments):
    """Train in a child, and kill it after its second checkpoint."""

    def work(ready):
        sys.argv = ["clearhead", *arguments]
        command.main()

    child = Child(work)
    limit = time.monotonic() + 300
    while len(find_checkpoints(Path("runs/parity-0001/checkpoints"))) < 2:
        assert time.monotonic() < limit
        time.sleep(0.001)
    child.send()
    return child.end()


def verbs(folder):
    """Every command that needs the classes of a run."""
    return {
        "eval": ["eval", folder, *ONE, "--json"],
        "predict": ["predict", folder, "0111", *ONE],
        "generate": ["generate", folder, "--prompt", "01", "--tokens", "2", *ONE],
        "report": ["plot", folder, "--device", "cpu"],
        "attention": ["plot", "attention", folder, "0110", "--device", "cpu"],
        "schedule": ["plot", "schedule", folder],
        "resume": ["train", "--resume", folder, *ONE, "--json"],
    }


def test_a_recipe_of_ones_own_does_everything_that_ours_do(run, write, tmp_path, monkeypatch):
    words = ["train", "parity.py", *SMALL, *ONE]
    assert run(*words, "--out", "whole", "--quiet")[0] == 0
    assert kill_while_training(*words) in (-9, 0)
    code, out, err = run(*words)
    assert code == 0, err
    assert "resuming after step" in err
    assert out.startswith("parity-0001: 8 steps")
    folder = Path("runs/parity-0001")
    for name in ("metrics.jsonl", "config.json"):
        assert (folder / name).read_bytes() == (Path("whole/parity-0001") / name).read_bytes()

    # The file is kept in the run, with its SHA-256.
    data = Path("parity.py").read_bytes()
    assert (folder / "recipe.py").read_bytes() == data
    about = {"file": "parity.py", "sha256": hashlib.sha256(data).hexdigest()}
    assert json.loads((folder / "config.json").read_text())["code"] == about

    # Moved and without the original file, it still does everything, and nothing is asked.
    Path("moved").mkdir()
    moved = folder.rename("moved/mine")
    Path("parity.py").unlink()
    forget_modules()
    answers = {name: run(*arguments) for name, arguments in verbs(moved).items()}
    assert {name: code for name, (code, _, _) in answers.items() if code} == {}, answers
    assert json.loads(answers["eval"][1])["metrics"].keys() == {"val_loss", "val_accuracy"}
    assert answers["predict"][1].startswith("0111 → ")
    assert set(answers["generate"][1].strip()) <= {"0", "1"}
    assert "all 8 steps are made" in answers["resume"][2]
    page = (moved / "report.html").read_text()
    assert about["sha256"] in page
    assert "What it answers" in page
    assert "What it attends to" in page
    (picture,) = Path("pictures").glob("attention*.png")
    assert picture.stat().st_size > 5000
    mechanism = load_run(moved).model.stack.blocks[0].attention.mechanism
    assert type(mechanism).__name__ == "MeanAttention"


def test_code_of_a_foreign_run_is_not_run_before_it_is_trusted(run, write, tmp_path, monkeypatch):
    assert run("train", "parity.py", *SMALL, *ONE, "--quiet")[0] == 0
    answer = run("predict", "runs/parity-0001", "0111", *ONE)[1]
    go_to_another_machine(monkeypatch, tmp_path)
    before, sha256 = times_run(), json.loads(Path("got/parity-0001/config.json").read_text())
    n = len(Path("got/parity-0001/recipe.py").read_text().splitlines())
    for arguments in verbs("got/parity-0001").values():
        code, out, err = run(*(word for word in arguments if word != "--json"))
        assert_a_mistake(code, out, err)
        assert f"got/parity-0001/recipe.py ({n} lines, a copy of parity.py, SHA-256 " in err
        assert sha256["code"]["sha256"] in err
        assert "read it, and if you trust it, give --trust" in err
    with pytest.raises(NotTrusted, match="trust=True"):
        load_run("got/parity-0001")
    for arguments in (["curves", "got/parity-0001"], ["got/parity-0001", "--tensorboard"]):
        assert run("plot", *arguments)[0] == 0  # they read numbers only
    assert times_run() == before
    assert not find_known_list().exists()

    assert run("predict", "got/parity-0001", "0111", *ONE, "--trust")[:2] == (0, answer)
    forget_modules()
    assert run("predict", "got/parity-0001", "0111", *ONE)[:2] == (0, answer)  # known from now on
    assert times_run() == before + 2
    forget_modules()
    with open("got/parity-0001/recipe.py", "a") as file:
        file.write("# changed\n")
    for trust in ([], ["--trust"]):
        code, out, err = run("predict", "got/parity-0001", "0111", *ONE, *trust)
        assert_a_mistake(code, out, err)
        assert "recipe.py is not the file that the run was trained with: its SHA-256 is" in err
    assert times_run() == before + 2


def test_a_changed_recipe_file_is_named_and_resumes_only_by_force(run, write, monkeypatch):
    words = ["train", "parity.py", *SMALL, *ONE, "--json"]
    kill_while_training(*words)
    Path("parity.py").write_text(Path("parity.py").read_text() + "# changed\n")
    for more in ([], ["--resume", "last"], ["--resume", "runs/parity-0001"]):
        code, out, err = run(*words[:2], *([] if more else SMALL), *ONE, *more)
        assert (code, out) == (2, "")
        assert "runs/parity-0001 cannot be resumed, because these have changed" in err
        assert "code.sha256: '" in err
    assert len(list(Path("runs").iterdir())) == 1
    code, _, err = run(*words, "--force")
    assert code == 0, err
    copy, changed = Path("runs/parity-0001/recipe.py"), Path("parity.py").read_bytes()
    assert copy.read_bytes() == changed
    assert "code.sha256: '" in Path("runs/parity-0001/forced.txt").read_text()
    assert run("predict", "runs/parity-0001", "01", *ONE)[0] == 0


BREAK = """
    def forward(self, *inputs, **options):
        if __import__("os").path.exists("broken"):
            {fault}
        return super().forward(*inputs, **options)
"""


def break_model(fault):
    """Let the model raise as soon as there is a file `broken`; returns the line of the fault."""
    lines = Path("parity.py").read_text().splitlines()
    (place,) = (n for n, line in enumerate(lines, 1) if line.startswith("class ParityModel"))
    lines[place + 1 : place + 1] = BREAK.format(fault=fault).splitlines()
    Path("parity.py").write_text("\n".join(lines) + "\n")
    return place + 5


def test_an_error_in_ones_own_classes_names_file_and_line_and_the_way_out(run, write):
    line = break_model('{}["x"]')
    words = ["train", "parity.py", *SMALL, *ONE]
    assert run(*words, "--quiet", "--out", "good")[0] == 0
    Path("broken").touch()
    code, out, err = run(*words, "--quiet")
    assert (code, out) == (2, "")
    error, hint = err.splitlines()
    assert error == f"error: parity.py, line {line}: KeyError: 'x'"
    assert hint.startswith(
        "hint: correct the file; to resume a run that started with the old version, add --force"
    )
    assert "Traceback" in run("--debug", *words, "--quiet")[2]
    forget_modules()
    for name in ("eval", "predict", "report", "attention"):
        code, out, err = run(*(x for x in verbs("good/parity-0001")[name] if x != "--json"))
        assert (code, out) == (2, ""), name
        *_, error, hint = err.splitlines()
        assert error == f"error: good/parity-0001/recipe.py, line {line}: KeyError: 'x'", name
        assert "clearhead train FILE.py --resume RUN --force resumes RUN with it" in hint

    # Both ways out lead there.
    text = Path("parity.py").read_text()
    Path("parity.py").write_text(text.replace('{}["x"]', "pass"))
    assert run(*words, "--force", "--quiet")[0] == 0
    resumed = ["train", "parity.py", "--resume", "good/parity-0001", "--force", *ONE, "--quiet"]
    assert run(*resumed)[0] == 0
    assert run(*verbs("good/parity-0001")["predict"])[0] == 0


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("raise ValueError('too\\nodd')", "too odd"),
        ("open('/', 'w')", "IsADirectoryError: [Errno 21] Is a directory: '/'"),
    ],
)
def test_an_error_of_ones_own_is_one_line_whatever_its_kind(run, write, fault, sentence):
    line = break_model(fault)
    Path("broken").touch()
    code, out, err = run("train", "parity.py", *SMALL, *ONE, "--quiet")
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"error: parity.py, line {line}: {sentence}"


def test_what_ones_own_classes_return_and_clearhead_cannot_use_is_one_line(run, write):
    text = Path("parity.py").read_text()
    wrong = "    def evaluate(self, model):\n        return [1]\n\n    def loss("
    Path("parity.py").write_text(text.replace("    def loss(", wrong))
    code, out, err = run("train", "parity.py", *SMALL, *ONE, "--quiet")
    assert (code, out) == (2, "")
    error = err.splitlines()[0]
    assert error.startswith("error: parity.py: AttributeError: 'list' object has no attribute")
    assert error.endswith("which uses a value that a class of this file returned)")


def test_of_a_finished_run_of_ones_own_only_the_missing_report_is_drawn(run, write, monkeypatch):
    words = ["train", "parity.py", *SMALL, *ONE]
    first = run(*words)[1]
    report = Path("runs/parity-0001/report.html")
    report.unlink()
    Path("runs/parity-0001/recipe.py").write_text("raise SystemExit('code of the run folder')")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")  # nothing is known
    forget_modules()
    code, out, err = run(*words)
    assert (code, out) == (0, first), err
    assert "parity-0001 is finished, but its report is missing; drawing the report" in err
    assert report.exists()

    # Other classes make another run.
    report.unlink()
    with open("parity.py", "a") as file:
        file.write("# changed\n")
    assert "parity-0002: 8 steps" in run(*words)[1]
    assert not report.exists()


def test_a_start_has_the_name_of_its_file_and_overwrites_nothing(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("recipes", "new", "new/sums.py")[0] == 0
    assert "def sums():" in Path("new/sums.py").read_text()
    assert json.loads(run("recipes", "show", "new/sums.py", "--json")[1])["recipe"] == "sums"
    for name, sentence in {
        "new/sums.py": "new/sums.py exists already; move it away or give another name",
        "my-sums.py": "FILE must be the name of a Python module such as parity.py, got my-sums.py",
        "sums": "FILE must be the name of a Python module such as parity.py, got sums",
    }.items():
        code, out, err = run("recipes", "new", name)
        assert_a_mistake(code, out, err)
        assert sentence in err
    assert [path.name for path in Path("new").iterdir()] == ["sums.py"]

"""The command line: results on stdout, mistakes as one line and a hint, the right exit code."""

import ast
import errno
import io
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.bench import Row
from clearhead.cli import main as command
from clearhead.lab import EXPERIMENTS, attention

VERBS = ("train", "runs", "eval", "predict", "generate", "lab", "plot", "bench", "recipes", "data")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _same_threads_afterwards():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run_outside(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **variables):
    """Run a command in a process of its own, as a user does."""
    package = str(Path(clearhead.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "clearhead.cli.main", *map(str, arguments)],
        stdout=stdout,
        stderr=stderr,
        env=os.environ | {"PYTHONPATH": package} | variables,
        timeout=120,
    )


@contextmanager
def nobody_reading():
    """The end of a pipe to write to, whose other end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def assert_a_mistake(code, out, err):
    """Exit 2, nothing on stdout, one line with the error, one with a hint, no traceback."""
    assert code == 2, err
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 2, err
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")


# What works


def test_the_version_is_that_of_the_package(run):
    assert run("--version") == (0, f"clearhead {clearhead.__version__}\n", "")


def test_help_names_every_verb(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert "Transformers you can read, run, check and see through." in out
    for verb in VERBS:
        assert f"  {verb} " in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_for_every_option(run, verb):
    code, out, err = run(verb, "--help")
    assert (code, err) == (0, "")
    for line in out.splitlines():
        if line.startswith("  --"):
            assert re.match(r"  --[\w-]+( <\w+>)?  +[\w$]", line), line


def test_lab_alone_lists_the_experiments(run):
    code, out, err = run("lab")
    assert (code, err) == (0, "")
    assert [line.split(maxsplit=1) for line in out.split("\n\n")[0].splitlines()] == [
        [name, claim] for name, claim in EXPERIMENTS.items()
    ]


@pytest.fixture(scope="module")
def finding():
    """What `lab attention` finds; its picture is drawn already."""
    found = attention.experiment()
    drawn = {form: found.picture._render(form) for form in ("png", "svg")}
    found.picture._render = lambda form, *_: drawn[form]
    return found


@pytest.fixture
def found_before(monkeypatch, finding):
    """`lab` prints and saves this finding, without computing and drawing it again."""
    monkeypatch.setattr("clearhead.cli.lab.run", lambda name, **_: finding)


def test_lab_prints_the_claim_the_numbers_and_where_the_picture_is(run, tmp_path):
    code, out, err = run("lab", "attention", "--out", tmp_path / "new", "--threads", 1)
    assert (code, err) == (0, "")
    assert out.startswith("Attention lets a word find what it needs")
    assert 'takes 92% of what it gets from "dog"' in out
    picture = tmp_path / "new" / "attention.png"
    assert out.endswith(f"picture: {picture}\n")
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size > 10_000
    assert torch.get_num_threads() == 1


def test_quiet_leaves_the_results(run, tmp_path, found_before):
    _, loud, _ = run("lab", "attention", "--out", tmp_path, "--threads", 1)
    code, quiet, err = run("lab", "attention", "--out", tmp_path, "--threads", 1, "--quiet")
    assert (code, err) == (0, "")
    assert loud.endswith(quiet)
    assert 0 < len(quiet) < len(loud)


def test_json_is_one_object_and_nothing_else(run, tmp_path, found_before):
    code, out, err = run("lab", "attention", "--out", tmp_path, "--threads", 1, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert out.count("\n") == 1
    assert 0.92 < found["hungry_takes_from_dog"] < 0.93
    assert Path(found["picture"]) == tmp_path / "attention.png"
    assert Path(found["picture"]).read_bytes().startswith(PNG)


def test_the_list_of_experiments_as_json_is_one_object(run):
    code, out, err = run("lab", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert isinstance(found, dict)
    assert set(EXPERIMENTS) <= set(found) or set(EXPERIMENTS) <= set(*found.values())


@pytest.mark.parametrize("what", ["waves", "table", "mask", "alibi"])
def test_plot_draws(run, tmp_path, what):
    code, out, err = run("plot", what, "--out", tmp_path)
    assert (code, out, err) == (0, f"picture: {tmp_path / what}.png\n", "")
    assert (tmp_path / f"{what}.png").read_bytes().startswith(PNG)


def test_plot_draws_lines_that_scale(run, tmp_path):
    code, out, _ = run("plot", "mask", "--out", tmp_path, "--svg")
    assert (code, out) == (0, f"picture: {tmp_path / 'mask.svg'}\n")
    assert "<svg" in (tmp_path / "mask.svg").read_text()


def test_plot_knows_json_as_every_verb_does(run, tmp_path):
    code, out, err = run("plot", "mask", "--out", tmp_path, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"picture": str(tmp_path / "mask.png")}


def test_bench_prints_rows_or_one_json_object(run, monkeypatch):
    from clearhead.bench import cases

    row = Row(what="this", ours=0.5, other="that", theirs=1.0)
    monkeypatch.setitem(cases.CASES, "linear", lambda seconds: [row])
    code, out, err = run("bench", "linear", "--threads", 1)
    assert (code, out) == (0, row.text() + "\n")
    assert "1 thread" in err
    code, out, err = run("bench", "linear", "--threads", 1, "--json", "--quiet")
    assert (code, err) == (0, "")
    assert isinstance(json.loads(out), dict)
    assert '"ratio": 0.5' in out


# Shell completion


def test_completion_is_installed_for_the_shell_of_the_user(tmp_path):
    done = run_outside("--install-completion", HOME=str(tmp_path), SHELL="/bin/bash")
    if b"not supported" in done.stderr:
        pytest.skip("the tests were not started from a shell that has completion")
    assert done.returncode == 0, done.stderr
    assert b"completion installed in" in done.stdout
    assert any(path.is_file() for path in tmp_path.rglob("*clearhead*"))


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("tr", b"train\n"), ("recipes sh", b"show\n"), ("lab --th", b"--threads")],
)
def test_completion_offers_verbs_and_options(typed, expected):
    words = f"clearhead {typed}"
    variables = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = run_outside(**variables, _CLEARHEAD_COMPLETE="complete_bash")
    assert (done.returncode, done.stderr) == (0, b"")
    assert expected in done.stdout


# Mistakes


MISTAKES = {
    "unknown verb": (["trian"], "trian"),
    "unknown experiment": (["lab", "atention"], "'atention'"),
    "unknown picture": (["plot", "tables"], "'tables'"),
    "unknown case": (["bench", "nothing"], "'nothing'"),
    "unknown option": (["lab", "attention", "--nothing"], "--nothing"),
    "unknown option before the verb": (["--nothing", "lab"], "--nothing"),
    "option without a value": (["lab", "attention", "--out"], "--out"),
    "missing thing": (["plot"], "WHAT"),
    "one thing too many": (["lab", "attention", "again"], "again"),
    "no number as a seed": (["lab", "attention", "--seed", "one"], "--seed"),
    "no threads": (["lab", "attention", "--threads", "0"], "--threads"),
    "fewer than no threads": (["lab", "attention", "--threads", "-1"], "--threads"),
    "half a thread": (["lab", "attention", "--threads", "1.5"], "--threads"),
    "threads in words": (["bench", "attention", "--threads", "all"], "--threads"),
    "an empty number of threads": (["lab", "attention", "--threads", ""], "--threads"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_C01_a_mistake_is_one_line_and_a_hint(run, mistake):
    arguments, named = MISTAKES[mistake]
    code, out, err = run(*arguments)
    assert_a_mistake(code, out, err)
    assert named in err.splitlines()[0]


def test_the_error_names_what_would_have_been_right(run):
    assert all(name in run("lab", "atention")[2] for name in EXPERIMENTS)
    assert "waves, table, mask, alibi" in run("plot", "tables")[2]


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["lab", "atention"], "did you mean attention?"),
        (["plot", "tables"], "did you mean table?"),
        (["bench", "linar"], "did you mean linear?"),
        (["data", "get", "mnits"], "did you mean mnist?"),
        (["eval", "runs", "--which", "lst"], "did you mean last?"),
        (["generate", "x", "--weights", "int4"], "did you mean 'int8'?"),
        (["lab", "--quite"], "did you mean --quiet?"),
        (["train", "substring", "model.positions=toepliz"], "did you mean 'toeplitz'?"),
        (["train", "substrin"], "the nearest is 'substring'"),
    ],
    ids=" ".join,
)
def test_a_misspelt_choice_is_answered_with_the_nearest(run, arguments, near):
    assert run(*arguments)[2].splitlines()[0].endswith(near)


def test_help_of_bench_names_every_case(run):
    from clearhead.bench import CASE_NAMES
    from clearhead.bench.cases import CASES

    assert tuple(CASES) == CASE_NAMES
    words = " ".join(run("bench", "--help")[1].split())
    assert ", ".join(CASE_NAMES) in words


@pytest.mark.parametrize(
    "arguments",
    [["lab", "nothing"], ["trian"], ["eval", "nowhere"], ["train", "substring", "--lr", "1"]],
    ids=" ".join,
)
def test_with_json_an_error_is_one_object_too(run, arguments):
    code, out, err = run(*arguments, "--json")
    found = json.loads(out)
    assert (code, found["exit_code"]) == (2, 2)
    assert err == f"error: {found['error']}\nhint: {found['hint']}\n"
    assert run(*arguments)[1] == ""


def test_an_error_as_json_survives_a_closed_output():
    with nobody_reading() as stream:
        done = run_outside("lab", "nothing", "--json", stdout=stream)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_no_verb_is_answered_with_help_or_a_hint(run):
    code, out, err = run()
    if code == 0:
        assert out.startswith("Usage: clearhead")
        assert err == ""
    else:
        assert_a_mistake(code, out, err)


@pytest.mark.parametrize("threads", ["1000000", "99999999999999999999"])
def test_more_threads_than_any_machine_has_are_refused(run, monkeypatch, threads):
    """Before they are asked for: the thread library would end the process, and its neighbours."""
    monkeypatch.setattr(torch, "set_num_threads", _raise(RuntimeError("too late")))
    code, out, err = run("lab", "attention", "--threads", threads)
    assert_a_mistake(code, out, err)
    assert "threads" in err.splitlines()[0]


@pytest.mark.parametrize("place", ["a file", "below a file"])
def test_a_file_where_a_folder_should_be_is_a_mistake(run, tmp_path, place):
    file = tmp_path / "taken"
    file.write_text("mine")
    out_folder = file if place == "a file" else file / "pictures"
    code, out, err = run("lab", "attention", "--out", out_folder, "--threads", 1)
    assert_a_mistake(code, out, err)
    assert str(file) in err
    assert file.read_text() == "mine"


FAULTS = {
    "full": OSError(errno.ENOSPC, "No space left on device"),
    "over the quota": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "read-only": OSError(errno.EROFS, "Read-only file system"),
    "not ours": PermissionError(errno.EACCES, "Permission denied"),
    "broken": OSError(errno.EIO, "Input/output error"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", [["plot", "mask"], ["lab", "attention", "--threads", "1"]])
def test_C05_a_disk_that_does_not_take_it_is_4_in_one_line(run, tmp_path, monkeypatch, verb, fault):
    def save(_, path):
        raise type(FAULTS[fault])(*FAULTS[fault].args, str(path))

    monkeypatch.setattr("clearhead.inspection.figures.Picture.save", save)
    code, out, err = run(*verb, "--out", tmp_path)
    assert (code, out) == (4, "")
    reason = FAULTS[fault].strerror.lower()
    way_out = "make room or choose" if fault in ("full", "over the quota") else "choose"
    assert err == f"error: {tmp_path / verb[1]}.png: {reason}; {way_out} another folder\n"


CODES = {
    "usage": (["lab", "nothing"], 2),
    "a bad value": (["lab", "attention", "--threads", "none"], 2),
    "a missing file": (["generate", "/nowhere/at/all"], 2),
    "an unknown device": (["lab", "attention", "--device", "none", "--threads", "1"], 2),
    "a device without numbers": (["lab", "attention", "--device", "meta", "--threads", "1"], 2),
    "an unknown data set": (["data", "get", "nothing"], 2),
}


@pytest.mark.parametrize("case", CODES)
def test_C05_every_class_of_failure_has_its_code(run, case):
    arguments, code = CODES[case]
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert err.startswith("error: ")


def test_C05_the_errors_with_a_code_of_their_own_exist():
    package = Path(clearhead.__file__).parent
    defined = {
        node.name
        for path in package.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    assert set(command.EXIT_CODES) <= defined


@pytest.mark.parametrize(
    ("home", "sentence"),
    [
        (
            "~nobody_at_all/x",
            "CLEARHEAD_HOME is '~nobody_at_all/x', but there is no home of ~nobody",
        ),
        ("FILE", "CLEARHEAD_HOME is 'FILE', which is a file; set it to a folder"),
    ],
)
@pytest.mark.parametrize(
    "verb", [["data", "list"], ["data", "get", "mnist"], ["generate", "stories15m"]], ids=" ".join
)
def test_a_home_that_cannot_be_is_a_mistake(run, tmp_path, monkeypatch, verb, home, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").touch()
    monkeypatch.setenv("CLEARHEAD_HOME", home)
    code, out, err = run(*verb)
    assert_a_mistake(code, out, err)
    assert err.startswith(f"error: {sentence}")
    assert os.listdir(tmp_path) == ["FILE"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["trian"], "clearhead --help lists the verbs"),
        (["plot"], "clearhead plot --help lists its arguments and options"),
        (["plot", "tables"], "clearhead plot --help lists its arguments and options"),
        (["data", "gte", "mnist"], "clearhead data --help lists its arguments and options"),
        (["data", "get", "mnits"], "clearhead data list names the data sets"),
        (["data", "get"], "clearhead data list names the data sets"),
        (["recipes", "show"], "clearhead recipes list names the recipes"),
        (["train"], "clearhead recipes list names the recipes"),
        (["lab", "atention"], "clearhead lab lists the experiments"),
        (["predict"], "clearhead runs lists your runs"),
        (["--nothing", "plot"], "clearhead --help lists the verbs"),
        (["train", "substrin"], "clearhead recipes list names the recipes"),
        (
            ["train", "substring", "training.lrr=1"],
            "clearhead recipes show substring lists its settings",
        ),
        (
            ["train", "substring", "--lr", "0.1"],
            "a setting is written without dashes: training.lr=0.1; "
            "clearhead recipes show substring lists all",
        ),
        (
            ["train", "--n-layers=2"],
            "a setting is written without dashes: model.n_layers=2; "
            "clearhead recipes show RECIPE lists all",
        ),
        (
            ["train", "substring", "--nothing"],
            "clearhead train --help lists its arguments and options",
        ),
        (
            ["train", "substring", "--processes", "2"],
            "an option of launch stands before train: "
            "clearhead launch --processes 2 train substring",
        ),
        (
            ["launch", "train", "--nodes=3"],
            "an option of launch stands before train: clearhead launch --nodes 3 train RECIPE",
        ),
    ],
)
def test_the_hint_is_about_the_verb_that_was_asked(run, arguments, hint):
    assert run(*arguments)[2].splitlines()[1] == f"hint: {hint}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seed", "1", "train"], "--seed must follow the verb: clearhead VERB … --seed"),
        (["--jason", "train"], "No such option: --jason"),
        (["lab", "attention", "--slide"], "No such option: --slide; did you mean --slides?"),
        (["train", "first", "--seed", "x"], "--seed must be a whole number, got 'x'"),
        (["bench", "--seconds=x"], "--seconds must be a number, got 'x'"),
    ],
)
def test_a_wrong_option_is_answered_in_words_of_the_command_line(run, arguments, sentence):
    assert run(*arguments)[2].splitlines()[0] == f"error: {sentence}"


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("listing", [["recipes"], ["lab"], ["data"]])
def test_lists_fit_the_terminal(run, monkeypatch, listing, columns):
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = run(*listing)[1]
    monkeypatch.setenv("COLUMNS", str(columns))
    wrapped = run(*listing)[1]
    assert max(map(len, wrapped.split("kept in")[0].splitlines())) <= columns
    assert wrapped.split() == whole.split()
    assert columns < max(map(len, whole.splitlines())) or wrapped == whole


def test_a_file_that_is_named_like_an_option_is_no_option(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    err = run("generate", "seed", "--seed", 3, "--threads", 1)[2]
    assert err.startswith("error: seed is not there")


@pytest.mark.parametrize(
    "arguments", [["--debug", "lab", "nothing"], ["lab", "nothing", "--debug"]]
)
def test_debug_shows_the_traceback_of_the_mistake(arguments):
    done = run_outside(*arguments)
    assert done.returncode == 2
    assert b"Traceback" in done.stderr
    assert b"experiment must be one of" in done.stderr


def test_a_fault_of_ours_is_not_dressed_as_the_users(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["clearhead", "lab", "attention"])
    monkeypatch.setattr("clearhead.lab.attention.experiment", _raise(ZeroDivisionError("ours")))
    with pytest.raises(ZeroDivisionError, match="ours"):
        command.main()


def test_an_interrupt_is_said_in_a_word(run, monkeypatch):
    monkeypatch.setattr("clearhead.lab.attention.experiment", _raise(KeyboardInterrupt()))
    code, out, err = run("lab", "attention", "--threads", 1)
    assert code == 130
    assert out == ""
    assert err.strip() == "interrupted"


def _raise(error):
    def function(*_, **__):
        raise error

    return function


def test_letters_outside_ascii_are_printed_as_they_are(run, tmp_path):
    config = tmp_path / "größe" / "config.json"
    config.parent.mkdir()
    config.write_text('{"model_type": "größer\\u001b"}', encoding="utf-8")
    err = run("generate", config.parent)[2]
    assert "größe/config.json" in err
    assert "'größer\\x1b'" in err


# Terminals


@pytest.mark.parametrize("arguments", [["--help"], ["lab"]], ids=" ".join)
def test_C02_a_reader_that_has_seen_enough_is_no_error(arguments):
    """What `clearhead lab | head -0` does."""
    with nobody_reading() as stream:
        done = run_outside(*arguments, stdout=stream)
    assert done.stderr == b""
    assert done.returncode == 0


@pytest.mark.parametrize("arguments", [["train", "nope"], ["eval", "nowhere"], ["lab", "nope"]])
def test_C05_a_mistake_that_nobody_reads_has_its_code_all_the_same(arguments):
    with nobody_reading() as stream:
        done = run_outside(*arguments, stderr=stream)
    assert done.returncode == 2


def test_a_full_disk_is_a_mistake_in_words():
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "wb") as full:
        done = run_outside("lab", stdout=full)
    assert done.returncode == 4
    assert done.stderr == (
        b"error: the output: no space left on device; make room or choose another folder\n"
    )


TERMINALS = {
    "narrow, no colour, C locale": {"COLUMNS": "20", "NO_COLOR": "1", "LC_ALL": "C"},
    "C locale without Python's help": {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    },
    "latin letters only": {"PYTHONIOENCODING": "latin-1"},
    "dumb": {"TERM": "dumb", "FORCE_COLOR": "", "COLUMNS": "1"},
}


@pytest.mark.parametrize("terminal", TERMINALS)
def test_C02_every_terminal_gets_an_answer(terminal):
    variables = TERMINALS[terminal]
    done = run_outside("lab", **variables)  # some claims have √ and ²
    assert done.stderr == b""
    assert done.returncode == 0
    assert all(name.encode() in done.stdout for name in EXPERIMENTS)
    assert b"\x1b[" not in done.stdout
    mistake = run_outside("lab", "nothing", **variables)
    assert_a_mistake(mistake.returncode, mistake.stdout.decode(), mistake.stderr.decode())
    assert run_outside("--help", **variables).returncode == 0


def test_C02_the_narrowest_terminal_gets_the_numbers(tmp_path):
    variables = TERMINALS["C locale without Python's help"] | {"COLUMNS": "1", "TERM": "dumb"}
    done = run_outside("lab", "attention", "--out", tmp_path, "--threads", 1, **variables)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"takes 92% of what it gets" in done.stdout
    assert b"\x1b[" not in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.usefixtures("found_before")
def test_C02_every_encoding_gets_the_numbers(run, monkeypatch, tmp_path, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert run("lab", "attention", "--out", tmp_path, "--threads", 1) == (0, "", "")
    stream.flush()
    assert b"takes 92% of what it gets" in stream.buffer.getvalue()
    assert b"\x1b[" not in stream.buffer.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_C02_json_keeps_every_character_on_every_terminal(run, monkeypatch, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert run("lab", "--json")[0] == 0
    stream.flush()
    assert json.loads(stream.buffer.getvalue()) == EXPERIMENTS

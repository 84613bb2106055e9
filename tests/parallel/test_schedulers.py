"""Files for Slurm, SkyPilot and Ray: as agreed, valid, and exact about every word."""

import ast
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clearhead.parallel.schedulers import Job, quote_word, write_ray, write_sky, write_slurm

GOLDEN = Path(__file__).with_name("golden")
WORDS = ("train", "substring", "training.parallel=exact", "--out", "my runs")
ONE = Job(WORDS, "clearhead-substring", processes=3, options={"time": "02:00:00"})
FOUR = Job(
    ("train", "gpt.py", "training.parallel=fsdp"),
    "clearhead-gpt",
    processes=8,
    nodes=4,
    restarts=5,
    timeout=120,
    gpus_per_node=8,
    options={"time": "1-00:00:00", "partition": "big", "comment": "spring term"},
)
SKY = {"accelerators": "A100:8", "use_spot": "true", "disk_size": "512"}
# Any text but NUL, which no argument can hold; bytes that are no UTF-8 arrive as surrogates.
ODD = st.text(st.one_of(st.characters(exclude_characters="\0"), st.sampled_from("'\"\\$`!\n\t &;")))
ODD |= st.binary().map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
# The words as a program receives them, one JSON line.
RECORDER = "#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"


def with_options(job, **changes):
    return Job(**{**vars(job), **changes})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one_node_slurm.txt", write_slurm(ONE, "/opt/python 3/bin/python")),
        ("four_nodes_slurm.txt", write_slurm(FOUR, "/opt/bin/python")),
        ("one_node_sky.txt", write_sky(with_options(ONE, options={}), "0.2.0")),
        ("four_nodes_sky.txt", write_sky(with_options(FOUR, options=SKY), "0.2.0")),
        ("one_node_ray.txt", write_ray(with_options(ONE, options={}), "/home/ada")),
        ("four_nodes_ray.txt", write_ray(with_options(FOUR, options={"address": "auto"}), "/data")),
    ],
)
def test_the_files_are_as_agreed(name, text):
    path = GOLDEN / name
    if "CLEARHEAD_WRITE_GOLDEN" in os.environ:
        path.write_text(text)
    assert text == path.read_text()


# Every word arrives


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """A folder of programs that write down how they are called."""
    folder = tmp_path_factory.mktemp("tools")

    def add(name, text):
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    add("recorder", RECORDER)
    add("python", RECORDER)
    add("srun", '#!/bin/bash\nshift\nSLURM_NODEID=1 exec "$@"\n')  # without --cpus-per-task
    add("scontrol", "#!/bin/bash\necho first-node\necho second-node\n")
    return folder


def run_text(text, tools, **variables):
    """The words that a script gives to its program."""
    slurm = {"SLURM_JOB_ID": "12345", "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    done = subprocess.run(
        ["bash"],
        input=text.encode(),
        capture_output=True,
        env={"PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "C", **slurm, **variables},
        timeout=60,
    )
    assert done.stderr == b""
    return json.loads(done.stdout)


def some(draws=25):
    """Few examples: each starts a shell and Python."""
    ignored = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=draws, deadline=None, suppress_health_check=ignored)


@some()
@given(st.lists(ODD, max_size=6))
def test_odd_words_come_through_a_slurm_script(tools, words):
    job = Job(["train", *words], "name", processes=2)
    found = run_text(write_slurm(job, str(tools / "recorder")), tools)
    options = ["--processes", "2", "--restarts", "3", "--timeout", "600"]
    assert found == ["-m", "clearhead", "launch", *options, "train", *words]


@some()
@given(st.lists(ODD, max_size=6))
def test_odd_words_come_through_a_slurm_script_for_several_nodes(tools, words):
    job = Job(["train", *words], "name", processes=2, nodes=3)
    found = run_text(write_slurm(job, str(tools / "recorder")), tools)
    options = ["--node-rank", "1", "--processes", "2", "--restarts", "3", "--timeout", "600"]
    options += ["--nodes", "3", "--rendezvous", "first-node:22345"]
    assert found == ["-m", "clearhead", "launch", *options, "train", *words]


@some()
@given(st.lists(ODD, max_size=6), st.integers(1, 3))
def test_odd_words_come_through_a_sky_task(tools, words, nodes):
    task = yaml.safe_load(write_sky(Job(["train", *words], "name", 2, nodes), "1.2.3"))
    assert (task["name"], task["num_nodes"], task["resources"]) == ("name", nodes, {})
    assert run_text(task["setup"], tools) == ["-m", "pip", "install", "clearhead==1.2.3"]
    ips = {"SKYPILOT_NODE_IPS": "10.0.0.5\n10.0.0.6", "SKYPILOT_NODE_RANK": "1"}
    options = ["--processes", "2", "--restarts", "3", "--timeout", "600"]
    if nodes > 1:
        options += ["--nodes", str(nodes), "--node-rank", "1", "--rendezvous", "10.0.0.5:29500"]
    found = run_text(task["run"], tools, **ips)
    assert found == ["-m", "clearhead", "launch", *options, "train", *words]


@given(st.lists(ODD), ODD)
def test_odd_words_come_through_a_ray_program(words, folder):
    text = write_ray(Job(["train", *words], "name", 2, 3), folder)
    tree = ast.parse(text.encode("utf-8", "surrogatepass"))
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    assert values == {"FOLDER": folder, "COMMAND": ["clearhead", "train", *words]}


@given(ODD)
def test_a_quoted_word_is_one_line_that_can_be_seen(word):
    assert quote_word(word).isprintable()


@given(ODD.filter(str.isprintable))
@example("größe 𝜆")
def test_a_resource_of_sky_is_the_given_text(value):
    task = yaml.safe_load(write_sky(Job(["train"], "n", 1, options={"region": f"x{value}"}), "1"))
    assert task["resources"] == {"region": f"x{value}"}


def test_resources_of_sky_may_be_numbers_and_truths():
    options = {"disk_size": "512", "use_spot": "true", "max_hourly_cost": "2.5", "cpus": "8+"}
    task = yaml.safe_load(write_sky(Job(["train"], "n", 1, options=options), "1"))
    found = {"disk_size": 512, "use_spot": True, "max_hourly_cost": 2.5, "cpus": "8+"}
    assert task["resources"] == found


def test_a_resource_of_sky_that_cannot_be_seen_is_refused():
    with pytest.raises(ValueError, match="printable characters only"):
        write_sky(Job(["train"], "n", 1, options={"region": "a\nb: c"}), "1")


# Slurm


def test_a_script_is_valid_bash():
    for job in (ONE, FOUR):
        subprocess.run(["bash", "-n"], input=write_slurm(job, "python").encode(), check=True)


@pytest.mark.parametrize("value", ["a\nb", 'say "so"', "it's", "a\\b", "\x1b[1m"])
def test_a_setting_that_sbatch_would_misread_is_refused(value):
    with pytest.raises(ValueError, match="no quotes and no backslashes"):
        write_slurm(with_options(ONE, options={"comment": value}), "python")


def test_a_setting_with_spaces_or_a_hash_is_quoted():
    text = write_slurm(with_options(ONE, options={"comment": "a b#c", "exclude": ""}), "python")
    assert '#SBATCH --comment="a b#c"\n#SBATCH --exclude=""\n' in text


def test_a_setting_of_the_user_replaces_ours():
    text = write_slurm(with_options(ONE, options={"signal": "B:USR1@300"}), "python")
    assert text.count("#SBATCH --signal=") == 1
    assert "--signal=B:USR1@300" in text


# srun starts a task that ends with $CODE when scancel has signalled it, or at once.
TASK = """#!/bin/bash
trap 'sleep 0.2; exit $CODE' TERM
echo $$ > task
if [ "$WAIT" ]; then while true; do sleep 0.05; done; fi
exit $CODE
"""


def run_job(tmp_path, code, *, warn):
    """Run the script with programs like Slurm's; (exit code, how these were called)."""
    for name, text in {
        "srun": TASK,
        "scancel": '#!/bin/bash\necho scancel "$@" >> log\nkill -TERM $(cat task)\n',
        "scontrol": '#!/bin/bash\necho scontrol "$@" >> log\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job").write_text(write_slurm(ONE, "python"))
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}
    variables |= {"CODE": str(code), "WAIT": "yes" if warn else "", "SLURM_CPUS_PER_TASK": "3"}
    job = subprocess.Popen(["bash", "job"], cwd=tmp_path, env=variables)
    if warn:
        deadline = time.monotonic() + 30
        while not (tmp_path / "task").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        job.send_signal(signal.SIGUSR1)
    ended = job.wait(timeout=30)
    log = tmp_path / "log"
    return ended, log.read_text().splitlines() if log.exists() else []


def test_a_job_that_runs_out_of_time_saves_and_waits_for_more(tmp_path):
    told = ["scancel --signal=TERM 77", "scontrol requeue 77"]
    assert run_job(tmp_path, 143, warn=True) == (143, told)


@pytest.mark.parametrize("code", [0, 2, 3, 4, 5, 6])
def test_a_job_that_has_finished_or_failed_for_good_does_not_come_back(tmp_path, code):
    assert run_job(tmp_path, code, warn=True) == (code, ["scancel --signal=TERM 77"])


@pytest.mark.parametrize("code", [0, 8, 143])
def test_a_job_that_was_not_warned_ends_as_its_processes_do(tmp_path, code):
    """143: cancelled by the user."""
    assert run_job(tmp_path, code, warn=False) == (code, [])

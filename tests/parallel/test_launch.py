"""The agent: ranks, restarts after faults that a second attempt can cure, signals, no orphans."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clearhead
from clearhead.parallel.agent import handle_signals, raise_signal
from clearhead.parallel.faults import describe_end, find_cause, find_exit_code, is_curable
from clearhead.parallel.launch import launch

PACKAGE = Path(clearhead.__file__).parents[1]

# A worker: writes down how it was started, waits until all others of this attempt have done so,
# then does as it is told: JSON {rank: {attempt: deed}}.
WORKER = """
import glob, json, os, signal, sys, time
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
with open(f"{sys.argv[1]}/{rank}-{attempt}", "w") as file:
    json.dump({"argv": sys.argv, "pid": os.getpid(), **os.environ}, file)
os.rename(file.name, f"{file.name}.json")
limit, size = time.monotonic() + 60, int(os.environ["WORLD_SIZE"])
while len(glob.glob(f"{sys.argv[1]}/*-{attempt}.json")) < size and time.monotonic() < limit:
    time.sleep(0.01)
deed = json.loads(sys.argv[2]).get(rank, {}).get(attempt, 0)
if isinstance(deed, str):
    os.kill(os.getpid(), getattr(signal, deed))
time.sleep(0 if deed else 0.3)
sys.exit(deed)
"""

# A worker that is stopped by a signal, as `clearhead train` is.
STOPPABLE = """
import os, signal, sys, time
rank, seconds, code = os.environ["RANK"], float(sys.argv[2]), int(sys.argv[3])
def stop(number, frame):
    time.sleep(seconds)
    if rank == "0":
        print("rank 0 has saved", file=sys.stderr, flush=True)
    sys.exit(code if code >= 0 else 128 + number)
if code != -2:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN if code == -3 and rank == "1" else stop)
open(f"{sys.argv[1]}/{os.getpid()}.pid", "w").close()
while True:
    time.sleep(0.05)
"""

LAUNCH = """
import json, sys, time
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from clearhead.parallel import agent, machines
from clearhead.parallel.launch import launch
options = json.loads(sys.argv[1])
agent.END_WITHIN = options.pop("end_within", agent.END_WITHIN)
machines.ANSWER_WITHIN = options.pop("answer_within", machines.ANSWER_WITHIN)
seconds, shutdown = options.pop("seconds_to_leave", 0), DynamicRendezvousHandler.shutdown
DynamicRendezvousHandler.shutdown = lambda self: time.sleep(seconds) or shutdown(self)
sys.exit(launch(sys.argv[2:], **options))
"""


@pytest.fixture
def start(tmp_path):
    """Launch the worker in this process: (exit code, sentences, what the workers wrote down)."""

    def start(deeds, *words, **options):
        sentences = []
        script = tmp_path / "worker.py"
        script.write_text(WORKER)
        facts = tmp_path / "facts"
        facts.mkdir(exist_ok=True)
        command = [sys.executable, str(script), str(facts), json.dumps(deeds), *words]
        options = {"processes": 2, "tell": sentences.append} | options
        code = launch(command, **options)
        return code, sentences, {p.stem: json.loads(p.read_text()) for p in facts.glob("*.json")}

    return start


def launch_outside(command, **options):
    """Launch in a process of its own, for signals."""
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCH, json.dumps({"processes": 2, **options}), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def launch_stoppable(tmp_path, *, seconds=0.0, code=-1, **options):
    """Launch two workers that wait for a signal; returns the launcher and their process ids."""
    script = tmp_path / "stoppable.py"
    script.write_text(STOPPABLE)
    command = [sys.executable, str(script), str(tmp_path), str(seconds), str(code)]
    launcher = launch_outside(command, **options)
    deadline = time.monotonic() + 60
    while len(found := [int(p.stem) for p in tmp_path.glob("*.pid")]) < 2:
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return launcher, found


def is_running(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def read_environment(pid):
    words = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(word.partition("=")[::2] for word in words)


def is_listening(place):
    host, _, port = place.partition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def wait_until(question, seconds=30):
    deadline = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# How processes start


def test_each_process_knows_its_rank_and_how_long_to_wait(start, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    code, sentences, facts = start({}, processes=3, timeout=41)
    assert (code, sentences) == (0, [])
    assert sorted(facts) == ["0-0", "1-0", "2-0"]
    for rank in range(3):
        told = facts[f"{rank}-0"]
        assert (told["RANK"], told["LOCAL_RANK"], told["WORLD_SIZE"]) == (str(rank), str(rank), "3")
        assert told["CLEARHEAD_TIMEOUT"] == "41"
        assert told["OMP_NUM_THREADS"] == "1"
    assert len({facts[name]["MASTER_PORT"] for name in facts}) == 1
    assert not {"CLEARHEAD_TIMEOUT", "CLEARHEAD_AGENT", "OMP_NUM_THREADS"} & set(os.environ)


def test_threads_are_those_of_the_user_and_of_one_process_its_own_choice(start, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert start({})[2]["1-0"]["OMP_NUM_THREADS"] == "5"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert "OMP_NUM_THREADS" not in start({}, processes=1)[2]["0-0"]


def test_odd_arguments_come_through(start):
    odd = ["", "a b", "$$", "${local_rank}", "$x$", "it's", 'say "so"', "a\nb", "\\", "größe", "--"]
    facts = start({}, *odd)[2]
    assert [facts[f"{rank}-0"]["argv"][3:] for rank in range(2)] == [odd, odd]


def test_processes_write_to_the_streams_of_the_launcher(tmp_path):
    program = "import os, sys; print('out', os.environ['RANK']); print('err', file=sys.stderr)"
    launcher = launch_outside([sys.executable, "-c", program], processes=1)
    assert (*launcher.communicate(timeout=60), launcher.returncode) == ("out 0\n", "err\n", 0)


# Restarts


def test_a_killed_process_starts_all_again(start):
    code, sentences, facts = start({"1": {"0": "SIGKILL", "1": "SIGSEGV"}})
    assert code == 0
    assert sentences == [
        "rank 1 was ended by SIGKILL; starting all processes again (1 of 3)",
        "rank 1 was ended by SIGSEGV; starting all processes again (2 of 3)",
    ]
    assert sorted(facts) == [f"{rank}-{attempt}" for rank in "01" for attempt in "012"]


@pytest.mark.parametrize(("code", "words"), [(1, "ended with exit code 1"), (8, "lost another")])
def test_an_unknown_error_and_a_lost_process_start_all_again(start, code, words):
    found, sentences, _ = start({"0": {"0": code}})
    assert found == 0
    assert len(sentences) == 1
    assert sentences[0].startswith(f"rank 0 {words}")


@pytest.mark.parametrize("code", [2, 3, 4, 5, 6])
def test_an_error_with_a_reason_is_final(start, code):
    found, sentences, facts = start({"1": {"0": code}})
    assert (found, sentences) == (code, [])
    assert sorted(facts) == ["0-0", "1-0"]


@pytest.mark.parametrize("code", [130, 143])
def test_a_process_that_was_stopped_and_has_saved_is_final(start, code):
    found, sentences, facts = start({"0": {"0": code}})
    assert (found, sentences) == (code, [])
    assert "0-1" not in facts


def test_restarts_are_counted(start):
    deeds = {"1": {str(attempt): "SIGKILL" for attempt in range(9)}}
    code, sentences, facts = start(deeds, restarts=1)
    assert code == 128 + 9
    assert sentences == [
        "rank 1 was ended by SIGKILL; starting all processes again (1 of 1)",
        "rank 1 was ended by SIGKILL; no more restarts (allowed: 1)",
    ]
    assert "1-2" not in facts


def test_no_restart_is_allowed(start):
    code, sentences, facts = start({"0": {"0": 1}}, restarts=0)
    assert (code, sentences) == (
        1,
        ["rank 0 ended with exit code 1; no more restarts (allowed: 0)"],
    )
    assert "0-1" not in facts


def test_each_attempt_has_a_store_without_old_entries(tmp_path):
    program = """
import os, sys
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
                 timeout=timedelta(seconds=20))
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
count = store.add("seen", 1)
sys.exit(1 if first else 0 if count == 1 else 2)
"""
    assert launch([sys.executable, "-c", program], processes=1, tell=lambda sentence: None) == 0


# Who is to blame


@pytest.mark.parametrize(
    ("codes", "cause"),
    [
        ({0: 8, 1: -9}, (1, -9)),  # one was killed, the other lost it
        ({0: -6, 1: -9}, (1, -9)),  # gloo aborts
        ({0: 1, 1: -9}, (1, -9)),  # an error in the network library
        ({0: 8, 1: 4}, (1, 4)),
        ({0: -9, 1: 3}, (1, 3)),
        ({0: 143, 1: 1}, (1, 1)),  # the agent stops the others
        ({0: 143, 1: 8}, (1, 8)),
        ({0: -15, 1: 143}, (1, 143)),
        ({0: -15, 1: -15}, (0, -15)),
        ({3: 2, 2: 2, 5: 8}, (2, 2)),
    ],
)
def test_the_cause_is_not_one_of_its_consequences(codes, cause):
    assert find_cause(codes) == cause


@pytest.mark.parametrize(
    ("codes", "running", "cause"),
    [
        ({0: -9, 1: 1}, {0: ...}, (1, 1)),  # rank 0 did not end after SIGTERM
        ({0: 8, 1: -9, 2: 8}, {1: ...}, (0, 8)),  # rank 1 had been stopped
        ({0: 8, 1: 4}, {1: ...}, (1, 4)),  # rank 1 was about to end by itself
        ({0: -15, 1: -9}, {0: ...}, (1, -9)),
        ({0: -9, 1: -9}, {0: ..., 1: ...}, (0, -9)),
    ],
)
def test_a_process_that_the_agent_has_killed_is_not_the_cause(codes, running, cause):
    assert find_cause(codes, running) == cause


@given(st.dictionaries(st.integers(0, 9), st.sampled_from([*range(1, 9), -9, -15, -6, 130, 143])))
def test_an_error_with_a_reason_is_the_cause_whatever_the_others_did(codes):
    final = [rank for rank, code in codes.items() if 2 <= code <= 7]
    if codes:
        rank, code = find_cause(codes)
        assert codes[rank] == code
        assert rank == min(final) if final else is_curable(code) or code in (130, 143)


def test_exit_codes_of_signals_are_those_of_a_shell():
    assert [find_exit_code(code) for code in (0, 3, -9, -15)] == [0, 3, 137, 143]
    assert describe_end(-11) == "was ended by SIGSEGV"


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_and_they_save(tmp_path, number):
    launcher, pids = launch_stoppable(tmp_path, seconds=0.5)
    launcher.send_signal(number)
    assert launcher.communicate(timeout=30) == ("", "rank 0 has saved\n")
    assert launcher.returncode == 128 + number
    assert not any(map(is_running, pids))


def test_a_signal_that_comes_early_ends_all_with_a_sentence(tmp_path):
    launcher, pids = launch_stoppable(tmp_path, code=-2)
    launcher.terminate()
    assert launcher.communicate(timeout=30) == ("", "stopped by SIGTERM\n")
    assert launcher.returncode == 143
    assert not any(map(is_running, pids))


def test_a_signal_before_the_processes_start_ends_with_a_sentence(tmp_path):
    """While the machines of the run wait for one another."""
    place = f"localhost:{find_port()}"
    launcher = launch_outside(["true"], nodes=2, rendezvous=place)
    wait_until(lambda: is_listening(place), 60)
    launcher.terminate()
    assert launcher.communicate(timeout=30) == ("", "stopped by SIGTERM\n")
    assert launcher.returncode == 143


def test_a_process_that_was_killed_before_the_signal_is_not_blamed(tmp_path):
    """Rank 1 is killed; while the agent waits for rank 0 to end, it is stopped itself."""
    launcher, pids = launch_stoppable(tmp_path, seconds=2)
    ranks = {read_environment(pid)["RANK"]: pid for pid in pids}
    os.kill(ranks["1"], signal.SIGKILL)
    time.sleep(1)
    launcher.terminate()
    _, err = launcher.communicate(timeout=30)
    assert "was killed" not in err
    assert launcher.returncode == 143
    assert not any(map(is_running, pids))


@pytest.mark.parametrize("code", [0, 4])
def test_after_a_signal_the_exit_code_is_that_of_the_processes(tmp_path, code):
    """The run was finished, or could not be saved."""
    launcher, _ = launch_stoppable(tmp_path, code=code)
    launcher.terminate()
    assert launcher.communicate(timeout=30) == ("", "rank 0 has saved\n")
    assert launcher.returncode == code


def test_a_second_signal_kills_all(tmp_path):
    launcher, pids = launch_stoppable(tmp_path, seconds=600)
    launcher.terminate()
    time.sleep(0.5)  # else they may be one signal
    launcher.terminate()
    assert launcher.communicate(timeout=25)[1].count("\n") == 1
    assert launcher.returncode == 143
    assert not any(map(is_running, pids))


def test_after_a_signal_a_process_that_hangs_is_killed_soon_after_the_others_have_ended(tmp_path):
    launcher, pids = launch_stoppable(tmp_path, end_within=1.0, code=-3)
    launcher.terminate()
    sentences = ["rank 0 has saved", "rank 1 was killed: it did not end after SIGTERM"]
    assert launcher.communicate(timeout=30)[1].splitlines() == sentences
    assert launcher.returncode == 143
    assert not any(map(is_running, pids))


def test_a_handler_from_outside_python_stays(monkeypatch):
    """Python cannot restore it, so it is not replaced."""
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    with handle_signals(raise_signal) as names:
        assert names == []


def test_an_ignored_signal_stays_ignored(tmp_path):
    """As Ctrl-C is for a command in the background of a script, and SIGHUP after nohup."""
    script = tmp_path / "stoppable.py"
    script.write_text(STOPPABLE)
    program = "import os, sys; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    ignore = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2)]; " + program
    worker = [sys.executable, str(script), str(tmp_path), "0", "-1"]
    launcher = subprocess.Popen(
        [sys.executable, "-c", ignore, "-c", LAUNCH, '{"processes": 2}', *worker],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
    )
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, 60)
    launcher.send_signal(signal.SIGINT)
    launcher.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert launcher.poll() is None
    launcher.terminate()
    assert launcher.communicate(timeout=30)[1] == "rank 0 has saved\n"
    assert launcher.returncode == 143


def test_processes_end_when_their_agent_is_killed(tmp_path):
    """Their command is `python -m clearhead`, whose first act is to watch the agent."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, subprocess, sys, types\n"
        "def main():\n"
        "    import time\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        f"    open(f'{tmp_path}/{{child.pid}}.pid', 'w').close()\n"
        "    time.sleep(600)\n"
        "if 'TORCHELASTIC_RUN_ID' in os.environ:\n"
        "    sys.modules['clearhead.cli.main'] = types.SimpleNamespace(main=main)\n"
    )
    command = ["env", f"PYTHONPATH={tmp_path}:{PACKAGE}", sys.executable, "-m", "clearhead"]
    launcher = launch_outside(command)
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, 60)
    children = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert all(map(is_running, children))
    launcher.kill()
    launcher.communicate(timeout=30)
    wait_until(lambda: not any(map(is_running, children)), 20)


@pytest.mark.parametrize(("variables", "says"), [({"TORCHELASTIC_RUN_ID": "1"}, False), ({}, True)])
def test_ctrl_c_ends_a_started_process_without_a_word(tmp_path, variables, says):
    """The agent says one for all; alone, a process says its own."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys, types\n"
        "def main():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    [None for _ in range(10**6)]\n"
        "sys.modules['clearhead.cli.main'] = types.SimpleNamespace(main=main)\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC")}
    done = subprocess.run(
        [sys.executable, "-m", "clearhead"],
        env=kept | {"PYTHONPATH": f"{tmp_path}:{PACKAGE}", **variables},
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode == -signal.SIGINT
    assert bool(done.stderr) == says


def test_a_process_whose_agent_has_already_ended_ends(tmp_path):
    """The agent was killed before the process could look for it."""
    program = "import time; from clearhead.__main__ import end_with_agent; end_with_agent()\n"
    done = subprocess.run(
        [sys.executable, "-c", program + "time.sleep(60)"],
        env=os.environ | {"PYTHONPATH": str(PACKAGE), "CLEARHEAD_AGENT": "1"},
        start_new_session=True,
    )
    assert done.returncode == -signal.SIGTERM


def test_a_process_that_does_not_stop_with_its_agent_is_killed(tmp_path):
    program = f"""
import os, signal, time
from clearhead.__main__ import end_with_agent
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end_with_agent(grace=0.5)
open(f"{tmp_path}/{{os.getpid()}}.pid", "w").close()
time.sleep(600)
"""
    launcher = launch_outside([sys.executable, "-c", program])
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, 60)
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    launcher.kill()
    launcher.communicate(timeout=30)
    wait_until(lambda: not any(map(is_running, pids)), 20)


# Several machines


def find_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def launch_nodes(tmp_path, deeds, *nodes, **options):
    """Two agents on this machine, as on two: (exit code, stderr) of each; facts of the workers."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, str(script), str(tmp_path), json.dumps(deeds)]
    options = {"nodes": len(nodes), "rendezvous": f"localhost:{find_port()}", **options}
    launchers = [launch_outside(command, **options, **node) for node in nodes]
    ends = [(launcher.communicate(timeout=120)[1], launcher.returncode) for launcher in launchers]
    facts = {p.stem: json.loads(p.read_text()) for p in tmp_path.glob("*.json")}
    agents = {str(launcher.pid): number for number, launcher in enumerate(launchers)}
    for fact in facts.values():
        fact["launcher"] = agents[fact["CLEARHEAD_AGENT"]]
    return [(code, err) for err, code in ends], facts


def test_ranks_follow_the_number_of_the_machine(tmp_path):
    ends, facts = launch_nodes(tmp_path, {}, {"node_rank": 1}, {"node_rank": 0})
    assert ends == [(0, ""), (0, "")]
    assert sorted(facts) == ["0-0", "1-0", "2-0", "3-0"]
    assert [facts[f"{rank}-0"]["launcher"] for rank in range(4)] == [1, 1, 0, 0]
    assert {fact["WORLD_SIZE"] for fact in facts.values()} == {"4"}
    assert [facts[f"{rank}-0"]["LOCAL_RANK"] for rank in range(4)] == ["0", "1", "0", "1"]


def test_machine_0_is_the_last_to_leave(tmp_path):
    """It has the store of the rendezvous; torch prints a warning if that is gone too early."""
    slow = {"node_rank": 1, "seconds_to_leave": 1.5}
    ends, _ = launch_nodes(tmp_path, {}, slow, {"node_rank": 0})
    assert ends == [(0, ""), (0, "")]


def test_a_machine_ends_without_a_traceback_when_machine_0_is_killed(tmp_path):
    place = f"localhost:{find_port()}"
    options = {"nodes": 2, "rendezvous": place, "timeout": 5, "processes": 1}
    command = [sys.executable, "-c", f"open('{tmp_path}/here', 'w'); import time; time.sleep(3)"]
    first = launch_outside(command, node_rank=0, **options)
    second = launch_outside(command, node_rank=1, **options)
    wait_until(lambda: (tmp_path / "here").exists(), 60)
    first.kill()
    first.communicate()
    errors = second.communicate(timeout=60)[1]
    assert second.returncode == 8
    assert "error: the other machines have ended" in errors
    assert "Traceback" not in errors


def test_a_machine_ends_when_machine_0_falls_silent(tmp_path):
    """As when the network is cut: its connections stay open, and nothing answers."""
    place = f"localhost:{find_port()}"
    options = {"nodes": 2, "rendezvous": place, "timeout": 2, "processes": 1, "answer_within": 1}
    program = f"import os, time; open(f'{tmp_path}/{{os.getpid()}}', 'w'); time.sleep(600)"
    launchers = [
        launch_outside([sys.executable, "-c", program], node_rank=rank, **options)
        for rank in range(2)
    ]
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2, 60)
    first, second = launchers
    try:
        first.send_signal(signal.SIGSTOP)
        errors = second.communicate(timeout=60)[1]
    finally:
        first.send_signal(signal.SIGCONT)
        first.terminate()
        first.communicate(timeout=60)
    assert second.returncode == 8
    assert errors.endswith(
        f"error: machine 0 at {place} has not answered for 4 seconds: it has stopped, or the "
        f"network is cut; the same command resumes the run\n"
    )
    wait_until(lambda: not any(is_running(int(path.name)) for path in tmp_path.iterdir()))


def test_machines_start_again_together(tmp_path):
    """Rank 3 is killed, and those on the other machine lose it."""
    deeds = {"3": {"0": "SIGKILL"}, "0": {"0": 8}}
    ends, facts = launch_nodes(tmp_path, deeds, {"node_rank": 0}, {"node_rank": 1})
    again = "starting all processes again (1 of 3)\n"
    assert ends == [
        (0, f"rank 0 lost another process; {again}"),
        (0, f"rank 3 was ended by SIGKILL; {again}"),
    ]
    assert sorted(facts) == [f"{rank}-{attempt}" for rank in "0123" for attempt in "01"]


def test_a_final_error_ends_all_machines(tmp_path):
    deeds = {"3": {"0": 3}, "0": {"0": 8, "1": 8}}
    (first, second), facts = launch_nodes(tmp_path, deeds, {"node_rank": 0}, {"node_rank": 1})
    assert second == (3, "")
    assert first[0] == 3  # so that no scheduler starts the job again
    assert "the other machines have ended" in first[1]
    assert "0-1" not in facts


def test_two_machines_with_the_same_number_are_refused(tmp_path):
    nodes = [{"node_rank": rank} for rank in (1, 0, 1)]
    ends, facts = launch_nodes(tmp_path, {}, *nodes, processes=1)
    expected = "node_rank must be a different number on each machine, 0 to 2, got 0, 1, 1"
    assert all(expected in err for _, err in ends)
    assert facts == {}


def test_machines_with_different_numbers_of_processes_are_refused(tmp_path):
    nodes = {"node_rank": 0, "processes": 1}, {"node_rank": 1, "processes": 2}
    ends, facts = launch_nodes(tmp_path, {}, *nodes)
    assert all(
        "processes must be the same number on each machine, got 1, 2" in err for _, err in ends
    )
    assert facts == {}


def test_a_machine_that_never_comes_is_missed_in_time(tmp_path):
    place = f"localhost:{find_port()}"
    command = [sys.executable, "-c", "pass"]
    sentences = []
    code = launch(command, processes=1, nodes=2, rendezvous=place, timeout=2, tell=sentences.append)
    assert (code, sentences) == (
        8,
        [f"error: not all 2 machines reached {place} within 2 seconds"],
    )


def test_a_first_machine_that_cannot_be_reached_is_named(tmp_path):
    place, sentences = f"localhost:{find_port()}", []
    options = {"nodes": 2, "node_rank": 1, "rendezvous": place, "timeout": 2}
    assert launch(["true"], processes=1, **options, tell=sentences.append) == 8
    assert sentences == [
        f"error: no connection at {place}; start the command on machine 0, or correct --rendezvous",
    ]


def test_a_port_in_use_is_named(tmp_path):
    sentences = []
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        place = f"localhost:{other.getsockname()[1]}"
        options = {"nodes": 2, "rendezvous": place, "timeout": 2}
        assert launch(["true"], processes=1, **options, tell=sentences.append) == 8
    assert sentences == [f"error: no connection at {place}; take another port"]


def test_no_thread_is_left_behind(start):
    before = threading.active_count()
    start({})
    assert threading.active_count() == before

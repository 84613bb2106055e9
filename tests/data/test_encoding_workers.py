"""Several processes encode: the same bytes; one that dies or hangs is an error, none is left."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pytest

import clearhead
from clearhead.data import (
    BytePairTokenizer,
    CharTokenizer,
    encoding_workers,
    pack_texts,
    pack_tokens,
)
from clearhead.data.encoding_workers import EncodingWorkers, Piece, WorkerFailed
from clearhead.files import BadFile

TEXT = "".join(f"To be, or not to be {i * i}: that is the question.\n" for i in range(2000))
PAIRS = BytePairTokenizer.train([TEXT[:5000]], 300)


@pytest.fixture
def tokenizer(tmp_path):
    PAIRS.save(tmp_path / "tokenizer.json")
    return tmp_path / "tokenizer.json"


def is_running(pid):
    """Whether a process exists and is not a zombie, which waits for its parent only."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_pieces_come_back_in_their_order_with_their_ids(tokenizer):
    texts = ["", "To be", "é東😀\n", *(TEXT[: 37 * i] for i in range(30))]
    pieces = [Piece("play.txt", text) for text in texts]
    with EncodingWorkers(tokenizer, 3) as workers:
        found = list(workers.encode(iter(pieces)))
    assert [piece for piece, _ in found] == pieces
    assert [ids.tolist() for _, ids in found] == [PAIRS.encode(text) for text in texts]
    assert all(process.returncode is not None for process in workers.processes)


def test_only_a_few_pieces_are_read_ahead(tokenizer):
    read = []
    pieces = (read.append(i) or Piece("play.txt", str(i)) for i in range(100))
    with EncodingWorkers(tokenizer, 2) as workers:
        next(workers.encode(pieces))
        assert len(read) <= 5


def test_any_number_of_workers_writes_the_same_bytes(tmp_path, monkeypatch):
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text(TEXT[1000 * number :])
    small = partial(pack_tokens.cut_pieces, chunk=4096)  # many pieces
    monkeypatch.setattr(pack_tokens, "cut_pieces", small)
    found = []
    for n in (1, 2, 3):
        out = tmp_path / f"{n}.tokens"
        pack_texts(files, out, vocab_size=300, workers=n, shard_tokens=7000)
        found.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
    assert len(found[0]) > 5
    assert found[0] == found[1] == found[2]


def test_T25_a_killed_worker_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    """Of a whole packing: no process, no folder of the name, no unfinished one."""
    (tmp_path / "play.txt").write_text(TEXT * 20)
    started = []
    start = encoding_workers._start
    monkeypatch.setattr(
        encoding_workers, "_start", lambda path: started.append(start(path)) or started[-1]
    )

    def kill(words, done, total):
        if words == "encoding" and started and done > 1e6:
            started[0].kill()

    with pytest.raises(WorkerFailed, match=r"the encoding process \d+ ended by SIGKILL, maybe for"):
        pack_texts(
            [tmp_path / "play.txt"], tmp_path / "x.tokens", vocab_size=300, workers=2, tell=kill
        )
    assert len(started) == 2
    assert not any(is_running(process.pid) for process in started)
    assert os.listdir(tmp_path) == ["play.txt"]


def test_T25_a_hung_worker_is_an_error_within_the_timeout(tokenizer):
    pieces = (Piece("play.txt", TEXT) for _ in cycle([0]))
    with EncodingWorkers(tokenizer, 2) as workers:
        answers = workers.encode(pieces)
        for _ in islice(answers, 4):
            pass  # both have started
        workers.timeout = 1.0
        os.kill(workers.processes[1].pid, signal.SIGSTOP)
        start = time.monotonic()
        with pytest.raises(WorkerFailed, match="gave no answer for 1 s, so all were ended"):
            for _ in answers:
                pass
        seconds = time.monotonic() - start
    assert seconds < 60  # with the pieces before it, on any machine
    assert not any(is_running(process.pid) for process in workers.processes)


def test_a_worker_that_starts_when_all_is_over_ends_without_a_word(tmp_path):
    """The other process was interrupted and has deleted the tokenizer."""
    command = [sys.executable, "-m", "clearhead.data.encoding_workers", tmp_path / "gone.json"]
    environment = os.environ | {"PYTHONPATH": str(Path(clearhead.__file__).parents[1])}
    done = subprocess.run(command, input=b"", capture_output=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_T25_a_worker_ends_with_a_process_that_was_killed(tokenizer):
    program = (
        "import sys\nfrom clearhead.data.encoding_workers import *\n"
        "with EncodingWorkers(sys.argv[1], 2) as workers:\n"
        "    answers = workers.encode(Piece('x', 'to be') for _ in iter(int, 1))\n"
        "    next(answers), next(answers), next(answers)\n"
        "    print(*[process.pid for process in workers.processes], flush=True)\n"
        "    sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tokenizer)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(clearhead.__file__).parents[1])},
    )
    with parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_running, pids))
        parent.kill()
    deadline = time.monotonic() + 60
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def test_what_a_worker_refuses_names_the_file(tmp_path):
    CharTokenizer("abc", cls=None).save(tmp_path / "tokenizer.json")
    pieces = [Piece("one.txt", "abc"), Piece("two.txt", "abcd")]
    with EncodingWorkers(tmp_path / "tokenizer.json", 1) as workers:
        answers = workers.encode(pieces)
        assert next(answers)[1].tolist() == [0, 1, 2]
        with pytest.raises(BadFile, match=r"two\.txt: the character 'd' is not in the alphabet"):
            next(answers)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"n": 0}, "n must be at least 1"), ({"n": 1, "timeout": 0.0}, "timeout must be a finite")],
)
def test_wrong_numbers_are_refused(tokenizer, options, words):
    with pytest.raises(ValueError, match=words):
        EncodingWorkers(tokenizer, **options)

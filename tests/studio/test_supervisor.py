"""Asking the worker: order, limits, cancelling, and what happens when it hangs or ends."""

import asyncio
import io
import json
import os
import signal
import sys
from contextlib import aclosing, asynccontextmanager

import pytest
import torch
from fake_studio import WORKER

from clearhead.config import check_type
from clearhead.inspection import logit_difference
from clearhead.studio import supervisor as module
from clearhead.studio.frames import decode_answer
from clearhead.studio.questions import find_question
from clearhead.studio.supervisor import LIMIT, AskError, Supervisor
from clearhead.studio.worker import Worker, describe_fault
from clearhead.studio.worker_process import escape_controls, print_safely

SECONDS = 60


@asynccontextmanager
async def supervise(settings=None, **options):
    supervisor = Supervisor(settings or {}, command=WORKER, **options)
    await supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.stop()


def run(test, settings=None, **options):
    """Run a coroutine function with a supervisor of the fake worker."""

    async def main():
        async with asyncio.timeout(SECONDS), supervise(settings, **options) as supervisor:
            return await test(supervisor)

    return asyncio.run(main())


async def ask(supervisor, question, **arguments):
    return decode_answer(await supervisor.answer(question, arguments))


async def wait_until(is_true):
    while not is_true():
        await asyncio.sleep(0.01)


# Answers


def test_a_question_has_one_answer():
    async def test(supervisor):
        return await ask(supervisor, "echo", text="é")

    assert run(test)["text"] == "é"


def test_a_stream_has_many_answers_and_an_end():
    async def test(supervisor):
        return [pair async for pair in supervisor.ask("count", {"n": 3})]

    *answers, last = run(test)
    assert [decode_answer(data)["i"] for letter, data in answers if letter == b"p"] == [0, 1, 2]
    assert last == (b"d", b"")


def test_a_stream_is_refused_where_one_answer_is_expected_and_is_ended():
    async def test(supervisor):
        with pytest.raises(AskError, match="ask it at /api/stream/count_marked") as caught:
            await ask(supervisor, "count_marked", path="/dev/null")
        assert caught.value.status == 400
        assert supervisor.n_pending == 0
        assert (await ask(supervisor, "echo", text="b"))["text"] == "b"

    run(test)


def test_streams_take_turns_and_a_question_goes_before_their_next_step():
    async def test(supervisor):
        order = []

        async def follow(name):
            async for _ in supervisor.ask("count", {"n": 9, "seconds": 0.05}):
                order.append(name)

        tasks = [asyncio.create_task(follow("a")), asyncio.create_task(follow("b"))]
        await wait_until(lambda: {"a", "b"} <= set(order))
        await ask(supervisor, "echo")
        order.append("c")
        await asyncio.gather(*tasks)
        return order

    order = run(test)
    assert order.index("c") < len(order) - 4
    assert sorted(order[:6]) != ["a"] * 5 + ["b"]  # the first stream does not run to its end


def test_wrong_input_keeps_its_status_and_its_sentence():
    async def test(supervisor):
        with pytest.raises(AskError, match="text is wrong: abc") as caught:
            await ask(supervisor, "refuse", text="abc")
        return caught.value

    error = run(test)
    assert error.to_json() == {"error": "text is wrong: abc", "status": 400}


def test_W18_a_bug_has_an_id_and_its_traceback_goes_to_the_terminal_without_the_input(capsys):
    secret = "what 'I' typed\nhere"

    async def test(supervisor):
        with pytest.raises(AskError) as caught:
            await ask(supervisor, "fail", text=secret)
        assert (await ask(supervisor, "echo", text="b"))["text"] == "b"
        return caught.value

    error, printed = run(test), capsys.readouterr().err
    assert error.status == 500
    assert "Traceback" not in error.sentence
    id = error.sentence.rpartition("error ")[2].rstrip(")")
    assert len(id) == 8
    assert f"error {id} in fail:\nTraceback" in printed
    assert "RuntimeError: a bug with \\x1b[31m " in printed
    assert "typed" not in printed


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (lambda: check_type("n", 3, str), 400),
        (lambda: find_question("nothing"), 400),
        (lambda: logit_difference(9, 0)(torch.zeros(1, 3)), 400),  # an IndexError
        (lambda: int("x"), 400),
        (lambda: [][0], 500),
        (lambda: {}["a"], 500),
        (lambda: None + 1, 500),
        (lambda: None.a, 500),
    ],
)
def test_W18_an_error_is_a_refusal_if_it_was_raised_and_a_bug_if_an_operation_failed(fault, status):
    try:
        fault()
    except Exception as raised:
        found = json.loads(describe_fault(raised))
    assert found["status"] == status
    assert ("log" in found) == (status == 500)


# Waiting


def test_more_questions_than_the_limit_are_refused_and_the_others_are_answered():
    async def test(supervisor):
        tasks = [asyncio.create_task(ask(supervisor, "wait", seconds=0.3))]
        tasks += [asyncio.create_task(ask(supervisor, "echo", text=str(i))) for i in range(50)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = run(test)
    assert first["seconds"] == 0.3
    refused = [each for each in others if isinstance(each, AskError)]
    assert [each.status for each in refused] == [429] * (51 - LIMIT)
    answered = [each["text"] for each in others[: LIMIT - 1]]
    assert answered == [str(i) for i in range(LIMIT - 1)]


def test_a_question_that_is_cancelled_while_it_waits_never_reaches_the_worker(tmp_path):
    async def test(supervisor):
        slow = asyncio.create_task(ask(supervisor, "wait", seconds=0.3))
        arguments = {"path": str(tmp_path / "marks")}
        waiting = asyncio.create_task(anext(supervisor.ask("count_marked", arguments)))
        await wait_until(lambda: supervisor.n_pending == 2)
        waiting.cancel()
        await slow
        await ask(supervisor, "echo")
        assert supervisor.n_pending == 0

    run(test)
    assert not (tmp_path / "marks").exists()


def test_a_cancelled_stream_stops_and_frees_its_place(tmp_path):
    marks = tmp_path / "marks"

    async def test(supervisor):
        async with aclosing(supervisor.ask("count_marked", {"path": str(marks)})) as answers:
            for _ in range(3):
                await anext(answers)
        assert supervisor.n_pending == 0
        await ask(supervisor, "echo")  # the worker has read the cancellation before this
        size = marks.stat().st_size
        await ask(supervisor, "wait", seconds=0.2)
        return size

    assert run(test) == marks.stat().st_size


def test_cancelling_a_stream_before_its_first_answer_keeps_nobody_waiting():
    async def test(supervisor):
        for _ in range(20):
            first = asyncio.create_task(anext(supervisor.ask("count", {"n": 9})))
            await asyncio.sleep(0)
            first.cancel()
            assert (await ask(supervisor, "echo", text="b"))["text"] == "b"

    run(test)


def test_the_worker_says_when_it_has_ended_a_cancelled_question():
    output = io.BytesIO()
    worker = Worker(None, output)
    worker.receive({"cancel": 7})
    assert output.getvalue() == b"\x05\0\0\0\x07\0\0\0d"


def test_answers_that_nobody_reads_are_limited(monkeypatch):
    monkeypatch.setattr(module, "MAX_UNREAD", 1 << 20)

    async def test(supervisor):
        async with aclosing(supervisor.ask("count", {"n": 1000, "size": 10_000})) as answers:
            await anext(answers)
            await wait_until(lambda: supervisor.n_pending == 0)
            with pytest.raises(AskError, match="too slowly"):
                await anext(answers)
        assert (await ask(supervisor, "echo", text="b"))["text"] == "b"

    run(test)


# The process


def test_W18_a_worker_that_ends_is_started_again():
    async def test(supervisor):
        before = (await ask(supervisor, "echo"))["process"]
        dying = asyncio.create_task(ask(supervisor, "die"))
        waiting = asyncio.create_task(ask(supervisor, "echo"))
        for task in (dying, waiting):
            with pytest.raises(AskError, match="is being started again") as caught:
                await task
            assert caught.value.to_json()["restarting"]
            assert caught.value.status == 503
        assert (await ask(supervisor, "echo"))["process"] != before  # it waits for the new one
        assert supervisor.n_starts == 2

    run(test)


def test_W18_a_worker_that_hangs_is_killed_and_started_again():
    async def test(supervisor):
        before = (await ask(supervisor, "echo"))["process"]
        os.kill(before, signal.SIGSTOP)
        with pytest.raises(AskError, match="did not answer for 2 s and is being") as caught:
            await ask(supervisor, "echo")
        assert caught.value.status == 503
        assert (await ask(supervisor, "echo"))["process"] != before
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)

    run(test, timeout=2)


def test_an_idle_worker_may_be_silent():
    async def test(supervisor):
        before = (await ask(supervisor, "echo"))["process"]
        await asyncio.sleep(2.5)  # longer than the time-out
        assert (await ask(supervisor, "echo"))["process"] == before

    run(test, timeout=2)


def test_a_long_stream_is_not_too_slow_as_long_as_answers_come():
    async def test(supervisor):
        return [x async for x in supervisor.ask("count", {"n": 12, "seconds": 0.25})]

    assert len(run(test, timeout=2)) == 13


def test_a_worker_that_does_not_start_is_told_by_its_last_line(monkeypatch, capsys):
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0, 0.0))

    async def test(supervisor):
        assert supervisor.state == "failing"
        with pytest.raises(AskError, match=r"does not start; .*: no \\x1b library") as caught:
            await ask(supervisor, "echo")
        assert caught.value.status == 503
        assert supervisor.n_starts == 3

    run(test, {"fails": "no \x1b library"})
    assert "no \\x1b library" in capsys.readouterr().err


def test_W18_a_process_that_the_system_does_not_start_is_told_and_tried_again(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(module, "SLOW_PAUSE", 0.05)

    async def test():
        supervisor = Supervisor({}, command=[str(tmp_path / "nothing")])
        await supervisor.start()
        try:
            with pytest.raises(AskError, match=r"does not start; .*: No such file") as caught:
                await ask(supervisor, "echo")
            assert caught.value.status == 503
            assert caught.value.restarting
            assert supervisor.worker_id is None
            supervisor.command = WORKER
            await wait_until(lambda: supervisor.state == "ready")
            return await ask(supervisor, "echo", text="b")
        finally:
            await supervisor.stop()

    async def main():
        async with asyncio.timeout(SECONDS):
            return await test()

    assert asyncio.run(main())["text"] == "b"
    assert "cannot be started: No such file" in capsys.readouterr().err


def test_a_worker_that_starts_at_last_is_used(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(module, "SLOW_PAUSE", 0.05)

    async def test(supervisor):
        assert supervisor.state == "failing"
        supervisor.settings = {}
        await wait_until(lambda: supervisor.state == "ready")
        return await ask(supervisor, "echo", text="b")

    assert run(test, {"fails": "not yet"})["text"] == "b"


def test_stopping_ends_the_worker_and_all_questions():
    async def main():
        async with supervise() as supervisor:
            process = (await ask(supervisor, "echo"))["process"]
            stream = supervisor.ask("count", {"n": 1000, "seconds": 0.05})
            await anext(stream)
            await supervisor.stop()
            with pytest.raises(AskError, match="has been closed"):
                _ = [answer async for answer in stream]
            with pytest.raises(AskError, match="has been closed"):
                await ask(supervisor, "echo")
            return process

    process = asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_what_the_worker_prints_goes_to_stderr_and_cannot_change_the_terminal(capsys):
    async def test(supervisor):
        await ask(supervisor, "print_line", text="red \x1b[31m\n" + "long" * 50_000)
        await ask(supervisor, "echo")

    run(test)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "red \\x1b[31m\n" in printed.err
    assert printed.err.count("long") == 50_000
    assert escape_controls("a\tb\nc\x9b") == "a\tb\nc\\x9b"


def test_a_file_of_the_users_folder_is_not_imported_in_place_of_a_library(tmp_path, monkeypatch):
    (tmp_path / "clearhead.py").write_text("import os; os._exit(3)")
    monkeypatch.chdir(tmp_path)

    async def main():
        supervisor = Supervisor({"paths": [], "runs": "runs", "threads": 1})
        await supervisor.start()
        try:
            return supervisor.state, decode_answer(await supervisor.answer("list_models", {}))
        finally:
            await supervisor.stop()

    assert asyncio.run(main()) == ("ready", {"models": []})


def test_the_server_never_imports_torch():
    code = "import sys, clearhead.studio.server, clearhead.cli.main; print(*sys.modules)"

    async def main():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[0].decode().split()

    modules = asyncio.run(main())
    assert "uvicorn" in modules
    assert not {"torch", "matplotlib", "PIL"} & set(modules)


def test_without_a_stderr_nothing_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    print_safely("a warning")
    assert capsys.readouterr().out == ""

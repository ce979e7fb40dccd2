"""Worker processes: what they are sent and answer, and how they end.

Each test has a module of its own, whose ``main`` is what the worker runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakebed import UsageError
from lakebed.errors import Error
from lakebed.storage.worker_process import Worker, exit_text
from tests.waiting import WAIT_S, until

ECHO = """
import os, sys
from lakebed.storage.worker_process import answer_pipe, requests, write_message

def main():
    answers = answer_pipe()
    print("printed by a library", flush=True)
    for message in requests():
        write_message(answers, eval(message))
"""

Starts = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starts]:
    """Starts a worker for a program, and ends it after the test."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "modules")
    with ExitStack() as started:

        def start(program: str = ECHO, **settings: object) -> Worker:
            path = tmp_path / "modules" / f"program_{abs(hash(program))}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(program)
            worker = Worker(path.stem, str(tmp_path / "scratch"), **settings)  # type: ignore[arg-type]
            started.callback(worker.end)
            return worker

        yield start


def ask(worker: Worker, expression: str) -> bytes | None:
    worker.send(expression.encode())
    return worker.receive()


@pytest.mark.parametrize(
    "message", [b"", b"\n", b"\x00\xff" * 3, b"x" * 1_000_000], ids=["empty", "line", "any", "long"]
)
def test_any_bytes_are_a_message(start: Starts, message: bytes) -> None:
    worker = start()
    assert ask(worker, repr(message)) == message
    assert ask(worker, "b'next'") == b"next"


def test_what_libraries_print_is_no_answer(start: Starts, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(start(), "b'answer'") == b"answer"
    out, err = capfd.readouterr()
    assert (out, err) == ("", "printed by a library\n")


def test_rows_may_follow_an_answer(start: Starts) -> None:
    worker = start(
        ECHO.replace("eval(message))", "message); answers.write(b'0123456789'); answers.flush(); os._exit(3)")
    )
    assert ask(worker, "now") == b"now"
    first, rest = bytearray(4), bytearray(9)
    assert (worker.read_into(memoryview(first)), bytes(first)) == (4, b"0123")
    assert (worker.read_into(memoryview(rest)), bytes(rest[:6])) == (6, b"456789")
    assert worker.end(WAIT_S) == 3


def test_a_worker_finds_modules_where_its_owner_does_and_writes_where_it_says(
    start: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere")
    monkeypatch.setenv("INHERITED", "mine")
    (tmp_path / "json.py").write_text("raise SystemExit('the current folder was searched')")
    worker = start(variables={"INHERITED": "not used", "OWN": "theirs"})
    assert ask(worker, "repr(sys.path).encode()") == repr(sys.path).encode()
    assert ask(worker, "__import__('tempfile').gettempdir().encode()") == str(tmp_path / "scratch").encode()
    named = "os.environ.get(name) for name in ('INHERITED', 'OWN', 'SPARK_LOCAL_DIRS')"
    assert ask(worker, f"repr([{named}]).encode()") == b"['mine', 'theirs', None]"


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("os._exit(7)", 7, "exit code 7"),
        ("os.kill(os.getpid(), 9)", -9, "SIGKILL"),
        ("answers.write(b'\\x05\\0\\0\\0\\0\\0\\0\\0ab'), answers.flush(), os._exit(0)", 0, "exit code 0"),
    ],
    ids=["exit", "signal", "within an answer"],
)
def test_a_worker_that_dies_answers_nothing_and_says_how_it_ended(
    start: Starts, how: str, code: int, text: str
) -> None:
    worker = start()
    assert ask(worker, how) is None
    assert ask(worker, "b'too late'") is None
    assert worker.end(WAIT_S) == code
    assert not worker.is_alive
    assert exit_text(code) == text


def test_a_worker_that_does_not_end_in_time_is_killed(start: Starts) -> None:
    worker = start()
    assert worker.is_alive
    assert worker.end(0.05) == -signal.SIGKILL
    assert worker.end() == -signal.SIGKILL, "again"
    worker.kill()


def test_a_worker_ends_with_its_stdin_in_the_middle_of_its_work(start: Starts) -> None:
    worker = start()
    worker.send(b"__import__('time').sleep(600)")
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    assert worker.process.wait(WAIT_S) == 0


def test_a_worker_ends_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(ECHO)
    program = (
        "import sys; from lakebed.storage.worker_process import Worker\n"
        f"worker = Worker('waits', {tempfile.gettempdir()!r}); worker.send(b'str(os.getpid()).encode()')\n"
        "print(worker.receive().decode(), flush=True); sys.stdin.read()"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        os.kill(pid, 0)
        owner.kill()

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    until(is_gone)


def test_a_signal_to_the_group_of_its_owner_does_not_reach_a_worker(start: Starts) -> None:
    assert ask(start(), "str(os.getpgrp() == os.getpid()).encode()") == b"True"


def test_a_python_without_a_path_starts_none() -> None:
    with pytest.raises(UsageError) as caught:
        Worker("any", "/tmp", python="")
    assert caught.value.code == "worker_not_started"


def test_a_system_that_starts_no_process_is_an_error() -> None:
    with pytest.raises(Error) as caught:
        Worker("any", "/tmp", python="/nowhere/python")
    assert caught.value.code == "worker_failed"

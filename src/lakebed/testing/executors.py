"""The contract of executors, as a pytest suite.

Subclass it in a test file, and give it executors::

    class TestMyExecutor(ExecutorConformance):
        @pytest.fixture
        def executor(self):
            executor = MyExecutor()
            yield executor
            executor.close()
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from lakebed import clock
from lakebed.errors import Code, DamagedError, Error
from lakebed.jobs.executor import Executor
from lakebed.jobs.interrupt import Stop
from lakebed.jobs.job_progress import Progress
from lakebed.table.tracker.recorder import RunHandle

if TYPE_CHECKING:
    from lakebed.table.tracker.runs import TaskRun

MEMORY_BYTES = 64 * 1024 * 1024
WAIT_S = 120.0


def _doubled(value: int) -> int:
    if value < 0:
        raise Code.OBJECT_DAMAGED("below zero", name=str(value))
    return 2 * value


def _quotient(value: int) -> int:
    return 12 // value


def _text(value: int) -> str:
    return str(value)


def _waited(folder: str) -> int:
    """Say that the task began, and wait until it may end."""
    (Path(folder) / "began").touch()
    until(Path(folder) / "released")
    return 1


def _killed_once(mark: str) -> int:
    """Die at the first attempt, as if the system had killed the process; a value that is no file lives."""
    if mark and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def until(mark: Path) -> None:
    """Wait for a file."""
    end_s = clock.monotonic_s() + WAIT_S
    while not mark.exists():
        assert clock.monotonic_s() < end_s, f"no {mark}"
        clock.sleep(0.01)


@contextmanager
def stopped_when_begun(folder: Path) -> Iterator[Stop]:
    """Return a stop that is asked to stop once a task has written ``began`` into the folder.

    A task that is not cancelled then goes on, because ``released`` is there.
    """
    stop = Stop()

    def end() -> None:
        until(folder / "began")
        stop.ask()
        stop.cancel()
        (folder / "released").touch()

    ending = threading.Thread(target=end)
    ending.start()
    yield stop
    ending.join()


class TaskRecords:
    """Stands for the recorder of runs: remembers the tasks. For a :class:`RunHandle`."""

    def __init__(self) -> None:
        self.planned: list[tuple[int, str]] = []
        self.tasks: list[TaskRun] = []

    def plan_tasks(self, _run: str, count: int, executor: str) -> int:
        """As the recorder's."""
        self.planned.append((count, executor))
        return 0

    def task(self, task: TaskRun) -> None:
        """As the recorder's."""
        self.tasks.append(task)

    def error_of(self, error: BaseException) -> str:
        """As the recorder's."""
        return str(error)


class ExecutorConformance:
    """The contract of :class:`lakebed.jobs.executor.Executor`, promise by promise."""

    tasks_have_processes = True
    """Whether a task may kill its process. Override it for an executor whose tasks run in this one."""

    @pytest.fixture
    def executor(self) -> Executor:
        """Override: an executor, which the fixture closes."""
        raise NotImplementedError

    def run(self, executor: Executor, values: list[Any], work: Any = _doubled, made: Any = int, **given: Any) -> Any:
        """Run the tasks of a call that no one stops."""
        return executor.run(values, work, made, Stop(), memory_limit_bytes=MEMORY_BYTES, **given)

    def test_results_are_in_the_order_of_the_values(self, executor: Executor) -> None:
        """Also without values, and with more of them than run at once."""
        assert self.run(executor, list(range(9))) == [0, 2, 4, 6, 8, 10, 12, 14, 16]
        assert self.run(executor, []) == []
        assert executor.cores(MEMORY_BYTES) >= 1
        assert executor.name

    def test_a_task_that_fails_has_its_error_as_result_and_the_others_go_on(self, executor: Executor) -> None:
        """With the class and the facts that it was raised with."""
        first, failed, last = self.run(executor, [1, -1, 2])
        assert (first, last) == (2, 4)
        assert isinstance(failed, DamagedError)
        assert (failed.message, failed.facts) == ("below zero", {"name": "-1"})
        _, foreign = self.run(executor, [3, 0], _quotient)
        assert isinstance(foreign, Error), "an error of another library is one of Lakebed"
        assert "ZeroDivisionError" in str(foreign)

    def test_a_result_of_another_type_is_refused(self, executor: Executor) -> None:
        """What a task returns is data, of the type that the call expects."""
        with pytest.raises(Exception, match="Expected `int`, got `str`"):
            self.run(executor, [1], _text)
        assert self.run(executor, [1]) == [2]

    def test_what_cannot_be_pickled_fails_the_call_and_nothing_else(self, executor: Executor) -> None:
        """Neither a task nor the next call."""
        with pytest.raises(Exception, match="pickle"):
            self.run(executor, [threading.Lock()])
        assert self.run(executor, [1]) == [2]

    def test_a_call_that_was_stopped_runs_nothing(self, executor: Executor, tmp_path: Path) -> None:
        """It raises KeyboardInterrupt before its first task."""
        stop = Stop()
        stop.ask()
        with pytest.raises(KeyboardInterrupt):
            executor.run([str(tmp_path)], _waited, int, stop, memory_limit_bytes=MEMORY_BYTES)
        assert not (tmp_path / "began").exists()

    def test_a_call_that_is_stopped_ends_and_the_executor_does_not(self, executor: Executor, tmp_path: Path) -> None:
        """While a task runs, which is cancelled, or ends by itself before the call does."""
        with stopped_when_begun(tmp_path) as stop, pytest.raises(KeyboardInterrupt):
            executor.run([str(tmp_path)] * 2, _waited, int, stop, memory_limit_bytes=MEMORY_BYTES)
        assert self.run(executor, [1]) == [2]

    def test_a_process_that_dies_costs_its_task_at_most(self, executor: Executor, tmp_path: Path) -> None:
        """The task is tried again, or has an error as its result."""
        if not self.tasks_have_processes:
            pytest.skip("the tasks run in this process")
        first, killed, last = self.run(executor, ["", str(tmp_path / "killed"), ""], _killed_once)
        assert (first, last) == (1, 1)
        assert killed == 1 or isinstance(killed, Error)
        assert self.run(executor, [1]) == [2]

    def test_progress_begins_with_no_row_and_ends_with_all(self, executor: Executor) -> None:
        """And never goes back."""
        seen: list[Progress] = []
        self.run(executor, [1, 2, 3], progress=seen.append, rows=300)
        rows = [one.rows_done for one in seen]
        assert (rows[0], rows[-1]) == (0, 300)
        assert rows == sorted(rows)
        assert {one.rows_total for one in seen} == {300}

    def test_each_task_is_recorded_with_its_host_times_and_error(self, executor: Executor) -> None:
        """As tasks of the run that the call has."""
        records = TaskRecords()
        self.run(executor, [1, -1], run=RunHandle(cast("Any", records), "run"))
        assert [count for count, _ in records.planned] == [2]
        assert sorted((one.number, one.error) for one in records.tasks) == [(0, None), (1, "below zero")]
        for one in records.tasks:
            assert one.job == "run"
            assert one.host
            assert one.started is not None
            assert one.finished is not None
            assert one.started <= one.finished

    def test_a_call_has_a_thread_and_an_executor_may_be_closed_again(self, executor: Executor) -> None:
        """The thread runs what it is given, once it is started."""
        found: list[Any] = []
        thread = executor.call_thread(lambda: found.append(self.run(executor, [1])))
        thread.start()
        thread.join()
        assert found == [[2]]
        executor.close()
        executor.close()

"""Runs tasks in the thread of the call, one after the other: for tests, small jobs, and instances in memory.

Nothing is started, and a task is not held to a memory limit or to one core. Its function and value are pickled all the
same, so that what runs here runs elsewhere. A call that is asked to stop ends after the task that runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakebed.jobs.executor import attempt, take_answer
from lakebed.jobs.interrupt import call_thread
from lakebed.jobs.job_progress import Callback, Progress
from lakebed.jobs.piece_files import PieceFiles
from lakebed.table.tracker.recorder import NO_RUN
from lakebed.table.tracker.runs import IN_PROCESS

if TYPE_CHECKING:
    from lakebed.errors import Error
    from lakebed.jobs.executor import T, Work
    from lakebed.jobs.interrupt import Stop
    from lakebed.table.tracker.recorder import RunHandle


class ThisThread:
    """The executor that needs nothing, which is its own launcher."""

    name = "this thread"
    in_this_process = True
    frames = None
    call_thread = staticmethod(call_thread)

    def executor(self) -> ThisThread:
        """As :meth:`lakebed.jobs.executor.Launcher.executor`."""
        return self

    def cores(self, memory_limit_bytes: int) -> int:  # noqa: ARG002 - one task at a time has the whole process
        """Return 1."""
        return 1

    def run(  # noqa: PLR0913 - as Executor.run
        self,
        values: Sequence[Any],
        work: Work[T],
        made: type[T],
        stop: Stop,
        *,
        memory_limit_bytes: int,  # noqa: ARG002 - as above
        progress: Callback | None = None,
        rows: int = 0,
        run: RunHandle = NO_RUN,
    ) -> list[T | Error]:
        """As :meth:`lakebed.jobs.executor.Executor.run`."""
        report = progress or (lambda _: None)
        report(Progress(0, rows, tasks_total=len(values)))
        pickled = [pickle.dumps((work, pickle.dumps(value))) for value in values]
        results: list[T | Error] = []
        for number, message in enumerate(pickled, run.plan_tasks(len(values), IN_PROCESS)):
            stop.check()
            results.append(take_answer(attempt(*pickle.loads(message)), made, run, number))  # noqa: S301 - as above
            report(Progress(rows * len(results) // len(values), rows, "", len(results), len(values)))
        stop.check()
        return results

    @property
    def exchange(self) -> PieceFiles:
        """As :attr:`lakebed.jobs.executor.Executor.exchange`, in files on local disk."""
        return PieceFiles(self)

    def close(self) -> None:
        """Nothing was started."""

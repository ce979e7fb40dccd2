"""Runs jobs in batches: opens the jobs of a batch, has their tasks executed together, and finishes each job.

:func:`run` is the loop of compaction and of ingest. The caller passes the plans and three functions:
``open_batch`` makes jobs of some plans, ``execute`` runs tasks (on Spark, in worker processes or in this process), and
``on_done`` commits a job; it may return plans to try again. An export or an attach is one job, and calls its executor
directly.

Core types: :data:`Execute`, :class:`BatchLimits`, :class:`BatchSizes`.

Rules. A task that fails returns its error as a value, so that the other jobs of its batch can be committed. After an
exception no further batch starts, and the exception is raised when the batches under way have ended. With several
batches at once, the functions are called from several threads.

Source: docs/decisions/0047.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

from lakebed.errors import Error

THREADS = 32
"""Jobs of a batch that are opened or committed at once: their transactions share log entries."""

Item = TypeVar("Item")
Task = TypeVar("Task")
Task_co = TypeVar("Task_co", covariant=True)
Result = TypeVar("Result")

Execute = Callable[[Sequence[Task]], Sequence[Result | Error]]
"""Runs tasks, in any order, anywhere; returns a result or an error for each, in the order of the tasks."""


class Planned(Protocol):
    """The plan of a job."""

    @property
    def task_count(self) -> int:
        """How many tasks it will have."""


class RunningJob(Protocol[Task_co]):
    """A running job."""

    @property
    def tasks(self) -> Sequence[Task_co]:
        """The tasks of the job."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much is done at once.

    ``batch_tasks`` is the number of tasks that a batch has at most, if it has more than one job. ``batches`` is the
    number of batches at once.
    """

    batch_tasks: int
    batches: int = 1


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """The sizes of the batches of a compaction, or a rewrite, by the number of cores."""

    tasks_per_core: int = 2
    """Enough that the overhead of a batch is small, few enough that commits come soon."""

    tasks_min: int = 16

    at_once: int = 3
    """One batch that runs, one that uses the cores that the first leaves idle, one that opens its jobs or commits."""

    def limits(self, cores: int) -> BatchLimits:
        """Return the limits with this many cores."""
        return BatchLimits(max(self.tasks_min, self.tasks_per_core * cores), self.at_once)


BATCHES = BatchSizes()


P = TypeVar("P", bound=Planned)
J = TypeVar("J", bound=RunningJob)  # type: ignore[type-arg]


def run(
    planned: Iterable[P],
    open_batch: Callable[[Sequence[P]], Sequence[J]],
    execute: Execute[Task, Result],
    on_done: Callable[[J, Sequence[Result | Error]], Iterable[P]],
    limits: BatchLimits,
) -> None:
    """Run all jobs that are planned, batch by batch in their order, and then those that ``on_done`` returns.

    Raises what the functions raise.
    """
    waiting = deque(planned)
    taking = threading.Lock()
    stopped = threading.Event()

    def take() -> list[P]:
        with taking:
            batch: list[P] = []
            tasks = 0
            while waiting and not stopped.is_set():
                tasks += waiting[0].task_count
                if batch and tasks > limits.batch_tasks:
                    break
                batch.append(waiting.popleft())
            return batch

    def run_batch(batch: Sequence[P]) -> None:
        jobs = open_batch(batch)
        tasks = [task for job in jobs for task in job.tasks]
        results = iter(execute(tasks) if tasks else ())
        ended = [(job, list(islice(results, len(job.tasks)))) for job in jobs]
        again = in_threads(lambda one: on_done(*one), ended, THREADS if limits.batches > 1 else 1)
        with taking:
            waiting.extend(plan for plans in again for plan in plans)

    def run_batches() -> None:
        try:
            while batch := take():
                run_batch(batch)
        except BaseException:
            stopped.set()
            raise

    if limits.batches == 1:
        run_batches()
        return
    with ThreadPoolExecutor(limits.batches) as pool:
        threads = [pool.submit(run_batches) for _ in range(limits.batches)]
    for thread in threads:
        thread.result()


def in_threads(work: Callable[[Item], Result], items: Sequence[Item], threads: int = THREADS) -> list[Result]:
    """Return the results of ``work`` for every item, in their order. Several are done at once, so that commits share
    entries.

    If some fail, raises the error of the first of them when all have ended.
    """
    if len(items) < 2 or threads == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(work, items))

"""Jobs in batches: which run together, what is tried again, and what an exception stops."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from lakebed import StorageError
from lakebed.errors import Code
from lakebed.write import batches as runner
from lakebed.write.batches import BatchLimits


@dataclass(frozen=True)
class Planned:
    name: str
    task_count: int = 1


@dataclass(frozen=True)
class Job:
    name: str
    tasks: tuple[str, ...]


def opened(batch):
    return [Job(one.name, tuple(f"{one.name}{n}" for n in range(one.task_count))) for one in batch]


def run(planned, limits, *, execute=list, again=lambda _: ()):
    """The batches of tasks that were executed, and each job with its results."""
    batches, done = [], []

    def executed(tasks):
        batches.append(" ".join(tasks))
        return execute(tasks)

    def on_done(job, results):
        done.append((job.name, results))
        return again(job)

    runner.run(planned, opened, executed, on_done, limits)
    return batches, done


def test_jobs_are_batched_as_far_as_their_tasks_fit_and_get_their_own_results():
    planned = [Planned("a"), Planned("b", 2), Planned("c", 5), Planned("d"), Planned("e", 0)]
    batches, done = run(planned, BatchLimits(3))
    assert batches == ["a0 b0 b1", "c0 c1 c2 c3 c4", "d0"]
    assert dict(done) == {"a": ["a0"], "b": ["b0", "b1"], "c": [f"c{n}" for n in range(5)], "d": ["d0"], "e": []}


def test_what_a_job_returns_is_run_after_what_was_planned():
    def again(job):
        return [Planned(job.name + "'")] if len(job.name) < 3 else []

    assert run([Planned("a"), Planned("b")], BatchLimits(1), again=again)[0] == [
        "a0",
        "b0",
        "a'0",
        "b'0",
        "a''0",
        "b''0",
    ]


def test_an_error_is_the_result_of_its_task():
    torn = Code.INTERNAL_ERROR("torn")
    _, done = run([Planned("a"), Planned("b")], BatchLimits(9), execute=lambda tasks: [torn, *tasks[1:]])
    assert done == [("a", [torn]), ("b", ["b0"])]


def test_a_job_that_is_not_opened_is_left_out():
    finished = []
    runner.run(
        [Planned("a"), Planned("b")],
        lambda batch: opened(batch[1:]),
        list,
        lambda job, _: finished.append(job.name) or (),
        BatchLimits(9),
    )
    assert finished == ["b"]


@pytest.mark.parametrize("batches", [1, 3])
def test_after_an_exception_no_batch_starts_and_those_under_way_are_waited_for(batches):
    """``a`` fails while the others that were begun are still at work."""
    begun = threading.Barrier(batches)
    started, ended = [], []

    def execute(tasks):
        started.extend(tasks)
        begun.wait(120)
        if tasks == ["a0"]:
            raise Code.STORE_UNAVAILABLE("full")
        failed.wait(120)
        return tasks

    failed = threading.Event()

    def on_done(job, _):
        ended.append(job.name)
        return ()

    threading.Timer(0.3, failed.set).start()
    with pytest.raises(StorageError, match="full"):
        runner.run([Planned(name) for name in "abcdefgh"], opened, execute, on_done, BatchLimits(1, batches))
    assert sorted(started) == ["a0", "b0", "c0"][:batches]
    assert sorted(ended) == ["b", "c"][: batches - 1]


def test_several_batches_run_at_once_and_every_job_ends_once():
    together = threading.Barrier(3)

    def execute(tasks):
        together.wait(120)
        return tasks

    _, done = run([Planned(name) for name in "abcdef"], BatchLimits(1, 3), execute=execute)
    assert sorted(done) == [(name, [f"{name}0"]) for name in "abcdef"]

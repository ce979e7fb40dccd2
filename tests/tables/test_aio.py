"""Reads in an event loop: a task that is cancelled ends at once, and its scan when no thread reads it any more."""

import asyncio
import threading

import pyarrow as pa
import pytest

import lakebed
from lakebed import aio

ROWS = pa.record_batch({"k": [1, 2, 3]})


class Slow:
    """A table whose scan waits, before its batch number ``waits_at``, until it is let go; 0: while it is opened."""

    def __init__(self, waits_at):
        self.waits_at = waits_at
        self.waits, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()

    def scan(self):
        if self.waits_at == 0:
            self._wait()
        return self._batches()

    def _batches(self):
        try:
            for number in range(1, 4):
                if number == self.waits_at:
                    self._wait()
                yield ROWS
        finally:
            self.ended.set()

    def _wait(self):
        self.waits.set()
        assert self.go.wait(60)


async def read(table):
    return sum([batch.num_rows async for batch in aio.scan(table)])


@pytest.mark.parametrize("waits_at", [0, 1, 3])
def test_a_task_that_is_cancelled_while_a_thread_reads_ends_as_cancelled(waits_at):
    table = Slow(waits_at)

    async def cancelled():
        task = asyncio.create_task(read(table))
        await asyncio.to_thread(table.waits.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not table.ended.is_set(), "the task did not wait for its thread"
        table.go.set()

    asyncio.run(cancelled())
    # A generator that has not begun has nothing to end.
    assert waits_at == 0 or table.ended.is_set()


def test_a_task_whose_time_is_up_raises_time_out():
    table = Slow(2)

    async def timed():
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read(table), 0.01)
        finally:
            table.go.set()

    asyncio.run(timed())
    assert table.ended.is_set()


def test_a_loop_that_breaks_ends_its_scan():
    table = Slow(3)

    async def first():
        rows = aio.scan(table)
        async for _ in rows:
            break
        await rows.aclose()
        assert table.ended.is_set()

    asyncio.run(first())


def test_cancelled_scans_of_a_table_leave_it_readable(tmp_path):
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", lakebed.Schema({"k": "int64"}))
    table.write(pa.table({"k": range(1000)}))
    table.write(pa.table({"k": range(1000)}))

    async def many():
        tasks = [asyncio.create_task(read(table)) for _ in range(20)]
        for task in tasks:
            await asyncio.sleep(0)
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | int) for end in ends), ends
        assert await read(table) == 2000

    asyncio.run(many())

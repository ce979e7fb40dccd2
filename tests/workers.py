"""Pipelines whose tasks run in worker processes that all tests of a process share.

To start a worker takes longer than most of these tests. What a worker does depends on its task alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import lakebed
from lakebed.spark import InProcess, Pipeline
from lakebed.spark.worker_pool import WorkerPool


@functools.cache
def _shared() -> WorkerPool:
    """Ends with the process."""
    return WorkerPool(2)


@contextmanager
def in_process(instance: lakebed.Instance) -> Iterator[Pipeline]:
    """A pipeline of the instance without Spark."""
    with Pipeline(instance, launcher=InProcess(workers=2)) as pipeline:
        own = pipeline._pool
        pipeline._pool = pipeline._tasks = _shared()
        try:
            yield pipeline
        finally:
            # Its end is that of a pool that has no worker yet.
            pipeline._pool = own

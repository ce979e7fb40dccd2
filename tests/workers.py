"""Pipelines whose tasks run in worker processes that all tests of a process share.

To start a worker takes longer than most of these tests. What a worker does depends on its task alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import lakebed
from lakebed import InProcess, Pipeline
from lakebed.jobs.worker_pool import WorkerPool


class _SharedPool(WorkerPool):
    """Ends with the process."""

    def close(self) -> None:
        """Leave the workers to the next pipeline."""


@functools.cache
def _shared() -> WorkerPool:
    return _SharedPool(2)


@contextmanager
def shared_workers() -> Iterator[None]:
    """Pipelines without Spark that are made during the block use the shared workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcess, "executor", lambda _: _shared())
        yield


@contextmanager
def in_process(instance: lakebed.Instance) -> Iterator[Pipeline]:
    """A pipeline of the instance without Spark."""
    with shared_workers(), Pipeline(instance, launcher=InProcess(workers=2)) as pipeline:
        yield pipeline

"""Every executor passes the suites of its ports; :mod:`tests.spark.test_executor` has that on Spark's JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakebed.jobs.this_thread import ThisThread
from lakebed.jobs.worker_pool import WorkerPool
from lakebed.spark.spark_executor import SparkExecutor
from lakebed.testing.exchanges import ExchangeConformance
from lakebed.testing.executors import ExecutorConformance
from tests.tables.spark.sessions import Session


class TestThisThread(ExecutorConformance, ExchangeConformance):
    tasks_have_processes = False

    @pytest.fixture
    def executor(self) -> ThisThread:
        return ThisThread()


class TestWorkerPool(ExecutorConformance, ExchangeConformance):
    @pytest.fixture(scope="class")
    def executor(self) -> Iterator[WorkerPool]:
        """One for all tests, of which the last closes it: each start of a worker takes half a second."""
        pool = WorkerPool(2)
        yield pool
        pool.close()


class TestSparkWithoutJvm(ExecutorConformance, ExchangeConformance):
    tasks_have_processes = False

    @pytest.fixture
    def executor(self) -> SparkExecutor:
        made: Any = SparkExecutor(Session, given=Session())  # type: ignore[arg-type]
        return made

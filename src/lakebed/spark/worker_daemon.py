"""The process of which Spark forks its Python workers on this machine, with the libraries of tasks imported once.

Spark starts it as ``python -m lakebed.spark.worker_daemon pyspark.worker``. PySpark's own daemon imports next to
nothing, so that each worker imports all that its first task needs. That took two thirds of a second of CPU time a
worker, and Spark replaces workers that a task killed, or that had nothing to do for a minute. What is imported here is
also left out when a worker collects garbage, which it does after each task: that took as long as a small task.

A fork is safe here because these imports start no thread but one of jemalloc, which stops it for a fork: Spark has
set ``OMP_NUM_THREADS`` to the cores of a task, one, so BLAS starts none. Where the libraries of the system may start
threads, as on macOS, the session spawns workers instead (:func:`lakebed.system.survives_forks`).

Errors: none; a module that cannot be imported here is missed by the worker that needs it.
"""

from __future__ import annotations

import contextlib
import gc
from importlib import import_module

from pyspark import daemon

from lakebed.jobs.executor import delay_purges

_NEEDED = ("pyspark.worker", "lakebed.jobs.tasks", "lakebed.files.sorting.sort", "lakebed.files.sorting.merge")


def main() -> None:
    """Import what the workers need, then fork workers on request until Spark closes stdin."""
    delay_purges()
    for name in _NEEDED:
        with contextlib.suppress(ImportError):
            import_module(name)
    # A worker collects garbage after each task, and would look at all of these objects every time.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()

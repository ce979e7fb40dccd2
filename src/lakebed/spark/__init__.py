"""Apache Spark: its sessions as an executor of the pipeline, bulk imports by its shuffle, and the data source.

Spark starts tasks, retries them and moves bytes between them; rows are handled by the kernels inside the tasks. It
needs ``pip install lakebed[spark]`` and Java 17 or later. No other part of Lakebed imports PySpark.

Public names are imported on first use, because every Python worker of Spark imports a module of this package.
:class:`lakebed.Pipeline` was a name of it.
"""

from typing import TYPE_CHECKING

from lakebed.model.public_names import lazy_names

if TYPE_CHECKING:
    from lakebed.jobs.executor import Launcher as Launcher
    from lakebed.jobs.job_progress import Progress as Progress
    from lakebed.jobs.pipeline import Pipeline as Pipeline
    from lakebed.jobs.worker_pool import InProcess as InProcess
    from lakebed.spark.spark_executor import Local, Remote

__all__ = ["Local", "Remote"]

_HOMES = {
    "InProcess": "lakebed.jobs.worker_pool",
    "Launcher": "lakebed.jobs.executor",
    "Local": "lakebed.spark.spark_executor",
    "Pipeline": "lakebed.jobs.pipeline",
    "Progress": "lakebed.jobs.job_progress",
    "Remote": "lakebed.spark.spark_executor",
}
"""The module of each name that is not here yet."""

_MOVED = frozenset({"InProcess", "Launcher", "Pipeline", "Progress"})
"""Names of the package ``lakebed`` itself, which need no Spark."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # otherwise a type checker would accept any name
    __getattr__ = lazy_names(__name__, _HOMES, _MOVED)

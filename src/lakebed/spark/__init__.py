"""The pipeline: what is done to whole tables, by tasks on Apache Spark or in worker processes of this machine.

Spark starts tasks, retries them and moves bytes between them; rows are handled by the kernels inside the tasks. It
needs ``pip install lakebed[spark]`` and Java 17 or later. With the launcher :class:`InProcess` neither is needed, and
PySpark is not imported. No other part of Lakebed imports PySpark.
"""

from lakebed.spark.job_progress import Progress
from lakebed.spark.pipeline import Pipeline
from lakebed.spark.session import InProcess, Launcher, Local, Remote

__all__ = ["InProcess", "Launcher", "Local", "Pipeline", "Progress", "Remote"]

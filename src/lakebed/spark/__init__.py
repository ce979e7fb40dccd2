"""The pipeline on Apache Spark: the only part of Lakebed that knows PySpark.

Spark starts tasks, retries them and moves bytes between them; rows are handled by the kernels inside the tasks. Needs
``pip install lakebed[spark]`` and Java 17 or later.
"""

from lakebed.spark.job_progress import Progress
from lakebed.spark.launcher import Launcher, Local, Remote, Submit
from lakebed.spark.pipeline import Pipeline

__all__ = ["Launcher", "Local", "Pipeline", "Progress", "Remote", "Submit"]

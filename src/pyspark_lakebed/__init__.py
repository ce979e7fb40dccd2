"""What makes ``spark.read.format("lakebed")`` work without a word: Spark looks for ``pyspark_*`` with ``DefaultSource``."""

from lakebed.spark.datasource.source import DefaultSource

__all__ = ["DefaultSource"]

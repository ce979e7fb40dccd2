"""What makes ``format("lakebed")`` work in Spark without a word: it looks for modules ``pyspark_*`` with this class."""

from lakebed.spark.datasource.data_source import DefaultSource

__all__ = ["DefaultSource"]

"""Tables as a data source of Spark: ``format("lakebed")`` for read, write, readStream and writeStream.

Spark finds it by itself where Lakebed is installed (:mod:`pyspark_lakebed`). It plans in Python workers beside the
driver, and reads and writes in Python workers beside the executors. Rows travel as Arrow, and are found, sorted and
written by the same code as elsewhere. Large amounts are better moved by the :class:`~lakebed.Pipeline`, whose
rows need not pass through the JVM.

What Spark's Python data sources cannot do (docs/spark.md) is an error.
"""

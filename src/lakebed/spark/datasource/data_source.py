"""The data source as Spark sees it: its name, its schema, its readers and its writers.

Spark makes one in a Python worker when a frame is loaded, from the options alone, and sends it to the workers that plan
the queries of the frame.

Before that, once a session, it imports this module in a process of its own, only to learn the name of the format. So
the methods import what they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource

from lakebed.errors import Code, Error

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from lakebed.spark.datasource.options import Options


class DefaultSource(DataSource):
    """``format("lakebed")``. Spark finds the class by this name."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, in ``format(…)`` and ``USING …``."""
        return "lakebed"

    table_id: str | None = None
    version: int | None = None
    """Those of the table when the frame was loaded; None if a schema was given, and this one not requested."""

    def schema(self) -> StructType:
        """Return the table's columns, or those of the option ``columns``, in Spark's types."""
        from lakebed.spark.datasource import options, spark_columns

        given = self._given
        given.check(*options.READ, *options.STREAM_READ)
        table = given.open_table()
        snapshot = given.locate(table)
        self.table_id, self.version = table.id, snapshot.version
        columns = given.columns(snapshot.schema)
        if given.flag("changes"):
            return spark_columns.changes_schema(snapshot.schema, columns)
        return spark_columns.spark_schema(snapshot.schema, columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch read of the columns of ``schema``."""
        from lakebed.spark.datasource.batch_read import TableReader

        return TableReader(self._given, schema, self.table_id, self.version)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return a batch write of rows with the columns of ``schema``."""
        from lakebed.spark.datasource.batch_write import TableWriter

        return TableWriter(self._given, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream of the rows that are added, or with the option ``changes`` of what versions changed.

        Raises UsageError below Spark 4.2.
        """
        _need(
            (4, 2),
            "a stream that reads a table",
            "read one version as a batch (the option at), or what changed with Table.changes",
        )
        from lakebed.spark.datasource.read_stream import FailedStreamReader, TableStreamReader

        try:
            return TableStreamReader(self._given, schema)
        except Error as error:
            return FailedStreamReader(error)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> DataSourceStreamWriter:
        """Return a stream that writes rows with the columns of ``schema``. Raises UsageError below Spark 4.1."""
        _need((4, 1), "a stream that writes to a table", "write batches with foreachBatch and the option commit_id")
        from lakebed.spark.datasource.batch_write import TableStreamWriter

        return TableStreamWriter(self._given, schema, overwrite=overwrite)

    @property
    def _given(self) -> Options:
        """The options. Their names are checked by what uses them."""
        from lakebed.spark.datasource import options

        return options.parse(self.options)


def _need(least: tuple[int, int], what: str, instead: str) -> None:
    """Raise UsageError if Spark is older than ``least``, the first version that has what ``what`` is made of."""
    major, minor = map(int, pyspark.__version__.split(".")[:2])
    if (major, minor) < least:
        raise Code.SPARK_MODE_UNSUPPORTED(
            f"{what} needs Spark {least[0]}.{least[1]} or later, and this is {pyspark.__version__}: use a later Spark, "
            f"or {instead}"
        )

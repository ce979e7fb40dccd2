"""Streams of Spark that write into a table, as batch writes do (:mod:`lakebed.spark.datasource.batch_write`).

Each batch of a query is added once. Apart from batch writes, because Spark 4.0 has no base class for it; there
:mod:`lakebed.spark.datasource.data_source` refuses such a stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from lakebed.errors import Code
from lakebed.spark.datasource.batch_write import Sender, Sent
from lakebed.spark.datasource.options import STREAM_WRITE, Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

_QUERY_ID = "sql.streaming.queryId"
"""The local property of Spark's tasks with the id of their query."""


class TableStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a streaming query, each of which is added once."""

    def __init__(self, options: Options, spark: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise Code.SPARK_MODE_UNSUPPORTED(
                'output mode "complete" rewrites the table with each batch; use outputMode("append")'
            )
        options.check(*STREAM_WRITE)
        self._options = options
        self._sender = Sender.of(options, spark)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task as a run of files."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        return Sent(self._sender.send(iterator), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Add the files of one batch, unless it was added before. Raises as :meth:`TableWriter.commit`."""
        queries = {message.query for message in messages if isinstance(message, Sent)}
        if not messages:
            return
        if len(queries) != 1 or None in queries:
            raise Code.SPARK_FAILED(
                f"batch {batchId}: Spark passed no query id to the tasks, so a repeat could not be distinguished "
                "from a new batch; nothing was added"
            )
        request_key = f"spark-stream/{queries.pop()}/{batchId}"
        self._sender.commit(self._options, messages, request_key)

"""Streams of Spark that write into a table, as batch writes do (:mod:`lakebed.spark.datasource.batch_write`).

Each batch of a query is added once. A repeat with other rows is no repeat, and is refused. Apart from batch writes,
because Spark 4.0 has no base class for it; there :mod:`lakebed.spark.datasource.data_source` refuses such a stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from lakebed.errors import Code, NotRetainedError
from lakebed.model.state.codec import outline
from lakebed.model.state.time_travel import committed_at
from lakebed.model.state.transactions import AddFiles
from lakebed.spark.datasource.batch_write import Sender, Sent
from lakebed.spark.datasource.options import STREAM_WRITE, Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from lakebed.model.files import DataFile
    from lakebed.table.table import Table

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
        """Add the files of one batch, unless it was added before. Raises as :meth:`TableWriter.commit`; RejectedError
        for other rows under the number of a batch that was added.
        """
        queries = {message.query for message in messages if isinstance(message, Sent)}
        if not messages:
            return
        if len(queries) != 1 or None in queries:
            raise Code.SPARK_FAILED(
                f"batch {batchId}: Spark passed no query id to the tasks, so a repeat could not be distinguished "
                "from a new batch; nothing was added"
            )
        request_key = f"spark-stream/{queries.pop()}/{batchId}"
        table = self._options.open_table(self._sender.table_id)
        first = committed_at(table.state(), "batch", request_key)
        self._sender.commit(self._options, messages, request_key)
        if first is not None:
            sent = [new.file for message in messages if isinstance(message, Sent) for new in message.files]
            _check_same(table, first, request_key, sent)


def _check_same(table: Table, version: int, request_key: str, sent: Sequence[DataFile]) -> None:
    """Raise RejectedError if the batch that was added at a version had other rows: other numbers, or other keys.

    The rows of a batch are those of its offsets, which the checkpoint keeps. If these are lost and the id of the query
    is not, Spark counts its batches anew from 0, and new rows would be taken for a repeat.
    """
    try:
        stored = table.log.read(version)
    except NotRetainedError:
        return
    if stored is None:
        return
    found = [outline(document).transaction for document in stored.entry.documents]
    added = next((one.files for one in found if isinstance(one, AddFiles) and one.request_key == request_key), None)
    if added is not None and _digest(added) != _digest(sent):
        raise Code.BATCH_CHANGED(
            f"{request_key.replace('spark-stream/', 'batch ')} was added at version {version} with "
            f"{sum(file.rows for file in added):,} rows, and comes again with other ones "
            f"({sum(file.rows for file in sent):,}); they were not added. The checkpoint of the query has lost its "
            "offsets: start it with a new, empty checkpoint folder",
            version=version,
            table=table.id,
        )


def _digest(files: Sequence[DataFile]) -> tuple[int, bytes, bytes]:
    """Return what does not depend on how rows are divided among tasks: their number, and the keys around them."""
    return (
        sum(file.rows for file in files),
        min((file.min_key for file in files), default=b""),
        max((file.max_key for file in files), default=b""),
    )

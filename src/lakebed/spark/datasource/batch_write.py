"""Writes to a table: each task sorts its rows into a run of files, and the driver adds all of them in one entry.

A task may run twice, or fail after it has sent files. Only the files that its message names are added, and Spark passes
one message for each of its partitions. Other files are orphans, which garbage collection deletes. A failure before the
commit leaves the table as it was.

*A stream* writes under a request key made of the id of the query, which its checkpoint keeps, and the number of the
batch; Spark passes both to the tasks. A batch that is tried again after a crash is then the same request: it is
committed once, as long as ``log_s`` keeps the key.

*In a table with a merge mode* rows arrive in the order of Spark's partitions, and of the rows in each of them: a task
merges its own rows, and the runs of the tasks are added in the order of the partitions.

*Streams of Spark that write into a table, as batch writes do.*

Each batch of a query is added once. A repeat with other rows is no repeat, and is refused. Apart from batch writes,
because Spark 4.0 has no base class for it; there :mod:`lakebed.spark.datasource.data_source` refuses such a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lakebed.errors import Code, NotRetainedError
from lakebed.jobs.distributed_write import DistributedWrite, SentRows
from lakebed.jobs.executor import on_one_core
from lakebed.model.state.codec import outline
from lakebed.model.state.time_travel import committed_at
from lakebed.model.state.transactions import AddFiles
from lakebed.spark.datasource import spark_columns
from lakebed.spark.datasource.options import STREAM_WRITE, WRITE, Options
from lakebed.spark.datasource.spark_columns import arrow_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakebed.model.files import DataFile, NewFile
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


SOURCE = "the DataFrame"

_ASKED_BY = "df.withColumn({0!r}, df[{0!r}].cast(…))"
"""A write of Spark has no option for casts: Spark makes them."""


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """The files that a task has sent; ``query`` is the id of its streaming query."""

    files: tuple[NewFile, ...]
    query: str | None = None


@dataclass(frozen=True, slots=True)
class Sender:
    """The write of all tasks, which have rows of Spark."""

    written: DistributedWrite

    @classmethod
    def of(cls, options: Options, spark: StructType) -> Sender:
        """Read the table. Raises UsageError, NotFoundError; SchemaMismatchError if the columns do not fit."""
        written = DistributedWrite.with_operation(
            options.open_table(),
            options.place,
            options.operation(),
            arrow_of(spark),
            source=SOURCE,
            asked_by=_ASKED_BY,
        )
        spark_columns.check_columns(spark, written.encoder, SOURCE)
        return cls(written)

    @property
    def table_id(self) -> str:
        """The id of the table."""
        return self.written.table_id

    def send(self, batches: Iterator[pa.RecordBatch]) -> tuple[NewFile, ...]:
        """As :meth:`DistributedWrite.send`."""
        on_one_core()
        encoder = self.written.encoder
        return self.written.send_stored(
            spark_columns.from_spark(batch, encoder, SOURCE) for batch in batches if batch.num_rows
        ).files

    def commit(self, options: Options, messages: Sequence[Any], request_key: str | None) -> None:
        """Add the files of the messages in one entry; nothing if there are none.

        Raises as Table.commit does; NotFoundError if the table was dropped, also if another has its name.
        """
        if any(not isinstance(message, Sent) for message in messages):
            raise Code.SPARK_FAILED("Spark commits a write without the message of a task; nothing was added")
        if request_key is None and not any(message.files for message in messages):
            return
        written = replace(self.written, commit_id=request_key)
        written.commit(options.open_table(self.table_id), [SentRows(message.files) for message in messages])


class TableWriter(DataSourceArrowWriter):
    """A batch write; with the option ``commit_id`` a repeat adds nothing."""

    def __init__(self, options: Options, spark: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise Code.SPARK_MODE_UNSUPPORTED(
                'mode "overwrite" is not supported, since a write never takes rows away; use mode("append"), after '
                "Table.remove, or to a new table that rename_table(…, replace=True) puts in place of the old one"
            )
        options.check(*WRITE)
        self._options = options
        self._sender = Sender.of(options, spark)
        self._commit_id = options.given.get("commit_id")
        self._answered: int | None = None
        if self._commit_id is not None:
            state = options.open_table(self._sender.table_id).state()
            self._answered = committed_at(state, "commit_id", self._commit_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task as a run of files."""
        if self._answered is not None:
            # Already committed, but Spark requires that the rows are consumed.
            for _ in iterator:
                pass
            return Sent(())
        return Sent(self._sender.send(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add the files of all tasks. Raises RejectedError, ContentionError, UnknownOutcomeError."""
        self._sender.commit(self._options, messages, self._commit_id)

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
from lakebed.jobs.executor import Root, on_one_core, task_scratch
from lakebed.model.state.codec import outline
from lakebed.model.state.time_travel import committed_at
from lakebed.model.state.transactions import AddFiles
from lakebed.spark.datasource import spark_columns
from lakebed.spark.datasource.options import STREAM_WRITE, WRITE, Options
from lakebed.spark.datasource.spark_columns import arrow_of
from lakebed.write.conformer import Conformer
from lakebed.write.growth import Growth
from lakebed.write.row_encoder import RowEncoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakebed.files.parquet.layout import Layout
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
    """The common part of all tasks of a write."""

    place: Root
    table_id: str
    layout: Layout
    encoder: RowEncoder
    memory_limit_bytes: int
    cuts: tuple[bytes, ...]
    base_version: int

    @classmethod
    def of(cls, options: Options, spark: StructType) -> Sender:
        """Read the table. Raises UsageError, NotFoundError; SchemaMismatchError if the columns do not fit."""
        table = options.open_table()
        state = table.state()
        layout, limits = table.layout(), table.settings_in_force()
        growth = Growth.of(state, limits)
        operation = options.operation()
        if growth is not None:
            read = () if operation.row_kind is None else (operation.row_kind,)
            layout = growth.layout(layout, [(SOURCE, arrow_of(spark))], read)
        grows = growth is not None
        conformer = Conformer(layout.schema, value_bytes_max=limits.value_bytes_max, grows=grows, asked_by=_ASKED_BY)
        encoder = RowEncoder(conformer, state.merge, operation)
        spark_columns.check_columns(spark, encoder, SOURCE)
        return cls(
            options.place,
            table.id,
            replace(layout, schema=encoder.schema),
            encoder,
            limits.memory_limit_bytes,
            state.partitions.boundaries,
            state.version,
        )

    def send(self, batches: Iterator[pa.RecordBatch]) -> tuple[NewFile, ...]:
        """Sort the rows into one run, merged by the table's mode, and send it.

        Raises SchemaMismatchError, BadKeyError, StorageError.
        """
        from lakebed import clock
        from lakebed.files.sorting.sort import sort_runs
        from lakebed.write.run import send_run

        on_one_core()
        rows = (spark_columns.from_spark(batch, self.encoder, SOURCE) for batch in batches if batch.num_rows)
        with task_scratch() as scratch:
            run = sort_runs(
                rows,
                self.layout,
                scratch,
                memory_limit_bytes=self.memory_limit_bytes,
                cuts=self.cuts,
                mode=self.encoder.mode,
            )
            return send_run(self.place.connect(), self.table_id, run, job=clock.new_id())

    def commit(self, options: Options, messages: Sequence[Any], request_key: str | None) -> None:
        """Add the files of the messages in one entry; nothing if there are none.

        Raises as Table.commit does; NotFoundError if the table was dropped, also if another has its name.
        """
        from lakebed.log.outcomes import version_of
        from lakebed.model.state.transactions import ProposeFiles
        from lakebed.write.run import commit_files

        if any(not isinstance(message, Sent) for message in messages):
            raise Code.SPARK_FAILED("Spark commits a write without the message of a task; nothing was added")
        files: tuple[NewFile, ...] = tuple(new for message in messages for new in message.files)
        if files or request_key is not None:
            table = options.open_table(self.table_id)
            version_of(commit_files(table, ProposeFiles(files, request_key, self.base_version)), f"table {table.name}")


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

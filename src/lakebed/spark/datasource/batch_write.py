"""Writes to a table: each task sorts its rows into a run of files, and the driver adds all of them in one entry.

A task may run twice, or fail after it has sent files. Only the files that its message names are added, and Spark passes
one message for each of its partitions. Other files are orphans, which garbage collection deletes. A failure before the
commit leaves the table as it was.

*A stream* writes under a request key made of the id of the query, which its checkpoint keeps, and the number of the
batch; Spark passes both to the tasks. A batch that is tried again after a crash is then the same request: it is
committed once, as long as ``log_s`` keeps the key.

*In a table with a merge mode* rows arrive in the order of Spark's partitions, and of the rows in each of them: a task
merges its own rows, and the runs of the tasks are added in the order of the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lakebed.errors import Code
from lakebed.jobs.executor import Place, on_one_core, task_scratch
from lakebed.model.state.time_travel import committed_at
from lakebed.spark.arrow_types import arrow_of
from lakebed.spark.datasource import spark_columns
from lakebed.spark.datasource.options import WRITE, Options
from lakebed.write.conformer import Conformer
from lakebed.write.growth import Growth
from lakebed.write.row_encoder import RowEncoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakebed.files.parquet.layout import Layout
    from lakebed.model.files import NewFile

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

    place: Place
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
        from lakebed.write.send import send_run

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
        from lakebed.write.send import commit_files

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
                'mode "overwrite" is not supported, since a write never takes rows away; use mode("append")'
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

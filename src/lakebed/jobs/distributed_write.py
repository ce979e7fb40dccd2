"""A write whose rows come from many processes and are added in one commit.

The process that begins the write, the driver, makes a :class:`DistributedWrite` and sends it to its tasks. Each task
sorts its rows into a run of files, and sends them to the store; what it returns names them. The driver commits the
files of all tasks in one entry. The data sources for Spark, Ray and Daft write in this way.

Rules. A task may run twice, or fail after it has sent files: only the files that the driver names are added, and others
are orphans, which garbage collection deletes. Until the commit the table is as it was. With a commit id the write may
be repeated as a whole, by another driver as well.

Core types: :class:`DistributedWrite`, :class:`SentRows`. Errors: those of writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.jobs.executor import Root, task_scratch
from lakebed.model.state.time_travel import based_on, committed_at
from lakebed.write.conformer import Conformer
from lakebed.write.growth import Growth
from lakebed.write.row_encoder import Operation, RowEncoder

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.files.parquet.layout import Layout
    from lakebed.model.files import NewFile
    from lakebed.table.table import Table

SOURCE = "the rows of a task"


@dataclass(frozen=True, slots=True)
class SentRows:
    """The files that one task has sent, for the commit. It can be pickled."""

    files: tuple[NewFile, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows, after those with equal keys were merged."""
        return sum(new.file.rows for new in self.files)

    @property
    def size_bytes(self) -> int:
        """The size of the files."""
        return sum(new.file.size_bytes for new in self.files)


@dataclass(frozen=True, slots=True)
class DistributedWrite:
    """One write into a table, by tasks in any processes. It can be pickled, with the location of the instance.

    ``committed`` is the version at which ``commit_id`` was committed before: tasks then have nothing to do.
    """

    place: Root
    table_id: str
    layout: Layout
    encoder: RowEncoder
    memory_limit_bytes: int
    cuts: tuple[bytes, ...]
    base_version: int
    commit_id: str | None = None
    committed: int | None = None

    @classmethod
    def of(  # noqa: PLR0913 - public parameters, those of Table.write
        cls,
        table: Table,
        schema: pa.Schema | None = None,
        *,
        commit_id: str | None = None,
        base_version: int | None = None,
        partial: bool = False,
        row_kind: str | None = None,
    ) -> DistributedWrite:
        """Return a write into a table: call it once, in the driver.

        ``schema`` has the columns that all tasks have; they are checked now, and those that are new become fields if
        the table accepts them. Without it each task checks its own, and new columns are refused. The other parameters
        are those of :meth:`lakebed.Table.write`.

        Raises:
            UsageError: as :meth:`lakebed.Table.write`; a table that other processes cannot open, of an instance in
                memory or of a service.
            SchemaMismatchError: the columns do not fit.
        """
        made = cls.with_operation(table, _place_of(table), Operation.of(partial, row_kind), schema, source=SOURCE)
        if schema is not None:
            made.encoder.check(schema, SOURCE)
        state = table.state()
        found, base = committed_at(state, "commit_id", commit_id), based_on(state, commit_id, base_version)
        return replace(made, commit_id=commit_id, committed=found, base_version=base)

    @classmethod
    def with_operation(  # noqa: PLR0913 - what the columns are, and how errors name them
        cls,
        table: Table,
        place: Root,
        operation: Operation,
        schema: pa.Schema | None,
        *,
        source: str,
        asked_by: str | None = None,
    ) -> DistributedWrite:
        """As :meth:`of`, for a library that converts rows itself: columns are not checked.

        ``asked_by`` is how its users ask for a cast, for the messages of errors.
        """
        state, layout, limits = table.state(), table.layout(), table.settings_in_force()
        growth = None if schema is None else Growth.of(state, limits)
        if growth is not None and schema is not None:
            read = () if operation.row_kind is None else (operation.row_kind,)
            layout = growth.layout(layout, [(source, schema)], read)
        conformer = Conformer(layout.schema, value_bytes_max=limits.value_bytes_max, grows=growth is not None)
        if asked_by is not None:
            conformer = replace(conformer, asked_by=asked_by)
        encoder = RowEncoder(conformer, state.merge, operation)
        return cls(
            place,
            table.id,
            replace(layout, schema=encoder.schema),
            encoder,
            limits.memory_limit_bytes,
            state.partitions.boundaries,
            state.version,
        )

    def send(self, batches: Iterable[pa.RecordBatch]) -> SentRows:
        """Sort the rows of a task into one run, and send its files; nothing if the write was committed before.

        Rows are held up to the table's ``memory_limit_bytes``, and sorted on local disk beyond that. In a table with a
        merge mode, rows with equal keys of one task are merged, in their order.

        Raises SchemaMismatchError, BadKeyError, StorageError; UsageError in another version of Lakebed.
        """
        return SentRows() if self.committed is not None else self.send_stored(self._stored(batches))

    def _stored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in batches:
            if batch.num_rows:
                yield self.encoder.conform(batch, SOURCE, rows_before=rows)
                rows += batch.num_rows

    def send_stored(self, rows: Iterator[pa.RecordBatch]) -> SentRows:
        """As :meth:`send`, for rows that the encoder of this write has made."""
        from lakebed import clock
        from lakebed.files.sorting.sort import sort_runs
        from lakebed.write.run import send_run

        with task_scratch() as scratch:
            run = sort_runs(
                rows,
                self.layout,
                scratch,
                memory_limit_bytes=self.memory_limit_bytes,
                cuts=self.cuts,
                mode=self.encoder.mode,
            )
            return SentRows(send_run(self.place.connect(), self.table_id, run, job=clock.new_id()))

    def commit(self, table: Table, sent: Sequence[SentRows]) -> int:
        """Add the rows of all tasks in one commit, in the driver; return the version from which on they are visible.

        ``sent`` has one value for each task, that of the attempt which counts. In a table with a merge mode it is the
        order in which rows with equal keys arrive. A commit without rows makes no entry, except with a commit id.

        Raises RejectedError, ContentionError, UnknownOutcomeError as :meth:`lakebed.Table.write`; UsageError for
        another table; NotFoundError if the table was dropped.
        """
        from lakebed.log.outcomes import version_of
        from lakebed.model.state.transactions import ProposeFiles
        from lakebed.write.run import commit_files

        if table.id != self.table_id:
            raise Code.ARGUMENT_INVALID(f"table {table.name} is not the one that the write was begun for")
        if self.committed is not None:
            return self.committed
        files = tuple(new for one in sent for new in one.files)
        if not files and self.commit_id is None:
            return self.base_version
        proposed = ProposeFiles(files, self.commit_id, self.base_version)
        return version_of(commit_files(table, proposed), f"table {table.name}")


def _place_of(table: Any) -> Root:
    """Return where tasks open the instance of a table. Raises UsageError if they cannot."""
    from lakebed.table.table import Table

    if not isinstance(table, Table):
        raise Code.ARGUMENT_INVALID(
            f"a write by tasks needs a table of lakebed.open, whose storage they write to, not {type(table).__name__}; "
            "call write of that table instead"
        )
    reopening = table.versions.reopening
    if reopening is None or not table.storage.locality.shared:
        raise Code.INSTANCE_IN_MEMORY(
            f"the storage of table {table.name} is in the memory of this process, and tasks, which are other "
            "processes, cannot see it; use a folder or an object store",
        )
    location = reopening.instance.instance().location
    return Root(location["url"], location["storage_options"] or {}, location["log_url"])

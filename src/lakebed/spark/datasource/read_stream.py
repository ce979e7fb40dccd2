"""Streams of the rows that are added to a table, or of what versions changed: in the order of the log, each once.

*Added rows.* Only entries that add files count. Compactions, splits and joins change no row, and are skipped; a removal
takes nothing back from a stream. Rows are read from the files that were added, which are kept for ``history_s`` after a
compaction has replaced them. Entries are kept for ``log_s``. A stream that is further behind raises NotRetainedError. A
table that merges rows has no such stream: what a write adds may be a delete.

*Changes*, with the option ``changes``: the change feed (:mod:`lakebed.read.changes.feed`), version by version.

*An offset* is a version, and how many of the files that the next entry added are done: one entry may add thousands, and
a trigger takes as many files or rows as its limit allows. A file is never cut, so a trigger takes at least one. Of
changes a trigger takes whole versions. The offset names the table by its id, because another table may have its name
when a query is started again.

*The change feed as tasks of a stream: each reads some versions, or some keys of one version, in Python workers.*

A task replays the log to its first version and reads the feed from there, as every reader does. Small versions share a
task, so that the replay is little beside it; a version with many files is cut by their keys. Rows of different tasks
come in no order: a query that applies them has to sort them (docs/spark.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from lakebed.errors import Code, Error, NotRetainedError
from lakebed.jobs.executor import Root, on_one_core
from lakebed.jobs.shares import PARTITION_BYTES
from lakebed.log import entry as entries
from lakebed.log.entry import entry_missing
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.state.codec import outline
from lakebed.model.state.transactions import AddFiles
from lakebed.read.changes.plan import may_change_rows
from lakebed.read.rows.plan import PartitionQuery, plan
from lakebed.spark.datasource import spark_columns
from lakebed.spark.datasource.batch_read import RowsPartition, Scan
from lakebed.spark.datasource.options import STREAM_READ, Options

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakebed.model.files import DataFile
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import Transaction
    from lakebed.table.table import Table


class ChangesPartition(InputPartition):
    """What one task reads: the changes of keys in the versions after the first, up to the last."""

    def __init__(self, first: int, last: int, keys: EncodedRange = ALL_KEYS) -> None:
        self.first = first
        self.last = last
        self.keys = keys

    def __repr__(self) -> str:
        return f"Changes of versions {self.first + 1} to {self.last}"


@dataclass(frozen=True, slots=True)
class ChangesScan:
    """The common part of all tasks: the table, the columns and types that Spark requests, and which are the table's."""

    place: Root
    table_id: str
    wanted: pa.Schema
    names: tuple[str, ...]

    @classmethod
    def of(cls, place: Root, table_id: str, schema: Schema, spark: StructType) -> ChangesScan:
        """Raises UsageError for a column that the table does not have, or has with another type."""
        return cls(place, table_id, *spark_columns.check_requested_changes(spark, schema))

    def read(self, part: ChangesPartition) -> Iterator[pa.RecordBatch]:
        """Return the changes of a part. Raises NotRetainedError."""
        from lakebed.read.changes.feed import Feed

        on_one_core()
        table = self.place.open().unnamed(self.table_id)
        present = table.state()
        # A feed of no column of the table is one of its keys.
        names = self.names or present.created.row_key_names
        with Feed.of(table.versions, present, (part.keys,), names).stream(None, part.first, part.last) as stream:
            for rows in stream:
                yield spark_columns.to_spark(rows, self.wanted)


def parts_of(
    first: int, last: int, share_bytes: int, transactions: Callable[[int], Sequence[Transaction]]
) -> list[ChangesPartition]:
    """Return the changes of the versions after the first in parts of about ``share_bytes`` of added files.

    ``transactions`` are those of an entry. Versions that change no rows are in no part, or in one with others.
    """
    parts: list[ChangesPartition] = []
    held: list[tuple[int, int]] = []

    def flush() -> None:
        if held:
            parts.append(ChangesPartition(held[0][0] - 1, held[-1][0]))
        held.clear()

    for version in range(first + 1, last + 1):
        found = transactions(version)
        if not any(map(may_change_rows, found)):
            continue
        files = [file for one in found if isinstance(one, AddFiles) for file in one.files]
        size_bytes = sum(file.size_bytes for file in files)
        if held and sum(size for _, size in held) + size_bytes > share_bytes:
            flush()
        if size_bytes < 2 * share_bytes:
            held.append((version, size_bytes))
        else:
            flush()
            parts += (ChangesPartition(version - 1, version, keys) for keys in _ranges_of_size(files, share_bytes))
    flush()
    return parts


def _ranges_of_size(files: Sequence[DataFile], share_bytes: int) -> Iterator[EncodedRange]:
    """Return all keys in ranges, in each of which files of about ``share_bytes`` begin."""
    begin, size_bytes = b"", 0
    for file in sorted(files, key=lambda file: file.min_key):
        if size_bytes >= share_bytes and file.min_key > begin:
            yield EncodedRange(begin, file.min_key)
            begin, size_bytes = file.min_key, 0
        size_bytes += file.size_bytes
    yield EncodedRange(begin)


Offset = dict[str, Any]
"""``table``, an id; ``version``; ``files`` of the entry after it."""

_START_ANEW = (
    "start the query again with another checkpoint: read the table as it is at a version (the option at), then stream "
    "since that version"
)


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The rows that are added to a table, some of its columns; or what versions changed."""

    def __init__(self, options: Options, spark: StructType) -> None:
        """Raises UsageError, NotFoundError."""
        options.check(*STREAM_READ)
        self._options = options
        self._spark = spark
        self._table: Table | None = options.open_table()
        state, place = self._table.state(), options.place
        self._changes: ChangesScan | None = None
        self._scan: Scan | None = None
        if options.flag("changes"):
            self._changes = ChangesScan.of(place, self._table.id, state.created, spark)
        else:
            _check_keeps_all(state, self._table.name)
            wanted = spark_columns.check_requested(spark, state.created)
            self._scan = Scan(place, state, wanted)
        self._share_bytes = options.count("partition_bytes") or PARTITION_BYTES
        self._target: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks, without an open table."""
        return self.__dict__ | {"_table": None}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the start of a new query: after the version of the option ``since``, by default before the first."""
        since = self._options.given.get("since", "0")
        head = self._open.state().version
        if not since.isdigit() or int(since) > head:
            raise Code.ARGUMENT_INVALID(f"since = {since!r}: must be a version of the table, 0 to {head}")
        return self._at(int(since), 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a trigger, by the options ``maxFilesPerTrigger`` or ``maxRowsPerTrigger``."""
        files, rows = self._options.count("maxfilespertrigger"), self._options.count("maxrowspertrigger")
        if files and rows:
            raise Code.ARGUMENTS_CONFLICT(
                "give maxFilesPerTrigger or maxRowsPerTrigger, not both: Spark supports one limit"
            )
        return ReadMaxFiles(files) if files else ReadMaxRows(rows) if rows else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset up to which a trigger that begins at ``start`` may read; ``start`` if nothing was added.

        Raises NotRetainedError.
        """
        head = self._open.state().version
        head = head if self._target is None else min(head, self._target)
        self._check(start)
        if isinstance(limit, ReadAllAvailable):
            return start if head < start["version"] else self._at(head, 0)
        version, done, taken, spent = start["version"], start["files"], 0, 0
        while version < head:
            costs = [_cost(file, limit) for file in self._added(version + 1)]
            costs = costs if self._changes is None else [sum(costs)]
            while done < len(costs):
                spent += costs[done]
                if taken and spent > _most(limit):
                    return self._at(version, done)
                taken, done = taken + (costs[done] > 0), done + 1
            version, done = version + 1, 0
        return self._at(version, done)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End the query at the current version."""
        self._target = self._open.state().version

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the newest version, for the progress of the query."""
        return self._at(self._open.state().version, 0)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the rows between two offsets, in shares.

        Raises NotRetainedError, NotFoundError, DamagedError; UsageError for a column that was altered meanwhile.
        """
        for offset in (start, end):
            self._check(offset)
        state = self._open.state()
        if self._changes is not None:
            first, last = start["version"], end["version"]
            _check_retained(first, last, state)
            return list(parts_of(first, last, self._share_bytes, self._transactions))
        _check_keeps_all(state, self._open.name)
        shares: list[list[PartitionQuery]] = []
        held_bytes = 0
        for file in self._between(start, end):
            if not shares or held_bytes + file.size_bytes > self._share_bytes:
                shares.append([])
                held_bytes = 0
            # No partition is looked at: all rows of the file were added.
            shares[-1].append(PartitionQuery(0, (ALL_KEYS,), (file,)))
            held_bytes += file.size_bytes
        # The filter and the fields may have changed since the reader was made.
        spark_columns.check_requested(self._spark, state.created)
        present = plan(state, ())
        return [RowsPartition(tuple(share), present) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one share. Raises NotRetainedError."""
        try:
            if isinstance(partition, ChangesPartition):
                assert self._changes is not None
                yield from self._changes.read(partition)
            elif isinstance(partition, RowsPartition):
                assert self._scan is not None
                yield from self._scan.read(partition)
        except NotRetainedError as error:
            raise error.restated(
                f"the stream is too far behind: {error.message}. Files are kept for as long as the setting history_s "
                f"says after the last version that needs them; raise it, and {_START_ANEW}"
            ) from error.__cause__

    # -- within -------------------------------------------------------------------------------------------------

    @property
    def _open(self) -> Table:
        assert self._table is not None, "offsets are computed where the reader was made"
        return self._table

    def _at(self, version: int, files: int) -> Offset:
        offset = {"table": self._open.id, "version": version, "files": files}
        return offset if self._changes is None else {**offset, "changes": True}

    def _check(self, offset: Offset) -> None:
        if offset.get("table") != self._open.id:
            raise Code.STREAM_TABLE_REPLACED(
                f"the checkpoint is of a table with the id {offset.get('table')}, and {self._open.name} has the id "
                f"{self._open.id}: the table was dropped or renamed, and another has its name; {_START_ANEW}"
            )

        if bool(offset.get("changes")) != (self._changes is not None):
            other = "without" if self._changes is not None else "with"
            raise Code.ARGUMENT_INVALID(f"the checkpoint is of a stream {other} the option changes; {_START_ANEW}")

    def _between(self, start: Offset, end: Offset) -> Iterator[DataFile]:
        for version in range(start["version"] + 1, end["version"] + (2 if end["files"] else 1)):
            files = self._added(version)
            first = start["files"] if version == start["version"] + 1 else 0
            last = end["files"] if version == end["version"] + 1 else len(files)
            if len(files) < last:
                raise Code.INTERNAL_ERROR(
                    f"the checkpoint says that entry {version} added {last} files; it added {len(files)}"
                )
            yield from files[first:last]

    def _added(self, version: int) -> tuple[DataFile, ...]:
        """Return the files that an entry added, in their order. Raises as :meth:`_transactions`."""
        return tuple(file for one in self._transactions(version) if isinstance(one, AddFiles) for file in one.files)

    def _transactions(self, version: int) -> list[Transaction]:
        """Return the transactions of an entry, without sidecars.

        Raises NotRetainedError if the log is truncated beyond it.
        """
        log = self._open.log
        data = log.backend.get(version)
        if data is None:
            log_start = log.log_start()
            if log_start < version:
                raise entry_missing(log.identity, version)
            raise Code.STREAM_NOT_RETAINED(
                f"the stream is at version {version - 1}, and the log is retained from version {log_start + 1} on "
                f"(setting log_s), so rows that were added in between are not known; {_START_ANEW}",
                version=version,
                earliest_retained_version=log_start,
            )
        with entries.naming(log.identity, version):
            return [outline(one).transaction for one in entries.decode(data, log.identity, version, None).documents]


class FailedStreamReader(DataSourceStreamReader):
    """In place of a reader that cannot be made: the first call of Spark raises why.

    Spark 4.3 hides an error that is raised while a reader is made behind an UnboundLocalError of its own.
    """

    def __init__(self, error: Error) -> None:
        self._error = error

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = partitions = read = _raise  # noqa: N815 - Spark's names


def _check_keeps_all(state: TableState, name: str) -> None:
    """Raise UsageError for a table that merges rows."""
    if not state.merge.keeps_all:
        raise Code.MERGE_MODE_MISMATCH(
            f"table {name} merges rows by {state.merge}, so rows that were added are not rows of the table; read it as "
            "a batch, or read its changes (the option changes)",
            table=name,
        )


def _check_retained(first: int, last: int, state: TableState) -> None:
    """Raise NotRetainedError unless the changes of the versions after the first, up to the last, are retained."""
    if first < min(last, state.earliest_retained_version):
        raise Code.STREAM_NOT_RETAINED(
            f"the stream is at version {first}, and changes are retained since version "
            f"{state.earliest_retained_version} (setting history_s); {_START_ANEW}",
            version=first,
            earliest_retained_version=state.earliest_retained_version,
        )


def _cost(file: DataFile, limit: ReadLimit) -> int:
    match limit:
        case ReadMaxRows():
            return file.rows
        case ReadMaxBytes():
            return file.size_bytes
        case _:
            return 1


def _most(limit: ReadLimit) -> int:
    match limit:
        case ReadMaxRows():
            return limit.max_rows
        case ReadMaxBytes():
            return limit.max_bytes
        case ReadMaxFiles():
            return limit.max_files
        case _:
            raise Code.ARGUMENT_INVALID(f"unknown read limit: {limit}")

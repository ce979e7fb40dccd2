"""Reading a table, as a batch: planned beside the driver, read beside the executors, nothing in between.

A frame is of one number of the log, the newest when it was loaded unless the option ``at`` says which. The plan
travels with the tasks, which so open no log: they read the files that it names, by the query path of every reader.

*Filters are pushed down on demand only.* Spark 4.3 keeps what it learnt from pushing filters with the frame, or the
view, and takes it for every later query of it, whatever filters that one has: rows would be missing without a word. So
the option ``push_filters`` is for a frame that is used once; by default Spark does the filtering, and key ranges are
said outright by the option ``ranges``, which belongs to the frame.

A file that is no longer there was given up in between (``history_s`` after the last reference to it
went), which a task is told, and tells. Spark has no place at the end of a scan to take a pin away, so none is put.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakebed.model.keys import ALL_KEYS, EncodedRange, iter_ranges
from lakebed.read.key_ranges import shared
from lakebed.read.plan import PartitionQuery, QueryPlan, plan
from lakebed.spark.batch import Place, on_one_core
from lakebed.spark.datasource import spark_columns
from lakebed.spark.datasource.input_partitions import Share, share_out
from lakebed.spark.datasource.options import PARTITION_BYTES, READ, Options
from lakebed.spark.datasource.pushdown import Pushed, push

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from lakebed.model.files import DataFile
    from lakebed.model.schema import Schema
    from lakebed.snapshot.snapshot import Snapshot
    from lakebed.state.table_state import TableState
    from lakebed.table.table import Table

SUMMARY_THREADS = 16


class RowsPartition(InputPartition):
    """What one task reads."""

    def __init__(self, share: Share) -> None:
        self.share = share

    def __repr__(self) -> str:
        return f"Rows of partitions {', '.join(str(partition.partition) for partition in self.share)}"


class Scan:
    """What all tasks of a scan have in common: where the table is, and which columns Spark wants in which types."""

    def __init__(self, place: Place, table_id: str, schema: Schema, wanted: pa.Schema) -> None:
        self._place = place
        self._table_id = table_id
        self._schema = schema
        self._wanted = wanted

    def read(self, share: Share) -> Iterator[pa.RecordBatch]:
        """The rows of a share, in key order. Raises as :meth:`lakebed.read.reader.Reader.get` does."""
        from lakebed.read.reader import Reader

        on_one_core()
        reader = Reader(self._place.connect(), self._table_id, self._keeps)
        for rows in reader.scan(QueryPlan(share, self._schema), self._wanted.names, None):
            yield spark_columns.to_spark(rows, self._wanted)

    def _keeps(self, file: DataFile) -> bool:
        """Whether the table has the file still; asked only if its object is not there."""
        known = self._place.open().unnamed(self._table_id).state().files.get(file.id)
        return known is not None and not known.retired


class TableReader(DataSourceReader):
    """A batch read of some columns of a table."""

    def __init__(self, options: Options, spark: StructType, version: int | None = None) -> None:
        """``version`` is that of the table when the frame was loaded. Raises UsageError, NotFoundError,
        NotRetainedError.
        """
        options.check(*READ)
        self._options = options
        self._table: Table | None = options.open_table()
        self._snapshot: Snapshot | None = options.locate(self._table, version)
        self._pushed: Pushed | None = None
        schema = self._snapshot.schema
        self._scan = Scan(options.place, self._table.id, schema, spark_columns.check_asked(spark, schema))

    def __getstate__(self) -> dict[str, Any]:
        """What travels to the tasks: no open table, and no state. Spark takes it before it asks for partitions."""
        return self.__dict__ | {"_table": None, "_snapshot": None}

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name
        """Takes the filters on the key, if it may; gives back those that Spark has to look at.

        Spark refuses a reader with this method while ``spark.sql.python.filterPushdown.enabled`` is off, as it is by
        default, instead of not calling it. It tells by ``__func__``, so this is not a method but gives one.
        """
        return _PushFilters(self)

    def take(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Keep what the filters say about the key, if the option ``push_filters`` is on; returns the others."""
        if not self._options.flag("push_filters"):
            return filters
        schema = self._planned[1].schema
        self._pushed = pushed = push(filters, schema)
        return [one for position, one in enumerate(filters) if position not in pushed.done]

    def partitions(self) -> list[InputPartition]:
        """The shares of the tasks, in key order."""
        table, snapshot = self._planned
        ranges: Sequence[EncodedRange] = self._options.ranges(snapshot.schema) or (ALL_KEYS,)
        keys = None
        if self._pushed is not None:
            ranges, keys = tuple(shared(tuple(iter_ranges(ranges)), self._pushed.ranges)), self._pushed.keys
        partitions = plan(snapshot.state, ranges, keys).partitions
        share_bytes = self._options.count("partition_bytes") or PARTITION_BYTES
        shares = share_out(
            partitions, weights(snapshot.state, partitions), share_bytes, lambda files: sampled(table, files)
        )
        return [RowsPartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one share."""
        # Spark puts a partition of nothing in the place of none.
        if isinstance(partition, RowsPartition):
            yield from self._scan.read(partition.share)

    @property
    def _planned(self) -> tuple[Table, Snapshot]:
        assert self._table is not None, "plans are made where the reader was"
        assert self._snapshot is not None
        return self._table, self._snapshot


class _PushFilters:
    """The bound method ``pushFilters``, but for what Spark takes it for; see there."""

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take(filters)


def weights(state: TableState, partitions: Sequence[PartitionQuery]) -> dict[int, int]:
    """The bytes of each partition: of each file as much as its share of the rows."""
    return {
        partition.partition: sum(
            held.file.size_bytes * held.rows // max(1, held.file.rows) for held in state.held_by(partition.partition)
        )
        for partition in partitions
    }


def sampled(table: Table, files: Sequence[DataFile]) -> Mapping[str, tuple[bytes, ...]]:
    """Keys of those files that have a summary beside them, spread evenly over their rows."""
    from lakebed.read.summaries import load_summaries

    def load(file: DataFile) -> tuple[bytes, ...]:
        return load_summaries(table.storage, table.id, [file], table.schema)[file.id].spread()

    summarised = [file for file in files if file.summarised]
    with ThreadPoolExecutor(SUMMARY_THREADS) as pool:
        return dict(zip([file.id for file in summarised], pool.map(load, summarised), strict=True))

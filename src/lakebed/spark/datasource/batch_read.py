"""Batch reads of a table: planned in a Python worker beside the driver, read in Python workers beside the executors.

A frame reads one version, the latest when it was loaded, or that of the option ``at``. The plan is sent with the tasks,
so they do not open the log: they read the files that it names as every reader does. Tasks have shares of the plan in
key order; small partitions share a task, and large ones are cut.

*Filters are pushed down on demand only.* Spark 4.3 stores the pushed filters with the frame or view, and applies them
to every later query of it: rows would be missing without an error. So the option ``push_filters`` is for a frame that
is used once. By default Spark evaluates the filters; the option ``ranges`` gives key ranges, which belong to the frame.

A file that is missing was garbage-collected since (``history_s`` after the last reference to it went), and the read
raises NotRetainedError. Spark calls nothing at the end of a scan, where a pin could be deleted, so no pin is put.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyspark
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakebed.errors import Code
from lakebed.jobs.executor import Root, on_one_core
from lakebed.jobs.shares import PARTITION_BYTES, Share, sampled, share_out, weights
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.read.rows.conditions import plan_where
from lakebed.read.rows.plan import plan
from lakebed.spark.datasource import spark_columns
from lakebed.spark.datasource.options import READ, Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from lakebed.model.files import DataFile
    from lakebed.model.state.table_state import TableState
    from lakebed.read.rows.conditions import Condition
    from lakebed.read.rows.plan import QueryPlan
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.table.table import Table


class RowsPartition(InputPartition):
    """The share of one task; ``present`` is a plan of no rows by the table's state, if the scan has an older one."""

    def __init__(self, share: Share, present: QueryPlan | None = None) -> None:
        self.share = share
        self.present = present

    def __repr__(self) -> str:
        return f"Rows of partitions {', '.join(str(partition.partition) for partition in self.share)}"


class Scan:
    """The common part of all tasks of a scan: the table's location, and the columns and types that Spark requests.

    Rows for which ``condition`` is not true may be left out.
    """

    def __init__(self, place: Root, state: TableState, wanted: pa.Schema) -> None:
        self._place = place
        self._table_id = state.table
        self._nothing = plan(state, ())
        self._wanted = wanted
        self.condition: Condition | None = None

    def read(self, part: RowsPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a part, in key order. Raises as :meth:`lakebed.read.rows.reader.Reader.get` does."""
        from lakebed.read.rows.reader import Reader

        on_one_core()
        reader = Reader(self._place.connect(), self._table_id, self._keeps)
        planned = replace(part.present or self._nothing, partitions=part.share, condition=self.condition)
        for rows in reader.scan(planned, self._wanted.names, None):
            yield spark_columns.to_spark(rows, self._wanted)

    def _keeps(self, file: DataFile) -> bool:
        """Return whether the table still has the file; called only if its object is missing."""
        known = self._place.open().unnamed(self._table_id).state().files.get(file.id)
        return known is not None and not known.retired


class TableReader(DataSourceReader):
    """A batch read of some columns of a table."""

    def __init__(
        self, options: Options, spark: StructType, table_id: str | None = None, version: int | None = None
    ) -> None:
        """``table_id`` and ``version`` are those of the table when the frame was loaded.

        Raises UsageError, NotFoundError, NotRetainedError.
        """
        options.check(*READ)
        if options.flag("push_filters") and not hasattr(DataSourceReader, "pushFilters"):
            raise Code.SPARK_MODE_UNSUPPORTED(
                f"the option push_filters needs Spark 4.1 or later, and this is {pyspark.__version__}, which passes no "
                "filters to data sources in Python: use the option ranges"
            )
        self._options = options
        self._table: Table | None = options.open_table(table_id)
        self._snapshot: Snapshot | None = options.locate(self._table, version)
        schema = self._snapshot.schema
        wanted = spark_columns.check_requested(spark, schema)
        self._scan = Scan(options.place, self._snapshot.state, wanted)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks, without an open table. Spark pickles it before it plans partitions."""
        return self.__dict__ | {"_table": None, "_snapshot": None}

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name
        """Takes the filters, with the option ``push_filters``; returns those that Spark has to evaluate.

        Spark refuses a reader with this method while ``spark.sql.python.filterPushdown.enabled`` is off, its default,
        instead of not calling it. It looks at ``__func__``, so this is a property that returns a callable.
        """
        return _PushFilters(self)

    def take(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Narrow the scan by the filters, with the option ``push_filters``; returns those that are not done."""
        if not self._options.flag("push_filters"):
            return filters
        from lakebed.spark.datasource.options import push

        pushed = push(filters, self._planned[1].schema)
        self._scan.condition = pushed.condition
        return [one for position, one in enumerate(filters) if position not in pushed.done]

    def partitions(self) -> list[InputPartition]:
        """Return the shares of the tasks, in key order."""
        table, snapshot = self._planned
        ranges: Sequence[EncodedRange] = self._options.ranges(snapshot.schema) or (ALL_KEYS,)
        planned = plan(snapshot.state, ranges)
        if self._scan.condition is not None:
            planned = plan_where(snapshot.state, ranges, self._scan.condition)
        partitions = planned.partitions
        share_bytes = self._options.count("partition_bytes") or PARTITION_BYTES
        shares = share_out(
            partitions, weights(snapshot.state, partitions), share_bytes, lambda files: sampled(table, files)
        )
        return [RowsPartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one share."""
        # Spark replaces an empty list by one empty partition.
        if isinstance(partition, RowsPartition):
            yield from self._scan.read(partition)

    @property
    def _planned(self) -> tuple[Table, Snapshot]:
        assert self._table is not None, "plans are made where the reader was"
        assert self._snapshot is not None
        return self._table, self._snapshot


class _PushFilters:
    """The method ``pushFilters``, not overridden as far as Spark can see."""

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take(filters)

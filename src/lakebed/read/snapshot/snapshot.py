"""All reads of a table: of its latest version, through its handle, or of a snapshot, which never changes.

Core types: :class:`Readable` declares every read; :class:`Snapshot` is the value that plans and reads. Lazy results (a
frame, a relation, a registered table) read the version of the call. Methods import the libraries that they need.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.checks import check_flag, check_sample, check_seconds, check_whole_number
from lakebed.model.extension_values import returned
from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyRange, successor
from lakebed.read.rows.plan import ROWS_A_RANGE, QueryPlan, coarser, over_partitions, plan
from lakebed.read.rows.row_stream import returned_stream
from lakebed.read.snapshot.handles import TableAddress, TableHandle
from lakebed.storage.telemetry import timed_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import duckdb
    import polars as pl
    import pyarrow as pa
    from datafusion import SessionContext

    from lakebed.engine.predicate import Predicate
    from lakebed.files.merging.custom_functions import Function
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState, ViewSource
    from lakebed.read.drawing.pictures import Picture
    from lakebed.read.rows.conditions import Condition
    from lakebed.read.rows.counting import Count
    from lakebed.read.rows.engine_frames import Frame
    from lakebed.read.rows.explain import Explanation
    from lakebed.read.rows.reader import Reader
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.rows.second_key import Entries, SecondKey
    from lakebed.storage.contract import Storage


class Readable(TableHandle["RowStream"]):
    """The reads of a table.

    A :class:`~lakebed.table.table.Table` reads its latest version: each method first looks for a newer one. A
    :class:`Snapshot` always reads its own version.
    """

    __slots__ = ()

    _get: Callable[[Sequence[Any], Sequence[str] | None, float | None, int | None], pa.Table]
    """As :meth:`get`, with key, columns, max_staleness and at_least."""

    if TYPE_CHECKING:

        def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> Snapshot:
            """Return the latest version as a value; a snapshot returns itself."""

    # -- rows ---------------------------------------------------------------------------------------------------

    def get(  # noqa: PLR0913 - as scan
        self,
        *key: Any,
        by: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        raw: bool = False,
        apply: str | Function | None = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> pa.Table:
        """Return all rows of one key (a value for each row key field), by sort key; an empty table if there are none.

        ``by`` finds rows by the values of indexed fields in place of a key: ``get(by={"tailnum": "N14228"})``, in key
        order (docs/second-key.md).

        ``max_staleness`` accepts a version that was the latest at most that many seconds ago; by default every read
        looks for a newer one. ``at_least`` is a version that :meth:`Table.write` returned, in this process or another:
        the read waits until the log has it. A snapshot ignores the first, and refuses a version later than its own.
        ``raw`` and ``apply`` are as for :meth:`scan`.

        Raises:
            BadKeyError: too few or many values, or one of a wrong type.
            UsageError: a column that the table does not have.
            NotFoundError: the version does not come within ten seconds.
        """
        if by is not None:
            from lakebed.read.rows.second_key import check_alone

            check_alone(raw=raw, apply=apply, key=key)
            return self._get_by(by, columns, max_staleness, at_least)
        if apply is None and raw is False:
            return self._get(key, columns, max_staleness, at_least)
        from lakebed.read.snapshot.row_views import viewed

        now = self.snapshot(max_staleness, at_least)
        rows = viewed(now, lambda view, names: view.reader.get(view.state, key, names), columns, apply, raw=raw)
        return returned(rows, now.schema)

    @timed_read("get")
    def _get_by(
        self, by: Mapping[str, Any], columns: Sequence[str] | None, max_staleness: float | None, at_least: int | None
    ) -> pa.Table:
        from lakebed.read.rows.second_key import Values

        now = self.snapshot(max_staleness, at_least)
        values, names = Values.of(now.state, by), now.schema.project(columns)
        rows = now.second_key.rows(values, names)
        if rows is None:
            planned, predicate = now.planned(now.encoded(()), values.where)
            rows = now.reader.scan(planned, names, None, where=predicate).read_all()
        return returned(rows, now.schema)

    @timed_read("get_many")
    def get_many(  # noqa: PLR0913 - as scan
        self,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        raw: bool = False,
        apply: str | Function | None = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> pa.Table:
        """Return all rows of many keys, in key order; a key that is given twice counts once.

        ``keys`` are tuples (plain values, if the key has one field), or Arrow data: a table with the row key columns by
        name, or a single column, of the fields' types or narrower ones.

        ``raw`` and ``apply`` are as for :meth:`scan`. Raises as :meth:`get`, and BadKeyError for a null.
        """
        from lakebed.read.rows.multi_get import encoded_keys
        from lakebed.read.snapshot.row_views import viewed

        now = self.snapshot(max_staleness, at_least)
        encoded = encoded_keys(keys, now.schema)
        rows = viewed(now, lambda at, names: at.reader.get_many(at.state, encoded, names), columns, apply, raw=raw)
        return returned(rows, now.schema)

    def scan(  # noqa: PLR0913 - which rows, what of them, which way, how fresh: each is the caller's choice
        self,
        *ranges: KeyRange,
        by: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        raw: bool = False,
        apply: str | Function | None = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> RowStream:
        """Return all rows with a key in any of the ranges (all rows if none is given), in key order; each counts once.

        ``where`` is a predicate in SQL over the columns, named as they are written: ``"n > 3 AND s IS NULL"``. Rows for
        which it is not true are skipped, and do not count for ``limit``. With ``reverse`` the last row comes first.
        ``by`` keeps only rows with these values of indexed fields (docs/second-key.md).
        ``raw`` gives the rows of all files before any merge, with a column ``__lakebed_kind`` if the table has deletes;
        ``apply`` calls a merge function, itself or by the name of an installed one, over the merged rows of whole keys,
        and ``where``, ``columns`` and ``limit`` apply to its result (:mod:`lakebed.read.snapshot.row_views`).
        ``max_staleness`` and ``at_least`` are as for :meth:`get`.

        A stream: close it, or read it to its end. Memory does not grow with the number of rows. A scan holds a slice
        of each file that it merges, about 12 MiB. If many files overlap, as many are merged at once as
        ``memory_limit_bytes`` allows; the others are merged through local disk. A reverse scan spills the rows of a key
        to local disk if they do not fit.

        Raises:
            BadKeyError: a range is upside down or does not fit the key.
            UsageError: a column that the table does not have, a negative limit, or an invalid predicate; a function
                that is not installed, fails, or returns invalid rows.
            NotFoundError: the version ``at_least`` does not come within ten seconds.
        """
        from lakebed.read.snapshot.row_views import applied_scan, raw_choice

        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        now = raw_choice(self.snapshot(max_staleness, at_least), apply, raw=raw, reverse=reverse)
        names = now.schema.project(columns)
        if by is not None:
            from lakebed.read.rows.second_key import Values, check_alone

            check_alone(raw=raw, apply=apply)
            values = Values.of(now.state, by)
            planned, predicate = now.planned(
                now.second_key.narrowed(values, now.encoded(ranges)), values.conjoined(where)
            )
            found = now.reader.scan(planned, names, limit, where=predicate, reverse=reverse)
            return returned_stream(found, now.schema)
        if apply is not None:
            applied = applied_scan(now, now.encoded(ranges), apply, names=names, where=where, limit=limit)
            return returned_stream(applied, now.schema)
        planned, predicate = now.planned(now.encoded(ranges), where)
        return returned_stream(now.reader.scan(planned, names, limit, where=predicate, reverse=reverse), now.schema)

    @timed_read("count")
    def count(self, *ranges: KeyRange, by: Mapping[str, Any] | None = None, exact: bool = False) -> Count:
        """Return the number of rows with a key in any of the ranges (all rows if none is given); each counts once.

        If a range cuts a file and its summary has no exact rank there, the count is an estimate with the bounds
        ``rows_min`` and ``rows_max``, off by at most 0.1% of the file's rows for each cut. ``exact`` reads the keys
        there instead. If rows of overlapping files are merged by the table's merge mode, or a file has deletes, the
        count is also an estimate, between the rows of one file and those of all; ``exact`` reads and merges the keys of
        these files. With ``by``, rows with these values of indexed fields are counted, exactly. Raises BadKeyError for
        a range that is inverted or does not fit the key.
        """
        from lakebed.read.rows.counting import Count, count

        now = self.snapshot()
        check_flag("exact", exact)
        if by is not None:
            with closing(now.scan(*ranges, by=by, columns=now.schema.row_key_names[:1])) as rows:
                return Count(sum(batch.num_rows for batch in rows), exact=True)
        return count(now.state, now.encoded(ranges), now.reader, None if exact else now.storage)

    def sample(self, rows: int, *, columns: Sequence[str] | None = None, seed: int | None = None) -> pa.Table:
        """Return random rows, in key order: ``rows`` of them, or all if there are fewer.

        Every row is equally likely, and none is returned twice. A page is read for each row, so sample at most a few
        thousand. The same ``seed`` gives the same rows of a version, as long as its files are not compacted. If rows of
        overlapping files are merged by the table's merge mode, all rows are read to draw the sample.

        Raises UsageError for a negative number of rows, or a column that the table does not have.
        """
        from lakebed.read.rows.counting import sample

        now = self.snapshot()
        check_sample(rows, seed)
        names = now.schema.project(columns)
        sampled = sample(now.state, rows, names, now.reader, clock.chance(seed))
        return now.scan(columns=columns).read_all() if sampled is None else returned(sampled, now.schema)

    def prefixes(self, depth: int, *ranges: KeyRange, limit: int | None = None) -> pa.Table:
        """Return the distinct values of the first ``depth`` row key fields, in key order; at most ``limit``.

        Only rows with a key in any of the ranges are read (all if none is given): a page for each value in each
        file, not all rows; see :mod:`lakebed.read.rows.prefix_scan`. The values are kept in memory.

        Raises:
            UsageError: a depth that is not between 1 and the number of row key fields, or a negative limit.
            BadKeyError: a range is upside down or does not fit the key.
        """
        from lakebed.read.rows.prefix_scan import prefixes

        now = self.snapshot()
        check_whole_number("limit", limit)
        return prefixes(now.state, now.encoded(ranges), depth, limit, now.reader)

    def explain(
        self,
        *selection: Any,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Explanation:
        """Run the read of :meth:`get` or :meth:`scan`, and return its statistics.

        ``selection`` has the values of a key, or ranges, or nothing for all rows; the options are those of
        :meth:`scan`. The read is a real one, to its end, and its rows are dropped.

        Raises:
            UsageError: key values and ranges together; or as :meth:`get` and :meth:`scan`.
            BadKeyError: as these.
        """
        from lakebed.files.parquet.read_cache import ReadStatistics
        from lakebed.read.rows.explain import Explanation

        seen = ReadStatistics()
        with seen.step("probe"):
            now = self.snapshot()
        if now is self:
            # A snapshot does not probe the log.
            seen.steps.clear()
        are_ranges = {isinstance(one, KeyRange) for one in selection}
        if len(are_ranges) > 1:
            raise Code.ARGUMENTS_CONFLICT("explain takes the values of one key, or KeyRange values, not both")
        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        with seen.step("plan"):
            ranges = [now.point(selection)] if are_ranges == {False} else now.encoded(selection)
            planned, predicate = now.planned(ranges, where)
        names = now.schema.project(columns)
        for _ in now.reader.scan(planned, names, limit, where=predicate, reverse=reverse, statistics=seen):
            pass
        return Explanation.of(now.version, planned, seen)

    # -- for other libraries ------------------------------------------------------------------------------------

    def lazy_polars(self) -> pl.LazyFrame:
        """Return a Polars lazy frame: columns, limits and predicates are pushed down.

        Polars applies every predicate itself, to rows that may pass by their keys and the bounds of columns. Raises
        UsageError where Polars is missing.
        """
        from lakebed.read.adapters.polars import lazy_frame

        now = self.snapshot()

        def rows(condition: Condition, columns: Sequence[str], limit: int | None) -> RowStream:
            planned = now.plan_where((ALL_KEYS,), condition)
            return returned_stream(now.reader.scan(planned, columns, limit), now.schema)

        return lazy_frame(now.schema, rows, f"table {now.state.table} at version {now.state.version}")

    def to_duckdb(
        self, *ranges: KeyRange, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return a relation of the rows of some ranges, by default of DuckDB's own connection; it reads the files
        itself.

        DuckDB checks no digests, so the files are verified here: a process reads each of them once, whole. Damage
        that happens later is not found. Large files on a store are read through PyArrow when rows are requested, and
        verified then; the connection needs no access of its own.

        Rows come in no order. Raises UsageError where DuckDB is missing, and as ``scan``.
        """
        from lakebed.read.adapters.duckdb import relation

        now = self.snapshot()
        return relation(plan(now.state, now.encoded(ranges)), now.reader, connection)

    def files(self, *ranges: KeyRange) -> pa.Table:
        """Return the files that hold the rows of some ranges (all if none is given), for engines that read Parquet
        themselves.

        A row for each reference, in key order: the file, its URL, the partition, and which of its keys are live there.
        All rows of a file are live only if ``whole`` is true; then its URL suffices; see
        :func:`lakebed.read.inspect.report.files_table`.

        Nothing is verified: an engine that reads files by itself checks no digests. ``to_arrow``, ``register`` and
        ``to_duckdb`` hand over verified rows.
        """
        from lakebed.read.inspect.report import files_table

        now = self.snapshot()
        return files_table(now.state, now.state.table, now.storage.object_url, now.encoded(ranges))

    def partitions(self) -> pa.Table:
        """Return one row per partition, in key order: its range, the rows and bytes of its files, files, runs and
        parents: the partitions, by id, that a split, a join or a restore made it of.

        Rows of files are not merged yet: a table with a merge mode may have fewer, see :meth:`count`.
        """
        from lakebed.read.inspect.report import partitions_table

        return partitions_table(self.snapshot().state)

    def register(self, context: SessionContext, name: str, *ranges: KeyRange) -> None:
        """Let a DataFusion context read the rows of some ranges as a table of that name; rows come in no order.

        Files are verified as by :meth:`to_duckdb`. Raises as ``scan``.
        """
        from lakebed.read.rows.engine_frames import register

        now = self.snapshot()
        register(context, name, plan(now.state, now.encoded(ranges)), now.reader)

    def plot_partitions(self) -> Picture:
        """Return the key space as SVG: the width of a partition is its share of the rows, its colour the number of
        files.

        Shows itself in notebooks, and has ``save(path)``. Reads no data files.
        """
        from lakebed.read.drawing.key_space import KeySpace
        from lakebed.read.drawing.pictures import partitions_picture

        return partitions_picture(KeySpace.of(self.snapshot().state))

    def _repr_html_(self) -> str:
        """Return figures, key space and fields for notebooks; reads no data files."""
        from lakebed.read.drawing.table_view import table_view

        now = self.snapshot()
        return table_view(repr(self), now.state)


@dataclass(frozen=True, slots=True)
class Snapshot(Readable):
    """The rows, files and partitions of a table at ``state.version``. Safe to use from many threads."""

    state: TableState
    reader: Reader
    storage: Storage
    reopening: TableAddress | None = field(default=None, repr=False, compare=False)
    """Where the table can be opened again; None: nowhere."""
    related: Callable[[str], Entries] | None = field(default=None, repr=False, compare=False)
    """Opens the table with an id, of the same instance; None: no other table is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as the location of the table and the version; pins nothing (:mod:`lakebed.table.opening`)."""
        if self.reopening is None:
            raise TypeError(f"cannot pickle {self!r}: it belongs to no instance that can be opened again")
        return self.reopening.instance.snapshot, (self.reopening.table_id, self.version)

    def __repr__(self) -> str:
        return f"<lakebed table {self.state.table} at version {self.version}>"

    @property
    def version(self) -> int:
        """The version of the table that this snapshot shows."""
        return self.state.version

    @property
    def schema(self) -> Schema:
        """The table's schema at that version."""
        return self.state.created

    @property
    def fed_by(self) -> ViewSource | None:
        """What fills the table if it is a view or an index; None for any other."""
        return self.state.view

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> Snapshot:
        """Return this snapshot. Raises NotFoundError if ``at_least`` is a later version than its own."""
        check_seconds("max_staleness", max_staleness)
        check_whole_number("at_least", at_least)
        if at_least is not None and at_least > self.version:
            raise Code.VERSION_NOT_FOUND(
                f"at_least = {at_least}: this snapshot is of version {self.version}; read the table itself, or take a "
                "new snapshot",
                version=at_least,
            )
        return self

    @timed_read("get")
    def _get(
        self, key: Sequence[Any], columns: Sequence[str] | None, max_staleness: float | None, at_least: int | None
    ) -> pa.Table:
        self.snapshot(max_staleness, at_least)
        return returned(self.reader.get(self.state, key, columns), self.schema)

    @property
    def second_key(self) -> SecondKey:
        """The rows by values of indexed fields."""
        from lakebed.read.rows.second_key import SecondKey

        return SecondKey(self.state, self.reader, self.related)

    # -- plans --------------------------------------------------------------------------------------------------

    def encoded(self, ranges: Sequence[KeyRange]) -> tuple[EncodedRange, ...]:
        """Return the encoded ranges for a plan: all keys if none is given. Raises UsageError, BadKeyError."""
        return self.schema.codec.encode_ranges(ranges)

    def point(self, key: Sequence[Any]) -> EncodedRange:
        """Return the range of one key. Raises BadKeyError."""
        key_bytes = self.schema.codec.encode_key(key)
        return EncodedRange(key_bytes, successor(key_bytes))

    def planned(
        self, ranges: Sequence[EncodedRange], where: str | None, *, rows_a_range: int = ROWS_A_RANGE
    ) -> tuple[QueryPlan, Predicate | None]:
        """Plan a read of the ranges; return the plan and the checked predicate.

        Keys and files for which the predicate cannot be true are left out. Starting another range costs as much as
        ``rows_a_range`` rows. Raises UsageError for an invalid predicate.
        """
        if where is None:
            return plan(self.state, ranges), None
        from lakebed.engine.predicate import check_where

        predicate = check_where(where, self.schema.arrow)
        return self._plan_where(ranges, predicate, rows_a_range), predicate

    def rows(  # noqa: PLR0913 - what a scan reads, checked
        self,
        ranges: Sequence[EncodedRange],
        names: Sequence[str],
        *,
        condition: Condition | None = None,
        where: Predicate | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> RowStream:
        """Return the rows of the ranges for which ``where`` is true, in key order.

        Instead of a predicate there may be a ``condition``, which the caller evaluates on each row: rows for which it
        is not true may be left out.
        """
        if condition is not None:
            planned = coarser(self.plan_where(ranges, condition), ranges)
        else:
            planned = plan(self.state, ranges) if where is None else self._plan_where(ranges, where, ROWS_A_RANGE)
        return self.reader.scan(planned, names, limit, where=where, reverse=reverse)

    def frame(self, condition: Condition, columns: Iterable[str]) -> tuple[Reader, Frame]:
        """Return rows for an engine that evaluates the condition itself, with these columns, and their reader.

        They are those for which the condition is true, and others of the same partitions.
        """
        from lakebed.read.rows.engine_frames import frame_of

        planned = self.plan_where((ALL_KEYS,), condition)
        return self.reader, frame_of(over_partitions(planned, self.state), self.reader, columns, wanted=planned)

    def plan_where(self, ranges: Sequence[EncodedRange], condition: Condition) -> QueryPlan:
        """Plan a read of the rows of the ranges for which a condition can be true, by an index if it has few keys."""
        from lakebed.read.rows.conditions import plan_where

        keys = self.second_key.few_keys(condition) if self.state.indexes else None
        if keys is None:
            return plan_where(self.state, ranges, condition)
        from lakebed.read.rows.second_key import points_of

        return replace(plan_where(self.state, points_of(keys, ranges), condition), keys_by_index=len(keys))

    def _plan_where(self, ranges: Sequence[EncodedRange], where: Predicate, rows_a_range: int) -> QueryPlan:
        from lakebed.read.rows.expressions import condition_of

        return coarser(self.plan_where(ranges, condition_of(where.parts)), ranges, rows_a_range)

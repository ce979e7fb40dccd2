"""Runs SQL over tables: DataFusion plans a statement twice, the second time over the rows of the keys it needs.

1. The statement is parsed for the names of its tables. The engine treats ``"flights@12"`` as any other name; the
   catalog resolves it to a snapshot.
2. It is planned over empty tables of the same columns. The optimizer leaves each scan with its columns, its filters and
   possibly a limit; the filters become key ranges (:mod:`lakebed.read.rows.key_ranges`). All columns may be null there:
   else ``k IS NOT NULL`` would be left out together with ``k``, and a copy without ``k`` has nulls in its place.
3. It is planned again, and run, over the rows of these ranges. Up to a few thousand rows are read without the engine
   and passed to it in memory. Otherwise the engine reads the files that the ranges reach
   (:mod:`lakebed.read.rows.engine_frames`), and prunes by the same filters once more.

Core type: :class:`SqlEngine`. Rules: the ranges may include more rows than the filters, which are also in the second
plan. A table that is named twice is read once. If a scan is inside an expression (an uncorrelated subquery), its table
is read whole. Only queries are allowed: statements that change data, settings or files are refused. The memory of
sorts, groups and joins is bounded for all statements of the process together; sorts and groups spill to disk beyond it.

Errors: UsageError, NotFoundError; those of running statements are below.

*SQL functions of Lakebed that the engine does not have: reading and merging sketches.*

``hll_estimate(sketch)`` and ``quantile(sketch, rank)`` read the binary columns of the aggregate functions ``hll`` and
``quantiles``; ``hll_union(sketch)`` and ``quantiles_union(sketch)`` are aggregates: one sketch of a group's.

Errors: those of :mod:`lakebed.sketches`, which the engine passes on as its own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as pads
from datafusion import Accumulator, udaf, udf
from datafusion.catalog import CatalogProvider, SchemaProvider, Table

from lakebed import clock, sketches
from lakebed.engine.complexity import fit
from lakebed.engine.datafusion import column_names, read_only, statement_context
from lakebed.engine.stack import deep_items, on_deep_stack
from lakebed.engine.workarounds.in_subqueries import Plans, with_comparisons
from lakebed.engine.workarounds.joined_nulls import joins_nulls, keep_equalities_apart
from lakebed.engine.workarounds.opaque_casts import with_opaque_columns
from lakebed.engine.workarounds.same_names import options_off
from lakebed.engine.workarounds.typed_literals import with_resolved_literals
from lakebed.errors import Code, Error, NotFoundError
from lakebed.files.parquet.open_files import copies_folder
from lakebed.model.arrays import empty_batch, empty_table, nullable
from lakebed.model.foreign_errors import translate_errors
from lakebed.model.keys import ALL_KEYS
from lakebed.model.wording import did_you_mean
from lakebed.read.rows.conditions import UNKNOWN, Condition, Or, narrow
from lakebed.read.rows.engine_frames import Frame
from lakebed.read.rows.expressions import condition_of
from lakebed.read.rows.row_stream import RowStream, timed_batches
from lakebed.read.sql.catalog_statements import (
    BASE_TABLE,
    INDEX,
    INFORMATION_SCHEMA,
    VIEW,
    ColumnSummary,
    DescribedTable,
    InformationSchema,
    TableColumns,
    TableList,
    catalog_statement,
    check_reads,
    description,
    listing,
    summary,
    summary_query,
)
from lakebed.read.sql.planned_statement import BATCH_ROWS, JOIN, PlannedStatement, refused
from lakebed.storage.processes import ENGINE

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr, SessionContext
    from datafusion.plan import LogicalPlan

    from lakebed.engine.complexity import Fitted
    from lakebed.model.schema import Schema
    from lakebed.read.rows.reader import Reader
    from lakebed.read.snapshot.restricted import RestrictedSnapshot
    from lakebed.read.snapshot.snapshot import Snapshot

    Tabular: TypeAlias = Snapshot | RestrictedSnapshot


def register(context: SessionContext) -> None:
    """Make the functions known to statements of a session."""
    binary, double = pa.binary(), pa.float64()
    context.register_udf(udf(sketches.hll_estimate, [binary], double, "immutable", "hll_estimate"))
    context.register_udf(udf(_quantiles, [binary, double], double, "immutable", "quantile"))
    for name, union in (("hll_union", sketches.hll_union), ("quantiles_union", sketches.quantiles_union)):
        context.register_udaf(udaf(partial(_Union, union), binary, binary, [binary], "immutable", name))


def _quantiles(column: pa.Array, ranks: pa.Array) -> pa.Array:
    """Return the quantile of each sketch at the rank of its row; null for a rank that is null."""
    found: list[float | None] = [None] * len(column)
    by_rank: dict[float, list[int]] = {}
    for position, rank in enumerate(ranks.to_pylist()):
        if rank is not None:
            by_rank.setdefault(rank, []).append(position)
    for rank, positions in by_rank.items():
        values = sketches.quantile(column.take(pa.array(positions)), rank).to_pylist()
        for position, value in zip(positions, values, strict=True):
            found[position] = value
    return pa.array(found, pa.float64())


class _Union(Accumulator):
    """The union of sketches, of which the engine makes one for each group; null of nothing but nulls."""

    def __init__(self, union: Callable[[Sequence[bytes]], bytes]) -> None:
        self._union = union
        self._held: bytes | None = None

    def update(self, *values: pa.Array) -> None:
        found = [value for value in (self._held, *values[0].to_pylist()) if value is not None]
        self._held = self._union(found) if found else None

    def merge(self, states: list[pa.Array]) -> None:
        self.update(*states)

    def state(self) -> list[pa.Scalar]:
        return [self.evaluate()]

    def evaluate(self) -> pa.Scalar:
        return pa.scalar(self._held, pa.binary())


_CATALOG = "lakebed"
_SCHEMA = "tables"
_OPTIONS = {
    BATCH_ROWS: "8192",
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.execution.parquet.schema_force_view_types": "false",
    "datafusion.execution.collect_statistics": "false",
    "datafusion.execution.parquet.bloom_filter_on_read": "false",
    "datafusion.execution.time_zone": "UTC",
}

_STATISTICS = {"datafusion.execution.collect_statistics": "true"}
"""The engine builds the hash table of a join from the side that is smaller by the footers of the files, and of a small
one for all partitions at once. Other statements have no use for statistics, which take reads of all footers."""

_EXTREME = re.compile(r"groupBy=\[\[\]\], aggr=\[\[[^\n]*\b(?:min|max)\(")
"""An aggregate whose result the engine would take from the statistics, in which 0.0 stands for -0.0 and the reverse."""

_NO_SUCH_TABLE = re.compile(r"table '((?:[^']|'')*)' not found")

_AT_CLAUSE = re.compile(r"\bAT\s*\(\s*(?:VERSION|TAG|TIMESTAMP)\s*=>", re.IGNORECASE)
"""How Lakebed wrote a table as it was before ``"flights@12"``."""


@dataclass(slots=True)
class _Scans:
    """The columns, filters and limits of all scans of one table in a statement: a condition for each scan."""

    conditions: list[Condition] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    fetches: list[int | None] = field(default_factory=list)

    @property
    def limit(self) -> int | None:
        """The number of rows that are enough, no matter which; None for all rows of the ranges."""
        return None if None in self.fetches else sum(fetch or 0 for fetch in self.fetches)

    def may_exceed(self, rows: int) -> bool:
        """Return whether the limit, or its absence, allows more than this many rows."""
        return self.limit is None or self.limit > rows


class SqlEngine:
    """Runs statements over the tables of one instance. Safe to use from many threads."""

    def __init__(self, snapshot_of: Callable[[str], Tabular | None], names: Callable[[], list[str]]) -> None:
        """``snapshot_of`` resolves a name, None if there is no such table; ``names`` lists the tables, for messages."""
        self._snapshot_of = snapshot_of
        self._names = names
        self._lock = threading.Lock()
        self._named = _Names()
        self._described = InformationSchema((_CATALOG, _SCHEMA), names, self._described_table)
        self._contexts: dict[bool, SessionContext] = {}
        self._limit_bytes = 0
        self.in_memory_rows = 10_000
        """As many rows are read past DataFusion in about 10 ms, which is what it costs to open files in it."""
        self.in_memory_bytes = 16 * 1024 * 1024
        self.held_bytes = 8 * 1024 * 1024
        """The rows of a statement with joins that are held back, in case that it has to start again."""
        self.options: Mapping[str, str] = {}
        """Options of DataFusion that are changed for every statement."""

    def run(self, text: str, memory_limit_bytes: int) -> RowStream:
        """Return the rows of a query; see :meth:`lakebed.table.instance.Instance.sql`."""
        if not isinstance(text, str):
            raise Code.ARGUMENT_INVALID(f"statement = {text!r}: must be a text in SQL")
        bounds = fit(text, "the statement")
        check_reads(bounds.text)
        about = catalog_statement(bounds.text)
        if about is not None:
            found = self._about(about, memory_limit_bytes)
            return RowStream(found.schema, (batch for batch in found.to_batches()), again="run the statement again")
        began_s = clock.monotonic_s()
        if bounds.flat:
            schema, batches = self._answer(bounds, memory_limit_bytes)
        else:
            schema, rows = on_deep_stack(self._answer, bounds, memory_limit_bytes)
            batches = deep_items(rows)
        timed = timed_batches(batches, "sql", "", before_s=clock.monotonic_s() - began_s)
        return RowStream(schema, timed, again="run the statement again")

    def _answer(self, bounds: Fitted, memory_limit_bytes: int) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
        """Return the columns of the result, and its rows."""
        with self._lock:
            context = self._context_of(memory_limit_bytes, joins_nulls=joins_nulls(bounds.text))
        self._described.prepare(bounds.naming)
        named = ((name, self._snapshot_of(name)) for name in self._tables_of(context, bounds.naming))
        snapshots = {name: snapshot for name, snapshot in named if snapshot is not None}
        arrow_schemas = [snapshot.schema.arrow for snapshot in snapshots.values()]
        empties = {
            name: Table(pads.dataset(empty_table(nullable(snapshot.schema.arrow))))
            for name, snapshot in snapshots.items()
        }
        refusal = partial(self._refusal, context, empties)
        typed = with_resolved_literals(bounds.text, arrow_schemas, refusal)
        hidden = with_opaque_columns(typed)
        plans = cache(partial(self._plans, context, empties))
        text = with_comparisons(hidden, snapshots, plans)
        names = None
        if bounds.naming != bounds.text or typed != hidden:
            naming = with_resolved_literals(bounds.naming, arrow_schemas, refusal)
            names = self._planned(context, naming, empties).schema().names
        optimized = plans(text).optimized
        scans, off = _scans_in(optimized, snapshots)
        read: list[tuple[Reader, Frame]] = []
        rows_of: dict[str, DataFrame] = {}
        for name, snapshot in snapshots.items():
            scan = scans[name]
            condition = Or(scan.conditions)
            ranges, _ = narrow((ALL_KEYS,), condition, snapshot.schema)
            many = ranges == (ALL_KEYS,) and scan.may_exceed(self.in_memory_rows)
            rows = None if many else self._few(snapshot, condition, scan)
            if rows is None:
                read.append(snapshot.frame(condition, scan.columns))
                rows_of[name] = read[-1][1].rows
            else:
                rows_of[name] = context.read_batches(rows.to_batches() or [empty_batch(rows.schema)])
        plan_text = optimized.display_indent()
        options = dict(self.options)
        if JOIN in plan_text and not _EXTREME.search(plan_text):
            options |= _STATISTICS
        plan = partial(self._planned, context)
        return PlannedStatement(plan, text, names, rows_of, read, plan_text, self.held_bytes).run(options, off)

    def _few(self, snapshot: Tabular, condition: Condition, scans: _Scans) -> pa.Table | None:
        """Return the rows that the scans need, if they are few; else None.

        Nullable columns that the statement does not need are null.
        """
        schema = snapshot.schema
        read = [f.name for f in schema.fields if f.name in scans.columns or not f.nullable]
        batches: list[pa.RecordBatch] = []
        rows = size_bytes = 0
        with snapshot.rows((ALL_KEYS,), read, condition=condition, limit=scans.limit) as reader:
            for batch in reader:
                batches.append(batch)
                rows += batch.num_rows
                size_bytes += batch.nbytes
                if rows > self.in_memory_rows or size_bytes > self.in_memory_bytes:
                    return None
            found = pa.Table.from_batches(batches, reader.schema)
        columns = [found.column(f.name) if f.name in read else pa.nulls(rows, f.stored_type) for f in schema.fields]
        return pa.table(columns, schema=schema.arrow)

    def _about(self, about: TableList | TableColumns | ColumnSummary, memory_limit_bytes: int) -> pa.Table:
        """Return the answer to a statement about tables."""
        match about:
            case TableList():
                return listing(self._names())
            case TableColumns(name):
                schema = self._schema_of(name)
                if schema is None:
                    raise self._no_such_table(name)
                return description(schema)
            case ColumnSummary(source):
                columns_of = f"SELECT * FROM {source} LIMIT 0"  # noqa: S608 - a statement of the same caller
                with self.run(columns_of, memory_limit_bytes) as rows:
                    columns = rows.schema
                with self.run(summary_query(source, columns), memory_limit_bytes) as rows:
                    return summary(columns, rows.read_all())

    def _schema_of(self, name: str) -> Schema | None:
        return self._described_table(name).schema

    def _described_table(self, name: str) -> DescribedTable:
        try:
            snapshot = self._snapshot_of(name)
        except NotFoundError as error:
            if error.code is not Code.INDEX_NOT_READ:
                raise
            return DescribedTable(INDEX, None)
        if snapshot is None:
            return DescribedTable(BASE_TABLE, None)
        fed = snapshot.fed_by
        return DescribedTable(BASE_TABLE if fed is None else VIEW if fed.index is None else INDEX, snapshot.schema)

    def _context_of(self, memory_limit_bytes: int, *, joins_nulls: bool) -> SessionContext:
        ENGINE.enter()
        if self._limit_bytes != memory_limit_bytes:
            self._contexts.clear()
            self._limit_bytes = memory_limit_bytes
        context = self._contexts.get(joins_nulls)
        if context is None:
            context = statement_context(_OPTIONS, (_CATALOG, _SCHEMA), memory_limit_bytes, copies_folder())
            context.register_catalog_provider(_CATALOG, _Catalog(self._named, self._described))
            register(context)
            if joins_nulls:
                keep_equalities_apart(context)
            self._contexts[joins_nulls] = context
        return context

    def _tables_of(self, context: SessionContext, text: str) -> list[str]:
        """Return the names that may be tables of the statement: functions are looked up as tables as well."""
        with self._lock:
            self._named.tables = {}
            self._named.looked_up.clear()
            try:
                with translate_errors(partial(self._not_planned, text=text)):
                    context.sql_with_options(text, read_only())
            except Error as error:
                if self._named.looked_up:
                    return list(dict.fromkeys(self._named.looked_up))
                if _AT_CLAUSE.search(text):
                    raise Code.SQL_INVALID(
                        "AT (…) is not supported: name the version, tag or time with the table, as in "
                        '"flights@12", "flights@audited" or "flights@2026-01-31T12:00:00Z"'
                    ) from error
                raise
            return list(dict.fromkeys(self._named.looked_up))

    def _planned(
        self,
        context: SessionContext,
        text: str,
        tables: Mapping[str, Table],
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> DataFrame:
        """Plan the statement over the tables, with some options of the engine changed."""
        with self._lock:
            self._named.tables = tables
            for option, value in options.items():
                context.sql(f"SET {option} = '{value}'")
            try:
                with translate_errors(partial(self._not_planned, text=text)):
                    return context.sql_with_options(text, read_only())
            finally:
                for option in options:
                    context.sql(f"SET {option} = '{_OPTIONS.get(option, 'true')}'")

    def _plans(self, context: SessionContext, tables: Mapping[str, Table], text: str) -> Plans:
        """Plan the statement over the tables, and optimize it. Raises UsageError for one that either refuses."""
        frame = self._planned(context, text, tables)
        with translate_errors(partial(refused, statement=text)):
            return Plans.of(frame)

    def _refusal(self, context: SessionContext, tables: Mapping[str, Table], text: str) -> str:
        """Return why the engine refuses the types of a statement over the tables; empty if it does not."""
        try:
            self._plans(context, tables, text)
        except Error as error:
            return str(error.__cause__)
        return ""

    def _not_planned(self, error: BaseException, text: str) -> Error:
        missing = _NO_SUCH_TABLE.search(str(error))
        return self._no_such_table(missing[1]) if missing else refused(error, text)

    def _no_such_table(self, full_name: str) -> Error:
        names = self._names()
        written = full_name.removeprefix(f"{_CATALOG}.").removeprefix(f"{_SCHEMA}.")
        called = written.partition("@")[0] or written
        more = "; names that are not plain words are written in double quotes" if any("-" in n for n in names) else ""
        known = f"{', '.join(names) or 'none yet'}{did_you_mean(called, names)}{more}"
        return Code.TABLE_NOT_FOUND(f"no table named {called!r}; the instance's tables: {known}", table=called)


# -- names ------------------------------------------------------------------------------------------------------


class _Names(SchemaProvider):
    """The tables of a statement by name, and the names that were looked up; one statement is planned at a time."""

    def __init__(self) -> None:
        self.tables: Mapping[str, Table] = {}
        self.looked_up: list[str] = []

    def table_names(self) -> set[str]:
        return set(self.tables)

    def table(self, name: str) -> Table | None:
        self.looked_up.append(name)
        return self.tables.get(name)

    def table_exist(self, name: str) -> bool:
        return name in self.tables


class _Catalog(CatalogProvider):
    """A catalog of the schema of all tables, and of the one that describes them."""

    def __init__(self, names: _Names, described: InformationSchema) -> None:
        self._schemas = {_SCHEMA: names, INFORMATION_SCHEMA: described}

    def schema_names(self) -> set[str]:
        return set(self._schemas)

    def schema(self, name: str) -> Any:
        return self._schemas.get(name)


# -- scans ------------------------------------------------------------------------------------------------------


def _scans_in(optimized: LogicalPlan, snapshots: Mapping[str, Tabular]) -> tuple[dict[str, _Scans], tuple[str, ...]]:
    """Return what the statement of a plan reads of each table, and the options of the engine to switch off for it."""
    found: dict[str, _Scans] = {name: _Scans() for name in snapshots}
    seen = sum(_note(scan, filters, found, snapshots) for scan, filters in _scans_of(optimized))
    has_hidden = seen != optimized.display_indent().count("TableScan: ")
    if has_hidden:
        # Some scans are inside expressions, which the bindings do not show.
        found = {name: _Scans([UNKNOWN], set(snapshot.schema.names), [None]) for name, snapshot in snapshots.items()}
    return found, options_off(optimized, has_hidden=has_hidden)


def _scans_of(optimized: LogicalPlan) -> Iterator[tuple[Any, tuple[Expr, ...]]]:
    """Return the table scans of a plan, each with the filters right above it."""
    waiting: list[tuple[LogicalPlan, tuple[Expr, ...]]] = [(optimized, ())]
    while waiting:
        one, above = waiting.pop()
        variant = one.to_variant()
        kind = type(variant).__name__
        if kind == "TableScan":
            yield variant, above
            continue
        passed = (*above, variant.predicate()) if kind == "Filter" else ()
        waiting += [(below, passed) for below in one.inputs()]


def _note(scan: Any, above: tuple[Expr, ...], found: dict[str, _Scans], snapshots: Mapping[str, Tabular]) -> int:
    """Add one scan to those of its table; returns 1. The scan of a recursive query by itself has no table."""
    _, schema_name, name = scan.fqn()
    if name not in found or schema_name == INFORMATION_SCHEMA:
        return 1
    snapshot_schema = snapshots[name].schema
    own = tuple(scan.filters())
    filters = (*own, *above)
    scans = found[name]
    scans.conditions.append(condition_of(filters))
    scans.columns.update(column for _, column in scan.projection() or enumerate(snapshot_schema.names))
    for one in own:
        scans.columns |= _columns_of(one, snapshot_schema)
    scans.fetches.append(None if filters else scan.fetch())
    return 1


def _columns_of(expression: Expr, schema: Schema) -> set[str]:
    """Return the columns that an expression names; all of the schema if it does not show them."""
    try:
        return set(column_names(expression))
    except Exception:  # noqa: BLE001 - see there
        return set(schema.names)

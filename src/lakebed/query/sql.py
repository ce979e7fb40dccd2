"""SQL over tables: planned twice by DataFusion, the second time with no more rows than the keys asked for.

1. The statement is parsed, which tells the names of its tables.
2. It is planned over empty tables of the same schemas. The optimizer leaves each scan with the columns it needs, the
   filters that apply to it, and maybe a limit; the filters become key ranges
   (:mod:`lakebed.query.predicates`).
3. It is planned again, and run, over what those ranges hold: a few thousand rows at most, read past the engine and
   handed to it in memory, or else the files that the ranges reach, which the engine reads by itself
   (:mod:`lakebed.query.frames`), pruning by the same filters once more.

The ranges need only hold every row that matters: the filters are in the second plan too. A table that is named twice is
read once, for both. Where a scan is hidden inside an expression (an uncorrelated subquery), its table is read whole.

Only what reads can get in: statements that change anything, settings and files are refused. Memory for sorts, groups
and joins is bounded for all statements of the process together; what sorts and groups exceed is spilled to disk.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions
from datafusion.catalog import CatalogProvider, SchemaProvider, Table

from lakebed import types
from lakebed.errors import Error, NotFoundError, UsageError
from lakebed.keys import ALL_KEYS, EncodedRange
from lakebed.query.expressions import keys_of
from lakebed.query.frames import Frame, check_found, frame_of
from lakebed.query.live import over_leaves
from lakebed.query.plan import plan
from lakebed.query.predicates import EVERY_KEY, KeySet, both, either, key_ranges
from lakebed.query.statement import At, read_statement

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr, RecordBatchStream
    from datafusion.plan import LogicalPlan

    from lakebed.query.plan import QueryPlan
    from lakebed.query.run import Reader
    from lakebed.schema import Schema
    from lakebed.view import View

IN_MEMORY_ROWS_MAX = 10_000
"""So many rows are read past the engine in some 10 ms at most, which is what opening files in it may cost."""

IN_MEMORY_BYTES_MAX = 16 * 1024 * 1024

_NEWEST = "newest"
_CATALOG = "lakebed"
_OPTIONS = {
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.execution.parquet.schema_force_view_types": "false",
    "datafusion.execution.collect_statistics": "false",
    "datafusion.execution.parquet.bloom_filter_on_read": "false",
    "datafusion.execution.time_zone": "UTC",
}
_NO_SUCH_TABLE = re.compile(r"table '((?:[^']|'')*)' not found")
_OF_FILES = ("Parquet error", "Object Store error", "IO error", "External error", "panic")

_Name = tuple[str, str]
"""Schema, which is a moment or the newest, and table."""


@dataclass(slots=True)
class _Scans:
    """What a statement asks of one table, over all its scans."""

    keys: list[KeySet] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    fetches: list[int | None] = field(default_factory=list)

    @property
    def limit(self) -> int | None:
        """How many rows will do, whichever; None for all of the ranges."""
        return None if None in self.fetches else sum(fetch or 0 for fetch in self.fetches)


class SqlEngine:
    """Runs statements over the tables of one instance. Safe to use from many threads."""

    def __init__(self, view_of: Callable[[str, At | None], View | None], names: Callable[[], list[str]]) -> None:
        """``view_of`` gives a table as it is, or was, if there is one; ``names`` those that there are, for messages."""
        self._view_of = view_of
        self._names = names
        self._lock = threading.Lock()
        self._catalog = _Catalog()
        self._context: SessionContext | None = None
        self._limit_bytes = 0

    def run(self, text: str, memory_limit_bytes: int) -> pa.RecordBatchReader:
        """The rows of a query; see :meth:`lakebed.instance.Instance.sql`."""
        statement = read_statement(text)
        with self._lock:
            context = self._context_of(memory_limit_bytes)
        asked = self._tables_of(context, statement.text)
        views = self._views(asked, statement.moments)
        empties = {name: Table(pads.dataset(view.schema.arrow.empty_table())) for name, view in views.items()}
        scans = self._scans(context, statement.text, empties, views)
        frames: dict[_Name, Frame] = {}
        tables: dict[_Name, Table] = {}
        for name, view in views.items():
            rows = _few(view, scans[name])
            if rows is None:
                planned = over_leaves(_plan(view, scans[name]), view.state)
                frames[name] = frame_of(planned, view.reader, scans[name].columns)
                tables[name] = Table(frames[name].rows)
            else:
                tables[name] = Table(context.read_batches(rows.to_batches() or [_none(rows.schema)]))
        frame = self._planned(context, statement.text, tables)
        return _reader(frame, [(views[name].reader, one) for name, one in frames.items()])

    def _context_of(self, memory_limit_bytes: int) -> SessionContext:
        if self._context is None or self._limit_bytes != memory_limit_bytes:
            config = SessionConfig(_OPTIONS).with_target_partitions(os.cpu_count() or 1)
            config = config.with_create_default_catalog_and_schema(enabled=False)
            config = config.with_default_catalog_and_schema(_CATALOG, _NEWEST)
            runtime = RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(memory_limit_bytes)
            self._context = SessionContext(config, runtime)
            self._context.register_catalog_provider(_CATALOG, self._catalog)
            self._limit_bytes = memory_limit_bytes
        return self._context

    def _tables_of(self, context: SessionContext, text: str) -> list[_Name]:
        """The names that the statement may mean as tables: functions, too, are looked up as such."""
        with self._lock:
            self._catalog.tables = {}
            self._catalog.asked.clear()
            try:
                context.sql_with_options(text, _options())
            except Exception as error:
                # DataFusion raises plain exceptions.
                if not self._catalog.asked:
                    raise _refused(error) from error
            return list(dict.fromkeys(self._catalog.asked))

    def _views(self, asked: list[_Name], moments: Mapping[str, At]) -> dict[_Name, View]:
        views = {}
        for schema, table in asked:
            if schema == _NEWEST or schema in moments:
                view = self._view_of(table, moments.get(schema))
                if view is not None:
                    views[schema, table] = view
        return views

    def _planned(self, context: SessionContext, text: str, tables: Mapping[_Name, Table]) -> DataFrame:
        with self._lock:
            self._catalog.tables = tables
            try:
                return context.sql_with_options(text, _options())
            except Exception as error:
                if missing := _NO_SUCH_TABLE.search(str(error)):
                    raise self._no_such_table(missing[1]) from error
                raise _refused(error) from error

    def _no_such_table(self, full_name: str) -> NotFoundError:
        names = self._names()
        called = full_name.removeprefix(f"{_CATALOG}.").removeprefix(f"{_NEWEST}.")
        more = "; names that are not plain words are written in double quotes" if any("-" in n for n in names) else ""
        return NotFoundError(
            f"no table named {called!r}; the instance's tables: {', '.join(names) or 'none yet'}{more}", table=called
        )

    def _scans(
        self, context: SessionContext, text: str, empties: Mapping[_Name, Table], views: Mapping[_Name, View]
    ) -> dict[_Name, _Scans]:
        frame = self._planned(context, text, empties)
        try:
            optimized = frame.optimized_logical_plan()
        except Exception as error:
            raise _refused(error) from error
        found: dict[_Name, _Scans] = {name: _Scans() for name in views}
        seen = sum(_note(scan, filters, found, views) for scan, filters in _scans_of(optimized))
        if seen != optimized.display_indent().count("TableScan: "):
            # Some are inside expressions, where they cannot be seen.
            return {name: _Scans([EVERY_KEY], set(view.schema.names), [None]) for name, view in views.items()}
        return found


def _options() -> SQLOptions:
    return SQLOptions().with_allow_ddl(allow=False).with_allow_dml(allow=False).with_allow_statements(allow=False)


# -- names ------------------------------------------------------------------------------------------------------


class _Tables(SchemaProvider):
    """The tables of one schema, as they are now; notes what is asked for."""

    def __init__(self, schema: str, catalog: _Catalog) -> None:
        self._schema = schema
        self._catalog = catalog

    def table_names(self) -> set[str]:
        return {table for schema, table in self._catalog.tables if schema == self._schema}

    def table(self, name: str) -> Table | None:
        self._catalog.asked.append((self._schema, name))
        return self._catalog.tables.get((self._schema, name))

    def table_exist(self, name: str) -> bool:
        return (self._schema, name) in self._catalog.tables


class _Catalog(CatalogProvider):
    """What the names of a statement stand for: one statement is planned at a time."""

    def __init__(self) -> None:
        self.tables: Mapping[_Name, Table] = {}
        self.asked: list[_Name] = []

    def schema_names(self) -> set[str]:
        return {_NEWEST, *(schema for schema, _ in self.tables)}

    def schema(self, name: str) -> Any:
        return _Tables(name, self)


# -- scans ------------------------------------------------------------------------------------------------------


def _scans_of(optimized: LogicalPlan, above: tuple[Expr, ...] = ()) -> Iterator[tuple[Any, tuple[Expr, ...]]]:
    """The table scans of a plan, each with the filters right above it."""
    variant = optimized.to_variant()
    kind = type(variant).__name__
    if kind == "TableScan":
        yield variant, above
        return
    passed = (*above, variant.predicate()) if kind == "Filter" else ()
    for below in optimized.inputs():
        yield from _scans_of(below, passed)


def _note(scan: Any, above: tuple[Expr, ...], found: dict[_Name, _Scans], views: Mapping[_Name, View]) -> int:
    """Add what one scan asks to that of its table; returns 1. A recursive query scans itself, which is no table."""
    _, schema, table = scan.fqn()
    name = (schema or _NEWEST, table)
    if name not in found:
        return 1
    view_schema = views[name].schema
    own = tuple(scan.filters())
    filters = (*own, *above)
    asked = found[name]
    asked.keys.append(both([keys_of(one, view_schema.order) for one in filters]))
    asked.columns.update(column for _, column in scan.projection() or enumerate(view_schema.names))
    for one in own:
        asked.columns |= _columns_of(one, view_schema)
    asked.fetches.append(None if filters else scan.fetch())
    return 1


def _columns_of(expression: Expr, schema: Schema) -> set[str]:
    kind = expression.variant_name()
    if kind == "Literal":
        return set()
    if kind == "Column":
        return {expression.to_variant().name()}
    try:
        operands = expression.rex_call_operands()
    except Exception:  # noqa: BLE001 - the bindings raise Exception itself for expressions that they do not show
        return set(schema.names)
    return {name for one in operands for name in _columns_of(one, schema)}


def _ranges(scans: _Scans, view: View) -> tuple[EncodedRange, ...]:
    return key_ranges(either(scans.keys), view.schema.codec)


def _plan(view: View, scans: _Scans) -> QueryPlan:
    return plan(view.state, _ranges(scans, view), either(scans.keys))


def _few(view: View, scans: _Scans) -> pa.Table | None:
    """The rows that matter, if they are few; None if they are not, or nothing says so.

    In columns that nobody needs are nulls, where nulls may be.
    """
    ranges, limit = _ranges(scans, view), scans.limit
    if ranges == (ALL_KEYS,) and (limit is None or limit > IN_MEMORY_ROWS_MAX):
        return None
    schema = view.schema
    read = [f.name for f in schema.fields if f.name in scans.columns or not f.nullable]
    batches: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    with view.reader.scan(_plan(view, scans), read, limit) as reader:
        for batch in reader:
            batches.append(batch)
            rows += batch.num_rows
            size_bytes += batch.nbytes
            if rows > IN_MEMORY_ROWS_MAX or size_bytes > IN_MEMORY_BYTES_MAX:
                return None
        found = pa.Table.from_batches(batches, reader.schema)
    columns = [found.column(f.name) if f.name in read else pa.nulls(rows, f.type) for f in schema.fields]
    return pa.table(columns, schema=schema.arrow)


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


# -- results ----------------------------------------------------------------------------------------------------

_Frames = Sequence[tuple["Reader", Frame]]


def _reader(frame: DataFrame, frames: _Frames) -> pa.RecordBatchReader:
    """The rows of the frame, in the types that tables have."""
    given = frame.schema()
    schema = pa.schema([pa.field(f.name, types.canonical(f.type), f.nullable) for f in given])
    stream = _checked(frame, frames) if frames else None
    return pa.RecordBatchReader.from_batches(schema, _batches(frame, stream, schema, frames))


def _checked(frame: DataFrame, frames: _Frames) -> RecordBatchStream:
    """The rows of the frame, whose plan has all files: one that is there once it is made was there before."""
    try:
        stream = frame.execute_stream()
        plan_text = str(frame.execution_plan().display_indent())
    except Exception as error:
        raise _refused(error) from error
    for reader, one in frames:
        check_found(one, plan_text, reader)
    return stream


def _batches(
    frame: DataFrame, stream: RecordBatchStream | None, schema: pa.Schema, frames: _Frames
) -> Generator[pa.RecordBatch]:
    try:
        for batch in frame.execute_stream() if stream is None else stream:
            rows = batch.to_pyarrow()
            columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(rows.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except (Error, GeneratorExit, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        if any(mark in str(error) for mark in _OF_FILES):
            for reader, one in frames:
                with reader.blaming(one.files):
                    raise
        raise _failed(error) from error


def _refused(error: Exception) -> UsageError:
    text = _said(error)
    if "DDL not supported" in text or "DML not supported" in text or "Statement not supported" in text:
        return UsageError(f"SQL here only reads: {text}. Tables are changed by write, remove, alter and set")
    return UsageError(f"not a query that can be run: {text}")


def _failed(error: BaseException) -> Error:
    text = _said(error)
    if "Resources exhausted" in text:
        return Error(f"the query needs more memory than memory_limit_bytes of the instance allows; raise it ({text})")
    return UsageError(f"the query failed on a row: {text}")


def _said(error: BaseException) -> str:
    """DataFusion's words, without its own names of things and its advice on its settings."""
    text = str(error).removeprefix("DataFusion error: ")
    lines = [line for line in text.splitlines() if "enable_ident_normalization" not in line]
    return " ".join(lines).replace(f"{_CATALOG}.{_NEWEST}.", "").rstrip(".")[:500]

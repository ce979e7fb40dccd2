"""Configures DataFusion sessions and builds the expressions that Lakebed uses in plans.

Every session of Lakebed is made here: :func:`context` for merges and sorts, :func:`scan_context` for scans,
:func:`statement_context` for SQL, :func:`expression_context` for computed columns. They differ in the memory pool, in
the number of partitions and in the options.

Rules. A session that is kept passes ``ENGINE.enter`` (:mod:`lakebed.storage.processes`) before each use. Names are
quoted, because DataFusion folds the case of bare names and splits them at dots. Paths are URLs made by :func:`url`,
because it expands wildcards in bare paths. Bounds are typed Arrow literals, so that a comparison needs no cast and
Parquet statistics can prune by it. DataFusion compares strings and binaries as unsigned bytes; for UTF-8 that is the
order of code points, and for both it is the order of the key codec (tests check it).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
from datafusion import Expr, RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions, col, functions, lit, udf
from datafusion.object_store import LocalFileSystem

from lakebed.model import types
from lakebed.model.key_type import Content
from lakebed.model.keys import EncodedRange, KeyCodec, encode_scalar, successor
from lakebed.model.schema import Field, Schema
from lakebed.model.validity import masked
from lakebed.storage.processes import ENGINE
from lakebed.system import refuse_huge_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from datafusion import ScalarUDF
    from datafusion.expr import SortExpr
    from datafusion.plan import ExecutionPlan


_CONTROL_CHARACTERS = frozenset(map(chr, (*range(32), 127)))

_MASKS: dict[pa.DataType, ScalarUDF] = {}

OPTIONS = {
    # One file is one partition: divided into byte ranges, it would no longer be sorted.
    "datafusion.optimizer.repartition_file_scans": "false",
    # Otherwise a filter gets a repartition below it, which buffers without bound to keep the order.
    "datafusion.optimizer.enable_round_robin_repartition": "false",
    "datafusion.optimizer.prefer_existing_sort": "true",
    # Views would have to be copied back into the schema's strings.
    "datafusion.execution.parquet.schema_force_view_types": "false",
    # Only a planner that reorders joins uses statistics, and each costs a read of a footer.
    "datafusion.execution.collect_statistics": "false",
    # Predicates name columns case-sensitively; the engine would fold unquoted names.
    "datafusion.sql_parser.enable_ident_normalization": "false",
    # As in statements: otherwise a time with a zone, and the result of to_timestamp, would have none.
    "datafusion.execution.time_zone": "UTC",
}

_SCAN_OPTIONS = {
    # Lakebed probes Bloom filters itself; the engine would read whole filters, up to megabytes per row group.
    "datafusion.execution.parquet.bloom_filter_on_read": "false",
    # Footers and page indexes: 0.5 MB for a file of 256 MB. With a smaller cache each read parses them again.
    "datafusion.runtime.metadata_cache_limit": "256M",
}
PIECE_ROWS = 8192
PIECE_BYTES = 8 * 1024 * 1024
"""The most rows, and the most bytes of several rows, over which an expression is evaluated at once."""

_QUERY_POOL_BYTES = 512 * 1024 * 1024
"""The limit of what a stored query gathers, over the rows of one batch or some keys."""

_SCAN_POOL_BYTES = 2 * 1024 * 1024 * 1024
"""The limit of reservations of a scan, which uses less."""

_SORT_RESERVATION = "datafusion.execution.sort_spill_reservation_bytes"
_SORT_RESERVED_BYTES = 10 * 1024 * 1024
_SORTS_AT_ONCE = 128
"""A sort reserves memory for its merge in advance. Ten joins by sorting, in two partitions, are forty sorts at once,
and their reservations must leave most of the limit to the rows."""

_SPILL_FAN_IN = 16
"""The most spilled runs that a sort merges at once. By default it takes as many as the free memory allows, and the
sorts beside it then find none."""

_RULES_NOT_NEEDED = (
    "common_sub_expression_eliminate", "decorrelate_lateral_join", "decorrelate_predicate_subquery",
    "eliminate_cross_join", "eliminate_duplicated_expr", "eliminate_filter", "eliminate_group_by_constant",
    "eliminate_join", "eliminate_limit", "eliminate_outer_join", "extract_equijoin_predicate",
    "extract_leaf_expressions", "filter_null_join_keys", "optimize_projections", "optimize_unions",
    "propagate_empty_relation", "push_down_filter", "push_down_leaf_projections", "push_down_limit",
    "replace_distinct_aggregate", "rewrite_set_comparison", "scalar_subquery_to_join",
    "single_distinct_aggregation_to_group_by",
)  # fmt: skip
"""Logical rules that the plan of a scan does not need: the physical rules do all pushdown."""

_NON_DETERMINISTIC = "select distinct routine_name from information_schema.routines where not is_deterministic"


def claim_one_core() -> None:
    """Limit this process to about one core, for a worker that has one (a Spark task).

    Call it first: DataFusion starts its threads with its first plan. It also refuses huge pages: the allocators request
    them, a sort touches a part of each, and the kernel spent a third of a map task on clearing them.
    """
    os.environ["TOKIO_WORKER_THREADS"] = "1"
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    refuse_huge_pages()


def scan_options(partitions: int = 1) -> SessionConfig:
    """Return the options of sessions in which files are scanned in their order."""
    config = SessionConfig().with_target_partitions(max(partitions, 1))
    for name, value in OPTIONS.items():
        config = config.set(name, value)
    return config


def context(*, partitions: int, batch_rows: int, pool_bytes: int) -> SessionContext:
    """Return a session whose operators may reserve ``pool_bytes`` in all, and fail above. It does not spill."""
    ENGINE.enter()
    config = scan_options(partitions).with_batch_size(batch_rows)
    return SessionContext(config, RuntimeEnvBuilder().with_disk_manager_disabled().with_greedy_memory_pool(pool_bytes))


def scan_context(batch_rows: int) -> SessionContext:
    """Return a session for scans with cheap planning: most of a small read is planning."""
    engine = context(partitions=1, batch_rows=batch_rows, pool_bytes=_SCAN_POOL_BYTES)
    for name, value in _SCAN_OPTIONS.items():
        engine.sql(f"SET {name} = '{value}'")
    for rule in _RULES_NOT_NEEDED:
        engine.remove_optimizer_rule(rule)
    return engine


def statement_context(
    options: Mapping[str, str], default: tuple[str, str], memory_limit_bytes: int, spill_folder: Path
) -> SessionContext:
    """Return a session for SQL statements, on all cores, which spills into the folder above the memory limit.

    ``default`` names the catalog and the schema of tables that a statement does not qualify; neither is created.
    """
    ENGINE.enter()
    # With one partition, the engine uses hash joins even if they are disabled.
    config = SessionConfig(dict(options)).with_target_partitions(max(os.cpu_count() or 1, 2))
    config = config.with_create_default_catalog_and_schema(enabled=False).with_default_catalog_and_schema(*default)
    config = config.set(_SORT_RESERVATION, str(min(_SORT_RESERVED_BYTES, memory_limit_bytes // _SORTS_AT_ONCE)))
    runtime = RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(memory_limit_bytes)
    engine = SessionContext(config, runtime)
    engine.sql(f"SET datafusion.runtime.max_spill_merge_fan_in = '{_SPILL_FAN_IN}'")
    # After the other: each makes a new disk manager, and only this one has a folder.
    folder = str(spill_folder).replace("'", "''")
    engine.sql(f"SET datafusion.runtime.temp_directory = '{folder}'")
    return engine


def expression_context() -> SessionContext:
    """Return a session that computes columns of rows, with the engine's defaults: stored expressions rely on them."""
    ENGINE.enter()
    return SessionContext(SessionConfig().with_target_partitions(1))


def query_context() -> SessionContext:
    """Return a session for stored queries over rows: case-sensitive names, times in UTC, no volatile functions."""
    ENGINE.enter()
    runtime = RuntimeEnvBuilder().with_disk_manager_disabled().with_greedy_memory_pool(_QUERY_POOL_BYTES)
    engine = SessionContext(SessionConfig().with_target_partitions(1), runtime)
    engine.sql("SET datafusion.sql_parser.enable_ident_normalization = 'false'")
    engine.sql("SET datafusion.execution.parquet.schema_force_view_types = 'false'")
    engine.sql("SET datafusion.execution.time_zone = 'UTC'")
    drop_volatile_functions(engine)
    return engine


class ThreadSession:
    """A session for each thread that uses it, made at its first use."""

    def __init__(self, make: Callable[[], SessionContext]) -> None:
        self._make = make
        self._local = threading.local()

    def __call__(self) -> SessionContext:
        """Return this thread's session."""
        ENGINE.enter()
        found: SessionContext | None = getattr(self._local, "session", None)
        if found is None:
            found = self._local.session = self._make()
        return found


def pieces(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the rows in batches of the size whose values are bounded (:mod:`lakebed.engine.value_sizes`).

    The engine evaluates a batch in memory as it is.
    """
    size = rows.nbytes
    if rows.num_rows <= PIECE_ROWS and size <= PIECE_BYTES:
        return [rows]
    step = max(1, min(PIECE_ROWS, rows.num_rows * PIECE_BYTES // max(1, size)))
    return [rows.slice(begin, step) for begin in range(0, rows.num_rows, step)]


def read_only() -> SQLOptions:
    """Return options that allow a statement only to read: it cannot change data, settings or files."""
    return SQLOptions().with_allow_ddl(allow=False).with_allow_dml(allow=False).with_allow_statements(allow=False)


def drop_volatile_functions(engine: SessionContext) -> None:
    """Deregister functions that may return different values for the same arguments: random values, the time."""
    engine.sql("SET datafusion.catalog.information_schema = 'true'")
    for name in engine.sql(_NON_DETERMINISTIC).to_arrow_table().column(0).to_pylist():
        engine.deregister_udf(name)
    engine.sql("SET datafusion.catalog.information_schema = 'false'")


def drop_non_row_functions(engine: SessionContext) -> None:
    """Deregister functions that do not depend on one row alone: volatile ones, aggregates, windows."""
    drop_volatile_functions(engine)
    for name in engine.udafs():
        engine.deregister_udaf(name)
    for name in engine.udwfs():
        engine.deregister_udwf(name)


def column(name: str) -> Expr:
    """Return the column of exactly this name."""
    return col('"' + name.replace('"', '""') + '"')


def read_as(field: Field, stored: pa.Field | None) -> Expr:
    """Read a field from the column of a file: renamed and widened, or null if the file has no column of it.

    Its type is Parquet's type for the field, so that files of different schemas can be united.
    """
    if stored is None:
        return lit(None).cast(types.in_parquet(field.stored_type)).alias(field.name)
    found = column(stored.name)
    if types.nullable_members(stored.type) != stored.type:
        found = _masked(found, stored.type)
    elif types.can_become(stored.type, field.type):
        found = found.cast(field.type)
    elif stored.name == field.name:
        return found
    return found.alias(field.name)


def typed(field: Field, given: pa.DataType | None) -> Expr:
    """Convert a column of the field's name from type ``given`` to the type of the field; nulls if there is none.

    Casts drop the metadata that marks an extension type, so the alias sets it.
    """
    kind = field.stored_type
    found = lit(None) if given is None else column(field.name)
    if given == kind:
        return found
    if given is not None and types.nullable_members(given) != given:
        return _masked(found, given).cast(kind).alias(field.name)
    if not isinstance(kind, pa.BaseExtensionType):
        return found.cast(kind).alias(field.name)
    if given != kind.storage_type:
        found = found.cast(kind.storage_type)
    return found.alias(field.name, metadata={"ARROW:extension:name": kind.extension_name})


def hidden_float(field: Field) -> Expr:
    """Return a column, hidden from the optimizer if it has floats: conditions on it stay with the engine."""
    found = column(field.name)
    return functions.greatest(found).alias(field.name) if pa.types.is_floating(field.stored_type) else found


def _masked(found: Expr, kind: pa.DataType) -> Expr:
    """Make the struct members of a column nullable, and null where their struct is null. Lakebed once wrote files with
    members that are not nullable, and other writers do; the engine returns a default or any other value for them.
    """
    # One for each type, which the engine does not derive.
    function = _MASKS.get(kind)
    if function is None:
        function = udf(masked, [kind], types.nullable_members(kind), "immutable", "lakebed_masked")
        _MASKS[kind] = function
    # The engine has names of its own for the entries of a map.
    return function(found.cast(kind))


def column_names(expression: Expr) -> Iterator[str]:
    """Return the columns that an expression names, at any depth, in any order, possibly repeated.

    Raises the exceptions of the bindings, possibly Exception itself, for an expression whose operands they do not
    expose.
    """
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        kind = one.variant_name()
        if kind == "Column":
            yield one.to_variant().name()
        elif kind != "Literal":
            waiting += one.rex_call_operands()


def operators_of(plan: ExecutionPlan) -> list[str]:
    """Return the names of the operators of a physical plan. An operator's text includes line breaks of values."""
    found: list[str] = []
    waiting = [plan]
    while waiting:
        one = waiting.pop()
        found.append(one.display().split(":")[0].split()[0])
        waiting += one.children()
    return found


def sort_order(schema: Schema) -> list[SortExpr]:
    """Return the sort order: row key, then sort key, ascending. Keys are never null."""
    return [column(name).sort() for name in schema.sort_names]


def url(engine: SessionContext, path: Path) -> str:
    """Return the URL by which this session reads or writes a local path, in which it expands no wildcards."""
    whole = path.absolute()
    if is_plain(whole):
        return whole.as_uri()
    # A store that begins at the folder: the engine does not see what is above.
    host = str(whole.parent).encode().hex()
    engine.register_object_store("folder://", LocalFileSystem(str(whole.parent)), host)
    return f"folder://{host}/{quote(whole.name)}"


def is_plain(path: Path) -> bool:
    """Return whether every session reads the path by its ``file:`` URL: the engine refuses control characters."""
    return _CONTROL_CHARACTERS.isdisjoint(str(path))


def inside(codec: KeyCodec, key_range: EncodedRange | None) -> Expr | None:
    """Return the condition that the codec's fields are in the range; None if that is every row.

    The engine skips a page only by a condition on a single column. So a field that has one value in all keys of the
    range is compared on its own, and the bounds are compared in the fields after it.
    """
    if key_range is None:
        return None
    low = codec.decode_bound(key_range.min)
    values = scalars(codec.fields, low.values)
    if values and key_range.max is not None:
        field, start = codec.fields[0], encode_scalar(codec.fields[0], values[0])
        end = successor(start)
        if key_range.min.startswith(start) and end is not None and key_range.min < key_range.max <= end:
            ends_inside = key_range.max.startswith(start)
            rest = EncodedRange(key_range.min[len(start) :], key_range.max[len(start) :] if ends_inside else None)
            others = inside(KeyCodec(codec.fields[1:]), rest)
            same = key_column(field) == lit(values[0])
            return same if others is None else same & others
    parts = []
    if values:
        parts += _beyond(codec.fields, values, above=True, inclusive=not low.after)
    if key_range.max is not None:
        high = codec.decode_bound(key_range.max)
        values = scalars(codec.fields, high.values)
        parts += _beyond(codec.fields, values, above=False, inclusive=high.after) if values else [lit(value=False)]
    return reduce(and_, parts) if parts else None


def key_column(field: Field) -> Expr:
    """Return a key column in the type of its field, for comparisons with :func:`scalars`.

    Parquet stores seconds as milliseconds. The engine compares timestamps of different units, but not times of day.
    """
    found = column(field.name)
    kind = field.type
    return found.cast(kind) if pa.types.is_time32(kind) and types.in_parquet(kind) != kind else found


def scalars(fields: Sequence[Field], contents: Sequence[Content]) -> list[pa.Scalar]:
    """Return contents of key fields as typed scalars."""
    return [field.key_type.array([content])[0] for field, content in zip(fields, contents, strict=False)]


def _beyond(fields: Sequence[Field], values: Sequence[pa.Scalar], *, above: bool, inclusive: bool) -> list[Expr]:
    """Return conditions, joined by AND, that the leading fields are above (or below) the values, compared from the
    left.

    With several fields, the first condition is implied by the second: statistics can prune by it.
    """
    nested: Expr | None = None
    for field, value in reversed(list(zip(fields, values, strict=False))):
        this, bound = key_column(field), lit(value)
        beyond = this > bound if above else this < bound
        if nested is not None:
            nested = beyond | ((this == bound) & nested)
        elif inclusive:
            nested = this >= bound if above else this <= bound
        else:
            nested = beyond
    assert nested is not None
    if len(values) == 1:
        return [nested]
    first, bound = key_column(fields[0]), lit(values[0])
    return [first >= bound if above else first <= bound, nested]

"""Executing query plans: rows in key order, streamed, read through the page index in the caller's process.

In a leaf the rows of several files are merged by row key, then sort key, by a DataFusion plan of scans that declare
their order, a filter on each, and a sort-preserving merge; one file needs no merge, and leaves follow one another.

*A point read* is the same plan with equalities. Most of its time is planning, so the engine is kept lean: one context
for each table, one frame for each file, expressions instead of SQL, and no logical optimizer rules, since what these
plans need (pushing down filter, projection and limit) the physical ones do too. Bloom filters are asked before the
engine is, not by it (:mod:`lakebed.query.groups`), so a file that does not hold the key costs microseconds.

*A scan* has bounded memory. The engine's Parquet reader keeps the compressed bytes it has read until its plan ends, so
a range is cut into slices of about 64 MiB at the beginnings of row groups, one plan after another. A merge holds some
MiB for each input, so a leaf with very many files goes through the merge kernel, which works in levels.

Damage. The engine does not say which file it stumbled over, and a panic of its decoders is not even an Exception:
whatever it raises, every file of the plan is then read whole against its digest, and the error names the damaged one.
A flipped bit in a page that still decodes is not noticed here; compaction and the scrubber read whole files.

Importing this module imports DataFusion, which takes a good part of a second: import it where a read begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext, lit

from lakebed.errors import Error, UsageError
from lakebed.files import DataFile
from lakebed.kernels.session import between, column, context, inside, scalars, sort_order
from lakebed.keys import EncodedRange, successor
from lakebed.query.groups import Membership, Value
from lakebed.query.opening import OpenFile, OpenFiles
from lakebed.query.plan import LeafQuery, QueryPlan
from lakebed.schema import Schema

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage

SLICE_BYTES = 64 * 1024 * 1024
FAN_IN_MAX = 40
"""An input holds about 2.5 MiB and eight batches of 8,192 rows: 40 of them with 100 bytes a row, 0.35 GiB."""

_MERGE_MEMORY_BYTES = 512 * 1024 * 1024
_BATCH_ROWS = 8192
_POOL_BYTES = 2 * 1024 * 1024 * 1024  # what merges may reserve; they hold less, see FAN_IN_MAX

_SETTINGS = {
    # Each would read a whole filter, up to megabytes a row group, for one answer.
    "datafusion.execution.parquet.bloom_filter_on_read": "false",
    # Footers and page indexes: 0.5 MB for a file of 256 MB; with less every read would parse them again.
    "datafusion.runtime.metadata_cache_limit": "256M",
}

_RULES_NOT_NEEDED = (
    "common_sub_expression_eliminate", "decorrelate_lateral_join", "decorrelate_predicate_subquery",
    "eliminate_cross_join", "eliminate_duplicated_expr", "eliminate_filter", "eliminate_group_by_constant",
    "eliminate_join", "eliminate_limit", "eliminate_outer_join", "extract_equijoin_predicate",
    "extract_leaf_expressions", "filter_null_join_keys", "optimize_projections", "optimize_unions",
    "propagate_empty_relation", "push_down_filter", "push_down_leaf_projections", "push_down_limit",
    "replace_distinct_aggregate", "rewrite_set_comparison", "scalar_subquery_to_join", "simplify_expressions",
    "single_distinct_aggregation_to_group_by",
)  # fmt: skip


class Reader:
    """Answers plans over one table's files; keeps files open between calls. Safe to use from many threads."""

    def __init__(self, storage: Storage, table_id: str, schema: Schema) -> None:
        self._schema = schema
        self._engine = _engine()
        self._files = OpenFiles(storage, table_id, schema, self._engine, self._scan_file)
        self._columns = {name: column(name) for name in schema.names}

    def get(self, plan: QueryPlan, columns: Sequence[str]) -> pa.Table:
        """All rows of the plan at once, in key order; ``columns`` as asked, in that order.

        Raises:
            UsageError: a column that the schema does not have.
            NotFoundError, DamagedError, StorageError: a file is gone, not what was written, or cannot be read.
        """
        names = self._schema.project(columns)
        with contextlib.closing(self._rows(plan, names, None)) as batches:
            return pa.Table.from_batches(list(batches), self._selected(names))

    def scan(self, plan: QueryPlan, columns: Sequence[str], limit: int | None) -> pa.RecordBatchReader:
        """The rows of the plan as a stream in key order, at most ``limit`` of them; raises as :meth:`get`.

        Nothing is read before the first batch is asked for. What the stream holds goes with the last reference to it.
        """
        if limit is not None and limit < 0:
            raise UsageError(f"limit = {limit}: must be 0 or more")
        names = self._schema.project(columns)
        return pa.RecordBatchReader.from_batches(self._selected(names), self._rows(plan, names, limit))

    def _selected(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._schema.arrow.field(name) for name in names])

    def _rows(self, plan: QueryPlan, names: Sequence[str], limit: int | None) -> Generator[pa.RecordBatch]:
        schema = self._selected(names)
        left = limit
        for leaf in plan.leaves:
            for keys in leaf.ranges:
                if left == 0:
                    return
                with contextlib.closing(self._range_rows(leaf, keys, names, left)) as batches:
                    for batch in batches:
                        taken = batch if left is None else batch.slice(0, left)
                        if left is not None:
                            left -= taken.num_rows
                        if taken.num_rows:
                            yield _exactly(taken, schema)
                        if left == 0:
                            return

    def _range_rows(
        self, leaf: LeafQuery, keys: EncodedRange, names: Sequence[str], limit: int | None
    ) -> Generator[pa.RecordBatch]:
        files = [file for file in leaf.files if file.reaches(keys)]
        point = self._point(keys)
        opened: Sequence[OpenFile]
        if point is not None:
            opened = self._members(files, point)
            if opened:
                yield from self._execute(opened, self._equals(point), names, limit)
        elif len(files) > FAN_IN_MAX:
            yield from self._merged_in_levels(files, keys, names)
        else:
            opened = [self._files.open(file) for file in files]
            for condition in self._slices(opened, keys):
                yield from self._execute(opened, condition, names, limit)

    # -- conditions ---------------------------------------------------------------------------------------------

    def _point(self, keys: EncodedRange) -> tuple[Value, ...] | None:
        """The values of the one key that the range holds; None for any other range."""
        if keys.max is None or keys.max != successor(keys.min):
            return None
        bound = self._schema.codec.decode_bound(keys.min)
        whole = len(bound.values) == len(self._schema.row_key) and not bound.after
        # A bound that was cut short decodes like the key that it begins.
        return bound.values if whole and self._schema.codec.encode(bound.values) == keys.min else None

    def _equals(self, point: Sequence[Value]) -> Expr:
        fields = self._schema.row_key
        values = scalars(fields, point)
        return reduce(and_, (self._columns[f.name] == lit(v) for f, v in zip(fields, values, strict=True)))

    def _members(self, files: Sequence[DataFile], point: Sequence[Value]) -> list[OpenFile]:
        """The files that may hold the key."""
        key = Membership(self._schema.row_key, point)
        members = []
        for file in files:
            with self._blaming([file]):
                opened = self._files.open(file)
                if opened.path is None or key.may_be_in(opened.path, opened.groups):
                    members.append(opened)
        return members

    def _slices(self, files: Sequence[OpenFile], keys: EncodedRange) -> Iterator[Expr | None]:
        """Conditions that cut the range into disjoint slices in key order, each of about ``SLICE_BYTES``."""
        whole = all(opened.file.lies_in(keys) for opened in files)
        condition = None if whole else inside(self._schema, keys)
        fields = (*self._schema.row_key, *self._schema.sort_key)
        cuts = [scalars(fields, cut) for cut in self._cuts(files, keys)]
        for low, high in zip([None, *cuts], [*cuts, None], strict=True):
            part = between(fields, low, high)
            parts = [p for p in (condition, part) if p is not None]
            yield reduce(and_, parts) if parts else None

    def _cuts(self, files: Sequence[OpenFile], keys: EncodedRange) -> list[tuple[Value, ...]]:
        codec = self._schema.codec
        count = len(self._schema.row_key)
        if sum(opened.file.size_bytes for opened in files) <= SLICE_BYTES:
            return []
        starts = sorted(
            ((group.start, group.size_bytes) for opened in files for group in opened.groups), key=lambda s: s[0]
        )
        cuts: list[tuple[Value, ...]] = []
        size = 0
        for start, size_bytes in starts:
            inside = bool(start) and keys.contains(codec.encode(start[:count]))
            if inside and size + size_bytes // 2 >= SLICE_BYTES and (not cuts or start > cuts[-1]):
                cuts.append(start)
                size = 0
            size += size_bytes if inside else 0
        return cuts

    # -- execution ----------------------------------------------------------------------------------------------

    def _scan_file(self, url: str) -> DataFrame:
        return self._engine.read_parquet(url, file_extension="", file_sort_order=[sort_order(self._schema)])

    def _frame(self, files: Sequence[OpenFile], condition: Expr | None, names: Sequence[str]) -> DataFrame:
        frames = [opened.frame for opened in files]
        if condition is not None:
            frames = [frame.filter(condition) for frame in frames]
        if len(frames) > 1:
            frames = [frame.select(*self._columns.values()) for frame in frames]
        union = frames[0]
        for frame in frames[1:]:
            union = union.union(frame)
        if len(frames) > 1:
            union = union.sort(*sort_order(self._schema))
        return union.select(*(self._columns[name] for name in dict.fromkeys(names)))

    def _execute(
        self, files: Sequence[OpenFile], condition: Expr | None, names: Sequence[str], limit: int | None
    ) -> Generator[pa.RecordBatch]:
        # Copies and all: what is being read must stay open, whatever else is opened meanwhile.
        data_files = [opened.file for opened in files]
        with self._blaming(data_files):
            frame = self._frame(files, condition, names)
            stream = iter((frame if limit is None else frame.limit(limit)).execute_stream())
        while True:
            with self._blaming(data_files):
                batch = next(stream, None)
                rows = None if batch is None else batch.to_pyarrow()
            if rows is None:
                return
            yield rows

    def _merged_in_levels(
        self, files: Sequence[DataFile], keys: EncodedRange, names: Sequence[str]
    ) -> Generator[pa.RecordBatch]:
        from lakebed.kernels.merge import merge_stream

        opened = [self._files.local(file) for file in files]
        paths = [file.path for file in opened if file.path is not None]
        with self._blaming(files):
            yield from merge_stream(
                paths, self._schema, key_range=keys, memory_limit_bytes=_MERGE_MEMORY_BYTES, columns=names
            )

    @contextlib.contextmanager
    def _blaming(self, files: Sequence[DataFile]) -> Iterator[None]:
        """Turn a failure of the engine into an error about the file that caused it."""
        try:
            yield
        except (Error, GeneratorExit, KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:
            for file in files:
                self._files.forget(file)
                self._files.verify(file)
            raise Error(f"the query failed, and each of its {len(files)} files is whole: {error}") from error


def _engine() -> SessionContext:
    engine = context(partitions=1, batch_rows=_BATCH_ROWS, pool_bytes=_POOL_BYTES)
    for name, value in _SETTINGS.items():
        engine.sql(f"SET {name} = '{value}'")
    for rule in _RULES_NOT_NEEDED:
        engine.remove_optimizer_rule(rule)
    return engine


def _exactly(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the schema's columns and exact types: an engine has its own layouts of some, and no field ids."""
    columns = []
    for field in schema:
        column = rows.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)

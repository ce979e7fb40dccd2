"""Reads through DataFusion: merges of many rows.

*Merges.* :class:`ScanEngine` merges the rows of overlapping files by row key, then sort key: scans that declare their
order, a filter on each, a sort-preserving merge. A single file needs no merge. Planning is most of a small read, so it
is kept cheap: one context for each batch size, one frame for each file, expressions instead of SQL, and no logical
optimizer rules, since the physical rules push down filter, projection and limit as well.

*Memory.* The engine's Parquet reader keeps the compressed bytes that it has read until its plan ends, and its allocator
keeps freed memory for some time. So a range is cut into slices (:mod:`lakebed.read.rows.slices`), one plan after
another:
reading 20 million rows then took 0.1 GB above the process's own memory, against 0.3 to 0.8 in slices of whole row
groups. The rows of one key stay together, however many. A merge holds some MiB for each input, so very many inputs go
through the merge kernel, which works in levels.

*Wide rows.* Without a key range inside a row group the reader fetches whole column chunks, on threads that allocate
rarely. The allocator (mimalloc 2) returns what another thread has freed only at each hundredth allocation of the
thread that made it: a hundred chunks of up to 64 MiB. Files with rows of 16 KiB or more are therefore read by pages
(:mod:`lakebed.read.rows.page_read`), unless a column is nested or one key has very many rows.

*Damage.* The engine checks no digest and no CRC. Before a plan runs, the blocks that it may read are verified.

Rule: import this module where it is needed. It imports DataFusion, which takes a good part of a second.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa
from datafusion import DataFrame, ExecutionPlan, Expr, SessionContext, lit
from datafusion.catalog import Table

from lakebed.engine.datafusion import (
    column,
    hidden_float,
    inside,
    is_plain,
    key_column,
    read_as,
    scalars,
    scan_context,
    typed,
    url,
)
from lakebed.engine.key_joins import with_keys
from lakebed.files.parquet.footer import Footer, RowGroup
from lakebed.files.parquet.open_files import LocalCopy, OpenFile, OpenFiles
from lakebed.files.parquet.pages import PagedFile
from lakebed.files.parquet.read_cache import ReadStatistics
from lakebed.files.parquet.stored_file import local_dataset, stored_dataset
from lakebed.files.sorting.merge import merge_stream, ordered
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.row_kinds import without_hidden
from lakebed.model.schema import Field, Schema
from lakebed.model.types import in_parquet
from lakebed.read.rows.request import ReadRequest
from lakebed.read.rows.slices import forwards
from lakebed.storage.processes import ENGINE

if TYPE_CHECKING:
    from pathlib import Path


_BATCH_ROWS = (8192, 512, 32)
_BATCH_BYTES = 8 * 1024 * 1024
_PRUNED = frozenset({"row_groups_pruned_statistics", "page_index_pages_pruned"})
_MATCHED = re.compile(r"→ ([0-9.]+) ?([KMB]?) matched")
_UNITS = {"": 1, "K": 1000, "M": 1_000_000, "B": 1_000_000_000}


class ScanEngine:
    """Scans of one table's files by DataFusion. Safe to use from many threads."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files
        self._contexts: dict[int, SessionContext] = {}
        self._columns: dict[str, Expr] = {}
        self._frames: WeakKeyDictionary[OpenFile, dict[tuple[int, int], DataFrame]] = WeakKeyDictionary()
        self._stored: WeakKeyDictionary[OpenFile, dict[int, pa.Field]] = WeakKeyDictionary()

    def read(self, files: Sequence[OpenFile], request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Return the requested rows, in order, of files that have a ``path``; with a limit, more rows may come.

        Raises what the engine raises, which does not name the file; FileNotFoundError if a file is missing.
        """
        request.statistics.files.update(opened.file.id for opened in files)
        numbers = [field.id for field in request.fields(with_keys=True)]
        for keys, condition in self.conditions(files, request):
            for opened in files:
                opened.verify(opened.footer.byte_ranges_of(numbers, _not_pruned(opened.footer, keys, request.schema)))
            # The number of rows of a batch is a setting of the context.
            frame = self.frame(files, condition, request)
            yield from _execute(self._context(_batch_rows(files)), files, frame, request.statistics)

    def rows(self, opened: OpenFile, schema: Schema) -> DataFrame:
        """Return all rows of one file in the types of the schema, for plans of other contexts.

        If the file is on a store, PyArrow reads it and verifies what it reads.
        """
        if opened.path is not None and is_plain(opened.path):
            frame = self._scan(opened, schema, _BATCH_ROWS[0]).select(*self._read_as(schema.fields, opened, schema))
            return _typed_rows(frame, schema)
        # PyArrow, to which the engine leaves conditions on a dataset, makes the nulls: of a condition on literal nulls
        # the engine makes a constant, which PyArrow does not take.
        nulls = _columns_of_nulls(opened, schema)
        if opened.path is None:
            dataset = stored_dataset(opened, self._files, nulls.values())
        else:
            dataset = local_dataset(opened.path, nulls.values())
        found = self._context(_BATCH_ROWS[0]).read_table(Table(dataset))
        rows = _typed_rows(found.select(*self._read_as(schema.fields, opened, schema, nulls)), schema)
        # It also compares NaN as unequal to all numbers.
        return rows.select(*map(hidden_float, schema.fields))

    def copied_rows(self, copy: LocalCopy, schema: Schema) -> DataFrame:
        """Return all rows of a merged copy in the types of the schema; columns that the copy does not have are null."""
        frame = self._local(copy.path)
        types = {f.name: f.type for f in frame.schema()}
        rows = frame.select(*(typed(f, types.get(f.name)) for f in schema.fields))
        return rows if is_plain(copy.path) else rows.select(*map(hidden_float, schema.fields))

    def merge_in_levels(
        self, files: Sequence[OpenFile], request: ReadRequest, memory_limit_bytes: int
    ) -> Generator[pa.RecordBatch]:
        """As :meth:`read`, for any number of files; rows are merged by the merge mode, and without hidden columns.

        Of the statistics it fills in only the files and the engine. The caller holds the files until the end, because
        some may be local copies.
        """
        request.statistics.engine = True
        request.statistics.files.update(opened.file.id for opened in files)
        for opened in files:
            opened.verify_all()
        yield from merge_stream(
            [opened.path for opened in files if opened.path is not None],
            # Of a merge schema, a merge schema would have other hidden fields.
            request.merged_as or request.schema,
            key_range=request.keys,
            memory_limit_bytes=memory_limit_bytes,
            where=request.where,
            columns=request.names if request.merge.keeps_all else without_hidden(request.names),
            mode=request.merge,
        )

    def conditions(self, files: Sequence[OpenFile], request: ReadRequest) -> Iterator[tuple[EncodedRange, Expr | None]]:
        """Disjoint slices of the requested keys, in key order, each with its condition for the engine."""
        if request.point is not None:
            fields = request.schema.row_key
            values = zip(fields, scalars(fields, request.point.values), strict=True)
            yield request.keys, reduce(and_, (key_column(field) == lit(value) for field, value in values))
            return
        for keys in forwards(
            [PagedFile(opened, request.schema, self._files) for opened in files], request.keys, request.limits
        ):
            whole = all(opened.file.lies_in(keys) for opened in files)
            yield keys, None if whole else inside(request.schema.codec, keys)

    def frame(self, files: Sequence[OpenFile], condition: Expr | None, request: ReadRequest) -> DataFrame:
        """Return the rows of the files for which the condition and the predicate are true, in order."""
        # Selected below the filter, so that the scan reads these and no others.
        narrowed = condition is not None or request.contested is not None
        needed = request.fields(with_keys=narrowed or len(files) > 1)
        scans = [self._scan(opened, request.schema, _batch_rows(files)) for opened in files]
        pairs = zip(files, scans, strict=True)
        frames = [scan.select(*self._read_as(needed, opened, request.schema)) for opened, scan in pairs]
        if request.contested is not None:
            frames = [self._contested(frame, one, request) for frame, one in zip(frames, files, strict=True)]
        by_arrival = not request.merge.keeps_all
        union = ordered(frames, request.schema, condition, request.where, by_arrival=by_arrival)
        rows = union.select(*(self._column(name) for name in dict.fromkeys(request.names)))
        return rows if request.limit is None else rows.limit(request.limit)

    def _contested(self, rows: DataFrame, opened: OpenFile, request: ReadRequest) -> DataFrame:
        """Return the rows with contested keys of a file that has many others."""
        assert request.contested is not None
        if opened.file.rows <= request.contested.num_rows:
            return rows
        return with_keys(rows, request.contested)

    def _read_as(
        self,
        fields: Sequence[Field],
        opened: OpenFile,
        schema: Schema,
        nulls: Mapping[int, pa.Field] = MappingProxyType({}),
    ) -> list[Expr]:
        """Return the fields of a schema as expressions over the columns of a file, and columns of nulls by field id."""
        names = opened.footer.names
        # A file that was written while others changed the schema may lack columns of its version. One of another writer
        # may have struct members that are not nullable.
        if opened.file.schema_version == schema.version and all(
            names.get(field.id) == field.name and not field.has_required_members for field in fields
        ):
            return [self._column(field.name) for field in fields]
        stored = self._stored.get(opened)
        if stored is None:
            columns = self._scan(opened, schema, _BATCH_ROWS[0]).schema()
            stored = {field: columns.field(name) for field, name in opened.footer.names.items()}
            self._stored[opened] = stored
        return [read_as(field, stored.get(field.id) or nulls.get(field.id)) for field in fields]

    def _column(self, name: str) -> Expr:
        expression = self._columns.get(name)
        if expression is None:
            expression = self._columns[name] = column(name)
        return expression

    def _scan(self, opened: OpenFile, schema: Schema, batch_rows: int) -> DataFrame:
        engine = self._context(batch_rows)
        if opened.path is None:
            # Not cached: the dataset holds the file, which would then never be released.
            return engine.read_table(Table(stored_dataset(opened, self._files)))
        frames = self._frames.setdefault(opened, {})
        # A merge schema may sort by fewer fields.
        name = (batch_rows, len(schema.sort_key))
        frame = frames.get(name)
        if frame is None:
            order = [column(opened.footer.names[key.id]).sort() for key in (*schema.row_key, *schema.sort_key)]
            frame = engine.read_parquet(url(engine, opened.path), file_extension="", file_sort_order=[order])
            frames[name] = frame
        return frame

    def _local(self, path: Path) -> DataFrame:
        """Return all rows of a local file, for plans of other contexts, which do not know the stores of this one."""
        engine = self._context(_BATCH_ROWS[0])
        if is_plain(path):
            return engine.read_parquet(url(engine, path), file_extension="")
        return engine.read_table(Table(local_dataset(path)))

    def _context(self, batch_rows: int) -> SessionContext:
        ENGINE.enter()
        known = self._contexts.get(batch_rows)
        return self._contexts.setdefault(batch_rows, scan_context(batch_rows)) if known is None else known


def _typed_rows(frame: DataFrame, schema: Schema) -> DataFrame:
    """Return the columns of a frame, which have the names of the schema's, in its types."""
    types = {f.name: f.type for f in frame.schema()}
    return frame.select(*(typed(f, types[f.name]) for f in schema.fields))


def _columns_of_nulls(opened: OpenFile, schema: Schema) -> dict[int, pa.Field]:
    """Return a column for each field that a file lacks, by field id, under names that the file has not."""
    taken = set(opened.footer.names.values())
    found = {}
    for field in schema.fields:
        if field.id not in opened.footer.names:
            name = f"null {field.id}"
            while name in taken:
                name += " "
            found[field.id] = pa.field(name, in_parquet(field.stored_type))
    return found


def _batch_rows(files: Sequence[OpenFile]) -> int:
    """Return the rows of a batch, one of four numbers, by the widest rows of a row group: each number has a context."""
    widest = max((g.content_bytes // max(1, g.rows) for one in files for g in one.footer.groups), default=0)
    return next((rows for rows in _BATCH_ROWS if rows * widest <= _BATCH_BYTES), 1)


def _execute(
    engine: SessionContext, files: Sequence[OpenFile], frame: DataFrame, statistics: ReadStatistics
) -> Generator[pa.RecordBatch]:
    plan = frame.execution_plan()
    assert plan.partition_count == 1
    if not _found_all(files):
        raise FileNotFoundError("a file of the plan is missing")
    try:
        for batch in engine.execute(plan, 0):
            yield batch.to_pyarrow()
    finally:
        _add_statistics(plan, statistics)


def _found_all(files: Sequence[OpenFile]) -> bool:
    """Return whether every file exists. The engine lists the files while it plans, and treats a missing one as empty.

    A file that exists after planning existed before, because names are never used twice. A file that disappears later
    is an error of the engine.
    """
    return all(opened.path is not None and opened.path.exists() for opened in files)


def _not_pruned(footer: Footer, keys: EncodedRange, schema: Schema) -> list[RowGroup]:
    """Return the row groups that the engine may read for rows with such keys: it prunes by the first key field."""
    if schema.row_key[0].key_type.per_unit != 1:
        # The units of the file are not those of the condition.
        return list(footer.groups)
    codec = schema.codec
    low = codec.decode_bound(keys.min).values[:1]
    high = () if keys.max is None else codec.decode_bound(keys.max).values[:1]
    wide = EncodedRange(codec.encode(low), successor(codec.encode(high)) if high else None)
    return [group for group in footer.groups if not wide.intersect(group.keys).empty]


def _add_statistics(plan: ExecutionPlan, statistics: ReadStatistics) -> None:
    """Add what the engine reports that it read."""
    statistics.engine = True
    for _, metrics in plan.collect_metrics():
        for metric in metrics.metrics():
            # The engine reports pruning as text only: "3 total → 1 matched", and large numbers as "1.23 K".
            matched = _MATCHED.search(str(metric)) if metric.name in _PRUNED else None
            if metric.name == "bytes_scanned" and isinstance(metric.value, int):
                statistics.size_bytes += metric.value
            elif matched and metric.name == "row_groups_pruned_statistics":
                statistics.row_groups += _number(matched)
            elif matched:
                statistics.pages += _number(matched)


def _number(matched: re.Match[str]) -> int:
    return round(float(matched[1]) * _UNITS[matched[2]])
